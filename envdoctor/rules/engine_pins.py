"""A rule on the exact versions that an inference engine requires, of which several are not installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.releases import (
    is_withdrawn,
    parse_requirement,
    releases_of,
    releases_that_pin,
    requirements_of_release,
)
from envdoctor.knowledge.versions import (
    is_local_build,
    is_prerelease,
    minor_of,
    public_part,
    satisfies,
)
from envdoctor.rules.facts import is_for_another_platform, is_rocm, parse_major_minor, torch_cuda
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import (
    COMPANIONS,
    COMPILED,
    Violation,
    requirements_of,
    same_minor,
    specifiers_for,
    version_evidence,
    versions_of,
)
from envdoctor.rules.violations import severity_of

ENGINES = {"sglang": "SGLang", "aphrodite-engine": "Aphrodite", "lmdeploy": "LMDeploy"}
KERNELS = COMPILED | COMPANIONS | {"triton", "flashinfer", "flashinfer-python", "flashinfer-cubin", "xgrammar"}
DECISIVE = KERNELS | {"torch", "transformers"}
# Up to here `pip install sglang` installs a client; METADATA of the wheels, 2026-11-27.
LAST_SGLANG_WITH_EXTRA = "0.5.2"
FIRST_TORCH_FOR_BLACKWELL, FIRST_CUDA_FOR_BLACKWELL = "2.7", (12, 8)


@rule("PKG050", kind="environment", severity="warning", cause="dependency-pin-violated")
def an_engine_has_other_packages_than_it_requires(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """SGLang or another engine is installed with another torch, and other kernels, than its release requires.

    These engines require exact versions of torch, of their kernels and of transformers, because they use internal
    names of them. An installation after the engine changed them, or the engine was upgraded without them
    (`--no-deps`, a checkout). It then fails with undefined symbols, missing names or unexpected arguments.

    Not reported: only newer versions than required, as in a checkout, if no other package requires the older torch;
    builds from source and nightlies; ROCm; a torch for Blackwell in place of one without code for it.

    Fix: install the engine with its requirements again; if another package requires different versions, use an
    environment for each.

    References:
    https://docs.sglang.ai/get_started/install.html
    https://packaging.python.org/en/latest/specifications/version-specifiers/
    """
    for engine in ENGINES:
        violations = pins_of(stack, engine)
        if violations:
            yield _problem(stack, engine, violations)


def pins_of(stack: Stack, engine: str) -> list[Violation]:
    """The violated requirements of an engine that decide together: torch first, then kernels and transformers."""
    if is_rocm(stack) or is_for_another_platform(stack):
        return []
    found = [
        each
        for each in requirements_of(stack).violations
        if each.requirer == engine and not _is_replaced_on_purpose(each, stack)
    ]
    exact = [each for each in found if each.is_exact and each.name in DECISIVE]
    older = sum(each.too_old for each in exact)
    for_another_torch = [each for each in exact if each.name == "torch" and not _has_pinned_minor(each)]
    # A checkout, and the images built from it, have the version of the last release and newer packages.
    is_checkout = not older and not _equal_pins(stack, engine, for_another_torch)
    if len(exact) < 2 or is_checkout or (not for_another_torch and older < 2):
        return []
    return sorted((each for each in found if each in exact or severity_of(each) != "info"), key=_rank)


def _is_replaced_on_purpose(violation: Violation, stack: Stack) -> bool:
    """Whether the version shows no fault: a build from source, or a torch for a GPU that the required one lacks."""
    if is_local_build(violation.installed) or is_prerelease(violation.installed):
        return True
    required = violation.specifier.removeprefix("==")
    return (
        violation.name == "torch"
        and (parse_major_minor(torch_cuda(stack)) or (0, 0)) >= FIRST_CUDA_FOR_BLACKWELL
        and satisfies(required, f"<{FIRST_TORCH_FOR_BLACKWELL}") is True
        and not violation.too_old
    )


def _has_pinned_minor(violation: Violation) -> bool:
    return same_minor(violation.specifier.removeprefix("=="), violation.installed)


def _rank(violation: Violation) -> tuple[int, str]:
    order = ("torch", "vllm")
    if violation.name in order:
        return order.index(violation.name), violation.name
    return (2 if violation.name in KERNELS else 3 if violation.name == "transformers" else 4), violation.name


def _problem(stack: Stack, engine: str, violations: list[Violation]) -> Problem:
    installed = public_part(violations[0].requirer_version)
    version = _installable(stack, engine, installed)
    others = _packages_with_other_pins(stack, engine, version)
    required = ", ".join(f"{each.name}{each.specifier} (installed: {each.installed})" for each in violations)
    alone = " in an environment of its own" if others else ""
    reasons = [f"PyPI no longer has what {engine} {installed} requires"] if version != installed else []
    reasons += [f"{', '.join(others)} requires other versions"] if others else []
    return Problem(
        "warning",
        "; ".join([f"{engine} {installed} requires {required}", *_equal_pins(stack, engine, violations)]),
        version_evidence(stack, *(each.name for each in violations), engine),
        f"Install {ENGINES[engine]} {version}{alone}: {', and '.join(reasons)}."
        if reasons
        else f"Install {ENGINES[engine]} {version} with its requirements again.",
        _installation(stack, engine, version, in_new_environment=bool(others)),
    )


def _installable(stack: Stack, engine: str, version: str) -> str:
    """The release, or the next one of which no requirement was withdrawn: for the installed torch if there is one."""
    newer = [each for each in reversed(releases_of(engine)) if not satisfies(each, f"<{version}")]
    possible = [each for each in newer if not _requires_withdrawn(engine, each)]
    if not possible or possible[0] == version:
        return version
    for_torch = releases_that_pin(engine, "torch", public_part(versions_of(stack).get("torch", "")))
    return next((each for each in possible if each in for_torch), possible[0])


def _requires_withdrawn(engine: str, version: str) -> bool:
    found = filter(None, map(parse_requirement, requirements_of_release(engine, version)))
    return any(
        is_withdrawn(each.name, each.specifier.removeprefix("==")) for each in found if "," not in each.specifier
    )


def _equal_pins(stack: Stack, engine: str, violations: list[Violation]) -> list[str]:
    """Requirements of other packages on the same versions: `vllm 0.7.2 requires torch==2.5.1`."""
    return [
        f"{requirer} {versions_of(stack)[requirer]} requires {violation.name}{specifier}"
        for violation in violations
        for requirer, specifier in specifiers_for(stack, violation.name).items()
        if requirer != engine and specifier == violation.specifier
    ]


def _packages_with_other_pins(stack: Stack, engine: str, version: str) -> list[str]:
    """The installed packages that reject the torch, the kernels or the transformers of a release of the engine."""
    versions = versions_of(stack)
    pins = {
        found.name: found.specifier[2:]
        for found in filter(None, map(parse_requirement, requirements_of_release(engine, version)))
        if re.fullmatch(r"==[^,*]+", found.specifier) and found.name in DECISIVE
    }
    return sorted(
        {
            f"{requirer} {versions[requirer]}"
            for name, pin in pins.items()
            for requirer, specifier in specifiers_for(stack, name).items()
            if requirer not in (engine, *KERNELS) and satisfies(pin, specifier) is False
        }
    )


def _installation(stack: Stack, engine: str, version: str, *, in_new_environment: bool) -> tuple[Remedy, ...]:
    with_extra = engine == "sglang" and satisfies(version, f"<={LAST_SGLANG_WITH_EXTRA}")
    requirement = f"{engine}{'[all]' if with_extra else ''}=={version}"
    if not in_new_environment:
        return steps(shell_command("uv pip install {} --torch-backend=auto", requirement))
    folder = f"{engine}-environment"
    python = minor_of(stack.python_version.value or "") or "3.12"
    return steps(
        shell_command("uv venv --python {} {}", python, folder),
        shell_command("uv pip install --python {} {} --torch-backend=auto", folder, requirement),
    )
