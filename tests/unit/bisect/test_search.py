"""The order of changes and the search, without packages."""

from __future__ import annotations

import math
import random

import pytest
from support.cases import each_case

from envdoctor.bisect.changes import Space, make_space
from envdoctor.bisect.records import Outcome
from envdoctor.bisect.search import MAX_UNKNOWN, companions, halve, trial_limit
from envdoctor.package_index.releases import Release
from envdoctor.package_index.simple_index import File


def listed(name: str, **dates: str) -> tuple[Release, ...]:
    """Releases of a package: v1_0="2026-01-01"."""
    versions = {key[1:].replace("_", "."): date for key, date in dates.items()}
    file = File(f"{name}.whl", "", "", None)
    return tuple(Release(name, each, (file,), date and f"{date}T00:00:00Z") for each, date in versions.items())


def test_every_first_bad_release_is_found_within_the_limit() -> None:
    for count in range(1, 70):
        for culprit in range(1, count + 1):
            judged: list[int] = []

            def judge(number: int, left: int, culprit: int = culprit, judged: list[int] = judged) -> Outcome:
                judged.append(number)
                assert 2 ** (trial_limit(left + 1) - 2) >= left + 1
                return "bad" if number >= culprit else "good"

            assert halve(0, count, judge) == (culprit - 1, culprit)
            assert len(judged) + 2 <= trial_limit(count) == 2 + math.ceil(math.log2(count))


def test_states_that_cannot_be_judged_are_passed_over() -> None:
    skipped = {3, 4, 5, 9}
    outcome = halve(0, 12, lambda n, _: "skipped" if n in skipped else "bad" if n >= 7 else "good")
    assert outcome == (6, 7)
    assert halve(0, 12, lambda n, _: "skipped" if n in skipped else "bad" if n >= 4 else "good") == (2, 6)
    tried: list[int] = []
    assert halve(0, 1000, lambda n, _: tried.append(n) or "skipped") == (0, 1000)
    assert len(tried) == MAX_UNKNOWN


def test_changes_that_break_only_together_are_found() -> None:
    draw = random.Random(3)
    names = [f"p{number}" for number in range(11)]
    for size in (1, 2, 3):
        for _ in range(20):
            needed = set(draw.sample(names, size))
            found = companions(frozenset(), names, lambda subset, needed=needed: needed <= subset)
            assert set(found) == needed


def test_a_state_has_the_releases_up_to_its_upload() -> None:
    releases = {
        "a": listed("a", v1_0="2026-01-01", v1_1="2026-03-01", v1_2="2026-05-01", v2_0="2026-06-01"),
        "b": listed("b", v1_0="2026-01-01", v2_0="2026-04-01"),
    }
    space = make_space({"a": "1.0", "b": "1.0", "c": "1"}, {"a": "1.2", "b": "2.0", "c": "1"}, releases)
    assert [(event.name, event.version) for event in space.events] == [("a", "1.1"), ("b", "2.0"), ("a", "1.2")]
    assert space.limits(0) == {"a": "1.0", "b": "1.0", "c": "1"}
    assert space.limits(2) == {"a": "1.1", "b": "2.0", "c": "1"}
    assert space.limits(3) == {"a": "1.2", "b": "2.0", "c": "1"}
    assert space.time_of(2) == "2026-04-01T00:00:00Z"
    assert (space.day_of("a", "1.1"), space.day_of("b", "1.0"), space.day_of("c", "1")) == (
        "2026-03-01", "2026-01-01", "",
    )  # fmt: skip


@each_case(
    ("good", "bad", "expected"),
    [
        ({"a": "1.0"}, {"a": "3.0"}, ["a 1.1", "a 2.0", "a 3.0"]),  # a release without a date: that of the next one
        ({"u": "1.0"}, {"u": "3.0"}, ["u 2.0", "u 3.0"]),  # no dates at all: by version
        ({"a": "3.0"}, {"a": "1.0"}, ["a 1.0"]),  # an older version is one change
        ({}, {"a": "2.0"}, ["a 1.0", "a 1.1", "a 2.0"]),  # a new package
        ({"a": "1.0"}, {}, []),  # a removed one has no release
        ({"x": "1.0"}, {"x": "2.0"}, ["x 2.0"]),  # a package that no index lists
        ({"a": "1.0"}, {"a": "1.0+local"}, ["a 1.0+local"]),  # another build of the same release
        ({"a": "2.0"}, {"a": "4.0rc1"}, ["a 3.0", "a 4.0rc1"]),  # prereleases only where an end is one
    ],
)
def test_releases_in_between(good: dict[str, str], bad: dict[str, str], expected: list[str]) -> None:
    releases = {
        "a": listed("a", v1_0="2026-01-01", v1_1="", v2_0="2026-03-01", v3_0="2026-04-01", v4_0rc1="2026-05-01"),
        "u": listed("u", v1_0="", v2_0="", v3_0=""),
    }
    space: Space = make_space(good, bad, releases)
    assert [f"{event.name} {event.version}" for event in space.events] == expected


def test_a_downgrade_limits_the_version_only_afterwards() -> None:
    space = make_space({"a": "3.0"}, {"a": "1.0"}, {"a": listed("a", v1_0="2026-01-01", v3_0="2026-04-01")})
    assert [space.limits(number)["a"] for number in (0, 1)] == ["3.0", "1.0"]


def test_releases_for_another_python_do_not_count() -> None:
    files = {"1.1": ">=3.8", "1.2": ">=3.13", "1.3": ""}
    listed_files = [
        Release("a", version, (File("a.whl", "", version, None, python),), f"2026-0{number}-01")
        for number, (version, python) in enumerate(files.items(), start=1)
    ]
    space = make_space({"a": "1.0"}, {"a": "1.3"}, {"a": listed_files}, python="3.11.7")
    assert [event.version for event in space.events] == ["1.1", "1.3"]


@pytest.mark.parametrize("releases", [1, 2, 3, 64, 65])
def test_the_limit_is_that_of_the_logarithm(releases: int) -> None:
    assert trial_limit(releases) == 2 + {1: 0, 2: 1, 3: 2, 64: 6, 65: 7}[releases]
