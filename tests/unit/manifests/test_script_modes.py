"""Scripts that commands start by their path, without permission to execute."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

FILES = {
    "setup.sh": "#!/bin/bash\n", "scripts/train.sh": "python train.py\n", "train.py": "#!/usr/bin/env python\n",
    "tools/run.sh": "#!/bin/bash\n", ".git/HEAD": "\n",
}  # fmt: skip


def _found(root: Path, *commands: str) -> list[tuple[int, str]]:
    write_files(root, FILES)
    (root / "tools/run.sh").chmod(0o755)
    text = sh("pip install torch==2.6.0", *commands)
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, NoSolver()).result.findings
    return [(each.line, each.message.partition(" ")[0]) for each in found if each.id == "RUN255"]


@each_case("commands, script", [
    (("./setup.sh",), "./setup.sh"),
    (("cd scripts", "nohup ./train.sh --gpu 0 &"), "./train.sh"),
    (("CUDA_VISIBLE_DEVICES=0 scripts/train.sh",), "scripts/train.sh"),
    (("./train.py --lr 1",), "./train.py"),
])  # fmt: skip
def test_a_script_is_not_executable(commands: tuple[str, ...], script: str, tmp_path: Path) -> None:
    assert _found(tmp_path, *commands) == [(3 + len(commands), script)]


@each_case("commands", [
    ("bash setup.sh",), ("bash ./setup.sh",), ("chmod +x *.sh", "./setup.sh"), ("sh scripts/train.sh",),
    ("python ./train.py",), ("./tools/run.sh",), ("source ./setup.sh",), ("./absent.sh",),
    ("git clone https://a.b/o/x", "cd x", "./setup.sh"),
])  # fmt: skip
def test_a_script_can_be_started(commands: tuple[str, ...], tmp_path: Path) -> None:
    assert _found(tmp_path, *commands) == []


def test_modes_that_no_file_shows_are_not_known(tmp_path: Path) -> None:
    write_files(tmp_path, FILES)
    text = sh("pip install torch==2.6.0", "./setup.sh")
    found = audit_text(text, str(tmp_path / "README.md"), None, NoSolver()).result.findings
    assert "RUN255" not in {each.id for each in found}
    write_files(tmp_path, {".git/hooks/commit-msg.sample": "#!/bin/sh\n"})
    (tmp_path / ".git/hooks/commit-msg.sample").chmod(0o755)
    found = audit_text(text, str(tmp_path / "README.md"), None, NoSolver()).result.findings
    assert "RUN255" in {each.id for each in found}
