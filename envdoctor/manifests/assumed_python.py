"""The Pythons that a guide can be for, if it names none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.images import image_contents
from envdoctor.knowledge.published import PublishedRelease, find_release, is_older_than_table
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.actions import Install, UseImage
from envdoctor.manifests.environment_state import OLDEST_SOLVED
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.stated_python import permits
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import parse_wheel_name

USUAL_PYTHON = "3.12"  # decides the markers of a guide that names no Python
_OLDER_PYTHONS = ("3.9", "3.8")
_USUAL_PYTHONS = (USUAL_PYTHON, "3.11", "3.10", *_OLDER_PYTHONS)
_ENDED_PYTHONS = ("3.7", "3.6")  # of old pins that have more wheels for them
_RARE_PYTHONS = ("3.13", "3.14", *_ENDED_PYTHONS)  # of guides that permit none of the usual ones
_MAX_PYTHONS = 3
_WITHOUT_WHEEL = lazy_pattern(r"([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+) has no wheels with a matching Python")


class PythonOfPins(NamedTuple):
    """The newest Python for which pins have wheels, and these pins: none of them has one for the usual Pythons."""

    python: str
    pins: frozenset[tuple[str, str]]  # name and version


def python_of_pins(guide: Guide, conflicts: Iterable[str], index: IndexFacts | None) -> PythonOfPins | None:
    """The Python for the pins that have no wheel for the assumed one, by the conflicts of its steps.

    The built-in tables do not have all packages: tensorflow 2.4.0 has wheels for Python 3.6 to 3.8 only.
    """
    if index is None or guide.python or guide.stated_machine.python:
        return None
    pins = frozenset(
        (normalize_name(name), version) for text in conflicts for name, version in _WITHOUT_WHEEL.findall(text)
    )
    releases = [index.published(*pin) for pin in sorted(pins)]
    known = [each for each in releases if each and each.kind == "wheels"]
    if not pins or len(known) < len(releases):
        return None
    for python in (*_USUAL_PYTHONS, OLDEST_SOLVED):
        if permits(guide.permitted_python, python) and all(each.has_wheel("", python) for each in known):
            return PythonOfPins(python, pins)
    return None


def other_python(guide: Guide, assumed: str, index: IndexFacts | None = None) -> str:
    """Another Python that a guide can be for as well as for the assumed one; empty if the guide names its Python.

    An older one than guides of today name is none, unless the pins of the guide are for it.
    """
    if guide.python or guide.stated_machine.python:
        return ""
    missing = _missing_wheels(guide, index)
    likely = [
        python
        for python in _USUAL_PYTHONS
        if missing[python] == missing.get(assumed) and python != assumed and permits(guide.permitted_python, python)
    ]
    if assumed not in _OLDER_PYTHONS:
        likely = [python for python in likely if python not in _OLDER_PYTHONS]
    return likely[-1] if likely else ""


def usual_pythons(guide: Guide, index: IndexFacts | None = None) -> list[str]:
    """The usual Pythons, those first for which the wheels of the guide and its pinned releases are.

    `index` has the releases that are older than the built-in tables.
    """
    if stated := guide.python or guide.stated_machine.python:
        return [stated]  # a step without a solution for it is a finding
    missing = _missing_wheels(guide, index)
    permitted = [python for python in (*_USUAL_PYTHONS, *_ENDED_PYTHONS) if permits(guide.permitted_python, python)]
    if not set(permitted) & set(_USUAL_PYTHONS):
        return [next((each for each in _RARE_PYTHONS if permits(guide.permitted_python, each)), USUAL_PYTHON)]
    fitting = sorted(permitted, key=lambda python: missing[python])[:_MAX_PYTHONS]
    return [python for python in fitting if python in _USUAL_PYTHONS or missing[python] < missing[USUAL_PYTHON]]


def _missing_wheels(guide: Guide, index: IndexFacts | None = None) -> dict[str, int]:
    """The number of wheels and pinned releases of a guide that are not for each of the Pythons."""
    pins = [
        (requirement.name, public_part(requirement.pin))
        for action in guide.actions
        if isinstance(action, Install) and action.tool != "conda"
        for requirement in action.requirements
        if requirement.pin
    ] + _torch_of_images(guide)
    compiled = [release for pin in pins if (release := _release(*pin, index)) and release.kind == "wheels"]
    tags = [
        wheel.python_tag
        for action in guide.actions
        if isinstance(action, Install)
        for requirement in action.requirements
        if requirement.wheel and (wheel := parse_wheel_name(requirement.wheel)) and wheel.abi_tag == wheel.python_tag
    ]
    return {
        python: sum(not release.has_wheel("", python) for release in compiled)
        + sum(tag != f"cp{python.replace('.', '')}" for tag in tags)
        for python in (*_USUAL_PYTHONS, *_ENDED_PYTHONS)
    }


def _torch_of_images(guide: Guide) -> list[tuple[str, str]]:
    """The torch of each image whose Python is not known: the image has a Python for which this torch is built."""
    contents = [
        image_contents(action.name, action.tag)
        for action in guide.actions
        if isinstance(action, UseImage) and action.is_entered
    ]
    return [("torch", each.versions["torch"]) for each in contents if "torch" in each.versions and not each.python]


def _release(name: str, version: str, index: IndexFacts | None) -> PublishedRelease | None:
    """A release of the built-in tables, or of the index if it is older than they are."""
    is_read = index is not None and is_older_than_table(name, version)
    return find_release(name, version) or (index.published(name, version) if index and is_read else None)
