"""Checks on wheels that a guide names by file or address."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.versions import minor_of, public_part, satisfies
from envdoctor.manifests.actions import Download
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.flash_attn_wheels import has_release_wheel
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.requirement import WheelName, parse_wheel_name, wheel_architecture
from envdoctor.rules.registry import Problem, rule

NAMES = "https://packaging.python.org/en/latest/specifications/binary-distribution-format/#file-name-convention"
FLASH = "https://github.com/Dao-AILab/flash-attention/releases"


@rule("RUN030", kind="guide", severity="error", cause="platform-no-wheel", url=NAMES)
def wheel_is_saved_under_a_name_that_pip_refuses(context: GuideContext) -> Iterator[Problem]:
    """A wheel must keep its name: `-O flash_attn_3.whl` has no version and no tags, and every installer refuses
    it.
    """
    reported: set[str] = set()
    for action in context.guide.actions:
        if (
            isinstance(action, Download)
            and action.file.endswith(".whl")
            and not parse_wheel_name(action.file.rpartition("/")[2])
        ):
            line = line_of(context, action.line, action.file)
            tail = action.url.partition("?")[0].rpartition("/")[2]
            reported.add(action.file.rpartition("/")[2])
            yield Problem(
                "error",
                f"{action.file} is not a wheel's name: pip refuses it for want of a version and tags",
                (guide_evidence(context, "file", action.file, line),),
                f"Keep the name {tail}." if parse_wheel_name(tail) else _name_for(tail),
                (f"wget {action.url}",),
                line=line,
                cause="flash-attn-no-wheel" if "flash" in action.file else "",
            )
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            if (
                requirement.wheel
                and "*" not in requirement.wheel
                and "$" not in requirement.wheel
                and not parse_wheel_name(requirement.wheel)
                and requirement.wheel not in reported
            ):
                line = line_of(context, requirement.line, requirement.text)
                yield Problem(
                    "error",
                    f"{requirement.wheel} is not a wheel's name: pip refuses it for want of a version and tags",
                    (guide_evidence(context, "file", requirement.wheel, line),),
                    "Keep the name that the wheel was published under.",
                    line=line,
                    cause="flash-attn-no-wheel" if "flash" in requirement.wheel else "",
                )


def _name_for(tail: str) -> str:
    """`x-3.0-cp39-abi3-linux_aarch64-2.7.1-12.8.whl` has its torch and CUDA behind the tags: the name without
    them.
    """
    parts = tail.removesuffix(".whl").split("-")
    shorter = "-".join(parts[:5]) + ".whl"
    if len(parts) > 5 and parse_wheel_name(shorter):
        return f"Save it as {shorter}; {' and '.join(parts[5:])} behind the tags are the torch and CUDA it is for."
    return "Keep the name that the wheel was published under."


@rule("RUN031", kind="guide", severity="error", cause="torch-abi-mismatch", url=FLASH)
def wheel_does_not_fit_the_environment(context: GuideContext) -> Iterator[Problem]:
    """A wheel's name says for which Python, processor, torch, CUDA and C++ ABI it is, and the guide has another."""
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            name = parse_wheel_name(requirement.wheel) if requirement.wheel and "$" not in requirement.wheel else None
            if name and (wrong := _wrong(context, install, name)):
                line = line_of(context, requirement.line, requirement.wheel)
                what, cause = wrong
                yield Problem(
                    "error",
                    f"{requirement.wheel} is {what}",
                    (
                        guide_evidence(context, "wheel", requirement.wheel, line),
                        guide_evidence(context, "environment", _environment(install), install.action.line),
                    ),
                    "Take the wheel that is built for this environment, under its own name.",
                    line=line,
                    cause=cause,
                )


def _environment(install: InstallStep) -> str:
    torch = install.after.packages.get("torch")
    return f"Python {install.before.python or '(not named)'}, torch {torch.version if torch else '(none)'}"


