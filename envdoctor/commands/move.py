"""`envdoctor move`: a lock for another architecture or GPU from an environment, a lock, requirements or a guide."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from packaging.requirements import Requirement

from envdoctor.commands.audit_file import MAX_BYTES, is_environment
from envdoctor.commands.file_indexes import require_configured_indexes
from envdoctor.core.decoding import read_text, write_file
from envdoctor.core.errors import BadInput, exit_code
from envdoctor.core.options import GPU_OPTION, GPU_PREFIX, FactOption, Option, OutputOption, PythonVersionOption
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import read_sources
from envdoctor.environment.select import select_stack
from envdoctor.knowledge.architectures import capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.gpu_catalogue import find_gpus
from envdoctor.knowledge.kernel_files import MAIN_FILES
from envdoctor.knowledge.torch_builds import known_build
from envdoctor.knowledge.versions import minor_of
from envdoctor.locking.audit import audit_lock, stack_of_lock
from envdoctor.locking.lock import BUILT_MARK, Lock, Target
from envdoctor.locking.lock_files import format_lock, parse_lock
from envdoctor.locking.move import Lost, Move, MoveSource, move
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.machine.select import facts_with_driver
from envdoctor.manifests import audit_paths
from envdoctor.manifests.actions import Install
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.recognition import EXPECTED, read_input
from envdoctor.manifests.inputs.records import Document, PackageSet
from envdoctor.manifests.records import build_stack
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.facts import gpus_of

HINT = "envdoctor move requirements.txt --to gh200"
DEFAULT_PYTHON = "3.12"


class MoveRequest(Record, frozen=True, kw_only=True):
    """uv solves the packages for the target. Versions stay where they have a wheel there and fit each other.

    Example: envdoctor move requirements.txt --to gh200 --output gh200.txt

    Example: envdoctor move ./venv --to b200 --driver 580.95.05
    """

    source: Annotated[
        str, Option("--venv", "An environment, a lock, requirements or a guide.", "PATH", argument="PATH")
    ]
    to: Annotated[
        str, Option("--to", "A GPU of `envdoctor gpus`, or a recorded machine.", "GPU|FILE", other=GPU_OPTION)
    ]
    driver: Annotated[str, Option("--driver", "The driver of the target, such as 580.95.", "VERSION")] = ""
    facts: FactOption = ()
    python: PythonVersionOption = ""
    output: OutputOption = ""


class CodeCoverage(Record, frozen=True):
    """GPU code of a file or a package for the target's GPUs."""

    name: str
    state: Literal["native", "ptx", "none", "unknown"]
    detail: str


class MoveResult(Record, frozen=True, kw_only=True):
    """The move, the code for the target's GPU, and the findings of the rules on the new lock."""

    source: str
    kind: str
    target: str  # name of the machine
    platform: str
    python: str
    move: Move
    code: tuple[CodeCoverage, ...] = ()
    findings: tuple[Finding, ...] = ()
    install: tuple[str, ...] = ()  # commands on the target
    written: str = ""


def run(request: MoveRequest, reporter: Reporter) -> CommandResult:
    """Read the source, solve it for the target and compare."""
    to = GPU_PREFIX + request.to if find_gpus(request.to) else request.to
    machine = override(read_recorded(to), list(facts_with_driver(request.facts, request.driver)))
    source = read_source(request.source)
    python = request.python or source.python or DEFAULT_PYTHON
    target = _target(machine, python)
    reporter.phase(f"Solving {len(source.versions)} packages for {target.platform}, Python {python}")
    moved = move(source, machine, target, read_sources(), reporter)
    lock = moved.lock
    findings = audit_lock(lock, machine, stack_rules_only=True) if lock else ()
    if lock and request.output:
        write_file(Path(request.output), format_lock(lock), hint=HINT)
    is_complete = lock is not None and not lock.without
    failed = any(finding.status in ("error", "crashed") for finding in findings)
    result = MoveResult(
        source=request.source,
        kind=source.kind,
        target=machine.name or request.to,
        platform=target.platform,
        python=python,
        move=moved,
        code=tuple(_code(source, moved, machine)) if lock else (),
        findings=findings,
        install=_install(lock, python, request.output) if lock and is_complete else (),
        written=request.output if lock else "",
    )
    undecided = moved.unreachable or (lock is not None and not is_complete)  # the PyTorch index was not reachable
    failed |= lock is None and not moved.unreachable
    return CommandResult(result, exit_code(failed=failed, undecided=undecided))


