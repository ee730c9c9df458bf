"""The order of the releases that a search tries in place of the one of a guide."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.manifests.candidate_releases import candidate_versions
from envdoctor.resolution.resolver import ResolverTarget


@each_case(
    ("name", "current", "first"),
    [
        ("pydantic", "2.13", ["2.12.5", "2.11.10", "2.10.6"]),  # 1.10.27 is newer than 2.10.6
        ("xformers", "0.0.35", ["0.0.34", "0.0.33.post2"]),
    ],
)
def test_a_new_release_of_an_old_series_does_not_come_first(name: str, current: str, first: list[str]) -> None:
    found = candidate_versions(name, f"<{current}", current, ResolverTarget("x86_64", "3.10"))
    assert found[: len(first)] == first
