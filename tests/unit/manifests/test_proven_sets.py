"""The check of a solved set: with the packages that uv selects for it, and with the releases of the index."""

from __future__ import annotations

import tomllib
from pathlib import Path

from msgspec.structs import replace
from packaging.requirements import Requirement
from support.cases import each_case
from support.fixed_index import FixedIndex
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.commands.audit_fix import fixed_set
from envdoctor.commands.audit_set import check_sets
from envdoctor.core.records import Finding, Status
from envdoctor.core.remedies import Install, Remedy
from envdoctor.locking.solved_profile import with_cuda, with_requirements
from envdoctor.locking.solved_set import SetProblems, SolvedSet
from envdoctor.manifests import CorrectedSet, DroppedPackage, audit_guide, audit_paths
from envdoctor.manifests.added_packages import missing_packages, with_packages, with_releases
from envdoctor.manifests.dropped_packages import (
    BEFORE_WITH_CONDA,
    BUILT_FROM_SOURCE,
    NOT_COMPARED,
    NOT_FROM_INDEX,
    OF_ANOTHER_MACHINE,
    OF_PAGE,
    WITHOUT_NEED,
    dropped_lines,
)
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import parse_guide
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.stated_machine import StatedMachine
from envdoctor.resolution.index_facts import IndexedRelease, UndeclaredImport
from envdoctor.resolution.step import NoSolver, StepProblem, StepSolution

OLD = IndexedRelease("xserver", "1.2.3", "2020-09-24")
FIRST = IndexedRelease("xserver", "2.5.0", "2022-12-08")
OF_NEWER_PYTHON = IndexedRelease("xserver", "2.5.0", "2022-12-08", requires_python=">=3.11")


class Solver:
    """A solver that must not be called: the packages of a set are known."""

    reason = ""

    def __init__(self, index: FixedIndex) -> None:
        self.index: FixedIndex | None = index

    def __call__(self, problem: StepProblem) -> StepSolution:
        raise AssertionError(problem)


def absent(status: Status, *packages: str) -> Finding:
    return Finding(
        id="RUN181", status=status, cause="dependency-pin-violated", message="no step installs it", fix="Install it.",
        remedies=(Remedy(steps=(Install(packages=packages),), commands=("",)),),
    )  # fmt: skip


def problems(own: str, versions: dict[str, str], *releases: IndexedRelease) -> SetProblems:
    named = [name for name in own.replace("==", " ").split() if name in versions]
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.10", own=tuple(own.split()), oldest_day="2023-12-05",
        requirements=tuple(f"{name}=={versions[name]}" for name in named),
    )  # fmt: skip
    solved = SolvedSet(
        corrected=corrected, state="solved", target="x86_64-manylinux_2_35, Python 3.10", versions=versions,
        required_by={name: ("gradio",) for name in versions if name == "starlette"},
    )  # fmt: skip
    return check_sets(None, Solver(FixedIndex(*releases)), StatedMachine("x86_64", "", 0))(solved)


def test_a_set_is_judged_with_the_packages_that_it_brings() -> None:
    assert not problems("gradio==4.28.3", {"gradio": "4.28.3", "starlette": "0.37.2"}).errors
    (error,) = problems("gradio==4.28.3", {"gradio": "4.28.3", "starlette": "1.7.0"}).errors
    assert "starlette 1.7.0" in error


EXTRA_BUILD = '[tool.uv.extra-build-dependencies]\nflash-attn = [{requirement = "torch", match-runtime = true}]\n'


@each_case(
    "settings, count",
    [
        ("", 1), (EXTRA_BUILD, 0), ('[tool.uv]\nno-build-isolation-package = ["flash-attn"]\n', 0),
        ("[tool.uv]\nno-build-isolation = true\n", 0), (EXTRA_BUILD.replace("flash-attn", "xformers"), 1),
    ],
)  # fmt: skip
def test_tool_uv_of_a_project_adds_torch_to_the_builds_of_its_set(settings: str, count: int) -> None:
    """The package that a requirement of the project brings is built by the command of the set."""
    text = f'[project]\nname = "x"\ndependencies = ["torch==2.8.0", "flash-attn", "rl-square==0.0.2"]\n{settings}'
    (guide, *_) = read_input(text, "pyproject.toml", Files(None, "x86_64"), "x86_64").paths
    main = audit_paths(guide, [guide]).main
    solved = SolvedSet(
        corrected=replace(main, python="3.12", requirements=("torch==2.8.0", "rl-square==0.0.2")), state="solved",
        target="x86_64-manylinux_2_35, Python 3.12", built=("flash-attn==2.8.3",),
        versions={"torch": "2.8.0", "rl-square": "0.0.2", "flash-attn": "2.8.3"},
    )  # fmt: skip
    found = check_sets(None, Solver(FixedIndex()), StatedMachine("x86_64", "", 0))(solved)
    assert len([each for each in found.errors if "flash-attn" in each]) == count
    note = "run uv in the directory of the project"
    assert (note in fixed_set(solved).note) is ("flash-attn" in main.built_with_torch)


