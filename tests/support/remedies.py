"""The commands of remedies, and their effect on machines and environments.

`apply` changes an environment as uv does: an installed version that satisfies a requirement stays, unless the package
is reinstalled. Requirements of new packages are resolved with the tables of releases.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec
from packaging.requirements import Requirement

from envdoctor.core.records import Distribution, Fact, Finding, Machine, Stack, TorchBuild, absent, known, unreadable
from envdoctor.core.remedies import (
    Install,
    Remedy,
    SetVariable,
    SystemPackages,
    Uninstall,
    UnsetVariable,
    UserCommand,
)
from envdoctor.knowledge.cuda import cuda_of_driver
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.knowledge.published import find_release, releases_in_range
from envdoctor.knowledge.releases import normalize_name, required_specifier, requirements_of_release
from envdoctor.knowledge.torch_builds import known_build, known_builds
from envdoctor.knowledge.versions import cuda_of_local, dotted_numbers, major_minor, minor_of, public_part, satisfies
from envdoctor.rules import evaluate
from envdoctor.rules.facts import torch_cuda

FAMILY = ("torch", "torchvision", "torchaudio")  # the packages to which a backend applies
DRIVER_PACKAGE = re.compile(r"nvidia-driver-(\d+)")
DRIVER = "580.95.05"  # where a report does not name the driver; `--torch-backend=auto` reads it
CHANGED: Fact[Any] = unreadable("report", "changed by a remedy")


def commands_of(found: Any) -> tuple[str, ...]:
    """The commands of all remedies of a finding or a cause, in their order."""
    return tuple(command for remedy in found.remedies for command in remedy.commands)


def apply(stack: Stack, remedy: Remedy, *, driver: str = "", platform: str = "x86_64") -> Stack:
    """The environment after the steps of a remedy. Raises AssertionError for a step that uv would reject."""
    for step in remedy.steps:
        if isinstance(step, Uninstall):
            stack = _uninstall(stack, step.packages)
        elif isinstance(step, Install):
            stack = _install(stack, step, driver, platform)
    return stack


def apply_variables(machine: Machine, remedy: Remedy) -> Machine:
    """The machine with the variables that the steps of a remedy set and remove, and with the driver of a package."""
    variables = dict(machine.environment.value or {})
    for step in remedy.steps:
        if isinstance(step, SetVariable):
            (assignment,) = shlex.split(step.assignment)
            name, _, value = assignment.partition("=")
            variables[name] = re.sub(r"\$\{?(\w+)\}?", lambda found: variables.get(found[1], ""), value)
        elif isinstance(step, UnsetVariable):
            variables.pop(step.name, None)
    packages = [name for step in remedy.steps if isinstance(step, SystemPackages) for name in step.packages]
    if branch := next((found[1] for found in map(DRIVER_PACKAGE.match, packages) if found), ""):
        driver = msgspec.structs.replace(machine.driver, version=known(f"{branch}.999", "driver"))
        machine = msgspec.structs.replace(machine, driver=driver)
    if variables == (machine.environment.value or {}):
        return machine
    return msgspec.structs.replace(machine, environment=known(variables, "environment"))


def can_apply(remedy: Remedy) -> bool:
    """Whether a remedy changes the environment or variables; others need root, conda, or examine something."""
    if any(isinstance(step, UserCommand) and step.command.startswith("conda ") for step in remedy.steps):
        return False
    if any(isinstance(step, SystemPackages) and DRIVER_PACKAGE.match(step.packages[0]) for step in remedy.steps):
        return True
    return any(isinstance(step, Install | Uninstall | SetVariable | UnsetVariable) for step in remedy.steps)


def failures(machine: Machine, stack: Stack, finding: Finding) -> list[str]:
    """For each remedy of a finding that can be applied: why it is no cure. Empty: all of them are."""
    before = {each.id for each in evaluate(machine, stack) if each.status == "error"}
    found = []
    for remedy in filter(can_apply, finding.remedies):
        text = f"{finding.id}: {' ; '.join(remedy.commands)}"
        driver = machine.driver.version.value or DRIVER
        platform = "aarch64" if machine.system.architecture.value in ("aarch64", "arm64") else "x86_64"
        try:
            changed = apply(stack, remedy, driver=driver, platform=platform)
        except AssertionError as error:
            found.append(f"{text}: {error}")
            continue
        after_machine = apply_variables(machine, remedy)
        if after_machine.driver != machine.driver:
            changed = msgspec.structs.replace(changed, cuda_available=CHANGED)
        after = evaluate(after_machine, changed)
        found += [f"{text}: still {each.message}" for each in after if each.id == finding.id]
        found += [
            f"{text}: new {each.status} {each.id}: {each.message}"
            for each in after
            if each.status in ("error", "crashed") and each.id not in before
        ]
    return found


def _uninstall(stack: Stack, names: tuple[str, ...]) -> Stack:
    installed, shadowed = dict(stack.distributions.value or {}), list(stack.shadowed.value or ())
    for name in map(normalize_name, names):
        if name not in installed and not (name == "torch" and stack.torch.value):
            raise AssertionError(f"{name} is not installed")
        installed.pop(name, None)
        if copy := next((each for each in shadowed if each.name == name), None):
            installed[name] = copy
            shadowed.remove(copy)
    changes: dict[str, Any] = {"distributions": known(installed, stack.distributions.source)}
    if stack.shadowed.value:
        changes["shadowed"] = known(tuple(shadowed), stack.shadowed.source)
    if "torch" in names:
        changes["torch"] = absent(stack.torch.source)
    changes |= _extensions(stack, set(map(normalize_name, names)), torch_changed="torch" in names)
    return msgspec.structs.replace(stack, **changes)


def _install(stack: Stack, step: Install, driver: str, platform: str) -> Stack:
    old = {name: each.version for name, each in (stack.distributions.value or {}).items()}
    build = stack.torch.value
    if build and build.version.value:
        old["torch"] = build.version.value
    again = {normalize_name(name) for name in (*step.reinstall, *step.from_source)}
    new = _resolve(stack, step, {name: version for name, version in old.items() if name not in again})
    listed = dict(stack.distributions.value or {})
    cuda = _cuda(step, new.get("torch", old.get("torch", "")), driver, platform)
    for name, version in new.items():
        local = f"+{_backend(cuda)}" if name in FAMILY and step.backend else ""
        if name in listed or name not in old:  # a report may have only the build of torch
            listed[name] = Distribution(name=name, version=version + local)
    changes: dict[str, Any] = {}
    if "torch" in new:
        changes["torch"] = known(_torch(new["torch"], cuda, platform, stack), stack.torch.source)
        changes["cuda_available"] = CHANGED
        listed |= _nvidia_packages(listed, new["torch"], cuda)
    changes["distributions"] = known(listed, stack.distributions.source)
    moved = "torch" in new and public_part(old.get("torch", "")) != new["torch"]
    changes |= _extensions(stack, set(new), torch_changed=moved)
    return msgspec.structs.replace(stack, **changes)


def _resolve(stack: Stack, step: Install, present: dict[str, str]) -> dict[str, str]:
    """The packages that change. Others stay, as long as they satisfy all requirements of the named packages."""
    wanted: dict[str, list[str]] = {}
    queue = [Requirement(text) for text in step.packages]
    direct = {normalize_name(requirement.name) for requirement in queue}
    new: dict[str, str] = {}
    resolved: set[str] = set()
    while queue:
        requirement = queue.pop(0)
        name = normalize_name(requirement.name)
        wanted.setdefault(name, []).append(str(requirement.specifier))
        specifier = ",".join(filter(None, wanted[name]))
        version = new.get(name, present.get(name, ""))
        if not version or satisfies(public_part(version), specifier) is False:
            version = new[name] = _newest(name, specifier, direct=name in direct)
        elif name in resolved:
            continue
        resolved.add(name)
        installed = (stack.distributions.value or {}).get(name)
        own = installed.requires if installed and name not in new else ()
        if not step.no_deps:
            queue += map(Requirement, own or _requires(name, version))
    return {name: version for name, version in new.items() if version}


def _newest(name: str, specifier: str, *, direct: bool) -> str:
    """The newest release; for a dependency without a table its lower bound, or nothing."""
    pin = re.search(r"==([^*,]+)(,|$)", specifier)
    if pin and (find_release(name, pin[1]) or not releases_in_range(name, "")):
        return public_part(pin[1])
    if rows := releases_in_range(name, specifier):
        return rows[0].version
    assert not releases_in_range(name, ""), f"no release of {name} matches {specifier}"
    bounded = re.search(r"<|==", specifier)
    assert bounded or not direct, f"{name}{specifier}: open range, and the tables have no releases"
    bound = re.search(r"[>~=]=\s*([\w.]+)", specifier)
    return bound[1].strip(".") if bound else ""


def _requires(name: str, version: str) -> list[str]:
    """Requirements of a release, without NVIDIA's, which depend on the build of torch."""
    lines = requirements_of_release(name, version) if version else ()
    return [line for line in lines if not line.startswith("nvidia-")]


