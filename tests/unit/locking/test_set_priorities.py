"""Which requirement of a set gives way, and what a set must fulfil before it is one."""

from __future__ import annotations

import tomllib
from pathlib import Path

from msgspec.structs import replace
from support.cases import each_case
from support.local_packages import write_wheel

from envdoctor.download.sources import Sources
from envdoctor.locking.set_solver import SetSolver, likely_pythons, with_extras
from envdoctor.locking.solve_set import NOT_ON_INDEX, SetSearch, solve_set
from envdoctor.locking.solved_set import SetProblems, SolvedSet, accept
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.set_repairs import outdated_limits


def corrected(*own: str, proposed: tuple[str, ...] = (), python: str = "3.12") -> CorrectedSet:
    return CorrectedSet(
        architecture="x86_64", glibc="2.35", python=python, requirements=proposed or own, own=own,
        wanted=proposed or own,
    )  # fmt: skip


def test_the_pins_of_the_guide_come_before_what_the_tables_propose(sources: Sources) -> None:
    solved = solve_set(corrected("torch==2.8.0", "trl", proposed=("torch==2.14.1", "trl==0.23.1")), sources)
    assert solved.state == "solved"
    assert "torch==2.8.0" in solved.corrected.requirements


# Requirements that exclude each other, the one that gives way, and one that stays.
PRIORITIES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a companion of torch": (("torchvision==0.22.0", "torch==2.8.0"), "torchvision==0.22.0", "torch==2.8.0"),
    "torch, for an inference engine": (("torch==2.7.1", "vllm==0.10.2"), "torch==2.7.1", "vllm==0.10.2"),
    "the pin of a dependency": (("numba==0.61.2", "numpy==2.3.5"), "numpy==2.3.5", "numba==0.61.2"),
    "a range, for a pin": (("numpy>=2.4", "numba==0.61.2"), "numpy>=2.4", "numba==0.61.2"),
}


@each_case("name", [*PRIORITIES])
def test_the_least_important_requirement_gives_way(name: str, sources: Sources) -> None:
    requirements, dropped, kept = PRIORITIES[name]
    solved = solve_set(corrected(*requirements), sources)
    assert solved.state == "solved"
    assert [each.name for each in solved.corrected.dropped] == [dropped]
    assert kept in solved.corrected.requirements


def test_a_set_without_its_audit_is_none(sources: Sources) -> None:
    seen: list[tuple[str, ...]] = []

    def check(solved: SolvedSet) -> SetProblems:
        seen.append(solved.corrected.requirements)
        return (
            SetProblems() if "numpy==1.26.4" in seen[-1] else SetProblems(("numpy is too new",), ("numpy==1.26.4",))
        )

    solved = solve_set(corrected("transformers==4.57.6", "numpy"), sources, check)
    assert (solved.state, len(seen)) == ("solved", 2)
    assert "numpy==1.26.4" in solved.corrected.requirements
    pinned = solve_set(corrected("transformers==4.57.6", "numpy==2.2.6"), sources, check)
    assert (pinned.state, [each.name for each in pinned.corrected.dropped]) == ("solved", ["numpy==2.2.6"])


def test_a_conflict_with_the_torch_of_pypi_is_none_where_another_index_was_not_read(sources: Sources) -> None:
    own = corrected("torch==2.4.0", "nvidia-cublas-cu12==12.4.5.8")
    search = SetSearch(own, SetSolver(own, sources, 0.0), accept)
    search.output = (
        "error: No solution found when resolving dependencies\n  cause: Because torch==2.4.0 depends on "
        "nvidia-cublas-cu12==12.1.3.1 and you require nvidia-cublas-cu12==12.4.5.8, we can conclude that ..."
    )
    for is_unreachable, expected in ((True, "not-verified"), (False, "conflict")):
        search.solver.index_is_unreachable = is_unreachable
        assert search.conflicting().state == expected


def test_a_warning_that_a_limit_cures_does_not_stay_in_a_set(sources: Sources) -> None:
    def check(solved: SolvedSet) -> SetProblems:
        is_old = "numpy==1.26.4" in solved.corrected.requirements
        return SetProblems((), () if is_old else ("numpy==1.26.4",), () if is_old else ("numpy is too new",))

    solved = solve_set(corrected("transformers==4.57.6", "numpy"), sources, check)
    assert (solved.state, solved.note) == ("solved", "")
    assert "numpy==1.26.4" in solved.corrected.requirements
    pinned = solve_set(corrected("transformers==4.57.6", "numpy==2.2.6"), sources, check)
    assert (pinned.state, pinned.note, pinned.corrected.dropped) == ("solved", "remaining: numpy is too new", ())


