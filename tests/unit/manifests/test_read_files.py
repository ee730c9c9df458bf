"""Files that programs of a guide read at a constant path, and that nothing makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding

OPTION = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--labels', default='lists/b.txt')\n"
)
PARSED = f"{OPTION}args = parser.parse_args()\n"
CONDITION = "import sys\nif len(sys.argv) > 1:\n    open('lists/b.txt')"


def _found(root: Path, code: str, *commands: str, text: str = "", **files: str) -> list[Finding]:
    guide = sh("pip install torch==2.8.0", *(commands or ("python train.py",))) + text
    others = {"lists/a.txt": "\n", "net/a.tar.gz": "\n", ".git/HEAD": "\n", "other.py": "\n"}
    write_files(root, {**others, "train.py": code, "README.md": guide, **files})
    found = audit_text(guide, str(root / "README.md"), None, None).result.findings
    return [each for each in found if each.id == "RUN260"]


READS: dict[str, tuple[str, str, str]] = {  # the program, the status, the start of the message
    "a list": ("open('lists/b.txt')", "warning", "train.py:1 reads lists/b.txt, which is not in the checkout"),
    "a constant": ("NAME = 'lists/b.txt'\nx = open(NAME).read()", "warning", "train.py:2 reads lists/b.txt"),
    "in a function": (
        "def main():\n    with open('lists/b.txt') as f:\n        f.read()\nmain()",
        "warning",
        "train.py:2",
    ),
    "a default": (f"{PARSED}open(args.labels)", "warning", "train.py:5 reads lists/b.txt (the default of --labels)"),
    "weights": ("import torch\ntorch.load('net/best.pth')", "info", "train.py:2 reads net/best.pth"),
    "a folder that is not there": ("open('meta/b.txt')", "info", "train.py:1 reads meta/b.txt"),
    "a path of the author": ("open('/home/anna/b.txt')", "warning", "train.py:1 reads /home/anna/b.txt, a path of"),
    "an archive": (
        "import torch, sys\nif sys.argv:\n    torch.load('net/a.tar')",
        "warning",
        "train.py:3 reads net/a.tar, of which the checkout has only net/a.tar.gz",
    ),
}
MADE: dict[str, tuple[str, ...]] = {  # the program, and the commands
    "a file that is there": ("open('lists/a.txt')",),
    "a file of another directory": ("open('a.txt')",),
    "a condition": (CONDITION,),
    "a handler": ("try:\n    open('lists/b.txt')\nexcept OSError:\n    pass",),
    "a file that is written": ("open('lists/b.txt', 'w')",),
    "a file that is written and read": ("open('lists/b.txt', 'w')\nopen('lists/b.txt')",),
    "a path of a variable": ("import sys\nopen(sys.argv[1])",),
    "a test of its presence": (
        "import os\nNAME = 'lists/b.txt'\nif not os.path.exists(NAME):\n    exit()\nopen(NAME)",
    ),
    "an option of the command": (f"{PARSED}open(args.labels)", "python train.py --labels x.txt"),
    "an option that a function gets": (f"{PARSED}make(args.labels)\nopen(args.labels)",),
    "an option that is set": (f"{PARSED}args.labels = 'x'\nopen(args.labels)",),
    "a file that a command makes": ("open('lists/b.txt')", "cp lists/a.txt lists/b.txt", "python train.py"),
    "a file from above": ("open('../lists/b.txt')",),
    "a placeholder": ("open('path/to/b.txt')",),
}


@each_case("name", [*READS])
def test_a_program_reads_a_file_that_nothing_makes(name: str, tmp_path: Path) -> None:
    code, status, message = READS[name]
    (found,) = _found(tmp_path, code)
    assert (found.status, found.line) == (status, 4)
    assert found.message.startswith(message)


@each_case("name", [*MADE])
def test_a_file_that_can_be_there(name: str, tmp_path: Path) -> None:
    assert not _found(tmp_path, *MADE[name])


TEXTS = {
    "the file": "\nDownload b.txt first.\n",
    "its folder": "\nPut all files into `lists`.\n",
}


@each_case("name", [*TEXTS])
def test_a_text_explains_the_file(name: str, tmp_path: Path) -> None:
    assert not _found(tmp_path, "open('lists/b.txt')", text=TEXTS[name])


@pytest.mark.parametrize("path", ["other.py", "notes.md", "run.sh", "conf.yaml"])
def test_another_file_names_the_file(path: str, tmp_path: Path) -> None:
    assert not _found(tmp_path, "open('lists/b.txt')", **{path: "save('b.txt')\n"})


def test_another_program_reads_the_file_as_well(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, "open('lists/b.txt')", "python train.py", "python other.py", **{
        "other.py": "open('lists/b.txt')\n"
    })  # fmt: skip
    assert found.line == 4


def test_paths_that_a_reader_is_to_change(tmp_path: Path) -> None:
    assert not _found(tmp_path, "open('/home/anna/b.txt')", text="\nChange the paths in train.py.\n")


def test_an_archive_that_a_text_unpacks(tmp_path: Path) -> None:
    code = "import torch\ntorch.load('net/a.tar')"
    assert not _found(tmp_path, code, text="\nUnzip the archives.\n")
    assert not _found(tmp_path, code, text="\nUnzip all files in `net/`.\n")
    assert _found(tmp_path, code, text="\nUnzip all files in `lists/`.\n")
