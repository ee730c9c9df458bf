"""Files that shell scripts read which a guide starts, and that only their author has."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding

DATA = "DATA=/home/kim/sets/a\npython train.py --data $DATA\n"
ARCHIVE = "# wget https://example.org/a.tar.gz\nmkdir -p $1\ntar -xzf a.tar.gz -C $1\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("\n")
    return tmp_path


def _found(clone: Path, rule: str, script: str, text: str = "") -> list[Finding]:
    (clone / "run.sh").write_text(script)
    (clone / "more.sh").write_text(script)
    guide = sh("pip install torch==2.8.0", "bash run.sh data", "bash more.sh data") + text
    (clone / "README.md").write_text(guide)
    found = audit_text(guide, str(clone / "README.md"), None, None).result.findings
    return [each for each in found if each.id == rule]


@each_case("line", [DATA, "python train.py --data /mnt/disk1/sets/a", 'D="/data/kim/sets/a"'])
def test_scripts_with_paths_of_their_author(line: str, clone: Path) -> None:
    (found,) = _found(clone, "RUN231", line)
    assert (found.line, found.status) == (4, "warning")
    assert "run.sh and 1 other script read paths" in found.message


OWN = {
    "a default": "DATA=${1:-/home/kim/sets/a}\n",
    "a remark": "# change this\nDATA=/home/kim/sets/a\n",
    "a comment": "# DATA=/home/kim/sets/a\n",
    "a placeholder": "DATA=/home/your_name/sets/a\n",
    "a directory that it makes": "DATA=/mnt/a/sets\nmkdir -p /mnt/a/sets\n",
    "a system path": "export CUDA_HOME=/usr/local/cuda\n",
    "below another path": "DATA=$ROOT/home/kim/sets\n",
}


@each_case("name", [*OWN])
def test_paths_that_a_reader_has(name: str, clone: Path) -> None:
    assert not _found(clone, "RUN231", OWN[name])


TEXTS = ("\nEdit the paths in the scripts.\n", "\nThe data of /home/kim is public.\n", "\nSet `data` first.\n")


@each_case("text", list(TEXTS))
def test_a_guide_that_names_the_paths(text: str, clone: Path) -> None:
    assert not _found(clone, "RUN231", DATA, text)


def test_the_download_of_an_archive_is_a_comment(clone: Path) -> None:
    found = _found(clone, "RUN232", ARCHIVE)
    assert [(each.line, each.status) for each in found] == [(4, "warning"), (5, "warning")]
    assert "run.sh extracts a.tar.gz" in found[0].message


GOT = (
    ARCHIVE.replace("# ", ""),
    ARCHIVE.replace("# wget", "# first get"),
    ARCHIVE + "curl -O $URL\n",
    "tar -xzf a.tar.gz\n",
)


@each_case("script", list(GOT))
def test_an_archive_that_a_step_or_the_reader_gets(script: str, clone: Path) -> None:
    assert not _found(clone, "RUN232", script)


def test_an_archive_of_the_guide_or_the_checkout(clone: Path) -> None:
    assert not _found(clone, "RUN232", ARCHIVE, "\nDownload a.tar.gz from our site.\n")
    (clone / "a.tar.gz").write_text("")
    assert not _found(clone, "RUN232", ARCHIVE)


def test_a_finding_on_all_paths_through_a_script_names_none_of_them(clone: Path) -> None:
    found = _found(clone, "RUN232", f"if [ -z $1 ]; then\necho stop\nelse\n{ARCHIVE}fi\n")
    assert found[0].message.startswith("run.sh extracts")
