"""The steps of a Dockerfile or an Apptainer definition that can change what the image needs, and were not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.image_steps import harmless_programs, plain_packages, queries_of
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import Install, InstallSystemPackages, Run, UseImage
from envdoctor.manifests.container_files import Instruction
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.records import Document
from envdoctor.manifests.shell_records import Command
from envdoctor.resolution.requirement import InstallRequirement

WITHOUT_GPU = lazy_pattern(
    r"(?:^|/)(?:python|ubuntu|debian|alpine|busybox|scratch|astral/uv|astral-sh/uv|redis|postgres|nginx)$"
)
GPU_PACKAGES = lazy_pattern(
    r"vllm|sglang|sgl-kernel|jax-cuda.*|tensorflow|cupy-.*|onnxruntime-gpu|flash-attn.*|deepspeed|xformers|"
    r"numba-cuda|llama-cpp-python|ctranslate2|tensorrt.*|cudf.*|cuml.*"
)
# Packages of the operating system with CUDA, and files whose packages are known only after the build.
SYSTEM_PACKAGES = lazy_pattern(
    r"(?:lib)?(?:cuda|cublas|torch|nvinfer|tensorrt|nvidia-cuda)\S*|python3?-torch\S*|.*[/$].*"
)
COMPAT_PACKAGE = lazy_pattern(r"cuda-compat-(\d+)-(\d+)")
STARTS_PROGRAMS = lazy_pattern(r"subprocess|system|popen|spawn|exec|install|pip", re.IGNORECASE)
UV_INSTALLER = lazy_pattern(r"https://astral\.sh/uv/(?:[\d.]+/)?install\.sh")
PROGRAM_ARGUMENTS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "foreach"})  # of find and git submodule
COPIED_FROM = lazy_pattern(r"--from=(\S+)")
LINE = lazy_pattern(r"\(line (\d+)\)")
MAX_LISTED = 50


class Build(NamedTuple):
    """The instructions of a file, and the lines of the stages that its image contains."""

    document: Document
    instructions: Sequence[Instruction]
    chain: Sequence[UseImage]  # the last stage, then those that it starts from


def unread_steps(build: Build, packages: frozenset[str]) -> tuple[str, ...]:
    """What was not read or is not known; `packages` are those of the image whose release is known."""
    lines = _lines_of_stages(build)
    found = [text for text in build.document.unread if not (at := LINE.search(text)) or int(at[1]) in lines]
    scripts = _lines_of_scripts(build, lines)
    for guide in build.document.paths:
        found += _of_installs(guide, lines, "torch" in packages)
        found += _of_commands(guide, scripts)
    found += _of_branches(build.document.paths, lines)
    found += _of_copies(build, lines)
    return tuple(dict.fromkeys(found))[:MAX_LISTED]


def _lines_of_stages(build: Build) -> set[int]:
    """The lines of the last stage and of the stages that it starts from."""
    starts = {base.line for base in build.chain}
    lines: set[int] = set()
    is_included = False
    for instruction in build.instructions:
        if not instruction.lines:
            continue
        first = instruction.lines[0][0]
        is_included = first in starts if instruction.name == "FROM" else is_included
        if is_included:
            lines |= {number for number, _ in instruction.lines}
    return lines


def _lines_of_scripts(build: Build, lines: set[int]) -> set[int]:
    runs = (each for each in build.instructions if each.name == "RUN")
    return {number for each in runs for number, _ in each.lines} & lines


def _of_installs(guide: Guide, lines: set[int], has_torch: bool) -> Iterator[str]:
    for action in guide.actions:
        if action.line not in lines:
            continue
        if isinstance(action, Install):
            for each in (*action.requirements, *action.unknown):
                if reason := _unknown_release(each, has_torch=has_torch):
                    yield f"`{each.text}` (line {action.line}): {reason}"
        elif isinstance(action, InstallSystemPackages):
            for name in action.names:
                if SYSTEM_PACKAGES.fullmatch(name) and not COMPAT_PACKAGE.match(name):
                    yield f"`{name}` (line {action.line}): the CUDA version of this system package is not known"


def _unknown_release(requirement: InstallRequirement, *, has_torch: bool) -> str:
    """Why a requirement decides and is not known; empty if it is known."""
    if requirement.url or not requirement.name:
        return "a file, folder, repository or URL, which was not read"
    releases = published_releases(requirement.name)
    if releases:
        known = any(satisfies(each.version, requirement.specifier or ">=0") for each in releases)
        return "" if known else "no known release"
    if GPU_PACKAGES.fullmatch(requirement.name):
        return "a package with GPU code that is in no table"
    if has_torch or requirement.name in plain_packages():
        return ""
    return "its requirements are in no table"


def _of_commands(guide: Guide, scripts: set[int]) -> Iterator[str]:
    """The commands of RUN that are neither a known installation nor harmless."""
    understood = {action.command for action in guide.actions if not isinstance(action, (UseImage, Run))}
    previous = ""
    for command in guide.commands:
        if command.line in scripts and command.words and not _is_harmless(command, understood, previous):
            yield f"`{command}` (line {command.line}): what it installs was not read"
        previous = command.text


def _is_harmless(command: Command, understood: set[str], previous: str) -> bool:
    words = [word for word in command.words if word != "sudo"]
    if not words or str(command) in understood:
        return True
    name, arguments = words[0].removeprefix("/usr/bin/").removeprefix("/bin/"), words[1:]
    if queries := queries_of(name.lower()):
        verb = next((word for word in arguments if not word.startswith("-") or word in queries), "")
        return verb in queries
    if name in ("sh", "bash"):  # reads the output of the previous command
        is_script = any(not word.startswith("-") for word in arguments)
        return not is_script and bool(UV_INSTALLER.search(previous))
    if name in ("source", "."):
        return bool(arguments) and arguments[0].endswith("/activate")
    if re.fullmatch(r"python[\d.]*", name):
        is_code = len(arguments) == 2 and arguments[0] == "-c" and not STARTS_PROGRAMS.search(arguments[1])
        return is_code or arguments[:1] in (["--version"], ["-V"])
    starts_program = PROGRAM_ARGUMENTS.intersection(arguments)
    return not starts_program and (name.lower() in harmless_programs() or words[:2] == ["command", "-v"])


def _of_branches(paths: Sequence[Guide], lines: set[int]) -> Iterator[str]:
    """The branches of a script that install other packages than the first one, which is judged."""
    installs = [
        [action.requirements for action in guide.actions if isinstance(action, Install) and action.line in lines]
        for guide in paths
    ]
    if any(each != installs[0] for each in installs[1:]):
        yield "branches of its scripts that install other packages"


def _of_copies(build: Build, lines: set[int]) -> Iterator[str]:
    """Files of other images and stages, and downloads that ADD puts into the image."""
    for instruction in build.instructions:
        if not instruction.lines or instruction.lines[0][0] not in lines:
            continue
        number, text = instruction.lines[0]
        source = COPIED_FROM.search(text) if instruction.name in ("COPY", "ADD") else None
        if source and not WITHOUT_GPU.search(source[1].partition("@")[0].partition(":")[0]):
            yield f"`{instruction.name} --from={source[1]}` (line {number}): the copied files were not read"
        elif instruction.name == "ADD" and re.search(r"(?:https?|git)://|git@|\.tar\b|\.t[gx]z\b", text):
            yield f"`ADD` (line {number}): the added files were not read"
