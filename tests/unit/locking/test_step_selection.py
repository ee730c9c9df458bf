"""The order in which pip selects the dependencies of the named packages."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex

from envdoctor.locking.step_question import StepQuestion
from envdoctor.locking.step_selection import dependencies_first
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
