"""Findings of a directory that a guide and the manifest which it installs share, each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from envdoctor.commands.audit_file import AuditResult, FileAudit
from envdoctor.core.records import Finding
from envdoctor.manifests.inputs.earlier_steps import installing_lines

_GUIDES = frozenset({"guide", "script", "Dockerfile", "Apptainer"})


def without_repeated(audits: Sequence[FileAudit]) -> tuple[AuditResult, ...]:
    """The results of the files of a directory, each finding once.

    One on a requirement is that of the manifest, whose lines have it; one on a program that a guide starts is that of
    the guide.
    """
    results = [each.result for each in audits]
    for first, guide in enumerate(audits):
        for second, manifest in enumerate(audits) if guide.result.kind in _GUIDES else ():
            own_path, path = Path(guide.result.name), Path(manifest.result.name)
            if lines := installing_lines(guide.document.paths, own_path, path, manifest.result.kind):
                name, found = own_path.name, results[first].findings
                own = {_key(each, name) for each in results[second].findings}
                repeated = [each for each in found if each.line in lines and _key(each, name) in own]
                results[first] = _without(results[first], repeated, results[second].name)
                started = {_key(each, name) for each in results[first].findings}
                repeated = [each for each in results[second].findings if _key(each, name) in started]
                results[second] = _without(results[second], repeated, results[first].name)
    return tuple(results)


def _key(finding: Finding, guide: str) -> tuple[str, str]:
    """What a finding is about, in the words of the guide: `line 5` in place of `line 5 of README.md`."""
    return finding.id, finding.message.replace(f" of {guide}", "")


def _without(result: AuditResult, repeated: Sequence[Finding], place: str) -> AuditResult:
    """A result without findings that another file of the directory has; `place` is its name."""
    if not repeated:
        return result
    findings = tuple(each for each in result.findings if each not in repeated)
    notes = tuple(
        note for note in result.notes
        if not (note.startswith("remains in ") and any(f": {each.id}: {each.message}" in note for each in repeated))
    )  # fmt: skip
    elsewhere = (*result.elsewhere, *((place,) if place not in result.elsewhere else ()))
    return replace(result, findings=findings, elsewhere=elsewhere, notes=notes)
