"""Projects from repositories: their requirements are solved with the set, or they are named with the reason."""

from __future__ import annotations

from msgspec.structs import replace
from packaging.requirements import Requirement
from support.cases import each_case
from support.fixed_index import DAY, FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_fix import fixed_set
from envdoctor.commands.audit_set import check_sets
from envdoctor.commands.audit_set_sources import solve_with_sources
from envdoctor.locking.solve_set import GAVE_WAY
from envdoctor.locking.solved_set import SolvedSet
from envdoctor.manifests import CorrectedSet, DroppedPackage, audit_paths
from envdoctor.manifests.guide import parse_guide, parse_paths
from envdoctor.manifests.stated_machine import StatedMachine
from envdoctor.resolution.index_facts import IndexedRelease

OLD, NEW = IndexedRelease("trl", "0.15.2", "2025-02-25"), IndexedRelease("trl", "1.16.0", "2026-11-12")
DIFFUSERS = IndexedRelease("diffusers", "0.42.1", "2026-10-27")
GIT = "git+https://github.com/huggingface"
COMMIT = f"{GIT}/trl.git@e95f9fb74a3c3647b86f251b7e230ec51c64b72b"
PINS = ("torch==2.5.1", "vllm==0.7.0")
REQUIRES = {
    ("trl", "0.15.2"): ["datasets>=2.21.0", "rich", "peft>=0.8.0; extra == 'peft'"],
    ("trl", "1.16.0"): ["datasets>=3.0.0", "transformers>=5.0"],
    ("diffusers", "0.42.1"): [
        "huggingface-hub>=1.32.0,<3.0",
        "Pillow; python_version >= '3.8'",
        "x @ https://a.example/x",
    ],
}


class Index(FixedIndex):
    """An index whose releases have requirements, and that knows the repositories of its packages."""

    def requires(self, name: str, version: str) -> list[str]:
        return REQUIRES.get((name, version), [])

    def is_published_from(self, name: str, url: str) -> bool:
        return f"/{name}" in url

    def usable_releases(self, name: str) -> list[IndexedRelease]:
        return [each for each in self.releases if each.name == name]


def main_of(*steps: str) -> CorrectedSet:
    versions = dict(text.split("==") for step in steps for text in step.split() if "==" in text)
    text, index = sh(*steps), Index(OLD, NEW, DIFFUSERS)
    guide = parse_guide(text, "SETUP.md")
    solver = FixedSolver(index, versions)
    return audit_paths(guide, parse_paths(guide, text, "SETUP.md"), today=DAY, solver=solver).main


@each_case(
    "source, expected",
    [
        (COMMIT, ("trl 0.15.2", ("datasets>=2.21.0", "rich"))),  # the newest release of the time of the pins
        (f"trl[peft] @ {COMMIT}", ("trl 0.15.2", ("datasets>=2.21.0", "rich", "peft>=0.8.0"))),
        (f"{GIT}/trl.git@v0.15.2", ("trl 0.15.2", ("datasets>=2.21.0", "rich"))),
        (f"{GIT}/trl", ("trl 1.16.0", ("datasets>=3.0.0", "transformers>=5.0"))),
        (f"{GIT}/trl.git@v0.99.1", None),  # no such release
        ("git+https://github.com/me/other", None),
    ],
)
def test_a_release_stands_for_the_revision_of_a_repository(
    source: str, expected: tuple[str, tuple[str, ...]] | None
) -> None:
    sources = main_of(f"pip install {' '.join(PINS)}", f"pip install '{source}'").sources
    found = [(f"{each.release.name} {each.release.version}", each.requires) for each in sources]
    assert found == ([expected] if expected else [])


def test_a_project_that_was_not_compared_has_a_reservation() -> None:
    main = main_of(
        f"pip install {' '.join(PINS)}", "pip install git+https://github.com/me/other", f"pip install {COMMIT}"
    )
    reasons = {each.name: each.reason for each in main.dropped}
    assert "were not compared with these, so that `uv pip install -c <(" in reasons["other"]
    assert reasons["other"].endswith("git+https://github.com/me/other` can fail")
    assert "install it after these requirements with `uv pip install -c <(" in reasons["trl"]


