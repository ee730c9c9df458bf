"""The parsers of environment.yml, pyproject.toml and Dockerfiles."""

from __future__ import annotations

from envdoctor.manifests.conda_environment import parse_environment_yml
from envdoctor.manifests.container_files import parse_apptainer, parse_dockerfile, script_of
from envdoctor.manifests.pyproject import parse_pyproject


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
[[tool.uv.index]]
name = "cpu"
url = "https://example.org/cpu"
explicit = true
"""
    project = parse_pyproject(numbered(text))
    assert project
    # A requirement that is written with an escape is on no line as such: the block's first line stands for it.
    found = [(each.name, each.line) for each in project.variants[""]]
    assert found == [("torch", 7), ("trl", 5), ("vllm", 11)]
    assert project.indexes == {"": ("https://example.org/cu128", "https://example.org/cpu")}
    assert project.variants[""][2].url == "git+https://example.org/vllm"
    assert parse_pyproject(numbered("[project")) is None


def test_a_package_of_an_index_of_its_own() -> None:
    text = """[project]
dependencies = ["torch==2.8.0", "acme-sdk==3"]
[tool.uv.sources]
acme-sdk = { index = "acme" }
[[tool.uv.index]]
name = "acme"
url = "https://pkgs.acme.io/simple"
explicit = true
"""
    project = parse_pyproject(numbered(text))
    assert project
    found = [(each.name, each.specifier, each.url) for each in project.variants[""]]
    assert found == [("torch", "==2.8.0", ""), ("acme-sdk", "", "https://pkgs.acme.io/simple")]


def test_dockerfile() -> None:
    lines = numbered("FROM base\n# comment\nrun pip install a \\\n  # comment inside\n  b\nENV X=1")
    assert [(each.name, each.lines) for each in parse_dockerfile(lines)] == [
        ("FROM", ((5, "base"),)),
        ("RUN", ((7, "pip install a \\"), (9, "  b"))),
        ("ENV", ((10, "X=1"),)),
    ]


def test_scripts_of_instructions() -> None:
    text = """RUN --mount=type=cache,target=/x pip install a
RUN ["pip", "install", "b c"]
RUN <<EOF
pip install d
EOF
CMD python x.py"""
    scripts = [script_of(each) for each in parse_dockerfile(numbered(text, 1))]
    assert scripts == [
        ((1, "pip install a"),), ((2, "pip install 'b c'"),), ((4, "pip install d"),), ((6, "python x.py"),),
    ]  # fmt: skip


def test_apptainer() -> None:
    text = "Bootstrap: docker\nFrom: ubuntu:22.04\n%files\n  x\n%post\n  pip install {{ P }}\n%help\n  text"
    assert [(each.name, each.lines) for each in parse_apptainer(numbered(text, 1))] == [
        ("FROM", ((2, "ubuntu:22.04"),)), ("RUN", ((6, "  pip install $P"),)),
    ]  # fmt: skip


def test_extras_that_exclude_each_other_are_variants() -> None:
    head = '[project]\ndependencies = ["transformers"]\n[project.optional-dependencies]\n'

    def variants(*extras: str) -> dict[str, list[str]]:
        project = parse_pyproject(numbered(head + "\n".join(extras) + "\n"))
        assert project
        return {name: [each.text for each in found] for name, found in project.variants.items()}

    audio = 'audio = ["torchaudio"]'
    assert variants('npu = ["torch==2.7.1"]', audio) == {
        "": ["transformers", "torchaudio"],
        "npu": ["transformers", "torch==2.7.1"],
    }
    assert set(variants('cu126 = ["torch"]', 'cu128 = ["torch"]', audio)) == {"", "cu126", "cu128"}
    assert set(variants('old = ["torch==2.7.1"]', 'new = ["torch==2.8.0"]', audio)) == {"", "old", "new"}
    assert set(variants('gpu = ["vllm"]', 'dev = ["torch==2.8.0"]', 'all = ["torch==2.8.0"]')) == {""}


def test_a_group_is_installed_with_the_default_groups_that_it_does_not_exclude() -> None:
    text = (
        '[project]\nname = "a"\ndependencies = ["torch>=2.7"]\n[dependency-groups]\ncuda = ["vllm==0.10.2"]\n'
        'rocm = ["amdsmi==6.4"]\nflash = ["flash-attn"]\n[tool.uv]\ndefault-groups = ["cuda"]\n'
        'conflicts = [[{ group = "cuda" }, { group = "rocm" }], [{ group = "flash" }, { group = "rocm" }]]\n'
    )
    project = parse_pyproject(numbered(text))
    assert project
    assert {name: [each.name for each in found] for name, found in project.variants.items()} == {
        "cuda": ["torch", "vllm"], "flash": ["torch", "flash-attn", "vllm"], "rocm": ["torch", "amdsmi"],
    }  # fmt: skip
