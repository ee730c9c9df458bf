"""Rules on the requirements that installed distributions declare."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from envdoctor.core.records import Machine, Stack, Status
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.imports import broken_imports
from envdoctor.knowledge.releases import checked_specifier, releases_that_accept, undeclared_versions
from envdoctor.knowledge.versions import is_local_build, is_prerelease, public_part, satisfies
from envdoctor.rules.engine_pins import ENGINES, pins_of
from envdoctor.rules.facts import is_from_conda, is_from_report
from envdoctor.rules.known_breaks import has_known_break
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import (
    COMPANIONS,
    COMPILED,
    CORE,
    Violation,
    agreed_range,
    bounded,
    group_by_package,
    requirements_of,
    version_evidence,
    versions_of,
)
from envdoctor.rules.violations import cause_of, severity_of

SPECIFIERS = "https://packaging.python.org/en/latest/specifications/version-specifiers/"
# conda, containers or another distribution with the same module often provide these.
PROVIDED_ELSEWHERE = frozenset({"triton", "torch", "opencv-python-headless", "opencv-python"})


def version_conflicts(stack: Stack, cause: str) -> Iterator[Problem]:
    """One problem for each package whose version others reject; conflicts of severity `info` are left out."""
    versions = versions_of(stack)
    conflicts = [
        violation
        for violation in requirements_of(stack).violations
        if cause_of(violation, versions) == cause and not _is_minor(violation)
    ]
    if conflicts:  # PKG050 reports those of engines together
        of_engines = {each for engine in ENGINES for each in pins_of(stack, engine)}
        conflicts = [each for each in conflicts if each not in of_engines]
    for name, violations in group_by_package(conflicts):
        yield version_conflict(stack, name, violations)
    undecided = [each for each in requirements_of(stack).undecided if cause_of(each, versions) == cause]
    yield from (_undecided(stack, each) for each in undecided if not is_local_build(each.requirer_version))


def _undecided(stack: Stack, violation: Violation) -> Problem:
    """A release next to a nightly or a build from source, which may have what the release needs."""
    module = violation.requirer.replace("-", "_")
    return Problem(
        "info",
        f"{violation}; this is not a release, so the versions do not show whether they fit",
        version_evidence(stack, violation.name, violation.requirer),
        f"Import {violation.requirer} to find out.",
        steps(f"{stack.python.value or 'python'} -c 'import {module}'"),
    )


def version_conflict(stack: Stack, name: str, violations: list[Violation]) -> Problem:
    """A package at a version that others do not accept."""
    order: list[Status] = ["error", "warning", "info"]
    status = min((severity_of(violation) for violation in violations), key=order.index)
    worst_first = sorted(violations, key=lambda violation: order.index(severity_of(violation)))
    message = "; ".join(str(violation) for violation in worst_first[:4]) + (
        f"; and {len(worst_first) - 4} more" if len(worst_first) > 4 else ""
    )
    wanted, agree = agreed_range(stack, name)
    users = ", ".join(sorted({violation.requirer for violation in violations}))
    installed = violations[0].installed
    accepting = _release_that_accepts(violations)
    commands = [shell_command("uv pip install '{}{}'", name, bounded(wanted))] if agree else []
    if accepting:  # a smaller change than another torch
        commands[: 1 if "triton-windows" in accepting else 0] = [shell_command("uv pip install {}", accepting)]
    return Problem(
        status,
        message,
        version_evidence(stack, name, *sorted({violation.requirer for violation in violations})),
        f"Install {name}{wanted}, or {'a release' if len(violations) == 1 else 'releases'} of {users} for "
        f"{name} {installed}."
        if agree
        else f"No version of {name} satisfies all packages: install another release of {users}, or a separate "
        "environment for it.",
        either(*commands),
    )


def _release_that_accepts(violations: list[Violation]) -> str:
    """The nearest release of the only requirer, a package compiled for torch, for the installed version."""
    violation = violations[0]
    if violation.requirer == "triton-windows":  # PyPI's torch for Windows has no CUDA
        versions = undeclared_versions("triton-windows", public_part(violation.installed))
        return f"triton-windows{versions}" if versions else ""
    if len(violations) != 1 or violation.requirer not in COMPANIONS | COMPILED:
        return ""
    releases = releases_that_accept(violation.requirer, violation.name, public_part(violation.installed))
    older = [each for each in releases if satisfies(each, f"<{public_part(violation.requirer_version)}")]
    newer = [each for each in releases if each not in older and not is_prerelease(each)]
    nearest = [*newer[-1:], *older[:1]]
    return f"{violation.requirer}=={nearest[0]}" if nearest else ""


def _is_minor(violation: Violation) -> bool:
    return severity_of(violation) == "info"


@rule("PKG001", kind="environment", severity=("error", "warning", "info"), cause="dependency-pin-violated")
def installed_version_is_outside_a_declared_range(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """An installed distribution requires a version of another one that is not the installed version.

    Installers check these ranges when they resolve, but not when a later `pip install` changes one package.
    `transformers` checks its ranges at import and raises ImportError (huggingface-hub 1.x with transformers 4,
    tokenizers). numba rejects a NumPy that is too new, and structured output in vLLM fails with another xgrammar or
    outlines. Ranges of packages that are unrelated to training and serving are reported as `info`.

    Fix: install a version inside all ranges, in one command together with the packages that require it, so that the
    resolver considers all ranges at once.

    References:
    https://packaging.python.org/en/latest/specifications/version-specifiers/
    https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_check.py
    """
    yield from version_conflicts(stack, "dependency-pin-violated")
    minor_violations = [
        violation
        for violation in requirements_of(stack).violations
        if _is_minor(violation) and cause_of(violation, versions_of(stack)) != "nccl-lib-mismatch"
    ]
    if minor_violations:
        listed = "; ".join(str(violation) for violation in minor_violations[:5]) + (
            "; ..." if len(minor_violations) > 5 else ""
        )
        yield Problem(
            "info",
            f"{len(minor_violations)} declared ranges of less important packages are violated: {listed}",
            version_evidence(stack, *sorted({violation.name for violation in minor_violations})[:8]),
            "No action needed unless one of these packages fails.",
        )


@rule("PKG002", kind="environment", severity=("error", "warning", "info"), cause="torch-companion-mismatch")
def torch_companion_is_for_another_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """torchvision, torchaudio or torchcodec is the release for another torch.

    Each has compiled operators for exactly one torch release. With another torch they are not registered: `operator
    torchvision::nms does not exist`, undefined symbols, or an OSError from libtorchaudio. transformers imports
    torchvision and fails as well. Patch releases of one minor version usually work. torchaudio 2.11 and torchcodec
    0.12 use torch's stable ABI: they run with torch 2.11 and newer, but not with older ones. Nightlies and builds
    from source are not compared.

    Fix: install both in one command from one index.

    References:
    https://github.com/pytorch/vision#installation
    https://docs.pytorch.org/audio/stable/installation.html
    """
    yield from version_conflicts(stack, "torch-companion-mismatch")


@rule("PKG003", kind="environment", severity=("error", "warning"), cause="numpy2-abi")
def numpy_2_is_installed_but_numpy_1_is_required(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """NumPy 2 is installed, but a library of the environment requires NumPy 1.

    Modules compiled for NumPy 1 fail with `A module that was compiled using NumPy 1.x cannot be run in NumPy 2` or
    `_ARRAY_API not found`. Pure Python modules use removed names such as `np.float_`, `numpy.lib.function_base`.

    Fix: install NumPy below 2, or releases of those libraries that accept NumPy 2.

    References:
    https://github.com/numpy/numpy/issues/26191
    https://github.com/vllm-project/vllm/issues/5587
    """
    yield from version_conflicts(stack, "numpy2-abi")


@rule(
    "PKG004",
    kind="environment",
    severity=("error", "warning"),
    cause="transformers-too-new",
    url="https://github.com/huggingface/transformers/releases",
)
def transformers_is_newer_than_declared(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """transformers is newer than a library of the environment accepts according to its metadata.

    transformers renames and removes names between minor releases, especially in 5.0. vLLM, verl, Unsloth and others
    therefore set an upper bound. Other rules cover limits that no metadata contains (HF001 and the following).

    Fix: install a transformers inside the range, or a newer release of the library that limits it.

    References:
    https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md
    """
    yield from version_conflicts(stack, "transformers-too-new")


@rule("PKG005", kind="environment", severity=("error", "warning"), cause="library-too-old")
def library_is_older_than_declared(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """torch, transformers, accelerate, peft, trl or datasets is older than another package requires.

    That package then imports a name or passes an argument that does not exist yet: ImportError, AttributeError,
    `unexpected keyword argument`.

    Fix: upgrade the library; if another package pins it, use separate environments.

    References:
    https://packaging.python.org/en/latest/specifications/version-specifiers/
    """
    yield from version_conflicts(stack, "library-too-old")


@rule("PKG006", kind="environment", severity=("error", "warning", "info"), cause="torch-abi-mismatch")
def compiled_package_declares_another_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """xformers or another compiled extension requires a torch release other than the installed one.

    Its binary was compiled for that release: undefined `c10` or `at` symbols at import, or `xFormers can't load
    C++/CUDA extensions`, after which attention is slow or fails.

    Builds from source keep the requirement of the release, and are not reported. Next to a nightly torch, or one
    built from source, the versions do not show whether a release fits: that is `info`.

    Fix: install the release of the extension for the installed torch, or the torch that it was built for.

    References:
    https://github.com/facebookresearch/xformers#installing-xformers
    """
    yield from version_conflicts(stack, "torch-abi-mismatch")


@rule("PKG007", kind="environment", severity="warning", cause="dependency-pin-violated", url=SPECIFIERS)
def declared_requirement_is_not_installed(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A library of the environment requires a package that is not installed.

    The reason is `--no-deps`, an interrupted installation or a removal. Importing the library, or the feature that
    needs the package, fails with ModuleNotFoundError. The rule needs the complete list of distributions. It ignores
    NVIDIA's libraries and packages that conda installs under other names.

    Fix: install it.

    References:
    https://packaging.python.org/en/latest/specifications/dependency-specifiers/
    """
    if is_from_report(stack):
        return
    distributions = stack.distributions.value or {}
    missing_by_requirer: dict[str, list[str]] = {}
    for missing in requirements_of(stack).missing:
        by_conda = missing.requirer in distributions and is_from_conda(distributions[missing.requirer])
        expected = missing.name.startswith(("nvidia-", "cuda-")) or missing.name in PROVIDED_ELSEWHERE
        if missing.requirer in CORE and not expected and not by_conda:
            missing_by_requirer.setdefault(missing.requirer, []).append(missing.name + missing.specifier)
    for requirer, names in missing_by_requirer.items():
        yield Problem(
            "warning",
            f"{requirer} {distributions[requirer].version} requires packages that are not installed: "
            + ", ".join(sorted(names)[:6]),
            version_evidence(stack, requirer),
            "Install the missing packages.",
            steps(shell_command("uv pip install {}", sorted(map(bounded, names))[:12])),
        )


