"""`envdoctor audit --fix`: solves corrected requirements with uv, and writes them in the format they came from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import msgspec

from envdoctor.commands.audit_draft import (
    AuditAgain,
    Draft,
    for_packages,
    is_better,
    is_incomplete,
    new_problems,
    packages_of,
    remaining_notes,
    with_corrected_lines,
    with_sets,
)
from envdoctor.commands.audit_solve import solve_audit
from envdoctor.core.decoding import read_text, require_new, write_file
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import exists, is_folder
from envdoctor.core.record import Record
from envdoctor.core.records import Finding
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.source_needs import needs_of_build
from envdoctor.locking.solved_set import Check, SolvedSet, SolvedState, requirement_lines
from envdoctor.manifests import DroppedPackage, GuideAudit
from envdoctor.manifests.added_packages import MISSING
from envdoctor.manifests.dropped_packages import INSTALLED_LATER, dropped_lines
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.write_back import MANIFESTS
from envdoctor.resolution.index_facts import IndexFacts

Traces = Sequence[tuple[Guide, GuideTrace]]
SetTrial = Callable[[Check, Traces], Check]
HINT = "envdoctor audit SETUP.md --fix ."
# Requirements of a project, whose users choose the releases, with other versions of Python as well.
PROJECTS = frozenset({"pyproject", "setup.py", "setup.cfg"})
_BUILT_BY_PROJECT = "{}: only tool.uv of the project adds torch to its build: run uv in the directory of the project"
GUIDES = (".md", ".markdown", ".mdx", ".rst", ".qmd")


class FixedSet(Record, frozen=True, kw_only=True):
    """Requirements that uv solved for one environment of a guide, or the conflict because of which there are none."""

    branch: str  # the alternatives that lead to this environment; empty without alternatives
    state: SolvedState
    target: str  # "aarch64-manylinux_2_28, Python 3.12, CUDA 12.9"
    requirements: tuple[str, ...]
    packages: int  # number of packages of the solution
    options: tuple[str, ...]  # of `uv pip install`
    dropped: tuple[DroppedPackage, ...]  # packages of the guide that are not among the requirements
    image: str  # a container image, whose packages remain
    note: str  # the conflict, or what was not verified
    trial: str = ""  # the command that installs a solved set and imports its packages; empty after a trial


class Outcome(Record, frozen=True, kw_only=True):
    """What a correction wrote, what it did not, and the commands that complete it."""

    sets: tuple[FixedSet, ...] = ()
    written: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def with_written(self, *paths: Path) -> Outcome:
        """The outcome with further files."""
        return msgspec.structs.replace(self, written=(*self.written, *map(str, paths)))

    def with_notes(self, *notes: str) -> Outcome:
        """The outcome with further notes."""
        return msgspec.structs.replace(self, notes=tuple(dict.fromkeys([*self.notes, *notes])))

    def with_commands(self, *commands: str) -> Outcome:
        """The outcome with further commands."""
        return msgspec.structs.replace(self, commands=tuple(dict.fromkeys([*self.commands, *filter(None, commands)])))


class Corrections:
    """The directory of `--fix`, and the corrected texts of this run: a lock is written from a corrected manifest.

    Files below `root` keep their path relative to it. `options` are those of this run for the command of a trial.
    """

    def __init__(
        self,
        folder: Path,
        root: Path | None = None,
        *,
        replace: bool = False,
        trial: SetTrial | None = None,
        options: Sequence[str] = (),
    ) -> None:
        # It is created with its first file. `--fix --gpu h100` takes the next option as the directory.
        is_creatable = is_folder(folder.parent) and not exists(folder) and not str(folder).startswith("-")
        if not is_folder(folder) and not is_creatable:
            raise BadInput(
                f"--fix {folder}: not a directory",
                expected="a directory to write the corrected files to",
                hint=HINT if is_folder(folder.parent) else shell_command("mkdir -p {}", folder.parent),
            )
        self.folder = folder
        self.root = root
        self.texts: dict[Path, str] = {}
        self.paths: dict[Path, Path] = {}  # of the corrected files
        self.files: dict[Path, str] = {}  # to write at the end of the run: all of them or, if one exists, none
        self.replace = replace
        self.trial = trial  # with --trial
        self.options = options

    def check(self, check: Check, traces: Traces = ()) -> Check:
        """A check of solved sets, which are also tried with --trial. `traces` are those of the original file."""
        return self.trial(check, traces) if self.trial else check

    def trial_command(self, source: Path) -> str:
        """The command that tries the sets of a file; empty if this run tries them."""
        if self.trial:
            return ""
        return shell_command("envdoctor audit {} {} --fix {} --force --trial", source, self.options, self.folder)

    def below(self, root: Path) -> Corrections:
        """The same run for the files below a directory."""
        other = Corrections(self.folder, root, trial=self.trial, options=self.options)
        other.texts, other.paths, other.files = self.texts, self.paths, self.files
        return other

    def text_of(self, path: Path) -> str:
        """The text of a file, as this run corrected it."""
        return self.texts.get(path.resolve()) or read_text(path, expected="a manifest", hint=HINT)

    def folder_of(self, source: Path) -> Path:
        """The directory for the corrections of a file."""
        if self.root is None:
            return self.folder
        folder, root = source.parent.resolve(), self.root.resolve()
        return self.folder / folder.relative_to(root) if folder.is_relative_to(root) else self.folder

    def require_new(self, source: Path) -> None:
        """Raise BadInput if the directory has the corrections of a file, before its audit, which can take minutes."""
        path = self.folder_of(source) / source.name
        is_guide = source.suffix.lower() in GUIDES
        own = path.with_name(f"{path.name}.patch") if is_guide else _next_to(path, source, "fixed")
        if not self.replace:
            again = shell_command("envdoctor audit {} {} --fix {} --force", source, self.options, self.folder)
            require_new([own, path.with_name(f"{source.stem}.requirements.txt")], hint=again)

    def write(self, source: Path, text: str) -> Path:
        """Write the corrected text of a file: a guide as a patch, and any other file under its own name."""
        original = read_text(source, expected="a manifest", hint=HINT)
        self.texts[source.resolve()] = text
        folder = self.folder_of(source)
        if source.suffix.lower() in GUIDES:
            name = source.name
            lines = difflib.unified_diff(
                original.splitlines(keepends=True), text.splitlines(keepends=True), f"a/{name}", f"b/{name}"
            )
            path = folder / f"{name}.patch"
            self.write_file(path, "".join(line if line.endswith("\n") else f"{line}\n" for line in lines))
            return path
        path = _next_to(folder / source.name, source, "fixed")
        if path in self.paths.values() and self.paths.get(source.resolve()) != path:  # of another folder
            path = path.with_name(f"{source.resolve().parent.name}.{path.name}")
        self.paths[source.resolve()] = path
        self.write_file(path, text)
        return path

    def write_file(self, path: Path, text: str) -> None:
        """Write a file in the directory of `--fix`, at the end of the run."""
        self.files[path] = text

    def finish(self) -> None:
        """Write the files of the run."""
        if not self.replace:
            require_new(self.files, hint=f"{HINT} --force")
        for path, text in self.files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BadInput(
                    f"cannot create {path.parent}: {error.strerror}", expected="a writable directory", hint=HINT
                ) from error
            write_file(path, text, hint=HINT, replace=self.replace)


def stated_target(solved: SolvedSet) -> str:
    """The target of a set with the places that state it: `x86_64, Python 3.10 (README.md, line 12)`."""
    corrected = solved.corrected
    python = f" ({corrected.python_origin})" if corrected.python_origin else ""
    is_stated = corrected.cuda and corrected.cuda == corrected.stated_cuda.version
    cuda = f" ({corrected.stated_cuda.origin})" if is_stated else ""
    target = re.sub(r"(?<=Python )3\.\d+", lambda match: f"{match[0]}{python}", solved.target)
    return f"{target}{cuda}"


def fixed_set(solved: SolvedSet, unfit: str = "", trial: str = "") -> FixedSet:
    """A solved set as part of the command's result. `unfit` is the reason for which it is not proposed.

    `trial` is the command that tries the set, if this run does not.
    """
    corrected = solved.corrected
    unfit = unfit if solved.state == "solved" else ""
    is_solved = solved.state == "solved" and not unfit
    needs = [f"{pin}: {needs}" for pin in solved.built if (needs := needs_of_build(pin.partition("==")[0]))]
    names = {pin.partition("==")[0] for pin in solved.built}
    needs += [_BUILT_BY_PROJECT.format(each) for each in corrected.built_with_torch if each in names]
    built = "; ".join([f"built from source: {', '.join(solved.built)}", *needs]) if solved.built else ""
    count = len(solved.dependencies)
    later = [
        each.name
        for each in corrected.dropped
        if each.reason.startswith(INSTALLED_LATER) and each.name not in solved.versions
    ]
    uncompared = f"not compared with what is installed later: {', '.join(later)}" if later else ""
    older = f"the requirements file also pins {count} dependencies of {solved.day}" if count else ""
    return FixedSet(
        branch=corrected.branch,
        state="not-verified" if unfit else solved.state,
        target=stated_target(solved),
        requirements=(*requirement_lines(solved), *solved.built) if is_solved else (),
        packages=solved.packages if is_solved else 0,
        options=solved.options if is_solved else (),
        dropped=corrected.dropped,
        image=corrected.image if corrected.contained else "",
        note=unfit or "; ".join(filter(None, (solved.note, built, uncompared, older))),
        trial=trial if is_solved else "",
    )


def fix_commands(
    audit: GuideAudit,
    source: Path,
    *,
    text: str,
    kind: str,
    audit_again: AuditAgain,
    check: Check,
    fix: Corrections,
    included: Mapping[Path, str],
    unread: Sequence[str] = (),
    index: IndexFacts | None = None,
    tried: Sequence[Finding] = (),
) -> Outcome:
    """Correct the lines of a guide or a manifest, solve its sets, and write what uv solved.

    `check` audits a set, and `audit_again` the corrected text with the requirements files that it includes. After a
    correction that is written, the text has no problem that it did not have; a text without problems stays as it is.
    `tried` are the findings with the fixes whose commands were tried.
    """
    name, original = source.name, Draft(text, audit)
    draft = with_corrected_lines(original, kind, audit_again)
    solved = solve_audit(draft.audit, check, index)
    usable = [each for each in solved if each.state == "solved"]
    trial = fix.trial_command(source)
    if not original.problems:
        outcome = Outcome(sets=tuple(fixed_set(each, trial=trial) for each in solved))
        outcome = _with_sets(outcome, usable, source, kind, fix)
        return outcome.with_notes(nothing_to_correct(name, unread))
    unfit = ""
    limited = pinned_in_extras(draft.audit) if kind in PROJECTS else set()
    try:
        written = with_sets(draft, usable, kind, audit_again, limited=limited, included=included)
        if kind in MANIFESTS:  # the file is the environment
            unfit = _error_left(written.audit.findings, usable, name)
            unfit = unfit and f"not a solution: {unfit}"
        if kind in PROJECTS:  # the requirements file has the solution, and the project has bounds
            about = packages_of(draft.audit.findings)
            bounds = [for_packages(each, about) for each in usable]
            written = with_sets(draft, bounds, kind, audit_again, limited=about, included=included)
    except BadInput as error:
        written, unfit = draft, f"the set has no place in {name} ({error.message})"
    outcome = Outcome(sets=tuple(fixed_set(each, unfit, trial) for each in solved))
    if not unfit:
        outcome = _with_sets(outcome, usable, source, kind, fix)
    reason = unfit or _reason_against(written, original, usable, name)
    if reason and usable:
        outcome = outcome.with_notes(f"the solved versions were not written into {name}: {reason}")
    written = draft if reason else written
    if written.text == text and not written.included:
        return outcome.with_notes(f"{name} was not corrected", *remaining_notes(original, name, tried))
    if written.text != text:
        outcome = outcome.with_written(fix.write(source, written.text))
    for path, corrected in written.included.items():
        target = fix.write(path, corrected)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        outcome = outcome.with_written(target).with_commands(shell_command("cp {} {}", target, shown))
    outcome = outcome.with_notes(*(f"{name} does not name {each}: install it as well" for each in written.missing))
    return outcome.with_notes(*remaining_notes(written, f"the corrected {name}", tried))


def nothing_to_correct(name: str, unread: Sequence[str] = ()) -> str:
    """The note on a file without problems, with what of it was not read."""
    of_rest = f" in what was read; not read: {', '.join(unread)}" if unread else ""
    return f"nothing to correct in {name}: it has no errors or warnings{of_rest}"


def _reason_against(written: Draft, original: Draft, usable: Sequence[SolvedSet], name: str) -> str:
    """The reason for which a corrected text is not written; empty for a text that is better than the original.

    An error that the original has as well, and that is not about a package of the sets, is no reason: it remains.
    """
    known = {(each.id, each.message) for each in original.audit.findings}
    named = {name for solved in usable for name in solved.versions}
    of_sets = [each for each in written.audit.findings if each.id not in MISSING]
    judged = [
        each for each in of_sets if (each.id, each.message) not in known or not named.isdisjoint(packages_of([each]))
    ]
    if error := _error_left(judged, usable, name):
        return error
    if is_incomplete(original.audit, written.audit):
        return f"the package index was too slow, and the corrected {name} was not judged"
    if new := new_problems(original.audit.findings, written.audit.findings):
        return f"in the corrected {name}, line {new[0].line}: {new[0].message}"
    return "" if is_better(original.audit, written.audit) else f"{name} has the same problems with them"


def _error_left(findings: Sequence[Finding], usable: Sequence[SolvedSet], name: str) -> str:
    """The first error of a corrected text, apart from packages that the sets name to be built afterwards."""
    dropped = {each.name for solved in usable for each in solved.corrected.dropped}
    for each in findings:
        if each.status == "error" and not (each.evidence and each.evidence[0].fact in dropped):
            return f"in the corrected {name}, line {each.line}: {each.message}"
    return ""


def _with_sets(outcome: Outcome, usable: Sequence[SolvedSet], source: Path, kind: str, fix: Corrections) -> Outcome:
    """Write the solved sets as requirements files, and the first one as a profile."""
    for number, each in enumerate(usable):
        stem = f"{source.stem}{f'.{number + 1}' if number else ''}"
        path = fix.folder_of(source) / f"{stem}.requirements.txt"
        fix.write_file(path, requirements_text(each, fix.trial_command(source)))
        outcome = outcome.with_written(path)
        if each.options and kind not in MANIFESTS | {"Dockerfile", "Apptainer"}:  # those have the index in the file
            outcome = outcome.with_commands(shell_command("uv pip install {} -r {}", each.options, path))
        if each.corrected.profile_toml and not number:
            is_taken = f"{stem}.toml" == source.name
            profile = path.with_name(f"{stem}{'.profile' if is_taken else ''}.toml")
            fix.write_file(profile, each.corrected.profile_toml)
            outcome = outcome.with_written(profile)
    return outcome


def pinned_in_extras(audit: GuideAudit) -> set[str]:
    """The packages that an extra of a project pins, but not each of its environments."""
    pins = [{place.name for place in each.places if "==" in place.text} for each in audit.sets]
    return set().union(*pins) - set(pins[0]).intersection(*pins) if len(pins) > 1 else set()


def requirements_text(solved: SolvedSet, trial: str = "") -> str:
    """The set as a requirements file; comments state its target, the command that tries it, and what was dropped."""
    corrected = solved.corrected
    options = " ".join(solved.options)
    day = date.today().isoformat()
    lines = [
        f"# {corrected.branch}" if corrected.branch else "",
        f"# for {stated_target(solved)}: solved by uv on {day}, {solved.packages} packages",
        f"# not tried: `{trial}` installs them and imports the packages" if trial else "",
        f"# {solved.note}" if solved.note else "",
        f"# inside {corrected.image}, whose packages remain" if corrected.image and corrected.contained else "",
        f"# uv pip install {options} -r THIS_FILE" if options else "",
        *(f"# not included: {line}" for line in dropped_lines(corrected.dropped)),
        *requirement_lines(solved),
        *(f"{pin}  # {_remark_on_build(pin)}" for pin in solved.built),
        f"# dependencies, of {solved.day} as well" if solved.dependencies else "",
        *solved.dependencies,
    ]  # fmt: skip
    return "\n".join(line for line in lines if line) + "\n"


def _remark_on_build(pin: str) -> str:
    needs = needs_of_build(pin.partition("==")[0])
    return f"built from source: {needs}" if needs else "built from source"


def _next_to(path: Path, source: Path, word: str) -> Path:
    """The path, or another one if it is that of the source, which stays as it is."""
    return path.with_name(f"{path.stem}.{word}{path.suffix}") if path.resolve() == source.resolve() else path