def _wrong(context: GuideContext, install: InstallStep, name: WheelName) -> tuple[str, str] | None:
    python = install.before.python.replace(".", "")
    tags = re.findall(r"cp(\d+)", name.python_tag)
    if python and tags and name.abi_tag != "abi3" and python not in tags:
        return (
            f"for CPython {name.python_tag}, the environment has Python {install.before.python}",
            "python-unsupported",
        )
    if python and tags and name.abi_tag == "abi3" and int(python[1:]) < int(tags[0][1:] or 0):
        return (
            f"for {name.python_tag} and newer, the environment has Python {install.before.python}",
            "python-unsupported",
        )
    machine = wheel_architecture(name.platform_tag)
    if machine and machine != context.platform:
        return f"for {machine}, the guide's machine is {context.platform}", "platform-no-wheel"
    if name.platform_tag.startswith(("win", "macosx")):
        return f"for {name.platform_tag}, the guide's machine runs Linux", "platform-no-wheel"
    return _wrong_build(install, name)


def _wrong_build(install: InstallStep, name: WheelName) -> tuple[str, str] | None:
    torch = install.after.packages.get("torch")
    label = name.version.partition("+")[2].lower()
    if not torch or not torch.version or torch.wheel or name.name == "torch":
        return None
    minor = re.search(r"torch(\d+\.\d+)", label) or re.search(r"torch(\d)(\d{1,2})0?(?=\D|$)", label)
    torch_release = minor[1] if minor and "." in minor[1] else ""
    if torch_release and torch_release != minor_of(torch.version):
        return f"built for torch {torch_release}, the guide has torch {torch.version}", "torch-abi-mismatch"
    major = re.search(r"cu(\d{2})", label)
    if major and torch.cuda not in ("", "cpu") and major[1] != torch.cuda.partition(".")[0]:
        return f"built for CUDA {major[1]}, the guide's torch is for CUDA {torch.cuda}", "torch-abi-mismatch"
    abi = re.search(r"cxx11abi(true|false)", label)
    if abi and torch.origin == "PyPI" and not satisfies(torch.version, "==2.6.*"):
        new = bool(satisfies(public_part(torch.version), ">=2.7"))
        if (abi[1] == "true") != new:
            words = ("new", "old") if abi[1] == "true" else ("old", "new")
            return (
                f"built for the {words[0]} C++ ABI, torch {torch.version} has the {words[1]} one",
                "torch-abi-mismatch",
            )
    return None


@rule("RUN032", kind="guide", severity="error", cause="flash-attn-no-wheel", url=FLASH)
def release_has_no_such_wheel(context: GuideContext) -> Iterator[Problem]:
    """The address names a wheel that the project's release does not have: nothing is downloaded but an error page."""
    places = [
        (requirement.wheel, requirement.url, requirement.line)
        for install in context.trace.installs
        for requirement in install.action.requirements
        if requirement.wheel
    ]
    places += [(a.url.rpartition("/")[2], a.url, a.line) for a in context.guide.actions if isinstance(a, Download)]
    for wheel, address, start in places:
        name = parse_wheel_name(wheel.replace("%2B", "+"))
        if not name or name.name != "flash-attn" or "Dao-AILab/flash-attention/releases" not in address:
            continue
        torch = re.search(r"torch(\d+\.\d+)", name.version)
        abi = re.search(r"cxx11abi(TRUE|FALSE)", name.version)
        python = re.search(r"cp3(\d+)", name.python_tag)
        if not torch or not python:
            continue
        there = has_release_wheel(
            public_part(name.version),
            torch[1],
            f"3.{python[1]}",
            wheel_architecture(name.platform_tag),
            abi[1] if abi else "",
        )
        if there is False:
            line = line_of(context, start, wheel)
            yield Problem(
                "error",
                f"the release {public_part(name.version)} of flash-attn has no wheel {wheel}",
                (
                    guide_evidence(context, "wheel", wheel, line),
                    table_evidence(
                        "wheels of the release", "torch 2.4 to 2.8, few for 2.9", f"assets of {FLASH}", "2026-11-21"
                    ),
                ),
                "Take one of the wheels that the release lists, or leave flash-attn out: SDPA needs no package.",
                line=line,
            )