def test_what_no_release_cures_is_noted_and_does_not_prevent_a_set(sources: Sources) -> None:
    own = replace(corrected("transformers==4.57.6", "numpy"), exclude_newer="2026-03-31")
    solved = solve_set(own, sources, lambda _: SetProblems(notes=("x uses numpy.old",)))
    assert (solved.state, solved.note, solved.day) == ("solved", "remaining: x uses numpy.old", "2026-03-31")
    notes = [("x uses numpy.old",), ()]  # with the dependencies of today, and with those that the set pins
    pinned = solve_set(own, sources, lambda _: SetProblems(notes=notes.pop(0)))
    assert pinned.note == "remaining without the pinned dependencies: x uses numpy.old"


OF_FUNCTION = SetProblems(notes=("x uses numpy.Inf in a function",), optional=("numpy==1.26.4",))
# What an audit reports with numpy 1.26.4, and the numpy of the set: a cure must bring no other problem.
CURES = {
    "cured": (SetProblems(), "numpy==1.26.4"),
    "another error": (SetProblems(("y needs numpy 2",)), "numpy==2.3.5"),
    "another warning": (SetProblems((), (), ("numpy is old",)), "numpy==2.3.5"),
    "no effect": (OF_FUNCTION, "numpy==2.3.5"),
}


@each_case("case", [*CURES])
def test_a_note_is_cured_where_another_release_has_no_problem(case: str, sources: Sources) -> None:
    with_old, expected = CURES[case]

    def check(solved: SolvedSet) -> SetProblems:
        return with_old if solved.versions["numpy"] == "1.26.4" else OF_FUNCTION

    solved = solve_set(corrected("transformers==4.57.6", "numpy<2.4"), sources, check)
    assert solved.state == "solved"
    assert expected in solved.corrected.requirements
    assert ("remaining" in solved.note) is (case != "cured")
    pinned = solve_set(corrected("transformers==4.57.6", "numpy==2.2.6"), sources, check)
    assert "numpy==2.2.6" in pinned.corrected.requirements


