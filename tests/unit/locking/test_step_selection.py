"""The order in which pip selects the dependencies of the named packages."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex

from envdoctor.locking.step_question import StepQuestion
from envdoctor.locking.step_selection import dependencies_first, keep_installed
from envdoctor.resolution.step import StepSolution

OLD = {"reader": "1.0", "datasets": "2.14.4", "fsspec": "2026.9.0"}
NEW = {"reader": "1.0", "datasets": "5.0.1", "fsspec": "2026.4.0"}


@each_case(
    "requires, newer, preferences, is_selected",
    [
        (["datasets>=2", "fsspec"], NEW, (), True),
        (["datasets", "fsspec"], NEW, (), True),  # by name
        (["datasets>=2", "fsspec<2027"], NEW, (), False),  # what has an upper bound is first
        (["datasets", "fsspec>=2023"], NEW, (), False),
        (["datasets>=2", "fsspec"], {**NEW, "reader": "0.9"}, (), False),
        (["datasets>=2,<3", "fsspec"], {}, (), False),  # no solution
        (["datasets>=2", "fsspec"], NEW, ("datasets==2.14.4",), False),  # installed
    ],
)
def test_the_order_of_pip(
    requires: list[str], newer: dict[str, str], preferences: tuple[str, ...], is_selected: bool
) -> None:
    index = FixedIndex()
    index.requirements = {"reader 1.0": requires}
    old = StepSolution(OLD, {"datasets": ("reader",), "fsspec": ("datasets", "reader")})
    questions: list[StepQuestion] = []

    def solve(question: StepQuestion) -> tuple[StepSolution, str]:
        questions.append(question)
        return StepSolution(newer), ""

    question = StepQuestion(("reader",), (), (), preferences, (), "3.10", "x86_64-manylinux_2_35", "", True)
    assert (dependencies_first(solve, index, question, old) is not old) == is_selected
    assert [each.constraints for each in questions] == ([] if preferences else [("datasets>2.14.4",)])
    assert dependencies_first(solve, None, question, old) is old  # the order is unknown


@each_case(
    "requires, named, is_kept",
    [
        (["pandas", "numpy>=1.17"], ("reader",), True),
        (["pandas<4", "numpy>=1.17"], ("reader",), False),  # pandas is selected first
        (["pandas", "numpy>=1.17"], ("reader", "pandas"), False),
    ],
)
def test_an_installed_dependency_stays_for_an_older_one(
    requires: list[str], named: tuple[str, ...], is_kept: bool
) -> None:
    """The new pandas 3.1 requires numpy 2; pandas 3.0 accepts the installed numpy."""
    index = FixedIndex()
    index.requirements = {"reader 1.0": requires}
    newest = StepSolution(
        {"reader": "1.0", "numpy": "2.5.5", "pandas": "3.1.1"}, {"numpy": ("reader",), "pandas": ("reader",)}
    )
    older = StepSolution({"reader": "1.0", "numpy": "1.26.4", "pandas": "3.0.6"})

    def solve(question: StepQuestion) -> tuple[StepSolution, str]:
        is_possible = "numpy==1.26.4" in question.constraints and "pandas==3.1.1" not in question.constraints
        return (older, "") if is_possible else (StepSolution({}), "")

    question = StepQuestion(named, (), (), ("numpy==1.26.4",), (), "3.12", "x86_64-manylinux_2_35", "", True)
    assert keep_installed(solve, index, question, newest) is (older if is_kept else newest)
