"""Sets for the programs of a checkout: releases with the options, names and calls that these use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands import audit_fix_lock
from envdoctor.commands.audit_file import audit_text
from envdoctor.commands.audit_fix import Corrections
from envdoctor.commands.audit_set import check_sets
from envdoctor.core.records import Evidence, Finding
from envdoctor.knowledge.versions import satisfies
from envdoctor.locking.solved_set import SetProblems, SolvedSet
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.added_packages import possible_packages
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.stated_machine import StatedMachine
from envdoctor.resolution.index_facts import AbsentImport, CodeImport, IndexedRelease, InstalledSet
from envdoctor.resolution.step import NoSolver

PARSER = (
    "from transformers import HfArgumentParser, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
)
REPOSITORY = "from huggingface_hub import Repository\nRepository('a')\n"


def problems(folder: Path, code: str, versions: dict[str, str], index: FixedIndex) -> SetProblems:
    """What the check of a set reports for a guide that starts train.py."""
    write_files(folder, {"train.py": code, ".git/HEAD": ""})
    text = sh(f"pip install {' '.join(versions)}", "python train.py --output_dir a --evaluation_strategy no")
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.12", requirements=tuple(versions), own=tuple(versions),
    )  # fmt: skip
    solved = SolvedSet(
        corrected=corrected, state="solved", target="x86_64-manylinux_2_35, Python 3.12", versions=versions
    )
    guide = read_input(text, "README.md", Files(folder), "x86_64").paths[0]
    return check_sets(None, FixedSolver(index, versions), StatedMachine("x86_64", "", 0), guide)(solved)


@each_case(("transformers", "pins"), [("4.57.6", ("transformers<=4.50.3",)), ("4.46.3", ())])
def test_a_set_has_a_release_with_the_fields_of_a_command(
    transformers: str, pins: tuple[str, ...], tmp_path: Path
) -> None:
    found = problems(tmp_path, PARSER, {"torch": "2.8.0", "transformers": transformers}, FixedIndex())
    assert found.pins == pins
    assert ["has no option --evaluation_strategy" in each for each in found.warnings] == [True] * len(pins)


def test_a_package_that_excludes_a_release_with_a_name_can_be_open_in_a_set(tmp_path: Path) -> None:
    versions = {"torch": "2.8.0", "datasets": "5.2.0", "huggingface-hub": "2.4.0"}
    index = FixedIndex(IndexedRelease("datasets", "5.2.0", "2026-10-01"))
    index.requirements = {"datasets 5.2.0": ["huggingface-hub>=1.0"]}
    assert problems(tmp_path, REPOSITORY, versions, index).pins == ("huggingface-hub==0.36.2",)


class OlderNames(FixedIndex):
    """An index whose wheels of transformers after 4.46.3 lack a name that the built-in tables do not have."""

    def absent_imports(self, installed: InstalledSet, used: Sequence[CodeImport]) -> Sequence[AbsentImport]:
        version = installed.versions["transformers"]
        found = [each for each in used if each.name == "is_torch_tpu_available"]
        is_absent = satisfies(version, ">4.46.3") is True
        release = IndexedRelease("transformers", version, "2026-11-21")
        return [AbsentImport(each, f"{each.module}.{each.name}", release, "4.46.3") for each in found if is_absent]


def test_a_command_installs_a_release_with_the_names_of_tables_and_of_wheels(tmp_path: Path) -> None:
    code = "from transformers import is_torch_tpu_available\nfrom transformers.utils import get_full_repo_name\n"
    write_files(tmp_path, {"train.py": code, ".git/HEAD": ""})
    versions = {"torch": "2.8.0", "transformers": "5.24.0"}
    text = sh("pip install torch transformers", "python train.py")
    found = audit_text(text, str(tmp_path / "README.md"), None, FixedSolver(OlderNames(), versions), python="3.12")
    assert {each.remedies[0].commands for each in _of_names(found.result.findings)} == {
        ("uv pip install transformers==4.46.3",)
    }


def _of_names(findings: Sequence[Finding]) -> list[Finding]:
    return [each for each in findings if each.id == "RUN078"]


BUILDS = {  # the requirement of flash-attn and that of torch: the limit of torch, and whether a note remains
    ("flash-attn==2.4.1", "torch"): (("torch<=2.1.2",), False),
    ("flash-attn", "torch"): (("torch<2.14",), False),
    ("flash-attn", "torch==2.14.1"): ((), True),
    ("flash-attn==99.0", "torch"): ((), False),
}


@each_case("case", [*BUILDS])
def test_a_set_has_a_torch_that_compiles_what_is_built_after_it(case: tuple[str, str], tmp_path: Path) -> None:
    requirement, torch = case
    pins, is_noted = BUILDS[case]
    main = audit_text(sh(f"pip install {torch}", f"pip install {requirement}"), "a.md", None, NoSolver()).audit
    assert main
    solved = SolvedSet(
        corrected=replace(main.main, own=(torch,)), state="solved", target="x86_64-manylinux_2_35, Python 3.12",
        versions={"torch": "2.14.1"},
    )  # fmt: skip
    solver = FixedSolver(FixedIndex(), {"torch": "2.14.1"})
    found = check_sets(None, solver, StatedMachine("x86_64", "", 0))(solved)
    assert (found.pins, len(found.warnings)) == (pins, len(pins))
    assert any("flash-attn" in each and "C++20" in each for each in found.notes) is is_noted


NAMED = {  # the text after the commands, and whether the modules of the program are reported
    "You can try `tools/demo.py` as well.": True,
    "Start the demo with `python tools/demo.py --port 80`.": True,
    "Do not use `tools/demo.py` any more.": False,
    "The demo is in `tools/demo`.": False,
    "Install plots for `tools/demo.py`.": False,
}


@each_case("text", [*NAMED])
def test_programs_that_a_text_names(text: str, tmp_path: Path) -> None:
    demo = "import torch\nimport json\nimport numpy, yaml, plots\nif __name__ == '__main__':\n    print(1)\n"
    write_files(tmp_path, {"train.py": "import torch\n", "tools/demo.py": demo, ".git/HEAD": ""})
    guide = sh("pip install torch numpy pyyaml", "python train.py") + f"\n{text}\n"
    solver = FixedSolver(
        FixedIndex(IndexedRelease("plots", "1.0", "2026-10-01")),
        {"torch": "2.8.0", "numpy": "2.2.0", "pyyaml": "6.0"},
    )
    write_files(tmp_path, {"README.md": guide})
    found = audit_text(guide, str(tmp_path / "README.md"), None, solver, python="3.12").result.findings
    reported = [(each.status, each.message) for each in found if each.id == "RUN181"]
    message = "tools/demo.py:3 imports plots, and no step installs it"
    assert reported == ([("warning", message)] if NAMED[text] else [])


SOURCES = {  # what is not read, and the packages that a set has for a question about it
    ("git+https://a.b/c.git (line 3)",): ["einops", "six"],
    ("what `pip install -r requirements.txt` requires (line 4)", "the conda package faiss (line 2)"): [
        "einops",
        "six",
    ],
    ("git+https://a.b/c.git (line 3)", "the image a/b (line 1)"): [],
}


@each_case("sources", [*SOURCES])
def test_a_set_has_what_only_a_part_that_is_not_read_can_bring(sources: tuple[str, ...]) -> None:
    question = Finding(
        id="RUN181", cause="dependency-pin-violated", status="unknown", message="train.py imports einops",
        evidence=tuple(Evidence("not read", each, "README.md") for each in sources),
        fix="Run this. If it fails, install einops, six and the project with the module q.",
    )  # fmt: skip
    assert possible_packages([question]) == SOURCES[sources]


def test_the_set_of_a_list_names_its_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "torch==2.8.0\ntorchvision==0.22.0\ngit+https://github.com/a/b.git\n"
    write_files(tmp_path, {"requirements.txt": text})
    monkeypatch.setattr(
        audit_fix_lock, "solve_set", lambda each, *_: SolvedSet(corrected=each, state="solved", target="")
    )
    path = tmp_path / "requirements.txt"
    audited = audit_text(text, str(path), None, NoSolver())
    locked = audit_fix_lock.LockedInput(path, text, audited.document, audited.result.findings)
    (found,) = audit_fix_lock.fix_locked(locked, None, Corrections(tmp_path / "out")).sets
    assert ["git+https://github.com/a/b.git" in each.reason for each in found.dropped] == [True]
