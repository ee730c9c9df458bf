"""The Pythons that a guide can be for, if it names none."""

from __future__ import annotations

from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.actions import Install
from envdoctor.manifests.guide import Guide
from envdoctor.resolution.requirement import parse_wheel_name

USUAL_PYTHON = "3.12"  # decides the markers of a guide that names no Python
_USUAL_PYTHONS = (USUAL_PYTHON, "3.11", "3.10", "3.9", "3.8")
_OLDEST_USUAL = "3.10"  # of the Pythons that guides of today name
_MAX_PYTHONS = 3


def other_python(guide: Guide, assumed: str) -> str:
    """Another Python that a guide can be for as well as for the assumed one; empty if the guide names its Python."""
    if guide.stated_machine.python:
        return ""
    missing = _missing_wheels(guide)
    likely = [python for python, count in missing.items() if count == missing[assumed]]
    return next((python for python in (_OLDEST_USUAL, *likely) if python in likely and python != assumed), "")


def usual_pythons(guide: Guide) -> list[str]:
    """The usual Pythons, those first for which the wheels of the guide and its pinned releases are."""
    missing = _missing_wheels(guide)
    usual = sorted(_USUAL_PYTHONS, key=lambda python: missing[python])
    return list(dict.fromkeys(filter(None, [guide.stated_machine.python, *usual])))[:_MAX_PYTHONS]


def _missing_wheels(guide: Guide) -> dict[str, int]:
    """The number of wheels and pinned releases of a guide that are not for each of the usual Pythons."""
    pins = [
        (requirement.name, public_part(requirement.pin))
        for action in guide.actions
        if isinstance(action, Install) and action.tool != "conda"
        for requirement in action.requirements
        if requirement.pin
    ]
    compiled = [release for pin in pins if (release := find_release(*pin)) and release.kind == "wheels"]
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
        for python in _USUAL_PYTHONS
    }