# The requirement of the file, the solved release, and the bound that leads to a newer one.
AGES: dict[str, tuple[str, IndexedRelease, tuple[str, ...]]] = {
    "open and old": ("xserver", OLD, ("xserver>=2.5.0",)),
    "open and new": ("xserver", FIRST, ()),
    "of the file": ("xserver==1.2.3", OLD, ()),
}


@each_case("case", list(AGES))
def test_a_release_from_long_before_the_file_is_no_solution(case: str) -> None:
    own, release, pins = AGES[case]
    found = problems(f"torch==2.1.1 {own}", {"torch": "2.1.1", "xserver": release.version}, OLD, FIRST)
    assert found.pins == pins
    assert bool(found.warnings) == bool(pins)


def test_an_old_release_is_the_newest_one_for_its_python() -> None:
    assert problems("torch==2.1.1 xserver", {"torch": "2.1.1", "xserver": OLD.version}, OLD, OF_NEWER_PYTHON).is_free


@each_case("name", ["rich", "other"])
def test_a_package_that_is_built_after_a_set_is_not_missing(name: str) -> None:
    trl = IndexedRelease("trl", "0.23.1", "2025-10-02")
    index = FixedIndex(trl, IndexedRelease("rich", "14.0", "2025-03-30"))
    index.undeclared = [UndeclaredImport(trl, "rich", "trl/trainer/utils.py:27", "trl.whl", "import")]
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.12", requirements=("trl==0.23.1",),
        dropped=(DroppedPackage(name, "the index has only a source archive"),),
    )  # fmt: skip
    solved = SolvedSet(
        corrected=corrected, state="solved", target="x86_64-manylinux_2_35, Python 3.12", versions={"trl": "0.23.1"}
    )
    found = check_sets(None, Solver(index), StatedMachine("x86_64", "", 0))(solved)
    assert (found.pins, len(found.errors)) == (((), 0) if name == "rich" else (("rich",), 1))


@each_case("case", [("25.0.1", "RUN017", 1), ("20.0.0", "RUN017", 0), ("25.0.1", "RUN078", 0)])
def test_a_set_has_the_errors_that_the_audit_found_for_the_same_releases(case: tuple[str, str, int]) -> None:
    version, rule, count = case
    message = (
        "reader 2.6.1 of 2022-10-14 uses xformat.Type at its import, which xformat 25.0.1 of 2026-08-10 does not have"
    )
    pins = Remedy(steps=(Install(packages=("reader==2.6.1", "xformat==20.0.0")),), commands=("",))
    found = replace(absent("error"), id=rule, message=message, remedies=(pins,))
    corrected = CorrectedSet(architecture="x86_64", glibc="2.35", python="3.10", requirements=("reader==2.6.1",))
    solved = SolvedSet(
        corrected=corrected, state="solved", target="x86_64-manylinux_2_35, Python 3.10",
        versions={"reader": "2.6.1", "xformat": version},
    )  # fmt: skip
    check = check_sets(None, Solver(FixedIndex()), StatedMachine("x86_64", "", 0), found=[found])
    problems = check(solved)
    assert [each for each in problems.errors if each == message] == [message] * count
    assert ("xformat==20.0.0" in problems.pins) == bool(count)


@each_case("name", ["old_server", "server"])
def test_names_that_programs_use_and_a_set_lacks_are_noted(name: str) -> None:
    guide = parse_guide(f"```python\nfrom xserver import {name}\n```\n", "README.md")
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", python="3.12", requirements=("torch==2.8.0", "xserver==2.5.0"),
    )  # fmt: skip
    solved = SolvedSet(
        corrected=corrected, state="solved", target="x86_64-manylinux_2_35, Python 3.12",
        versions={"torch": "2.8.0", "xserver": "2.5.0"},
    )  # fmt: skip
    check = check_sets(None, Solver(FixedIndex(FIRST)), StatedMachine("x86_64", "", 0), guide)
    found = check(solved)
    assert (found.errors, found.pins, found.warnings) == ((), (), ())
    assert len(found.notes) == (name == "old_server")
    assert all("does not have xserver.old_server" in each for each in found.notes)


