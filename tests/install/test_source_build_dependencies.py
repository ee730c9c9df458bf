"""A package to compile may be a dependency of a wheel, such as antlr4 of Hydra."""

from __future__ import annotations

import pytest
from support.install_place import Place
from support.local_packages import PYTHON, write_profile, write_wheel
from support.source_packages import write_sdist

from envdoctor.download.sources import read_sources
from envdoctor.locking.lock import Target
from envdoctor.locking.resolve import resolve
from envdoctor.profiles import read_profile

BUILD = '[build]\npackages = ["fast"]\nmemory_gb_per_job = 0.1\n'


def prepare(place: Place, needs: str) -> None:
    """caller 2.0 requires fast, which has no wheel; caller 1.0 has no requirements."""
    write_sdist(place.wheels, "fast", "1.0")
    write_wheel(place.wheels, "caller", "1.0")
    write_wheel(place.wheels, "caller", "2.0", requires=[needs])
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", "caller", "fast==1.0", extra=BUILD)


@pytest.mark.parametrize("needs", ["fast", "fast>=1.0", "fast==1.*"])
def test_a_wheel_that_requires_a_built_package_is_selected(place: Place, needs: str) -> None:
    prepare(place, needs)
    lock = place.plan().lock
    versions = {package.name: package.version for package in lock.packages}
    assert versions["caller"] == "2.0"
    assert [(package.name, package.version) for package in lock.built] == [("fast", "1.0")]


def test_without_build_no_dependency_is_excluded(place: Place) -> None:
    prepare(place, "fast")
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", "caller==2.0")
    sources = read_sources({"HOME": str(place.home)} | place.settings)
    resolution = resolve(read_profile(str(place.profile)), Target("x86_64", "2.35", (PYTHON,)), sources)
    assert resolution.lock is None
    assert "fast" in resolution.attempts[0].reason
