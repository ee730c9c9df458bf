"""The requirements of a project, whose users choose the releases, after `envdoctor audit --fix`."""

from __future__ import annotations

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.release_index import ReleaseIndex

SETUP = (
    "from setuptools import setup\nsetup(name='a', install_requires=[\n  'vllm==0.10.2',\n  '{}',\n  'numpy',\n])\n"
)
OWN = {
    "setup.py": (SETUP, ["'transformers>=4.57,<=4.57.6',", "'numpy',"]),
    "setup.cfg": (
        "[options]\ninstall_requires =\n  vllm==0.10.2\n  {}\n  numpy\n", ["transformers>=4.57,<=4.57.6", "numpy"],
    ),
    "requirements.txt": ("vllm==0.10.2\n{}\nnumpy\n", ["transformers==4.57.6", "numpy=="]),  # an environment
}  # fmt: skip


@each_case("name", sorted(OWN))
def test_a_project_gets_bounds_only_for_the_packages_of_findings(
    name: str, tmp_path_factory: pytest.TempPathFactory, index: ReleaseIndex
) -> None:
    text, written = OWN[name]
    folder = tmp_path_factory.mktemp("own")
    (folder / name).write_text(text.format("transformers>=4.57"))
    variables = index.variables("pypi") | {"PIP_CONFIG_FILE": "/dev/null"}
    command = ("audit", name, "--fix", "out", "--format", "json")
    data = envelope(envdoctor(*command, home=folder, cwd=folder, **variables))["data"]
    corrected = (folder / "out" / name).read_text()
    assert [line for line in written if line not in corrected] == []
    (solved,) = data["sets"]
    assert any(line.startswith("numpy==") for line in solved["requirements"])
