"""`envdoctor bisect`: find the release that broke a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from packaging.utils import canonicalize_name

from envdoctor.bisect.records import PackageSet, has_version
from envdoctor.bisect.run import Request, bisect
from envdoctor.bisect.solver import Requirements, Solver, parse_packages
from envdoctor.bisect.trials import Hang, Probe
from envdoctor.commands.audit_file import MAX_BYTES, is_environment
from envdoctor.commands.move import read_source
from envdoctor.core.command_line import require_program
from envdoctor.core.decoding import read_text
from envdoctor.core.directories import log_file
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, Refused, unknown_name
from envdoctor.core.options import Option
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Distribution
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, read_sources
from envdoctor.environment.find import find_environment
from envdoctor.environment.select import select_stack
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.locking.uv import run_uv, summarize_error
from envdoctor.manifests.inputs.pieces import numbered
from envdoctor.manifests.requirement_files import logical_lines, requirement_text
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.verify.probe_scripts import bundled_probes

HINT = "envdoctor bisect .venv --since 2026-10-01 -- python train.py"
EXPECTED = "an environment, a lock or a requirements file that fails now"
UV_FILES = lazy_pattern(r"(?:.*[._-])?(?:requirements|constraints)(?:[._-].*)?\.(?:txt|in)|.*\.in|pyproject\.toml")
BACKEND = lazy_pattern(r"cu\d{2,3}|cpu|rocm[\d.]+|xpu")
TIME = lazy_pattern(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?Z)?")
LOCAL = lazy_pattern(r"\s*(?:-e|--editable)[ =](?!file:)|\s*\.{0,2}/")  # uv runs in another directory
INDEX = lazy_pattern(r"\s*(?:-i|-f|--(?:extra-)?index-url|--find-links|--no-index)\b")
UV_SECONDS = 60.0


class BisectRequest(Record, frozen=True, kw_only=True):
    """The command runs in temporary environments with the releases of different days. Exit code 0 is good, 125 skips
    a state, and any other one is bad. The environment and the files of the project are not changed.

    Example: envdoctor bisect .venv --since 2026-10-01 -- python train.py

    Example: envdoctor bisect requirements.txt --good-lock old.txt --repeat 5 -- pytest -x tests

    Example: envdoctor bisect .venv --since 2026-10-01 --probe trl_grpo
    """

    source: Annotated[
        str,
        Option("--venv", "The failing packages: an environment, a lock or requirements.", "PATH", argument="PATH"),
    ] = ""
    words: Annotated[
        tuple[str, ...],
        Option("--run", "A word of the failing command; usually given after --.", "WORD", rest=True),
    ] = ()
    probe: Annotated[str, Option("--probe", "Run this probe of `verify` instead of a command.", "NAME")] = ""
    since: Annotated[str, Option("--since", "It worked with the releases before this day (UTC).", "DATE")] = ""
    good_lock: Annotated[str, Option("--good-lock", "A lock with which the command worked.", "FILE")] = ""
    python: Annotated[str, Option("--python", "The interpreter of the trials, if PATH is a file.", "X.Y|PATH")] = ""
    timeout: Annotated[int, Option("--timeout", "Seconds until a run counts as hung.", "SECONDS", minimum=1)] = 600
    hang: Annotated[Hang, Option("--hang", "How to judge a run that hangs: bad or skip.", "WHAT")] = Hang.BAD
    repeat: Annotated[
        int,
        Option("--repeat", "Runs of each trial, for a command that fails sometimes.", "N", minimum=1, maximum=1000),
    ] = 1
    build: Annotated[bool, Option("--build", "Let uv build releases that have no wheel.")] = False
    restart: Annotated[bool, Option("--restart", "Discard the trials of an interrupted run.")] = False


class _Bad(NamedTuple):
    """The state that fails."""

    requirements: Requirements
    packages: PackageSet | None
    text: str = ""
    venv: str = ""
    notes: tuple[str, ...] = ()


def run(request: BisectRequest, reporter: Reporter) -> CommandResult:
    """Read both states, and bisect."""
    since = _since(request)
    _require_probe(request)
    sources = read_sources()
    bad = _read_bad(request, sources)
    good = _read_good(request.good_lock, bad) if request.good_lock else None
    name = request.source or bad.venv
    result = bisect(
        Request(
            requirements=bad.requirements, text=bad.text, bad=bad.packages, bad_name=name, good=good,
            good_name=request.good_lock or f"the releases before {request.since}", since=since,
            probe=Probe(
                words=request.words, name=request.probe, repeat=request.repeat, timeout=float(request.timeout),
                hang=request.hang, original=bad.venv,
            ),
            notes=bad.notes,
        ),
        sources, log_file("bisect", Path(name).name), reporter, restart=request.restart,
    )  # fmt: skip
    return CommandResult(result, EXIT_OK if result.verdict == "found" and result.cure else EXIT_NO)


def _since(request: BisectRequest) -> str:
    """The good date as a time; empty with a good lock."""
    if bool(request.since) == bool(request.good_lock):
        given = "both --since and --good-lock" if request.since else "neither --since nor --good-lock"
        raise BadInput(given, expected="the day before which it worked, or a lock with which it worked", hint=HINT)
    if not request.since:
        return ""
    text = request.since if "T" in request.since else f"{request.since}T00:00:00Z"
    try:
        moment = datetime.fromisoformat(text) if TIME.fullmatch(request.since) else None
    except ValueError:
        moment = None
    if moment is None or moment >= datetime.now(UTC):
        raise BadInput(f"--since {request.since}", expected="a day in the past, such as 2026-10-01", hint=HINT)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _read_good(lock: str, bad: _Bad) -> PackageSet:
    """The packages of the good lock, and the local projects of the bad state."""
    source = read_source(lock)
    if open_names := sorted(name for name, version in source.versions.items() if not version):
        raise BadInput(
            f"{lock} ({source.kind}) gives no exact version of {', '.join(open_names[:5])}",
            expected="a lock: name==version for every package",
            hint=HINT,
        )
    local = {name: version for name, version in (bad.packages or {}).items() if not version}
    return {**source.versions, **local}


def _require_probe(request: BisectRequest) -> None:
    if bool(request.words) == bool(request.probe):
        given = "both a command and --probe" if request.probe else "neither a command nor --probe"
        raise BadInput(given, expected="a command after --, or --probe NAME", hint=HINT)
    if request.words:
        require_program(request.words)
    elif request.probe not in (known := [probe.name for probe in bundled_probes()]):
        raise unknown_name("probe", request.probe, known, hint="envdoctor verify --help")


def _read_bad(request: BisectRequest, sources: Sources) -> _Bad:
    """The state that fails: an environment, exact versions, or requirements that uv solves."""
    path = Path(request.source)
    if not request.source or path.is_dir():
        return _read_environment(request)
    text = read_text(path, expected=EXPECTED, hint=HINT, max_bytes=MAX_BYTES)
    empty = _requirements(request.python or getattr(sys, "_base_executable", sys.executable), request.build)
    if UV_FILES.fullmatch(path.name) and not text.startswith("# profile:"):
        return _read_requirements(path, text, empty, sources)
    source = read_source(request.source)
    versions = {name: version for name, version in source.versions.items() if version}
    if len(versions) < len(source.versions):
        raise BadInput(
            f"{request.source} ({source.kind}) gives no exact version of "
            f"{', '.join(sorted(source.versions.keys() - versions.keys())[:5])}",
            expected=EXPECTED, hint=HINT,
        )  # fmt: skip
    notes = tuple(f"{each.name} is in no trial: {each.why}" for each in source.lost)
    needs = msgspec.structs.replace(empty, roots=tuple(versions), backend=_backend(versions))
    return _Bad(needs, versions, notes=notes)


def _read_requirements(path: Path, text: str, empty: Requirements, sources: Sources) -> _Bad:
    """Requirements, or a lock in their format: then every line is a pin."""
    options = [line.strip() for line in text.splitlines() if INDEX.match(line)]
    empty = msgspec.structs.replace(empty, index=tuple(options))
    requirements = msgspec.structs.replace(empty, file=str(path.absolute()))
    lines = [requirement_text(line) for _, line in logical_lines(numbered(text)) if line and not line.startswith("-")]
    parsed = [parse_install_requirement(line, 0) for line in lines] if path.suffix != ".toml" else [None]
    pins = {each.name for each in parsed if each and each.pin}
    if relative := next((line for line in text.splitlines() if LOCAL.match(line)), ""):
        raise BadInput(
            f"{path} has a local project: {relative.strip()[:80]}",
            expected="an environment with the project, or requirements without it", hint=HINT,
        )  # fmt: skip
    if not lines:
        raise BadInput(f"there is no requirement in {path}", expected=EXPECTED, hint=HINT)
    if len(pins) < len(lines):
        return _Bad(requirements, None, text)
    packages = Solver(requirements, sources).solve()
    if packages is None:  # its pins contradict each other: uv explains it
        raise Refused(
            f"{path} has no solution",
            expected="pins that fit each other",
            hint=shell_command("uv pip compile {}", path),
        )
    if packages.keys() - pins:
        return _Bad(requirements, None, text)
    return _Bad(
        msgspec.structs.replace(empty, roots=tuple(packages), backend=_backend(packages)), packages, text
    )  # fmt: skip


def _read_environment(request: BisectRequest) -> _Bad:
    """The packages of an environment, as uv lists them, and those that no other one requires."""
    if request.source and not is_environment(Path(request.source)):
        raise BadInput(f"{request.source} is a directory without an environment", expected=EXPECTED, hint=HINT)
    selection = find_environment(request.source, "", os.environ)
    venv = Path(selection.path).absolute()
    if not selection.path or not venv.is_dir():
        raise BadInput(f"no environment: {selection.reason}", expected=EXPECTED, hint=HINT)
    if request.python:
        raise BadInput(
            f"--python {request.python} with the environment {venv}",
            expected="the interpreter of the environment",
            hint=HINT,
        )
    interpreter = venv / "bin/python"
    done = run_uv(["pip", "freeze", "--quiet", "--python", interpreter], environment={}, timeout=UV_SECONDS)
    packages = parse_packages(done.output) if done.ok else {}
    if not packages:
        reason = "no package is installed" if done.ok else summarize_error(done.output)
        raise BadInput(f"the packages of {venv} cannot be listed: {reason}", expected=EXPECTED, hint=HINT)
    stack = select_stack(str(venv), "")
    roots = _roots(packages, (stack.distributions.value if stack else None) or {})
    empty = _requirements(str(interpreter), request.build)
    needs = msgspec.structs.replace(empty, roots=roots, backend=_backend(packages))
    return _Bad(needs, packages, venv=str(venv))


def _roots(packages: PackageSet, listed: Mapping[str, Distribution]) -> tuple[str, ...]:
    """The packages that no other package of the environment requires."""
    lines = (line for name, each in listed.items() if name in packages for line in each.requires)
    required = {canonicalize_name(found.name) for line in lines if (found := parse_requirement(line))}
    roots = tuple(name if has_version(each) else f"{name} {each}".rstrip() for name, each in packages.items())
    return tuple(root for root in roots if root.split()[0] not in required) or roots


def _backend(packages: PackageSet) -> str:
    local = packages.get("torch", "").partition("+")[2]
    return local if BACKEND.fullmatch(local) else ""


def _requirements(python: str, build: bool) -> Requirements:
    """Requirements without a package, for an interpreter."""
    path = _find_python(python)
    return Requirements(python=path, python_version=_find_python(path, "--show-version"), build=build)


def _find_python(name: str, *options: str) -> str:
    """The path of an interpreter, or with `--show-version` its version."""
    done = run_uv(
        ["python", "find", "--no-project", *options, name],
        environment={"UV_PYTHON_DOWNLOADS": "never"}, timeout=UV_SECONDS,
    )  # fmt: skip
    if not done.ok:
        raise BadInput(
            f"--python {name}: {summarize_error(done.output)}",
            expected="an installed Python such as 3.12, or its path",
            hint="uv python list --only-installed",
        )
    return done.output.strip().splitlines()[-1]
