"""`envdoctor audit --fix`: solves corrected requirements with uv, and writes them in the format they came from."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Literal

from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import is_folder
from envdoctor.core.record import Record
from envdoctor.download.sources import read_sources
from envdoctor.locking.solve_set import SolvedSet, solve_set
from envdoctor.manifests import DroppedPackage, GuideAudit
from envdoctor.manifests.write_back import write_back

HINT = "envdoctor audit SETUP.md --fix ."


class FixedSet(Record, frozen=True, kw_only=True):
    """Requirements that uv solved for one environment of a guide, or the conflict because of which there are none."""

    branch: str  # the alternatives that lead to this environment; empty without alternatives
    state: Literal["solved", "conflict", "not-verified"]
    target: str  # "aarch64-manylinux_2_28, Python 3.12, CUDA 12.9"
    requirements: tuple[str, ...]
    packages: int  # number of packages of the solution
    options: tuple[str, ...]  # of `uv pip install`
    dropped: tuple[DroppedPackage, ...]  # packages of the guide that are not among the requirements
    image: str  # a container image, whose packages remain
    note: str  # the conflict, or what was not verified


def check_folder(folder: Path) -> None:
    """Raise BadInput for a directory that does not exist, before anything is solved."""
    if not is_folder(folder):
        raise BadInput(
            f"--fix {folder}: not a directory",
            expected="a directory to write the corrected files to",
            hint=f"mkdir -p {shlex.quote(str(folder))}",
        )


def solve_audit(audit: GuideAudit) -> tuple[SolvedSet, ...]:
    """Solve the set of each environment of a guide."""
    sources = read_sources()
    return tuple(solve_set(corrected, sources) for corrected in audit.sets if corrected.requirements)


def fixed_set(solved: SolvedSet) -> FixedSet:
    """A solved set as part of the command's result."""
    corrected = solved.corrected
    return FixedSet(
        branch=corrected.branch,
        state=solved.state,
        target=solved.target,
        requirements=corrected.requirements if solved.state != "conflict" else (),
        packages=solved.packages,
        options=solved.options,
        dropped=corrected.dropped,
        image=corrected.image if corrected.contained else "",
        note=solved.note,
    )


def write_corrections(
    solved: tuple[SolvedSet, ...],
    source: Path,
    folder: Path,
    *,
    guide: str,
    kind: str,
    audit_again: Callable[[str], GuideAudit],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write what uv solved. Returns the paths of the files, and notes on what they do not contain.

    A guide becomes a patch; other files are written as they are, with other versions. The corrected text is written
    only if it has fewer problems, and never for a text without problems.
    """
    usable = [each for each in solved if each.state != "conflict"]
    written: list[str] = []
    notes: list[str] = []
    for number, each in enumerate(usable):
        stem = f"{source.stem}{f'.{number + 1}' if number else ''}"
        path = folder / f"{stem}.requirements.txt"
        write_file(path, requirements_text(each), hint=HINT)
        written.append(str(path))
        if each.corrected.profile_toml and not number:
            is_taken = f"{stem}.toml" == source.name
            profile = folder / f"{stem}{'.profile' if is_taken else ''}.toml"
            write_file(profile, each.corrected.profile_toml, hint=HINT)
            written.append(str(profile))
    sets = [(each.corrected, each.options[0].partition("=")[2] if each.options else "") for each in usable]
    corrected = write_back(guide, sets, kind)
    problems = _problems(audit_again(guide))
    if not problems and len(usable) == len(solved):
        notes.append(f"nothing to correct in {source.name}: it has no errors or warnings")
    elif problems and corrected.text != guide:
        if _problems(audit_again(corrected.text)) < problems:
            path = _write_text(source, guide, corrected.text, folder)
            written.append(str(path))
            notes += [f"{pin} has no place in {source.name}: add it" for pin in corrected.missing]
        else:
            notes.append(f"{source.name} was not corrected: other versions alone do not solve its problems")
    return tuple(written), tuple(notes)


def _problems(audit: GuideAudit) -> int:
    return sum(1 for finding in audit.findings if finding.status in ("error", "warning"))


def requirements_text(solved: SolvedSet) -> str:
    """The set as a requirements file, with its target and what was dropped as comments."""
    corrected = solved.corrected
    options = " ".join(solved.options)
    lines = [
        f"# {corrected.branch}" if corrected.branch else "",
        f"# for {solved.target}: {_verdict(solved)}",
        f"# {solved.note}" if solved.note else "",
        f"# inside {corrected.image}, whose packages remain" if corrected.image and corrected.contained else "",
        f"# uv pip install {options} -r THIS_FILE" if options else "",
        *(f"# not included: {dropped.name}: {dropped.reason}" for dropped in corrected.dropped),
        *corrected.requirements,
    ]  # fmt: skip
    return "\n".join(line for line in lines if line) + "\n"


def _verdict(solved: SolvedSet) -> str:
    if solved.state != "solved":
        return "not solved"
    return f"solved by uv on {date.today().isoformat()}, {solved.packages} packages"


def _write_text(source: Path, text: str, corrected: str, folder: Path) -> Path:
    """Write a guide as a patch, and any other file under its own name."""
    if source.suffix.lower() in (".md", ".markdown", ".mdx", ".rst", ".qmd"):
        name = source.name
        lines = difflib.unified_diff(
            text.splitlines(keepends=True), corrected.splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
        path = folder / f"{name}.patch"
        write_file(path, "".join(line if line.endswith("\n") else f"{line}\n" for line in lines), hint=HINT)
        return path
    path = _next_to(folder / source.name, source, "fixed")
    write_file(path, corrected, hint=HINT)
    return path


def _next_to(path: Path, source: Path, word: str) -> Path:
    """The path, or another one if it is that of the source, which stays as it is."""
    return path.with_name(f"{path.stem}.{word}{path.suffix}") if path.resolve() == source.resolve() else path
