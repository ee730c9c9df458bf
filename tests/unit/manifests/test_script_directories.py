"""Scripts that work in their own directory alone, and that a guide starts in the root."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for folder in (".git", "scripts", "kernels/src", "configs"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("scripts/bench.py", "kernels/src/a.cu", "configs/a.yaml", "train.py"):
        (tmp_path / name).write_text("\n")
    return tmp_path


def _found(clone: Path, script: str, start: str = "bash scripts/run.sh") -> list[Finding]:
    (clone / "scripts/run.sh").write_text(script)
    guide = sh("pip install torch==2.8.0", start)
    (clone / "README.md").write_text(guide)
    found = audit_text(guide, str(clone / "README.md"), None, None).result.findings
    return [each for each in found if each.id in ("RUN182", "RUN293")]  # one of them for one cause


@each_case("script", ["for i in 1 2; do\n  python3 bench.py --n $i\ndone\n", "cd ../kernels/build\n./bench\n"])
def test_a_script_that_works_in_its_own_directory(script: str, clone: Path) -> None:
    (found,) = _found(clone, script)
    assert (found.line, found.status) == (4, "error")
    assert found.remedies[0].commands == ("cd scripts && bash run.sh",)


WORKING = {
    "a file of the root": "python train.py\n",
    "its path from the root": "python scripts/bench.py\n",
    "it enters its directory": 'cd "$(dirname "$0")"\npython bench.py\n',
    "it enters a directory": "cd scripts\npython bench.py\n",
    "it copies the file": "cp scripts/bench.py bench.py\npython bench.py\n",
    "another file of the root": "python bench.py --config configs/a.yaml\n",
    "above both": "cd ../../data\n",
}


@each_case("name", [*WORKING])
def test_scripts_that_work_in_the_root(name: str, clone: Path) -> None:
    assert "RUN293" not in [each.id for each in _found(clone, WORKING[name])]


def test_a_script_that_starts_in_its_directory(clone: Path) -> None:
    assert not _found(clone, "python bench.py\n", "cd scripts && bash run.sh")


def test_a_script_that_starts_after_a_block_in_a_directory_of_a_build(clone: Path) -> None:
    (clone / "scripts/run.sh").write_text("python bench.py\n")
    start = sh(f"git clone https://github.com/a/{clone.name}", f"cd {clone.name}", "pip install torch==2.8.0")
    build = sh("cd kernels/src", "make") + sh("cd kernels/build", "./bench") + sh("bash scripts/run.sh")
    guide = start + build
    found = audit_text(guide, str(clone / "README.md"), None, None).result.findings
    assert [each.line for each in found if each.id == "RUN293"] == [
        guide[: guide.index("bash scripts")].count("\n") + 1
    ]
