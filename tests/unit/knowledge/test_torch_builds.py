"""Requirements of builds with a release of torch."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.knowledge.changed_names import periods_of
from envdoctor.knowledge.torch_builds import setuptools_of_builds


@each_case(
    ("torch", "python", "requirement"),
    [
        ("2.1.2", "3.8", "setuptools>=71,<82"),
        ("1.13.1", "3.7", "setuptools<70"),  # setuptools 71 requires Python 3.8
        ("2.2.0", "3.10", "setuptools>=70,<82"),
        ("", "", "setuptools>=70,<82"),
    ],
)
def test_setuptools_of_builds_has_the_names_that_torch_imports(torch: str, python: str, requirement: str) -> None:
    assert setuptools_of_builds(torch, python) == requirement


def test_one_series_of_setuptools_lacks_packaging() -> None:
    last, again = periods_of("pkg_resources.packaging")
    assert (last.next, again.first) == ("70.0.0", "71.0.0")
