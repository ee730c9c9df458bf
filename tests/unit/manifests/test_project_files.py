"""The parsers of environment.yml, pyproject.toml and Dockerfiles."""

from __future__ import annotations

from envdoctor.manifests.markdown import Block
from envdoctor.manifests.project_files import parse_dockerfile, parse_environment_yml, parse_pyproject


def numbered(text: str, first: int = 5) -> tuple[tuple[int, str], ...]:
    return tuple(enumerate(text.splitlines(), first))


def test_environment_yml() -> None:
    text = """name: grpo
channels: [pytorch, nvidia]
dependencies:
  - python=3.11 # interpreter
  - pip:
    - --extra-index-url https://example.org/simple
    - trl==0.23.1
  - ninja
"""
    file = parse_environment_yml(numbered(text))
    assert (file.name, file.channels) == ("grpo", ["pytorch", "nvidia"])
    assert [(each.name, each.line) for each in file.packages] == [("python", 8), ("ninja", 12)]
    assert [(each.name, each.line) for each in file.pip_packages] == [("trl", 11)]
    assert file.pip_options == ["--extra-index-url", "https://example.org/simple"]


def test_channels_in_a_list() -> None:
    file = parse_environment_yml(numbered("channels:\n  - conda-forge\n  - 'nvidia'\n"))
    assert file.channels == ["conda-forge", "nvidia"]


def test_pyproject() -> None:
    text = r"""[project]
dependencies = [
  "torch==2.8.0",
  "tr\u006c==0.23.1",
]
[project.optional-dependencies]
gpu = ["vllm==0.10.2"]
[tool.uv.sources]
torch = [{ index = "cu128" }, { index = "cpu" }]
vllm = { git = "https://example.org/vllm" }
[[tool.uv.index]]
name = "cu128"
url = "https://example.org/cu128"
"""
    project = parse_pyproject(Block("toml", "", numbered(text)))
    assert project
    # A requirement that is written with an escape is on no line as such: the block's first line stands for it.
    assert [(each.name, each.line) for each in project.requirements] == [("torch", 7), ("trl", 5), ("vllm", 11)]
    assert project.indexes == {"cu128": "https://example.org/cu128"}
    assert project.sources == {"torch": "cu128"}
    assert parse_pyproject(Block("toml", "", numbered("[project"))) is None


def test_dockerfile() -> None:
    lines = numbered("FROM base\n# comment\nrun pip install a \\\n  # comment inside\n  b\nENV X=1")
    assert [(each.name, each.lines) for each in parse_dockerfile(lines)] == [
        ("FROM", ((5, "base"),)),
        ("RUN", ((7, "pip install a \\"), (8, "  # comment inside"), (9, "  b"))),
        ("ENV", ((10, "X=1"),)),
    ]