def _target(machine: Machine, python: str) -> Target:
    architecture, glibc = machine.system.architecture.value, machine.system.glibc.value
    if not architecture or not glibc or not re.fullmatch(r"2\.\d+", glibc):
        raise BadInput(
            f"architecture {architecture!r} and glibc {glibc!r} of the target name no wheel platform",
            expected="an architecture and a glibc 2.x",
            hint="--fact system.architecture=aarch64 --fact system.glibc=2.35",
        )
    if not re.fullmatch(r"3\.\d{1,2}", python):
        raise BadInput(f"--python {python}", expected="a version such as 3.12", hint=HINT)
    return Target({"arm64": "aarch64"}.get(architecture, architecture), glibc, (python,))


def read_source(name: str, *, hint: str = HINT) -> MoveSource:
    """The packages of an environment or a file. Raises BadInput if there are none."""
    path = Path(name)
    if path.is_dir():
        if not is_environment(path):
            raise BadInput(f"{name} is a directory without an environment", expected=EXPECTED, hint=hint)
        return _of_stack("environment", select_stack(name, ""), name, hint)
    text = read_text(path, expected=EXPECTED, hint=hint, max_bytes=MAX_BYTES)
    if text.startswith("# profile:"):
        lock = parse_lock(text, where=name)
        source = _of_stack("lock", stack_of_lock(lock), name, hint)
        return msgspec.structs.replace(source, built=tuple(package.name for package in lock.built))
    document = read_input(text, path.name, Files(path.parent, "x86_64"), "x86_64")
    require_configured_indexes(document, name, read_sources())
    if document.paths:
        return _of_commands(document, name, hint)
    if document.sets:
        return _of_set(document.kind, max(document.sets, key=_rank), name, hint)
    return _of_stack(document.kind, document.stack, name, hint)


def _rank(each: PackageSet) -> tuple[bool, bool, int]:
    return any(p.name == "torch" for p in each.packages), each.platform == "x86_64", len(each.packages)


def _of_stack(kind: str, stack: Stack | None, name: str, hint: str) -> MoveSource:
    listed = (stack.distributions.value or {}) if stack else {}
    if stack is None or not listed:
        raise BadInput(f"there is no package in {name}", expected=EXPECTED, hint=hint)
    lost = tuple(
        Lost(each.name, each.version, "installed from a folder or a URL, which no index has")
        for each in listed.values()
        if each.source and "://" in each.source
    )
    versions = {each: package.version for each, package in listed.items() if each not in {row.name for row in lost}}
    return MoveSource(kind=kind, versions=versions, stack=stack, python=_minor(stack), lost=lost)


def _minor(stack: Stack) -> str:
    found = re.match(r"3\.\d+", stack.python_version.value or "")
    return found[0] if found else ""


def _of_set(kind: str, chosen: PackageSet, name: str, hint: str) -> MoveSource:
    packages = {
        each.name: ResolvedPackage(each.name, each.version, each.line, each.origin, True, each.cuda, each.origin)
        for each in chosen.packages
    }
    state = EnvironmentState(python=chosen.python, packages=packages)
    return _of_stack(kind, build_stack(state), name, hint)


