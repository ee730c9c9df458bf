"""Checks on code of a checkout that needs a newer Python than a guide installs, or than a project permits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.knowledge.versions import dotted_numbers, satisfies
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, python_evidence, table_evidence
from envdoctor.manifests.checks.python_ranges import REQUIRES_PYTHON
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import launches_of, launches_of_code
from envdoctor.manifests.python_needs import PythonNeed, python_needs
from envdoctor.manifests.stated_python import permits
from envdoctor.rules.registry import Problem, rule

_MAX_FILES = 300
_LOWEST = tuple(f"3.{minor}" for minor in range(8, 15))
# Not part of what an installation of a project runs.
_OTHER = lazy_pattern(
    r"(?:^|/)(?:tests?|testing|docs?|benchmarks?|examples?|tools|scripts|notebooks?|vendor|third_party|thirdparty"
    r"|contrib|legacy|deprecated|archived?|build)/|(?:^|/)(?:setup|conftest|noxfile|test_\w+|\w+_test|_?compat\w*"
    r"|\w*py3\d+\w*)\.py$"
)


class _Place(NamedTuple):
    """A need of a file of the checkout."""

    path: str
    need: PythonNeed
    line: int  # of the command that starts the program; 0 without one

    def __str__(self) -> str:
        return f"{self.path}:{self.need.line} needs Python {self.need.version} ({self.need.reason})"


@rule(
    "RUN296", kind="guide", severity=("error", "warning"), cause="python-unsupported",
    url="https://docs.python.org/3/whatsnew/3.10.html", needs=("python",),
)  # fmt: skip
def code_of_the_checkout_needs_a_newer_python(context: GuideContext) -> Iterator[Problem]:
    """A program of the checkout needs a newer Python than the steps install: `int | None` with Python 3.9.

    Syntax, and what loading the files evaluates: annotations, imports of the standard library, dataclass(slots=True).

    Fix: create the environment with the Python that the code needs.
    """
    checkout, states = context.guide.checkout, [each.state for each in context.environments]
    pythons = {state.python for state in states}
    python = next(iter(pythons), "")
    if checkout is None or not checkout.paths or len(pythons) != 1 or not python:
        return
    launches = (*launches_of(context), *launches_of_code(context))
    files = ((path, launch.line) for path, launch in checkout.files(launches).items() if path.endswith(".py"))
    found = _newer_than(python, checkout, files)
    if found:
        first, version = found[0], _newest(found)
        yield Problem(
            "error" if any(each.line for each in found) else "warning",
            f"{first}, and the environment has Python {python}{_further(found)}",
            (_evidence(first), python_evidence(context, states[0])),
            f"Create the environment with Python {version}.",
            line=next((each.line for each in found if each.line), 0) or _line_of_python(context, python),
        )


@rule("RUN297", kind="guide", severity="warning", cause="python-unsupported", url=REQUIRES_PYTHON)
def project_permits_a_python_that_its_code_excludes(context: GuideContext) -> Iterator[Problem]:
    """A project permits a Python that its own code does not run with: `>=3.9` with `int | None` in an annotation.

    pip installs the project with this Python, and its import stops.
    """
    guide, checkout = context.guide, context.guide.checkout
    lowest = next((each for each in _LOWEST if permits(guide.permitted_python, each)), "")
    is_project = guide.name.endswith(("pyproject.toml", "setup.py", "setup.cfg"))
    if checkout is None or not lowest or not is_project or not re.search(r"[>^~]", guide.permitted_python):
        return
    own = checkout.relative(checkout.folder)
    paths = sorted(each for each in checkout.paths if each.endswith(".py") and not _OTHER.search(each))
    packages = {path.rpartition("/")[0] for path in paths if path.endswith("/__init__.py")}
    files = ((path, 0) for path in paths if path.rpartition("/")[0] in packages and path.startswith(own))
    if found := _newer_than(lowest, checkout, files):
        stated = re.compile(r"(?:requires-python|python_requires|^python)\s*=")
        line = next((number for number, text in enumerate(guide.lines, 1) if stated.search(text)), 1)
        yield Problem(
            "warning",
            f"{guide.permitted_python} permits Python {lowest}, and {found[0]}{_further(found)}",
            (guide_evidence(context, "requires-python", guide.permitted_python, line), _evidence(found[0])),
            f"Raise the lower bound of requires-python to {_newest(found)}.",
            line=line,
        )


def _newer_than(python: str, checkout: Checkout, files: Iterable[tuple[str, int]]) -> list[_Place]:
    """The first need of each file for a newer Python."""
    found = []
    for path, line in [*files][:_MAX_FILES]:
        needs = checkout.once("python needs", path, find=partial(_needs_of_file, checkout, path))
        newer = next((each for each in needs if satisfies(python, f"<{each.version}")), None)
        found += [_Place(path, newer, line)] if newer else []
    return found


def _needs_of_file(checkout: Checkout, path: str) -> tuple[PythonNeed, ...]:
    return python_needs(checkout.code(path))


def _newest(found: list[_Place]) -> str:
    return max((each.need.version for each in found), key=dotted_numbers)


def _further(found: list[_Place]) -> str:
    count = len(found) - 1
    return f" ({count} more {'file' if count == 1 else 'files'})" if count else ""


def _evidence(place: _Place) -> Evidence:
    return table_evidence(f"{place.path}:{place.need.line}", place.need.reason, "the checkout")


def _line_of_python(context: GuideContext, python: str) -> int:
    """The first line that names the Python; that of the first step otherwise."""
    named = (number for number, text in enumerate(context.guide.lines, 1) if f"python={python}" in text)
    steps = (each.action.line for each in context.trace.installs)
    return next(named, 0) or next(steps, 1)