def test_what_only_conda_installs_is_named() -> None:
    steps = ("conda install pytorch==2.0.1 -c pytorch", "conda install -c iopath iopath", "pip install einops")
    main = audit_guide(sh(*steps), name="guide.md").main
    reasons = {each.name: each.reason for each in main.dropped}
    assert reasons["iopath"].startswith("from conda: install `iopath` with conda")
    assert not {"torch", "pytorch", "einops"} & {each.name for each in main.dropped}


def test_a_folder_stays_with_its_command() -> None:
    main = audit_guide(sh("pip install torch==2.1.0", "python setup.py develop"), name="guide.md").main
    assert not [each for each in main.dropped if each.reason == "its name is not valid"]
    assert [each.reason for each in main.dropped] == [NOT_FROM_INDEX.format("python setup.py develop")]


OPENFOLD = "git+https://github.com/aqlaboratory/openfold.git@4b41059"
# The main branch can require other releases than those of the set.
KEEPING = "uv pip install -c <(uv pip freeze --exclude-editable | grep -v '^{}[= ]')"
ARCHIVE = "https://github.com/ARISE-Initiative/robosuite/archive/3f2c311.tar.gz"


@each_case(
    "requirement, command",
    [
        (f"openfold @ {OPENFOLD}", f"{KEEPING.format('openfold')} --no-build-isolation {OPENFOLD}"),  # imports torch
        (
            "git+https://github.com/NVIDIA/dllogger.git",
            f"{KEEPING.format('dllogger')} git+https://github.com/NVIDIA/dllogger.git",
        ),
        (f"robosuite @ {ARCHIVE}", f"uv pip install 'robosuite @ {ARCHIVE}'"),
    ],
)
def test_a_package_of_an_address_gets_the_command_that_installs_it(requirement: str, command: str) -> None:
    main = audit_guide(sh("pip install torch==2.1.0", f"pip install '{requirement}'"), name="guide.md").main
    ((name, reason),) = [(each.name, each.reason) for each in main.dropped]
    assert reason == (NOT_COMPARED if " git+" in command else NOT_FROM_INDEX).format(command)
    assert name in ("openfold", "dllogger", "robosuite")


@each_case(
    "source", ['git = "https://github.com/openai/whisper.git"', 'git = "git+https://a.example/b.git", ref = "v2"']
)
def test_a_repository_of_a_pipfile_has_an_address_that_uv_installs(source: str) -> None:
    text = f'[packages]\ntorch = "==2.1.0"\nwhisper = {{{source}}}\n'
    (guide,) = read_input(text, "Pipfile", Files(None, "x86_64"), "x86_64").paths
    ((name, reason),) = [(each.name, each.reason) for each in audit_paths(guide, [guide]).main.dropped]
    address = "git+https://github.com/openai/whisper.git" if "openai" in source else "git+https://a.example/b.git@v2"
    assert (name, reason) == ("whisper", NOT_COMPARED.format(f"{KEEPING.format('whisper')} {address}"))


@each_case(
    "steps, name, command",
    [
        (["cd trl", "git reset --hard 69ad852", "pip install -e .", "cd .."], "trl", "cd trl && pip install -e ."),
        (["cd trl", "pip install ."], "trl", "cd trl && pip install ."),
        (["pip install -e trl"], "trl", "pip install -e trl"),
    ],
)
def test_a_clone_of_another_project_is_named_with_its_folder(steps: list[str], name: str, command: str) -> None:
    clone = "git clone https://github.com/huggingface/trl"
    main = audit_guide(sh("pip install torch==2.1.0", clone, *steps), name="guide.md").main
    assert [(each.name, each.reason) for each in main.dropped] == [(name, NOT_FROM_INDEX.format(command))]


