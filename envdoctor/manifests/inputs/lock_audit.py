"""Audits the sets of packages that a lock file installs: the rules on environments, for each target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from envdoctor.core.paths import is_file
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.manifests.checkout_code import Checkout, checkout_of
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.project_commands import project_remedies
from envdoctor.manifests.inputs.records import LockedPackage, PackageSet
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.manifests.unused_breaks import lower_unused
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TorchSource, cuda_name, torch_cuda, torch_index
from envdoctor.rules.registry import RULES, run_rule

_DECLARED_RANGE = "PKG001"
_CPU_TORCH = "TORCH003"
_TRL_RANGE = "TRL001"
_ABOUT_MISSING_TORCH = frozenset({"PY001", "PY003"})


def audit_sets(sets: Sequence[PackageSet], kind: str, path: str, machine: Machine | None) -> list[Finding]:
    """The problems of all sets, each once. One of some sets names its target."""
    name = path.rpartition("/")[2]
    found: dict[tuple[str, str], tuple[Finding, list[PackageSet]]] = {}
    cuda_is_a_choice = any(each.label and _torch_cuda(each) not in ("", "cpu") for each in sets)
    for each in sets:
        for finding in _judged(_audit_set(each, machine), each, cuda_is_a_choice=cuda_is_a_choice):
            found.setdefault((finding.id, finding.message), (finding, []))[1].append(each)
    findings = []
    for finding, having in found.values():
        package = next(
            (package for item in finding.evidence for package in having[0].packages if package.name == item.fact),
            None,
        )
        prefix = f"{' and '.join(each.target for each in having[:3])}: " if len(having) < len(sets) else ""
        evidence = tuple(
            replace(item, source=f"{name}, line {line}") if (line := _line(having[0], item.fact)) else item
            for item in finding.evidence
        )
        findings.append(
            replace(
                project_remedies(finding, kind, name=path, origin=package.origin if package else ""),
                message=prefix + finding.message,
                line=package.line if package else 0,
                evidence=evidence,
            )
        )
    return sorted(lower_unused(_checkout(path), findings), key=lambda finding: (finding.line, finding.id))


def _checkout(path: str) -> Checkout | None:
    """The checkout of a lock file on disk; None for a text of standard input."""
    return checkout_of(Files(Path(path).parent)) if is_file(Path(path)) else None


def _judged(found: Sequence[Finding], packages: PackageSet, *, cuda_is_a_choice: bool) -> Iterator[Finding]:
    """The findings without those that the project chose: an extra without CUDA, and versions that it overrides."""
    for finding in found:
        if finding.id == _DECLARED_RANGE and {item.fact for item in finding.evidence} & packages.overridden:
            yield replace(finding, status="info", message=f"{finding.message} (an override of the project)")
        elif finding.id == _TRL_RANGE and finding.status == "warning":  # TRL prints a warning at its import
            yield replace(finding, status="info")
        elif finding.id != _CPU_TORCH or not packages.label or not cuda_is_a_choice:
            yield finding


def audit_stack(stack: Stack, name: str, machine: Machine | None) -> list[Finding]:
    """The problems of a list of installed packages."""
    target = machine or build_machine(GuideTrace("x86_64", "", "", (), ()))
    return [replace(finding, file=name) for finding in _evaluate(stack, target)]


def _line(packages: PackageSet, name: str) -> int:
    return next((package.line for package in packages.packages if package.name == name), 0)


def _audit_set(packages: PackageSet, machine: Machine | None) -> list[Finding]:
    target = machine or build_machine(GuideTrace(packages.platform, "", "", (), ()))
    has_torch = any(package.name == "torch" for package in packages.packages)
    findings = _evaluate(stack_of_set(packages), target)
    # A lock is complete: a project without torch needs none, and no Python for it.
    return [finding for finding in findings if has_torch or finding.id not in _ABOUT_MISSING_TORCH]


def _torch_cuda(packages: PackageSet) -> str:
    """The CUDA version of the torch of a set: "12.8", "cpu"; empty without torch, or if it is not known."""
    torch = next((each for each in packages.packages if each.name == "torch"), None)
    return _resolved(torch, packages.platform).cuda if torch else ""


def _evaluate(stack: Stack, machine: Machine) -> list[Finding]:
    """The errors and warnings of the rules on environments."""
    findings = [f for rule in RULES.values() if rule.needs_environment for f in run_rule(rule, machine, stack)]
    return [finding for finding in findings if finding.status in ("error", "warning", "crashed")]


def stack_of_set(packages: PackageSet) -> Stack:
    """The environment of a set."""
    resolved = {package.name: _resolved(package, packages.platform) for package in packages.packages}
    return build_stack(EnvironmentState(tool="venv", python=packages.python), resolved)


def _resolved(package: LockedPackage, platform: str) -> ResolvedPackage:
    cuda = package.cuda
    if package.name == "torch" and not cuda:
        index = torch_index(package.source)
        source = TorchSource(index.backend if index else "", has_priority=bool(index))
        cuda = cuda_name(source.backend) or torch_cuda(package.version, source, platform)
    text = f"{package.name}=={package.version}"
    return ResolvedPackage(package.name, package.version, package.line, text, True, cuda, package.origin)
