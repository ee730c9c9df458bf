"""Files that steps of a guide read, and that no step of it makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding

SAVE, LOAD = "python train.py --save_json", "python eval.py --load_json"
TRAIN = f"{SAVE} models/fit_a.json"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in (".git/config", "train.py", "eval.py", "models/.keep", "data/list.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n")
    return tmp_path


def _found(clone: Path, *commands: str, text: str = "") -> list[Finding]:
    guide = sh("pip install torch==2.8.0", *commands) + text
    (clone / "README.md").write_text(guide)
    found = audit_text(guide, str(clone / "README.md"), None, None).result.findings
    return [each for each in found if each.id == "RUN230"]


READS_ANOTHER = {
    "an option": (TRAIN, f"{LOAD} data/fit_a.json"),
    "a value after =": (TRAIN, "mkdir -p data", "python eval.py --fit_path=data/fit_a.json"),
    "no folder": (TRAIN, "python eval.py --input fit_a.json"),
}
MADE: dict[str, tuple[str, ...]] = {
    "the same path": (TRAIN, "python eval.py --load_json ./models/fit_a.json"),
    "a copy": (TRAIN, "cp models/fit_a.json data/", f"{LOAD} data/fit_a.json"),
    "a copy of the folder": (TRAIN, "cp -r models/* data/", f"{LOAD} data/fit_a.json"),
    "two outputs": (TRAIN, f"{SAVE} data/fit_a.json", f"{LOAD} data/fit_a.json"),
    "a result": (TRAIN, "python eval.py --answers-file data/fit_a.json"),
    "from above": (f"{SAVE} ../models/fit_a.json", f"{LOAD} data/fit_a.json"),
    "several files of the name": (TRAIN, f"{SAVE} b/fit_a.json", f"{LOAD} data/fit_a.json"),
    "an output": (TRAIN, "python eval.py --out_json data/fit_a.json"),
    "another file": (TRAIN, "python eval.py --load_json data/fit_b.json"),
    "a usual name": (f"{SAVE} models/results.json", f"{LOAD} data/results.json"),
    "another directory": (TRAIN, "cd models", "python ../eval.py --load_json fit_a.json"),
    "a file of the checkout": (f"{SAVE} models/list.csv", f"{LOAD} data/list.csv"),
    "a variable": (TRAIN, "python eval.py --load_json $DATA/fit_a.json"),
}


@each_case("name", [*READS_ANOTHER])
def test_a_step_reads_a_file_that_no_step_makes(name: str, clone: Path) -> None:
    commands = READS_ANOTHER[name]
    assert [(each.line, each.status) for each in _found(clone, *commands)] == [(3 + len(commands), "warning")]


@each_case("name", [*MADE])
def test_a_file_that_a_step_makes_or_that_is_another_one(name: str, clone: Path) -> None:
    assert not _found(clone, *MADE[name])


def test_a_file_that_the_text_or_code_names(clone: Path) -> None:
    commands = READS_ANOTHER["an option"]
    assert not _found(clone, *commands, text="\nDownload fit_a.json.\n")
    assert not _found(clone, *commands, text="\nWe provide the files of `data/`.\n")
    (clone / "train.py").write_text("save('fit_a.json')\n")
    assert not _found(clone, *commands)


def test_the_steps_of_a_script_that_the_guide_starts(clone: Path) -> None:
    (clone / "run.sh").write_text("\n".join(READS_ANOTHER["an option"]))
    assert [each.line for each in _found(clone, "bash run.sh")] == [4]


def test_a_file_of_which_only_the_archive_is_downloaded(clone: Path) -> None:
    fetch, read = "wget https://a.org/b/passages.tsv.gz", "python eval.py --passages passages.tsv"
    for commands in ((fetch, read), (fetch, "gzip -d lists/other.tsv.gz", "python eval.py data/passages.tsv")):
        (found,) = _found(clone, *commands)
        assert (found.line, found.status) == (3 + len(commands), "warning")
        assert "no step unpacks passages.tsv.gz, which line 4 downloads" in found.message
    for step in ("gunzip passages.tsv.gz", "gzip -d *.gz", "pigz -d passages.tsv.gz"):
        assert not _found(clone, fetch, step, read)
    assert not _found(clone, fetch, read, text="\nExtract the files.\n")
    assert not _found(clone, fetch, "python eval.py --passages passages.tsv.gz")
    assert not _found(clone, read, fetch)
    (clone / "train.py").write_text("import gzip\n")
    assert not _found(clone, fetch, read)