def _nvidia_packages(listed: dict[str, Distribution], torch: str, cuda: str) -> dict[str, Distribution]:
    """NVIDIA's packages that torch requires and that the environment had for some CUDA version; old ones remain."""
    major = cuda.partition(".")[0]
    found = {}
    for library in ("nccl", "cudnn", "nvshmem"):
        name = f"nvidia-{library}-cu{major}"
        if major.isdigit() and any(each.startswith(f"nvidia-{library}-cu") for each in listed):
            pin = required_specifier("torch", torch, name).removeprefix("==")
            old = next(each.version for each in listed.values() if each.name.startswith(f"nvidia-{library}-cu"))
            found[name] = Distribution(name=name, version=pin or old)
    return found


def _cuda(step: Install, torch: str, driver: str, platform: str) -> str:
    """The CUDA version of packages that this step installs: "12.8", "cpu"."""
    line = minor_of(torch)
    if not step.backend:
        return cuda_on_pypi(public_part(torch), platform)
    if step.backend == "auto":
        limit = major_minor(cuda_of_driver(driver) or "0.0")
        rows = [row.cuda for row in known_builds() if (row.torch, row.platform) == (line, platform)]
        return max((cuda for cuda in rows if major_minor(cuda) <= limit), key=major_minor, default="cpu")
    cuda = cuda_of_local(f"0+{step.backend}")
    if cuda and cuda != "cpu" and torch:
        assert known_build(line, cuda, platform), f"torch {torch} has no build for CUDA {cuda} on {platform}"
    return cuda or step.backend


