"""Checks on wheels that a guide names by file or URL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import either
from envdoctor.knowledge.images import image_tables
from envdoctor.knowledge.versions import minor_of, public_part, satisfies
from envdoctor.manifests.actions import Download
from envdoctor.manifests.checks.builds import BUILT_WITH_TORCH
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.flash_attn_wheels import has_release_wheel, torch_of_wheels
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement, WheelName, parse_wheel_name, wheel_architecture
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

NAMES = "https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-name-convention"
FLASH = "https://github.com/Dao-AILab/flash-attention/releases"
_UBUNTU = lazy_pattern(r"\bUbuntu(?: Server| LTS)?[ -]?v?(\d\d\.04)\b", re.IGNORECASE)
_KEEP_NAME = "Keep the name that the wheel was published under."


def _wheel_requirements(context: GuideContext) -> Iterator[tuple[InstallStep, InstallRequirement]]:
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            if requirement.wheel:
                yield install, requirement


@rule("RUN030", kind="guide", severity="error", cause="platform-no-wheel", url=NAMES)
def wheel_has_an_invalid_file_name(context: GuideContext) -> Iterator[Problem]:
    """Installers reject a wheel without version and tags in its name, such as `-O flash_attn_3.whl`."""
    reported: set[str] = set()
    for action in context.actions(Download):
        name = action.file.rpartition("/")[2]
        if name.endswith(".whl") and not parse_wheel_name(name):
            reported.add(name)
            published_name = action.url.partition("?")[0].rpartition("/")[2]
            is_valid = parse_wheel_name(published_name)
            valid_name = published_name if is_valid else _valid_name(published_name)
            fix = f"Keep the name {published_name}." if is_valid else _rename(published_name, valid_name)
            words = ["wget", action.url, *([] if is_valid else ["-O", valid_name])]
            command = shlex.join(words) if valid_name else ""
            yield _invalid_name(context, action.file, line_of(context, action.line, action.file), fix, command)
    for _, requirement in _wheel_requirements(context):
        name = requirement.wheel
        if "*" not in name and "$" not in name and not parse_wheel_name(name) and name not in reported:
            yield _invalid_name(context, name, line_of(context, requirement.line, requirement.text), _KEEP_NAME)


def _invalid_name(context: GuideContext, file: str, line: int, fix: str, command: str = "") -> Problem:
    return Problem(
        "error",
        f"{file} is not a valid wheel name: pip rejects it, because version and tags are missing",
        (guide_evidence(context, "file", file, line),),
        fix,
        either(*((command,) if command else ())),
        line=line,
        cause="flash-attn-no-wheel" if "flash" in file else "",
    )


def _valid_name(name: str) -> str:
    """`x-3.0-cp39-abi3-linux_aarch64-2.7.1-12.8.whl` without what follows its tags; empty if that is invalid."""
    parts = name.removesuffix(".whl").split("-")
    valid_name = "-".join(parts[:5]) + ".whl"
    return valid_name if len(parts) > 5 and parse_wheel_name(valid_name) else ""


def _rename(name: str, valid_name: str) -> str:
    """The fix for a wheel that was published under an invalid name."""
    if not valid_name:
        return _KEEP_NAME
    versions = " and ".join(name.removesuffix(".whl").split("-")[5:])
    return f"Save it as {valid_name}; {versions} after the tags are the versions of torch and CUDA."


@rule("RUN031", kind="guide", severity="error", cause="torch-abi-mismatch", url=FLASH)
def wheel_is_incompatible_with_the_environment(context: GuideContext) -> Iterator[Problem]:
    """The name of a wheel states another Python, CPU architecture, torch, CUDA or C++ ABI than the guide has."""
    for install, requirement in _wheel_requirements(context):
        name = parse_wheel_name(requirement.wheel) if "$" not in requirement.wheel else None
        mismatch = _tag_mismatch(context, install, name) or _build_mismatch(install, name) if name else None
        if mismatch:
            line = line_of(context, requirement.line, requirement.wheel)
            description, cause = mismatch
            torch = install.after.packages.get("torch")
            contents = (
                f"Python {_python(context, install) or '(not named)'}, torch {torch.version if torch else '(none)'}"
            )
            yield Problem(
                "error",
                f"{requirement.wheel} is {description}",
                (
                    guide_evidence(context, "wheel", requirement.wheel, line),
                    guide_evidence(context, "environment", contents, install.action.line),
                ),
                "Use the wheel that is built for this environment, under its own name.",
                line=line,
                cause=cause,
            )


def _tag_mismatch(context: GuideContext, install: InstallStep, name: WheelName) -> tuple[str, str] | None:
    """The description and cause of a tag that does not match; None if all match."""
    python = _python(context, install)
    has_python = f"the environment has Python {python}"
    if python and not install.before.python:
        has_python = f"the system of the guide has Python {python}"
    digits = python.replace(".", "")
    tags = re.findall(r"cp(\d+)", name.python_tag)
    if python and tags:
        if name.abi_tag != "abi3" and digits not in tags:
            return f"for CPython {name.python_tag}, {has_python}", "python-unsupported"
        if name.abi_tag == "abi3" and int(digits[1:]) < int(tags[0][1:] or 0):
            return f"for {name.python_tag} and newer, {has_python}", "python-unsupported"
    architecture = wheel_architecture(name.platform_tag)
    if architecture and architecture != context.platform:
        return f"for {architecture}, the machine of the guide is {context.platform}", "platform-no-wheel"
    glibc = re.search(r"manylinux_2_(\d+)_", name.platform_tag)
    if glibc and install.before.glibc and satisfies(install.before.glibc, f"<2.{glibc[1]}"):
        needed = f"for glibc 2.{glibc[1]} and newer"
        return f"{needed}, the system of the environment has glibc {install.before.glibc}", "platform-no-wheel"
    if name.platform_tag.startswith(("win", "macosx")):
        return f"for {name.platform_tag}, the machine of the guide runs Linux", "platform-no-wheel"
    return None


def _python(context: GuideContext, install: InstallStep) -> str:
    """The Python of the environment; outside of one that of the system, if the text names one release of Ubuntu."""
    if install.before.python or install.before.tool:
        return install.before.python
    named = {match[1] for text in context.guide.lines for match in _UBUNTU.finditer(text)}
    systems = [row for row in image_tables().system if row.name in {f"ubuntu{each}" for each in named}]
    return systems[0].python if len(named) == 1 and systems else ""


def _build_mismatch(install: InstallStep, name: WheelName) -> tuple[str, str] | None:
    """The description and cause of a torch, CUDA or ABI in the local version that does not match."""
    torch = install.after.packages.get("torch")
    local = name.version.partition("+")[2].lower()
    if not torch or not torch.version or torch.wheel or name.name == "torch" or _is_torch_presupposed(torch):
        return None
    cause = "torch-abi-mismatch"
    release = re.search(r"torch(\d+\.\d+)", local)
    if release and release[1] != minor_of(torch.version):
        return f"built for torch {release[1]}, the guide installs torch {torch.version}", cause
    cuda = re.search(r"cu(\d{2})", local)
    if cuda and torch.cuda not in ("", "cpu") and cuda[1] != torch.cuda.partition(".")[0]:
        return f"built for CUDA {cuda[1]}, torch in the guide is built for CUDA {torch.cuda}", cause
    abi = re.search(r"cxx11abi(true|false)", local)
    if abi and _has_known_abi(torch):
        torch_abi = "true" if satisfies(public_part(torch.version), ">=2.7") else "false"
        if abi[1] != torch_abi:
            abi_names = {"true": "new", "false": "old"}
            description = f"built for the {abi_names[abi[1]]} C++ ABI, torch {torch.version} has the "
            return description + f"{abi_names[torch_abi]} one", cause
    return None


def _is_torch_presupposed(torch: ResolvedPackage) -> bool:
    """Whether no step brings torch except one whose own build needs it: it is there before, in an unknown release."""
    return torch.is_dependency and torch.reason.removeprefix("required by ").partition(" ")[0] in BUILT_WITH_TORCH


def _has_known_abi(torch: ResolvedPackage) -> bool:
    """Whether the C++ ABI of a torch follows from its release: the PyTorch index has both for older ones than 2.7."""
    version = public_part(torch.version)
    if torch.origin == "PyPI":
        return not satisfies(version, "==2.6.*")
    is_release = torch.origin.startswith("the PyTorch index") and "nightly" not in torch.origin
    return is_release and satisfies(version, ">=2.7") is True


@rule("RUN032", kind="guide", severity="error", cause="flash-attn-no-wheel", url=FLASH)
def wheel_url_does_not_exist(context: GuideContext) -> Iterator[Problem]:
    """The URL names a wheel that is not an asset of the release."""
    wheels = [(package.wheel, package.url, package.line) for _, package in _wheel_requirements(context)]
    wheels += [(action.url.rpartition("/")[2], action.url, action.line) for action in context.actions(Download)]
    for wheel, url, start in wheels:
        name = parse_wheel_name(wheel.replace("%2B", "+"))
        if not name or name.name != "flash-attn" or "Dao-AILab/flash-attention/releases" not in url:
            continue
        version = public_part(name.version)
        torch = re.search(r"torch(\d+\.\d+)", name.version)
        abi = re.search(r"cxx11abi(TRUE|FALSE)", name.version)
        python = re.search(r"cp3(\d+)", name.python_tag)
        if not torch or not python:
            continue
        architecture = wheel_architecture(name.platform_tag)
        if has_release_wheel(version, torch[1], f"3.{python[1]}", architecture, abi[1] if abi else "") is False:
            line = line_of(context, start, wheel)
            torches, source, date = torch_of_wheels(version)
            yield Problem(
                "error",
                f"release {version} of flash-attn has no wheel {wheel}",
                (
                    guide_evidence(context, "wheel", wheel, line),
                    table_evidence("wheels of the release", f"torch {torches}", source, date),
                ),
                "Use one of the wheels of the release, or omit flash-attn: SDPA needs no package.",
                line=line,
            )
