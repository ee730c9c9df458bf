"""The environment after an installation: the versions that uv selects, and the records that the rules examine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from envdoctor.core.records import Distribution, Fact, Machine, Stack, TorchBuild, absent, known, unreadable
from envdoctor.core.remedies import Install, Uninstall
from envdoctor.knowledge.cuda import oldest_driver
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import parse_requirement, releases_of
from envdoctor.knowledge.versions import cuda_of_local, dotted_numbers, local_part, minor_of, public_part
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement
from envdoctor.resolution.resolver import ResolvedPackage, Resolver, ResolverTarget
from envdoctor.resolution.torch_sources import TorchSource, cuda_builds, cuda_name, torch_cuda, torch_has_build
from envdoctor.rules import facts
from envdoctor.rules.facts import has_windows_driver, is_from_report
from envdoctor.rules.requirements import versions_of
from envdoctor.rules.torch_install import COMPANIONS
from envdoctor.rules.vllm_builds import cuda_of_wheel

_SOURCE = "planned installation"
_NOT_INSTALLED: Fact[Any] = unreadable(_SOURCE, "not installed yet")


def in_tables(name: str) -> bool:
    """Whether the releases of a package are known."""
    return bool(published_releases(name) or releases_of(name))


def relevant_part(stack: Stack) -> Stack:
    """The stack without the requirements and packages on which no table has rows; the search evaluates it often."""
    distributions = {}
    for name, package in (stack.distributions.value or {}).items():
        lines = tuple(
            line for line in package.requires if (found := parse_requirement(line)) and in_tables(found.name)
        )
        distributions[name] = (
            package if lines == package.requires else msgspec.structs.replace(package, requires=lines)
        )
    return msgspec.structs.replace(stack, distributions=known(distributions, stack.distributions.source))


def target_of(machine: Machine, stack: Stack, backend: str) -> ResolverTarget:
    """The platform, Python and index that packages are resolved for."""
    return ResolverTarget(
        machine.system.architecture.value or "x86_64",
        minor_of(stack.python_version.value or ""),
        exclude_newer="9",
        source=TorchSource(backend, has_priority=bool(cuda_name(backend))),
    )


def stack_with(machine: Machine, stack: Stack, steps: Sequence[Install | Uninstall]) -> Stack | None:
    """The stack after removals and installs; None if a package is not in the tables, or requirements contradict."""
    for step in steps:
        if isinstance(step, Uninstall):
            stack = without(stack, set(step.packages))
            continue
        wanted = [parse_install_requirement(text, 0) for text in step.packages]
        named = {each.name: each.specifier for each in wanted if each and in_tables(each.name)}
        changed = resolve(machine, stack, step, named) if len(named) == len(wanted) else None
        if changed is None:
            return None
        stack = stack_after(machine, stack, changed, backend_for(machine, stack, step, changed))
    return stack


def without(stack: Stack, removed: AbstractSet[str]) -> Stack:
    """The stack without some packages."""
    distributions = {name: each for name, each in (stack.distributions.value or {}).items() if name not in removed}
    return msgspec.structs.replace(stack, distributions=known(distributions, stack.distributions.source))


def resolve(machine: Machine, stack: Stack, step: Install, wanted: dict[str, str]) -> dict[str, str] | None:
    """The packages whose version an installation changes; None if their requirements contradict.

    `wanted` has the specifiers of the packages to install.

    A report does not list all packages, so dependencies that it does not list count as installed.
    """
    present = versions_of(stack)
    installed = {
        name: ResolvedPackage(name, version, 0, "installed")
        for name, version in present.items()
        if name not in step.reinstall
    }
    resolver = Resolver(
        target_of(machine, stack, step.backend), installed, upgrade=False, with_dependencies=not step.no_deps
    )
    resolution = resolver.resolve([InstallRequirement(name, specifier) for name, specifier in wanted.items()])
    if resolution.conflicts:
        return None
    exact = {name: text[2:] for name, text in wanted.items() if re.fullmatch(r"==[^*,]+", text)}
    found = {name: package.version for name, package in resolution.packages.items()} | exact
    if is_from_report(stack):
        found = {name: version for name, version in found.items() if name in present or name in wanted}
    return {
        name: public_part(version)
        for name, version in found.items()
        if name not in installed or public_part(installed[name].version) != public_part(version)
    }


def backend_for(machine: Machine, stack: Stack, step: Install, changed: dict[str, str]) -> str:
    """The backend of a step: its own, else that of the installed build, else the newest of the same CUDA version.

    A new torch is for the CUDA version of vLLM's wheel.
    """
    if cuda_name(step.backend):
        return step.backend
    platform = machine.system.architecture.value or "x86_64"
    installed = versions_of(stack).get("torch", "")
    torch, present = changed.get("torch", installed), facts.torch_cuda(stack) or cuda_of_local(installed)
    vllm = changed.get("vllm", versions_of(stack).get("vllm", ""))
    if present == "cpu" and not step.backend:
        return "cpu"
    driver, windows = dotted_numbers(machine.driver.version.value or ""), has_windows_driver(machine)
    builds = [
        cuda for cuda in cuda_builds(torch, platform) if not driver or driver >= oldest_driver(cuda, windows=windows)
    ]
    if "torch" in changed and vllm and not local_part(vllm):
        for_vllm = [cuda for cuda in builds if cuda.startswith(f"{cuda_of_wheel(vllm)}.")]
        if for_vllm and present not in for_vllm:
            return f"cu{for_vllm[-1].replace('.', '')}"
    if present and present != "cpu" and torch_has_build(torch, present, platform):
        return f"cu{present.replace('.', '')}"
    same_major = [cuda for cuda in builds if cuda.partition(".")[0] == present.partition(".")[0]]
    if same_major:
        return f"cu{same_major[-1].replace('.', '')}"
    return step.backend or "auto"


def stack_after(machine: Machine, stack: Stack, changed: dict[str, str], backend: str) -> Stack:
    """The stack with other versions. Facts that only the installed files can give are unreadable."""
    distributions = dict(stack.distributions.value or {})
    if "torch" in changed:
        distributions = {name: package for name, package in distributions.items() if not name.startswith("nvidia-")}
        distributions.pop("pytorch", None)
    local = f"+{backend}" if cuda_name(backend) else ""  # wheels of the PyTorch index name their build
    distributions |= {
        name: Distribution(
            name=name,
            version=version + (local if name in COMPANIONS else ""),
            location=distributions[name].location if name in distributions else "",
        )
        for name, version in changed.items()
    }
    files = tuple(file for file in stack.extensions.value or () if file.distribution not in changed)
    return msgspec.structs.replace(
        stack,
        distributions=known(distributions, stack.distributions.source),
        extensions=known(files, stack.extensions.source) if stack.extensions.value is not None else stack.extensions,
        torch=_torch(machine, changed["torch"], backend) if "torch" in changed else stack.torch,
    )


def _torch(machine: Machine, version: str, backend: str) -> Fact[TorchBuild]:
    platform, driver = machine.system.architecture.value or "x86_64", machine.driver.version.value or ""
    cuda = torch_cuda(version, TorchSource(backend, has_priority=bool(cuda_name(backend))), platform, driver)
    local = "+cpu" if cuda == "cpu" else f"+cu{cuda.replace('.', '')}" if cuda else ""
    return known(
        TorchBuild(
            version=known(version + local, _SOURCE),
            cuda=absent(_SOURCE) if cuda == "cpu" else known(cuda, _SOURCE) if cuda else _NOT_INSTALLED,
            hip=absent(_SOURCE),
            cxx11_abi=_NOT_INSTALLED,
            architectures=_NOT_INSTALLED,
        ),
        _SOURCE,
    )