def _backend(cuda: str) -> str:
    return cuda if not dotted_numbers(cuda) else f"cu{cuda.replace('.', '')}"


def _torch(version: str, cuda: str, platform: str, stack: Stack) -> TorchBuild:
    build, source = stack.torch.value, "files"
    row = known_build(minor_of(version), cuda, platform) if dotted_numbers(cuda) else None
    by_files = bool(build and build.architectures.value)
    return TorchBuild(
        version=known(f"{version}+{_backend(cuda)}" if cuda else version, source),
        cuda=known(cuda, source) if dotted_numbers(cuda) else absent(source),
        hip=absent(source),
        cxx11_abi=known(value=satisfies(version, ">=2.7") is True, source=source),
        architectures=known(row.architectures, source) if row and by_files else CHANGED,
    )


def _extensions(stack: Stack, changed: set[str], *, torch_changed: bool) -> dict[str, Any]:
    """The compiled files without those of changed packages; a new torch has the symbols that it lacked before.

    NVIDIA's packages have the libraries and the symbols that were missing.
    """
    if stack.extensions.value is None:
        return {}
    cuda = torch_cuda(stack)
    kept = [
        msgspec.structs.replace(
            each,
            missing_libraries=tuple(x for x in each.missing_libraries if package_of_library(x, cuda) not in changed),
            missing_symbols=tuple(x for x in each.missing_symbols if package_of_symbol(x, cuda) not in changed),
        )
        for each in stack.extensions.value
        if each.distribution not in changed
    ]
    if torch_changed:
        kept = [msgspec.structs.replace(each, missing_symbols=()) for each in kept]
    return {"extensions": known(tuple(kept), stack.extensions.source)}