class Solver:
    """A solver for which some packages exclude each other: the first one gives way."""

    def __init__(self, *conflicts: tuple[str, str]) -> None:
        self.conflicts = conflicts
        self.solved: list[CorrectedSet] = []

    def __call__(self, corrected: CorrectedSet) -> SolvedSet:
        self.solved.append(corrected)
        texts = {Requirement(text).name.lower(): text for text in corrected.wanted}
        dropped = [
            DroppedPackage(texts[one], f"{GAVE_WAY}{one} excludes {other}") for one, other in self.conflicts
            if one in texts and other in texts
        ]  # fmt: skip
        solved = replace(corrected, dropped=(*corrected.dropped, *dropped))
        return SolvedSet(corrected=solved, state="solved", target="x86_64-manylinux_2_35, Python 3.12")


def test_the_requirements_of_a_project_are_part_of_its_set() -> None:
    solved = solve_with_sources(main_of(f"pip install {' '.join(PINS)}", f"pip install {COMMIT}"), Solver())
    assert {"datasets>=2.21.0", "rich"} <= set(solved.corrected.wanted)
    (reason,) = [each.reason for each in solved.corrected.dropped if each.name == "trl"]
    assert reason.endswith("(compared with the requirements of trl 0.15.2 of 2025-02-25)")


@each_case("has_release", [True, False])
def test_a_project_that_the_pins_exclude_has_no_command(has_release: bool) -> None:
    main = main_of("pip install torch==2.0.1 huggingface-hub==0.17.3 vllm==0.7.0", f"pip install {GIT}/diffusers")
    solver = Solver() if has_release else Solver(("vllm", "diffusers"))
    solved = solve_with_sources(main, solver)
    ((name, reason),) = [(each.name, each.reason) for each in solved.corrected.dropped if "diffusers" in each.name]
    assert "diffusers 0.42.1 of 2026-10-27 requires huggingface-hub<3.0,>=1.32.0, not 0.17.3" in reason
    assert "uv pip install" not in reason
    assert ("diffusers<=0.42.1" in solved.corrected.wanted) is has_release
    assert (name == "diffusers of its repository") is has_release
    assert ("the set has a release of the index" in reason) is has_release


def test_no_requirement_of_the_file_gives_way_to_a_project() -> None:
    steps = (f"pip install {' '.join(PINS)} accelerate", f"pip install {COMMIT}", f"pip install {GIT}/diffusers")
    solved = solve_with_sources(main_of(*steps), Solver(("accelerate", "pillow"), ("accelerate", "diffusers")))
    reasons = {each.name: each.reason for each in solved.corrected.dropped}
    assert reasons["diffusers"].endswith("does not fit: accelerate excludes pillow")
    assert "compared with the requirements of trl 0.15.2" in reasons["trl"]
    assert "accelerate" not in reasons


def test_a_conflict_of_the_file_itself_is_none_of_its_projects() -> None:
    main = main_of(f"pip install {' '.join(PINS)}", f"pip install {COMMIT}")
    solved = solve_with_sources(main, Solver(("vllm", "torch")))
    assert "datasets>=2.21.0" in solved.corrected.wanted
    assert [each.name for each in solved.corrected.dropped] == ["trl", "vllm==0.7.0"]


LATER = "not compared with what is installed later: "


@each_case(
    "steps, names",
    [
        ((f"pip install {' '.join(PINS)}",), ""),
        ((f"pip install {' '.join(PINS)} flash-attn", f"pip install {COMMIT}"), "trl"),
        ((f"pip install {' '.join(PINS)}", "pip install git+https://github.com/me/other"), "other"),
        ((f"pip install {' '.join(PINS)}", "conda install -c iopath iopath"), "iopath"),
    ],
)
def test_a_set_names_what_it_was_not_compared_with(steps: tuple[str, ...], names: str) -> None:
    solved = SolvedSet(corrected=main_of(*steps), state="solved", target="x86_64-manylinux_2_35, Python 3.12")
    assert fixed_set(solved).note == (f"{LATER}{names}" if names else "")
    compared = replace(solved, versions={names: "1.0"})  # solved with what is built after the set
    assert not fixed_set(compared).note


def test_a_set_has_the_releases_that_were_not_compared_in_its_notes() -> None:
    index = Index(OLD, NEW)
    index.skipped = ("scipy 1.10.1",)
    solved = SolvedSet(
        corrected=main_of("pip install trl==0.15.2"), state="solved", target="x86_64-manylinux_2_35, Python 3.12",
        versions={"trl": "0.15.2"},
    )  # fmt: skip
    check = check_sets(None, FixedSolver(index, {}), StatedMachine("x86_64", "", 0))
    assert any(each.startswith("not compared with newer dependencies: 1 ") for each in check(solved).notes)