def _of_commands(document: Document, name: str, hint: str) -> MoveSource:
    """The corrected requirements of the main environment, as `audit` proposes them."""
    audit = audit_paths(document.guide or document.paths[0], document.paths, None)
    main = audit.main
    pins = [Requirement(text) for text in main.requirements]
    exact = {pin.name: str(pin.specifier)[2:] for pin in pins if re.fullmatch(r"==[\w.!+]+", str(pin.specifier))}
    versions = {pin.name: exact.get(pin.name, "") for pin in pins}
    ranges = {pin.name: str(pin) for pin in pins if pin.specifier and pin.name not in exact}
    for each in _unknown_requirements(document.paths[0], {*versions, *(row.name for row in main.dropped)}):
        versions[each.name] = each.pin
        ranges |= {} if each.pin or not each.specifier else {each.name: f"{each.name}{each.specifier}"}
    if not versions:
        raise BadInput(f"{name} installs no package from an index", expected=EXPECTED, hint=hint)
    packages = {
        each: ResolvedPackage(each, version, 0, name, True, main.cuda if each == "torch" else "")
        for each, version in versions.items()
    }
    stack = build_stack(EnvironmentState(python=main.python, packages=packages))
    lost = tuple(Lost(each.name, "", each.reason) for each in main.dropped)
    return MoveSource(
        kind=document.kind, versions=versions, stack=stack, python=main.python, ranges=ranges, lost=lost,
        exclude_newer=main.exclude_newer,
    )  # fmt: skip


def _unknown_requirements(guide: Guide, others: set[str]) -> Iterator[InstallRequirement]:
    """Requirements on packages that the tables do not contain; the audit proposes no version of them."""
    for action in guide.actions:
        for each in action.requirements if isinstance(action, Install) and action.tool != "conda" else ():
            if (
                each.name
                and each.name not in others
                and not each.url
                and not each.marker
                and each.has_valid_specifier
            ):
                yield each


def _code(source: MoveSource, moved: Move, machine: Machine) -> Iterator[CodeCoverage]:
    """GPU code by file where it is known: torch by the table, kept files of an environment by their content."""
    capabilities = [found for gpu in gpus_of(machine) if (found := capability_of(gpu))]
    lock = moved.lock
    if not capabilities or lock is None:
        return
    capability = min(capabilities)
    release = moved.torch_after.partition(" ")[0]
    row = known_build(minor_of(release), lock.torch_build, lock.architecture) if release else None
    if row:
        yield _judged(f"torch {release}", row.architectures, row.ptx, capability)
    same_platform = lock.architecture == platform.machine()  # that of an environment which is read here
    seen = set()
    for file in (source.stack.extensions.value or ()) if same_platform else ():
        if file.distribution in moved.kept and file.code and file.distribution != "torch":
            seen.add(file.distribution)
            yield _judged(f"{file.distribution}: {file.path}", file.code.native, file.code.ptx, capability)
    names = {package.name for package in lock.packages}
    for name in sorted((names & MAIN_FILES.keys()) - seen - {"torch"}):
        yield CodeCoverage(name, "unknown", "after the installation: envdoctor archs --venv VENV")


def _judged(name: str, native: tuple[str, ...], ptx: tuple[str, ...], capability: tuple[int, int]) -> CodeCoverage:
    code = " ".join((*native, *ptx))
    if runs_native(native, capability):
        return CodeCoverage(name, "native", code)
    return CodeCoverage(name, "ptx" if runs_as_ptx(ptx, capability) else "none", code)


def _install(lock: Lock, python: str, output: str) -> tuple[str, ...]:
    """The commands on the target: the wheels, then what is compiled with their packages."""
    file = output or "LOCK"
    backend = ["--torch-backend", lock.backend] if lock.backend else []
    lines = [
        shell_command("uv venv --python {} .venv", python),
        shell_command(
            "uv pip sync --require-hashes --only-binary :all: {} --python .venv/bin/python {}", backend, file
        ),
    ]
    if lock.built:
        names = [word for package in lock.built for word in ("--no-binary", package.name)]
        lines += [
            shell_command("sed -n {} {} > build.txt", f"s/^{BUILT_MARK}//p", file),
            shell_command(
                "uv pip install --no-deps --require-hashes --no-build-isolation {} --python .venv/bin/python "
                "-r build.txt",
                names,
            ),
        ]
    return tuple(lines)