def test_an_assumed_python_is_replaced_by_one_that_the_pins_support(sources: Sources, tmp_path: Path) -> None:
    write_wheel(tmp_path, "compiled", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    with_wheel = replace(sources, find_links=(str(tmp_path),))
    old = corrected("compiled==1.0", "transformers==4.57.6", python="3.12")
    assert solve_set(old, with_wheel).state == "conflict"
    solved = solve_set(replace(old, is_python_assumed=True), with_wheel)
    assert (solved.state, solved.target) == ("solved", "x86_64-manylinux_2_35, Python 3.11")
    assert (solved.corrected.requirements, solved.corrected.dropped) == (old.requirements, ())
    assert solved.note == "the findings are for Python 3.12"


@each_case("case", [(("numpy==1.22.4",), "3.10"), ((), "3.11"), (("numpy==1.26.4",), "3.11")])
def test_the_likely_python_has_wheels_of_the_pins_of_the_guide(case: tuple[tuple[str, ...], str]) -> None:
    own, python = case
    replaced = corrected("numpy==1.26.4", "torch==1.13.0", python="")  # by a later step
    found = likely_pythons(replace(replaced, own=(*own, "torch==1.13.0") if own else (), is_python_assumed=True))
    assert found[0] == python


def test_a_package_that_the_index_does_not_have_is_left_out_of_a_set(sources: Sources) -> None:
    solved = solve_set(corrected("numpy==2.2.6", "ipywidegts", "transformers==4.57.6"), sources)
    assert solved.state == "solved"
    assert solved.corrected.requirements == ("numpy==2.2.6", "transformers==4.57.6")
    assert [(each.name, each.reason) for each in solved.corrected.dropped] == [("ipywidegts", NOT_ON_INDEX)]
    assert solve_set(corrected("ipywidegts"), sources).state == "conflict"


def test_a_conflict_that_depends_on_an_assumed_python_is_none(sources: Sources) -> None:
    numpy = replace(corrected("numpy==2.2.6"), is_python_assumed=True)
    unsolved = solve_set(numpy, sources, lambda _: SetProblems(("it has no wheel for Python 3.12",)))
    assert unsolved.state == "not-verified"
    assert unsolved.note == (
        "could not be solved here, state the Python with --python: each solution of uv has an error: it has no "
        "wheel for Python 3.12"
    )
    new = solve_set(numpy, sources, lambda _: SetProblems(("it is too new",)))
    assert (new.state, new.note) == ("not-verified", "each solution of uv has an error: it is too new")


def test_a_pin_that_an_audit_reports_gives_way_to_torch(sources: Sources) -> None:
    def check(solved: SolvedSet) -> SetProblems:
        is_new = "numpy==2.2.6" in solved.corrected.requirements
        return SetProblems(("numpy 2.2.6 would be installed with torch 2.8.0",) if is_new else ())

    solved = solve_set(corrected("torch==2.8.0", "numpy==2.2.6"), sources, check)
    assert (solved.state, [each.name for each in solved.corrected.dropped]) == ("solved", ["numpy==2.2.6"])
    assert "another version, because numpy 2.2.6 would be installed" in solved.corrected.dropped[0].reason


def test_a_bound_that_an_audit_adds_is_no_reason_of_a_conflict(sources: Sources) -> None:
    def check(solved: SolvedSet) -> SetProblems:
        versions = dict(text.split("==") for text in solved.corrected.requirements)
        is_old = versions.get("numpy", "9") < "2.3"
        return SetProblems() if is_old else SetProblems(("numpy is too new",), ("numpy==2.2.0",))

    solved = solve_set(corrected("transformers==4.57.6", "numba==0.61.2", "numpy"), sources, check)
    assert (solved.state, solved.corrected.dropped) == ("solved", ())
    never = solve_set(
        corrected("transformers==4.57.6", "numpy"), sources, lambda _: SetProblems(("it is bad",), ("numpy==0.1",))
    )
    assert (never.state, never.note) == ("not-verified", "each solution of uv has an error: it is bad")


def test_a_set_states_the_torch_that_it_brings(sources: Sources) -> None:
    solved = solve_set(corrected("vllm==0.10.2"), sources)
    assert (solved.corrected.requirements[0], solved.implied) == ("vllm==0.10.2", ("torch==2.8.0",))
    assert solve_set(corrected("vllm==0.10.2", "torch==2.8.0"), sources).implied == ()


def test_open_versions_are_of_the_time_of_the_pins(sources: Sources) -> None:
    own = corrected("torch==2.6.0", "transformers==4.49.0", "accelerate")
    newest = solve_set(own, sources).corrected.requirements
    contemporary = solve_set(replace(own, exclude_newer="2025-03-20"), sources).corrected.requirements
    assert [text for text in contemporary if text.startswith("accelerate")] == ["accelerate==1.5.2"]
    assert "accelerate==1.5.2" not in newest
    peft = replace(corrected("transformers==4.49.0", "peft"), exclude_newer="2025-03-20")
    assert "torch==2.6.0" in solve_set(peft, sources).corrected.requirements


@each_case(("newest", "day"), [("accelerate", "2025-03-20"), ("accelerate>=1.6", "")])
def test_the_profile_has_the_python_and_the_day_of_the_solution(newest: str, day: str, sources: Sources) -> None:
    profile = 'exclude_newer = "2025-03-20"\nversions = ["3.12", "3.11"]\n'
    own = replace(corrected("torch==2.6.0", newest), exclude_newer="2025-03-20", profile_toml=profile, python="3.11")
    solved = tomllib.loads(solve_set(own, sources).corrected.profile_toml)
    assert (solved["versions"], solved.get("exclude_newer", "")) == (["3.11"], day)


def test_a_release_without_a_wheel_does_not_lead_to_an_older_one(sources: Sources, tmp_path: Path) -> None:
    write_wheel(tmp_path, "config", "1.0")
    write_wheel(tmp_path, "config", "2.0", requires=["parser-runtime==4.9.3"])
    with_wheels = replace(sources, find_links=(str(tmp_path),))
    own = corrected("config", "transformers==4.57.6")
    assert "config==1.0" in solve_set(own, with_wheels).corrected.requirements
    solved = solve_set(replace(own, source_only=("parser-runtime==4.9.3",)), with_wheels)
    assert "config==2.0" in solved.corrected.requirements
    assert solved.built == ("parser-runtime==4.9.3",)


def test_releases_from_long_before_the_pins_are_outdated() -> None:
    both = replace(corrected("torch==1.13.1", "transformers"), oldest_day="2022-12-15")
    (limit,) = outdated_limits({"torch": "1.13.1", "transformers": "2.3.0"}, both, {"torch"})
    assert limit.startswith("transformers>=4.")
    assert outdated_limits({"torch": "1.13.1", "transformers": "4.25.1"}, both, {"torch"}) == []
    assert outdated_limits({"transformers": "2.3.0"}, replace(both, oldest_day=""), set()) != []
    assert outdated_limits({"transformers": "2.3.0"}, both, {"transformers"}) == []
    assert outdated_limits({"transformers": "2.3.0"}, both, (), ("transformers<=4.57.6",)) == [limit]
    assert outdated_limits({"transformers": "2.3.0"}, both, (), ("transformers<3",)) == []


def test_extras_stay_with_their_package() -> None:
    assert with_extras("ray==2.45.0", {"ray": "default"}) == "ray[default]==2.45.0"
    assert with_extras("ray[serve]>=2", {"ray": "default"}) == "ray[serve]>=2"
    assert with_extras("torch", {"ray": "default"}) == "torch"
