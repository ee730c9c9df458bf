"""Findings on a project as far as its lock decides about them: the releases in it, and a lock without a solution."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.manifests.files import READMES, project_folder, small_text
from envdoctor.manifests.inputs.locks import pipenv_sets
from envdoctor.manifests.inputs.steps_of_locks import locked_step

# On the release that is installed today: what it is incompatible with, and what it does not have.
_OF_TODAY = frozenset({"RUN003", "RUN078", "RUN222"})
# Of the project itself, which then has no lock: `pip install -e .[gpu]`. After `uv sync` it changes nothing.
_PIP = lazy_pattern(r"\bpip3? install\s(?:[^\n`]*\s)?[\"']?\.(?:\[[^\]\s]*\])?[\"']?(?=[\s`]|$)")
_SYNC = lazy_pattern(r"\b(?:uv sync|poetry install|pdm (?:sync|install))\b")
_ADD = lazy_pattern(r"(?:uv|poetry|pdm) add\s")


def with_lock(findings: tuple[Finding, ...], kind: str, path: Path) -> tuple[Finding, ...]:
    """The findings on a manifest, as its lock and its permitted Pythons leave them."""
    if kind == "pyproject":
        return without_unsolvable_additions(with_locked_releases(findings, project_folder(path)))
    return with_releases_of_pipenv(findings, path.parent) if kind == "Pipfile" else findings


def with_locked_releases(findings: tuple[Finding, ...], folder: Path) -> tuple[Finding, ...]:
    """The findings on releases that are installed today; a note if the lock of the project has another one.

    The audit of the lock judges what the lock has. With pip, which reads no lock, the finding is as before.
    """
    named = {each.id for each in findings if each.status in ("error", "warning")}
    pins = _locked(folder) if named & _OF_TODAY and not is_installed_with_pip(folder) else {}
    return tuple(_with_pin(each, pins) if each.id in _OF_TODAY else each for each in findings)


def with_releases_of_pipenv(findings: tuple[Finding, ...], folder: Path) -> tuple[Finding, ...]:
    """The findings on a Pipfile: notes where the lock that was written from this file has another release."""
    try:
        data = json.loads(small_text(folder / "Pipfile.lock"))
        sets = pipenv_sets(data, "", "x86_64")
    except (ValueError, TypeError, AttributeError, KeyError):
        return findings
    pins = {each.name: ("Pipfile.lock", each.version) for found in sets for each in found.packages if each.version}
    return tuple(_with_pin(each, pins) if each.id in _OF_TODAY else each for each in findings)


def without_unsolvable_additions(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings without `uv add`, which solves all of the project, where a Python that it permits has no solution.

    RUN196 is about such a Python.
    """
    if not any(each.id == "RUN196" and each.status in ("error", "warning") for each in findings):
        return findings
    return tuple(_without_addition(each) for each in findings)


def _without_addition(finding: Finding) -> Finding:
    kept = tuple(each for each in finding.remedies if not any(_ADD.match(command) for command in each.commands))
    if kept == finding.remedies:
        return finding
    return replace(finding, remedies=kept, fix=f"{finding.fix} Correct RUN196 first: the project has no solution.")


def _with_pin(finding: Finding, pins: dict[str, tuple[str, str]]) -> Finding:
    name = next((each.fact for each in finding.evidence if each.fact in pins), "")
    lock, version = pins.get(name, ("", ""))
    is_installed_today = any(each.value.startswith(f"{name} {version} ") for each in finding.evidence)
    if not version or is_installed_today or finding.status not in ("error", "warning"):
        return finding
    return replace(
        finding,
        status="info",
        message=f"without {lock}, which has {name} {version}: {finding.message}",
        fix=f"Keep {lock}. Before an upgrade of the lock: {finding.fix}",
        remedies=(),
    )


def _locked(folder: Path) -> dict[str, tuple[str, str]]:
    """The lock and the release of each package in it."""
    step = locked_step(folder)
    return {each.name: (step.file, each.pin) for each in step.install.requirements if each.pin} if step else {}


def is_installed_with_pip(folder: Path) -> bool:
    """Whether the README of a project installs it with pip, which reads no lock."""
    for text in (small_text(folder / name) for name in READMES):
        found = _PIP.search(text)
        block = text[: found.start()].rpartition("```")[2] if found else ""
        if found and not _SYNC.search(block):
            return True
    return False