def test_the_project_of_a_guide_is_no_package_of_its_set(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("import torch\n")
    text = sh("git clone https://github.com/me/model", "cd model", "pip install torch==2.1.0", "pip install -e .")
    (tmp_path / "setup.py").write_text("exec(open('x').read())\nsetup(name='model')\n")
    audit = audit_text(text, str(tmp_path / "README.md"), None, NoSolver()).audit
    assert audit
    assert audit.main.dropped == ()


FREEZE = "file:///D:/bld/numpy_1660672939211/work"


def test_a_folder_of_another_machine_is_no_requirement_of_a_set() -> None:
    steps = ("torch==2.1.0", f"numpy @ {FREEZE}", f"win-inet-pton @ {FREEZE}", "ext @ file:///home/ann/ext")
    main = audit_guide(sh(*(f"pip install '{each}'" for each in steps)), name="guide.md").main
    assert "numpy" in main.requirements
    assert {each.name: each.reason for each in main.dropped} == {
        "win-inet-pton": OF_ANOTHER_MACHINE, "ext": OF_ANOTHER_MACHINE,
    }  # fmt: skip


GIT = "git+https://github.com/huggingface/"


@each_case(
    ("pins", "source", "expected"),
    [
        ("torch==2.5.1 vllm==0.7.2", f"transformers @ {GIT}transformers.git@main", KEEPING),
        ("torch==2.5.1 vllm==0.10.2", f"transformers @ {GIT}transformers.git", KEEPING),
        ("torch==2.5.1 accelerate==0.20.0", f"trl @ {GIT}trl.git@main", "it requires accelerate>="),
        ("torch==2.5.1 datasets==2.14.0", f"trl @ {GIT}trl.git", "it requires"),
        ("torch==2.5.1 accelerate==0.20.0", f"trl @ {GIT}trl.git@v0.9.6", KEEPING),
        ("torch==2.5.1 numpy==1.26.4", f"peft @ {GIT}peft.git", KEEPING),
    ],
)
def test_a_main_branch_that_excludes_the_pins_gets_no_command(pins: str, source: str, expected: str) -> None:
    main = audit_guide(sh(f"pip install {pins}", f"pip install '{source}'"), name="guide.md").main
    name = source.partition(" ")[0]
    (reason,) = [each.reason for each in main.dropped if each.name == name]
    assert expected.replace("{}", name) in reason
    assert ("find the commit" in reason) is (expected != KEEPING)


PAGE = "https://data.pyg.org/whl/torch-1.13.1+cu117.html"


def test_a_page_of_an_environment_file_is_part_of_the_command() -> None:
    """The command of the section `pip` is no command of a reader."""
    lines = ("dependencies:", "- python=3.9", "- pip", "- pip:", f"  - --find-links {PAGE}", "  - torch==1.13.1",
             "  - torch-scatter==2.1.0+pt113cu117", "  - torch-geometric==2.2.0")  # fmt: skip
    document = read_input("\n".join([*lines, ""]), "environment.yml", Files(None, "x86_64"))
    main = audit_paths(document.paths[0], document.paths, None).main
    scatter = f"uv pip install torch-scatter==2.1.0+pt113cu117 --find-links {PAGE}"
    assert OF_PAGE.format(scatter) in [each.reason for each in main.dropped]
    geometric = f"uv pip install torch-geometric==2.2.0 --find-links {PAGE}"
    assert main.from_pages["torch-geometric"] == geometric


def test_a_source_of_uv_is_part_of_the_command() -> None:
    wheel = "https://data.pyg.org/whl/torch_sparse-0.6.18-cp310-cp310-linux_x86_64.whl"
    text = '[project]\nname = "a"\ndependencies = ["torch==2.1.0", "torch_sparse"]\n[tool.uv.sources]\n'
    document = read_input(f'{text}torch_sparse = {{ url = "{wheel}" }}\n', "pyproject.toml", Files(None, "x86_64"))
    main = audit_paths(document.paths[0], document.paths, None).main
    assert [each.reason for each in main.dropped] == [
        NOT_FROM_INDEX.format(f"uv pip install 'torch-sparse @ {wheel}'")
    ]


def test_packages_that_one_command_installs_have_one_line() -> None:
    dropped = [
        DroppedPackage("zarr", BEFORE_WITH_CONDA.format("zarr=2.16")),
        DroppedPackage("cuda", WITHOUT_NEED),
        DroppedPackage("gym", BEFORE_WITH_CONDA.format("gym=0.21")),
        DroppedPackage("av", BUILT_FROM_SOURCE.format("av==11.0.0") + "; first install FFmpeg"),
    ]
    assert list(dropped_lines(dropped)) == [
        f"zarr, gym: {BEFORE_WITH_CONDA.format('zarr=2.16 gym=0.21')}",
        f"cuda: {WITHOUT_NEED}",
        f"av: {BUILT_FROM_SOURCE.format('av==11.0.0')}; first install FFmpeg",
    ]


# Findings on imports, and the packages that a set gets.
IMPORTS: dict[str, tuple[Finding, list[str]]] = {
    "certain": (absent("warning", "pandas", "numpy<2"), ["pandas"]),
    "with a release": (absent("error", "xformers==0.0.22"), ["xformers==0.0.22"]),
    "a question": (absent("unknown", "pandas"), []),
    "of the set": (absent("warning", "einops"), []),
    "that is dropped": (absent("warning", "flash-attn"), []),
    "that is built after the set": (absent("warning", "deepspeed"), ["deepspeed"]),
}


@each_case("case", list(IMPORTS))
def test_a_set_has_the_packages_that_programs_import(case: str) -> None:
    finding, added = IMPORTS[case]
    main = audit_guide(sh("pip install torch==2.1.0 einops flash-attn"), name="guide.md").main
    found = with_packages(main, missing_packages([finding]))
    assert list(found.requirements) == [*main.requirements, *added]
    assert list(found.own) == [*main.own, *added]
    solved = with_requirements(found, tuple(f"{Requirement(text).name}==1.0" for text in found.requirements))
    assert all(f'spec = "{Requirement(text).name}==1.0"' in solved.profile_toml for text in added)


def test_the_profile_of_a_set_has_one_release_of_each_package() -> None:
    main = audit_guide(sh("pip install torch==2.1.0 einops==0.7.0 vllm"), name="guide.md").main
    why = main.profile_toml.replace('spec = "einops==0.7.0"\n', 'spec = "einops==0.7.0"\nwhy = "old"\n')
    moved = replace(main, requirements=("torch==2.1.0", "einops"), profile_toml=why)  # a solver changed its text
    for pins, einops in ((("torch==2.1.2", "einops==0.8.1"), ["einops==0.8.1"]), (("torch==2.1.2",), [])):
        profile = tomllib.loads(with_cuda(with_requirements(moved, pins), "12.1").profile_toml)
        assert [each["spec"] for each in profile["requirements"]] == ["torch==2.1.2", *einops]
        assert [each.get("why") for each in profile["requirements"][1:]] == ["old"] * len(einops)
        assert (profile["cuda"]["build"], profile["sources"][-1]["backend"]) == ("12.1", "cu121")


@each_case("line", ["transformers", "transformers>=4.20", "transformers==4.57.6", "transformers>=4.50", "einops"])
def test_a_set_has_the_release_with_the_names_that_programs_import(line: str) -> None:
    main = audit_guide(sh(f"pip install torch==2.8.0 {line!r}"), name="guide.md").main
    finding = replace(absent("warning", "transformers==4.38.2"), id="RUN078")
    found = with_releases(main, [finding])
    is_permitted = line in ("transformers", "transformers>=4.20")
    assert ("transformers==4.38.2" in found.requirements) == is_permitted
    limited = f"{line},<=4.38.2" if ">" in line else f"{line}<=4.38.2"  # another package can exclude this release
    assert (limited in found.wanted) == (limited in found.own) == is_permitted
    assert is_permitted or found == main


def test_the_names_of_programs_can_need_an_older_release_than_another_finding() -> None:
    main = audit_guide(sh("pip install torch==2.8.0 transformers==5.0.0"), name="guide.md").main
    names = replace(absent("warning", "transformers==4.50.3"), id="RUN222")
    for release, chosen in (("5.0.0", "4.50.3"), ("4.40.0", "5.0.0")):
        today = replace(absent("error", f"transformers=={release}"), id="RUN003")
        assert f"transformers=={chosen}" in with_releases(main, [names, today]).requirements


def test_a_package_of_a_further_index_keeps_that_index() -> None:
    text = "torch==2.5.0\n--extra-index-url https://pypi.nvidia.com\ncudf-cu12==24.6.*\n"
    paths = read_input(text, "requirements.txt", Files(None)).paths
    command = audit_paths(paths[0], paths).main.from_pages["cudf-cu12"]
    assert command == "uv pip install 'cudf-cu12==24.6.*' --extra-index-url https://pypi.nvidia.com"