@rule("PKG015", kind="environment", severity="warning", cause="dependency-pin-violated")
def triton_imports_setuptools_which_is_missing(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """Triton 3.1 or 3.2 imports setuptools, which is not installed.

    uv's environments do not include it. Triton does not require it, and torch does so only on Python 3.12 and newer.
    `import triton` fails with `No module named 'setuptools'`, and so do torch.compile and Triton's kernels. Triton
    3.1.0 and 3.2.0 import it in triton/runtime/build.py, 3.3.1 does not.

    Fix: install setuptools.

    References:
    https://github.com/triton-lang/triton/issues/5090
    """
    versions = versions_of(stack)
    old = satisfies(versions.get("triton", ""), ">=3.1,<3.3") and not is_from_report(stack)
    if old and stack.distributions.value and "setuptools" not in versions:
        yield Problem(
            "warning",
            f"triton {versions['triton']} imports setuptools, which is not installed",
            version_evidence(stack, "triton", "torch"),
            "Install setuptools below 82.",
            steps("uv pip install 'setuptools>=70,<82'"),
        )


# Bounds in extras that the library also checks at run time: below them it raises or disables the backend.
_CHECKED_OPTIONAL = (("transformers", "torch"), ("transformers", "accelerate"))
# Bounds in extras that no code checks: trl 0.15.2 imports its trainers with peft 0.4.0, run on 2026-11-28.
_STATED_OPTIONAL = (("trl", "peft"),)


@rule("PKG008", kind="environment", severity=("error", "info"), cause="library-too-old")
def optional_library_is_below_its_minimum(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """torch, accelerate or peft is older than the extras of transformers or TRL require.

    Installers do not check extras later. transformers then prints `Disabling PyTorch because PyTorch >= 2.4 is
    required` and defines no models, or rejects the Trainer: `requires accelerate>=1.1.0`. A note for peft, which TRL
    imports without a check.

    Fix: upgrade the library, or install an older transformers.

    References:
    https://github.com/huggingface/transformers/blob/main/setup.py
    https://github.com/huggingface/transformers/issues/45278
    """
    versions = versions_of(stack)
    for user, name in (*_CHECKED_OPTIONAL, *_STATED_OPTIONAL):
        if user not in versions or name not in versions:
            continue
        specifier = checked_specifier(user, versions[user], name)
        is_checked = (user, name) in _CHECKED_OPTIONAL
        minimum = ",".join(part for part in specifier.split(",") if part.startswith(">="))
        if minimum and satisfies(versions[name].partition("+")[0], minimum) is False:
            yield Problem(
                "error" if is_checked else "info",
                f"{user} {versions[user]} requires {name}{minimum}, but {versions[name]} is installed"
                + ("" if is_checked else "; only an extra states it"),
                version_evidence(stack, user, name),
                f"Install {name}{minimum}" + (f", or an older {user}." if name != "accelerate" else "."),
                either(
                    shell_command("uv pip install '{}{}'", name, bounded(minimum)),
                    *_older_release(versions, user, name),
                ),
            )


def _older_release(versions: dict[str, str], user: str, name: str) -> list[str]:
    """The install command of the newest older release of `user` that works with the installed release of `name`.

    None for accelerate, which is upgraded alone: an older transformers would break more than it cures.
    """
    if name == "accelerate":
        return []
    releases = releases_that_accept(user, name, public_part(versions[name]))
    older = (each for each in releases if satisfies(each, f"<{public_part(versions[user])}"))
    working = (each for each in older if _works_with({name: versions[name], user: each}, user, name))
    return [shell_command("uv pip install {}=={}", user, release) for release in islice(working, 1)]


def _works_with(versions: dict[str, str], user: str, name: str) -> bool:
    """Whether no known break and no import of an absent name is about these two releases."""
    return not has_known_break(versions, user, name) and not any(broken_imports(versions))
