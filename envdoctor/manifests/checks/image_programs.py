"""Checks on programs that a step of an image build runs, and that the image lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.image_programs import ImageProgram, image_programs
from envdoctor.manifests.checks.evidence import command_evidence, table_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.container_files import Instruction
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.image_stages import Stage, commands_of, image_stages, shell_text
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

APT = "https://docs.docker.com/build/building/best-practices/#apt-get"
VENV = "https://packages.debian.org/stable/python3-venv"
PACKAGES = "https://packages.debian.org/stable/python3-pip"
_HAS_VENV = lazy_pattern(
    r"-venv\b|python3(?:\.\d+)?-full|get-pip|conda|mamba|pyenv|uv python|make (?:alt)?install|--from="
)
_COMPILED = frozenset({"gcc", "g++", "make", "nvcc"})  # in the images of CUDA with nvcc
# A script of unknown content can install any package. Those of conda, uv and rustup install none of apt.
_SCRIPT = lazy_pattern(
    r"(?:^|[;&|(]|\bRUN\b)\s*(?:sudo\s+|exec\s+)?(?:(?:bash|sh|source|\.)\s+(?:-\w+\s+)*[^\s;&|'\"-]\S*|\.{0,2}/[\w./-]+\.\w+)"
    r"|\|\s*(?:sudo\s+)?(?:-E\s+)?(?:ba)?sh\b|\bxargs\b|\binstall\b[^\n;&|]*\$|\bansible|<\s*\S+\.txt",
    re.MULTILINE,
)
_HARMLESS_SCRIPT = lazy_pattern(
    r"(?i)(?:mini(?:conda|forge)|mambaforge|anaconda)\w*[\w.$(){}-]*\.sh|astral\.sh|rustup|conda\.sh|get-pip\.py|setup\.py"
    r"|\bm\.sh\b"
)
# Packages of apt that do not depend on Python, also not by their recommendations: Debian 12 and Ubuntu 22.04.
_WITHOUT_PYTHON = lazy_pattern(
    r"git(?:-lfs)?|curl|wget|unzip|zip|nano|tmux|htop|screen|less|tree|jq|sudo|rsync|ca-certificates|locales|tzdata|gnupg2?"
    r"|openssh-(?:server|client)|net-tools|iputils-ping|bzip2|xz-utils|p7zip-full|aria2|ffmpeg|libgl1(?:-mesa-glx)?"
    r"|libglib2\.0-0(?:t64)?|libsm6|libxext6|libxrender1|libsndfile1|libgomp1|procps|numactl|libnuma1|cmake|make|gcc|g\+\+"
    r"|apt-transport-https|pkg-config"
)
_OTHER_PYTHON = lazy_pattern(
    r"python|pip\b|pypy|conda|mamba|pyenv|\buv\b|pixi|poetry|nix|\bCOPY\b[^\n]*--from|\bADD\b|deadsnakes|build-essential",
    re.IGNORECASE,
)
_PYTHON_ALIAS = lazy_pattern(
    r"python-is-python3|\bln\s|update-alternatives|alias|venv|conda|mamba|pyenv|\buv\b|pixi|poetry|--from|/bin/python\b"
    r"|make (?:alt)?install|get-pip|\bpython(?:-dev|-pip|2)\b|\bPATH\b|(?<![\w.-])python(?=\s*(?:\\|$|&&))",
    re.IGNORECASE | re.MULTILINE,
)
_HAS_PIP = lazy_pattern(
    r"python3?-pip|python3?-venv|python3[.\d]*-venv|get-pip|ensurepip|easy_install|conda|mamba|pyenv|\buv\b|pixi|poetry|--from"
    r"|python3[.\d]*-(?:full|virtualenv)|virtualenv|pipx|make (?:alt)?install|deadsnakes.*ensurepip|/bin/pip|\bADD\b",
    re.IGNORECASE,
)


@rule("RUN152", kind="guide", severity="error", cause="system-library-missing", url=APT)
def image_lacks_a_program(context: GuideContext) -> Iterator[Problem]:
    """A step runs a program such as git, curl, unzip, cmake or uv that the image lacks, and no step installs it.

    The images of Debian, Ubuntu and CUDA, those of Python and PyTorch; the slim ones of Python
    have less. pip runs git for `git+https://`.
    """
    steps = (each.action for each in context.trace.installs if each.action.tool != "conda")
    clones = {each.line for each in steps if any(part.url.startswith("git+") for part in each.requirements)}
    for stage in image_stages(context.guide.blocks):
        missing = {
            name: row
            for name, row in image_programs().items()
            if stage.kind in row.images and not (stage.has_toolkit and name in _COMPILED)
        }
        seen = "\n".join(map(text_of, stage.earlier))
        for instruction in stage.instructions:
            if runs_unknown_script(seen):
                break
            seen += f"\n{text_of(instruction)}"
            missing = {name: row for name, row in missing.items() if not _is_provided(row, seen, stage.image)}
            for command in commands_of(instruction):
                row = missing.get(_program(command) or ("git" if command.line in clones else ""))
                if row and not re.search(rf"(?:which|command -v|type|if)\s+{re.escape(row.name)}", seen):
                    del missing[row.name]
                    yield _missing(context, stage, command, row)


def _missing(context: GuideContext, stage: Stage, command: Command, row: ImageProgram) -> Problem:
    return Problem(
        "error",
        f"`{command}` fails: {stage.image} has no {row.name}, and no step above installs it",
        (
            *command_evidence(context, command),
            table_evidence(row.name, f"not in {stage.image}", row.source, row.date),
        ),
        row.instead or f"Install {row.apt} with apt-get before this step.",
        line=command.line,
    )


def runs_unknown_script(text: str) -> bool:
    """Whether a text runs a script whose packages are not known."""
    return any(not _HARMLESS_SCRIPT.search(text[found.start() - 80 if found.start() > 80 else 0 : found.end()])
               for found in _SCRIPT.finditer(text))  # fmt: skip


def _program(command: Command) -> str:
    """The program of the table that a command runs, itself or through pip; empty for another command."""
    for each in (command, unwrap(command)):
        if each.name == "git" and each.words[1:2] == ("lfs",):
            return "git-lfs"
        if each.name in image_programs():
            return each.name
    inner = unwrap(command)
    is_pip = inner.name.startswith("pip") or inner.words[1:3] == ("-m", "pip") or inner.words[:2] == ("uv", "pip")
    has_repository = any(re.search(r"(?:^|@ ?)git\+", word) for word in inner.words)
    return "git" if is_pip and has_repository else ""


def _is_provided(row: ImageProgram, text: str, image: str) -> bool:
    """Whether a text names the package of a program as a word of its own, not as a command or in an address."""
    if "--no-install-recommends" in text:
        text = text.replace("python3-pip", "")  # which recommends build-essential
    if row.provided and (re.search(row.provided, text) or (row.name in ("uv", "conda") and row.name in image)):
        return True
    package = re.escape(row.apt or row.name)
    listed = rf"(?<![\w./+:@-]){package}(?=\s*(?:\\|$|&&|;)|\s+[a-z0-9][\w.+-]*(?:\s|$)(?!\S*://))"
    installs = re.search(
        rf"(?:apt-get|apt|aptitude|conda|mamba|apk|yum|dnf|pip3?|pip)\b[^;&|]*?\s{package}(?![\w.-])", text
    )
    copied = re.search(rf"^(?:COPY|ADD)?[^\n]*/bin/{package}\b", text, re.MULTILINE) and "--from" in text
    own = rf"\s*(?:[A-Z]+\s+|&&\s*)?(?:sudo\s+)?{package}\s+\S"
    lines = [line for line in text.split("\n") if not re.match(own, line)]
    return bool(installs or copied or any(re.match(listed, re.sub(r"^[A-Z]+\s", "", line.strip())) for line in lines))


@rule("RUN116", kind="guide", severity="error", cause="wrong-python-env", url=PACKAGES)
def image_lacks_python_or_pip(context: GuideContext) -> Iterator[Problem]:
    """An image of Debian, Ubuntu or CUDA has no Python, its python3 brings no pip, and no program `python`.

    Debian and Ubuntu name the program python3. `python` is that of python-is-python3 or of a virtual environment.
    """
    for stage in image_stages(context.guide.blocks):
        if stage.kind != "bare" or "python" in stage.image:
            continue
        seen = "\n".join(text_of(each) for each in stage.earlier)
        for instruction in stage.instructions:
            if not instruction.lines or runs_unknown_script(seen) or instruction.is_trigger:
                break
            found = _first_without_python(instruction, seen)
            if found:
                yield _without_python(context, stage, *found)
                break
            seen += f"\n{text_of(instruction)}"


def text_of(instruction: Instruction) -> str:
    """An instruction as text, with its name."""
    return f"{instruction.name} " + "\n".join(text for _, text in instruction.lines)


def _first_without_python(instruction: Instruction, seen: str) -> tuple[Command, str] | None:
    """The first command of an instruction that lacks Python, pip or the name `python`, with the missing part."""
    for command in _programs_of(instruction):
        if part := _absent_part(command, seen):
            return command, part
        seen += f"\nRUN {command.text}"
        if runs_unknown_script(seen):
            break
    return None


def _programs_of(instruction: Instruction) -> list[Command]:
    """The commands of RUN, and the program that CMD or ENTRYPOINT starts."""
    if instruction.name not in ("CMD", "ENTRYPOINT"):
        return commands_of(instruction)
    return commands_of(instruction._replace(name="RUN"))[:1]


def _absent_part(command: Command, seen: str) -> str:
    """What a command needs and the steps above do not install: Python, pip or the name `python`; else empty."""
    inner = unwrap(command)
    is_pip = inner.name in ("pip", "pip3") or (
        inner.name in ("python", "python3") and inner.words[1:3] == ("-m", "pip")
    )
    if "/" in command.words[0] or not (is_pip or inner.name in ("python", "python3")):
        return ""
    if not _OTHER_PYTHON.search(seen):
        return "Python" if all(map(_WITHOUT_PYTHON.fullmatch, _apt_packages(seen))) else ""
    if not re.search(r"\bpython3", seen):
        return ""
    if is_pip and not _HAS_PIP.search(seen) and "build-essential" not in seen:
        return "pip"
    return "python" if inner.name == "python" and not _PYTHON_ALIAS.search(seen) else ""


def _apt_packages(seen: str) -> list[str]:
    """The packages that steps install with apt, without versions."""
    found = re.findall(r"\binstall\b((?:[^\n;&|\\]|\\\s*\n(?:\s*#[^\n]*\n)*)*)", seen)
    words = (word for text in found for word in text.replace("\\", " ").split())
    return [word.partition("=")[0] for word in words if not word.startswith("-")]


def _without_python(context: GuideContext, stage: Stage, command: Command, part: str) -> Problem:
    reasons = {
        "Python": f"{stage.image} has no Python, and no step above installs it",
        "pip": "the python3 of the system has no pip, and no step above installs it",
        "python": "the python3 of the system brings no program `python`",
    }
    fixes = {
        "Python": "Install python3 and python3-pip with apt-get, or a Python with uv, before this step.",
        "pip": "Install python3-pip with apt-get before this step.",
        "python": "Call python3, or install python-is-python3.",
    }
    return Problem(
        "error",
        f"`{command}` fails: {reasons[part]}",
        command_evidence(context, command),
        fixes[part],
        line=command.line,
    )


@rule("RUN171", kind="guide", severity="error", cause="system-library-missing", url=VENV)
def image_lacks_the_package_of_venv(context: GuideContext) -> Iterator[Problem]:
    """The Python of Debian and Ubuntu creates no virtual environment without python3-venv: ensurepip is missing."""
    for stage in image_stages(context.guide.blocks):
        if not stage.is_bare or "python" in stage.image:
            continue
        seen = "\n".join(shell_text(each) for each in stage.earlier if each.name == "RUN")
        for instruction in stage.instructions:
            seen += "\n" + (shell_text(instruction) if instruction.name in ("RUN", "COPY") else "")
            for command in map(unwrap, commands_of(instruction)):
                is_venv = re.fullmatch(r"python3(?:\.\d+)?", command.name) and command.words[1:3] == ("-m", "venv")
                if is_venv and "--without-pip" not in command.words and not _HAS_VENV.search(seen):
                    package = f"{command.name}-venv"
                    yield Problem(
                        "error",
                        f"`{command}` stops: ensurepip is not available without {package}, which no step installs",
                        command_evidence(context, command),
                        f"Install {package} with apt-get.",
                        line=command.line,
                    )
