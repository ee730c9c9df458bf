"""Checks on the instructions of a Dockerfile: what a RUN step does not keep, its shell, and its programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.container_files import Instruction, is_dockerfile, parse_dockerfile, script_of
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.image_stages import Stage, commands_of, image_stages, shell_text
from envdoctor.manifests.shell_records import Command
from envdoctor.manifests.shell_syntax import bash_syntax
from envdoctor.rules.registry import Problem, rule

RUN_STEPS = "https://docs.docker.com/reference/dockerfile/#run"
SHELL = "https://docs.docker.com/reference/dockerfile/#shell"
VARIABLES = "https://docs.docker.com/reference/dockerfile/#environment-replacement"
ARGUMENTS = "https://docs.docker.com/reference/dockerfile/#scope"
APT = "https://docs.docker.com/build/building/best-practices/#apt-get"
_ACTIVATES = lazy_pattern(r"(?:source|\.)\s+\S*activate\b|conda activate\b")
_HOOK = lazy_pattern(r"conda\.sh|shell\.\w+ hook|bashrc|\.profile|bash_profile|/bin/activate")
_OTHER_SHELL = lazy_pattern(r"<<|^\s*\[")
_DECLARED = lazy_pattern(r"(?:^|\s)([A-Za-z_]\w*)(?==|\s|$)")
_USED = lazy_pattern(r"(?<![\\$])\$\{?([A-Za-z_]\w*)(?:\}|(?![\w:]))")
# Variables of the images of Python, CUDA and PyTorch, and of each process.
_OF_IMAGES = lazy_pattern(
    r"(?:PYTHON|CUDA|PYTORCH|NCCL|CUDNN|NV|NVIDIA)_\w+|PATH|HOME|USER|LANG|LD_LIBRARY_PATH|PWD|HOSTNAME"
)
_LISTS = lazy_pattern(r"/var/lib/apt")
_REMOVES_LISTS = lazy_pattern(r"rm\s+-\w*r\w*\s[^;&|]*/var/lib/apt/lists")
_YES = lazy_pattern(r"(?<!\S)(?:-\w*y\w*|--yes|--assume-yes|-q{2,}\w*|-q=2)(?!\S)")
_ALWAYS_YES = lazy_pattern(r"assume-yes|\byes\s*\||echo\s+-?\w*\s*['\"]?y")
_CREATES_FILES = lazy_pattern(r"git clone|curl|wget|unzip|tar |>\s*\S|--mount=|\bcp |\btee ")
_REQUIREMENTS = lazy_pattern(r"(?:-r|--requirement)[ =]?([\w./-]+\.txt)")


@rule("RUN150", kind="guide", severity=("error", "warning"), cause="wrong-python-env", url=RUN_STEPS)
def image_step_changes_only_its_own_shell(context: GuideContext) -> Iterator[Problem]:
    """Each RUN of a Dockerfile starts a new shell: `cd`, `export` and an activation end with their step."""
    for stage in image_stages(context.guide.blocks):
        for position, instruction in enumerate(stage.instructions):
            later = [each.name for each in stage.instructions[position + 1 :]]
            commands = commands_of(instruction)
            if "RUN" not in later or not commands:
                continue
            last = commands[-1]
            if (
                last.name == "cd"
                and not re.match(r"\.\.|~|/$|-$|\$HOME", last.words[-1])
                and _is_followed_by_relative_path(stage.instructions[position + 1 :])
            ):
                yield _without_effect(context, last, "WORKDIR")
            elif last.words[:1] == ("export",) and "=" in last.text:
                yield _without_effect(context, last, "ENV")
            elif _ACTIVATES.match(last.text) and not (stage.is_debian and last.name == "source"):
                yield _without_effect(context, last, "ENV PATH, or SHELL with `conda run`,")


def _is_followed_by_relative_path(instructions: Sequence[Instruction]) -> bool:
    """Whether the next RUN installs from, or runs, what is in the current directory."""
    following = next((each for each in instructions if each.name in ("RUN", "WORKDIR")), None)
    if following is None or following.name == "WORKDIR":
        return False
    return bool(
        re.search(
            r"(?<!\S)(?:-e \.|\.(?:\[\w+\])?(?=\s|$)|\./\w|-r [\w-]+\.txt|setup\.py|make\b)", shell_text(following)
        )
    )


def _without_effect(context: GuideContext, command: Command, instead: str) -> Problem:
    return Problem(
        "error",
        f"`{command}` ends with this RUN: the next one starts a new shell",
        command_evidence(context, command),
        f"Use {instead} in the Dockerfile, or put the following commands into the same RUN.",
        line=command.line,
    )


@rule("RUN151", kind="guide", severity="error", cause="program-not-executable", url=SHELL)
def image_step_needs_bash(context: GuideContext) -> Iterator[Problem]:
    """RUN uses /bin/sh, which is dash on Debian and Ubuntu: it has no `source`, `[[` or arrays.

    `conda activate` in a RUN needs the function of conda.sh as well, which no shell of an image build has read.
    """
    for stage in image_stages(context.guide.blocks):
        is_sh = not any(each.name == "SHELL" for each in stage.earlier)
        for instruction in stage.instructions:
            is_sh = is_sh and instruction.name != "SHELL"
            script = script_of(instruction) if instruction.name == "RUN" and is_sh else ()
            if not script or not stage.is_debian or _OTHER_SHELL.search(instruction.lines[0][1]):
                continue
            found = bash_syntax(script)
            activation = next(
                (each for each in commands_of(instruction) if each.words[:2] == ("conda", "activate")), None
            )
            if found:
                line, what = found
                yield _needs_bash(context, stage, line, f"{what} is syntax of bash")
            elif activation and not _HOOK.search(shell_text(instruction)):
                yield _needs_bash(
                    context, stage, activation.line, "conda activate needs conda's function for the shell"
                )


def _needs_bash(context: GuideContext, stage: Stage, line: int, reason: str) -> Problem:
    return Problem(
        "error",
        f"{reason}, and RUN in {stage.image} uses /bin/sh (dash)",
        (guide_evidence(context, "command", context.guide.lines[line - 1].strip()[:120], line),),
        'Set SHELL ["/bin/bash", "-c"] above, or call the programs of the environment by their path.',
        line=line,
    )


@rule("RUN153", kind="guide", severity=("error", "warning"), cause="system-library-missing", url=APT)
def image_step_needs_confirmation(context: GuideContext) -> Iterator[Problem]:
    """apt-get requests a confirmation: without -y the step of an image build ends there.

    It does so where it installs further packages than those that the command names (apt-get(8)): a warning.

    `apt-get install` without the package lists, which the images of Debian and Ubuntu do not contain and which an
    earlier step may have removed, ends with `Unable to locate package`.
    """
    for stage in image_stages(context.guide.blocks):
        is_confirmed = bool(_ALWAYS_YES.search("\n".join(context.guide.lines)))
        has_lists = False if stage.is_debian else None
        for each in stage.earlier:
            has_lists = _has_lists(shell_text(each) if each.name == "RUN" else "", has_lists)
        for instruction in stage.instructions:
            if instruction.name != "RUN" or not instruction.lines:
                continue
            script = shell_text(instruction)
            is_cached = any(_LISTS.search(line) and "--mount" in line for _, line in instruction.lines)
            for command in map(unwrap, commands_of(instruction)):
                if _is_apt_update(command):
                    has_lists = True
                elif _installs_with_apt(command) and has_lists is False and not is_cached:
                    yield _unread_lists(context, stage, command)
                    has_lists = None
                if _waits(command) and not is_confirmed and not re.search(r"\byes\b|echo", script):
                    yield _waiting(context, command)
            has_lists = _has_lists(script, has_lists)


def _has_lists(script: str, before: bool | None) -> bool | None:
    """Whether the lists of apt are there after a script; None if that is not known."""
    update = max((match.start() for match in re.finditer(r"\bapt(?:-get)?\b[^;&|\n]*\bupdate\b", script)), default=-1)
    removal = max((match.start() for match in _REMOVES_LISTS.finditer(script)), default=-1)
    return before if update == removal == -1 else update > removal


def _is_apt_update(command: Command) -> bool:
    return command.name in ("apt", "apt-get", "aptitude") and "update" in command.words


def _installs_with_apt(command: Command) -> bool:
    """Whether apt installs packages of its lists, not files."""
    if command.name not in ("apt", "apt-get") or "install" not in command.words:
        return False
    names = command.words[command.words.index("install") + 1 :]
    return any(re.match(r"[a-z0-9][a-z0-9.+-]+$", name) and not name.endswith(".deb") for name in names)


def _waits(command: Command) -> bool:
    """Whether apt-get requests a confirmation. conda takes the end of its input as a yes (conda/cli/common.py)."""
    options = " ".join(command.words[1:])
    is_dry = re.search(r"--(?:download-only|simulate|dry-run)|(?<!\S)-[ds]", options)
    return _installs_with_apt(command) and not is_dry and not _YES.search(options)


def _waiting(context: GuideContext, command: Command) -> Problem:
    return Problem(
        "warning",
        f"`{command}` has no -y: if it installs further packages, it requests a confirmation, and the build stops",
        command_evidence(context, command),
        f"Add -y: {command.words[0]} {command.words[1]} -y.",
        line=command.line,
    )


def _unread_lists(context: GuideContext, stage: Stage, command: Command) -> Problem:
    return Problem(
        "error",
        f"`{command}` ends with `Unable to locate package`: the lists of apt are not in the image at this step",
        (guide_evidence(context, "image", stage.image, command.line),),
        "Run apt-get update in the same RUN, before it.",
        line=command.line,
    )


@rule("RUN154", kind="guide", severity="error", cause="wrong-python-env", url=VARIABLES)
def variable_of_image_contains_a_command(context: GuideContext) -> Iterator[Problem]:
    """Docker runs no command in ENV: `$(...)` stays as text."""
    for stage in image_stages(context.guide.blocks):
        for instruction in stage.instructions:
            number, text = instruction.lines[0] if instruction.lines else (0, "")
            if (
                instruction.name == "ENV"
                and (match := re.search(r"(?<!\\)\$\(|=\s*`|(?<=\w)\s`", text))
                and "'" not in text[: match.start()]
            ):
                yield Problem(
                    "error",
                    f"`ENV {text.strip()[:120]}`: Docker runs no command here, and the variable keeps its text",
                    (guide_evidence(context, "ENV", text.strip()[:120], number),),
                    "Set the variable in the RUN that needs it, or name the value.",
                    line=number,
                )


@rule("RUN155", kind="guide", severity="error", cause="dependency-pin-violated", url=RUN_STEPS)
def file_is_copied_after_its_use(context: GuideContext) -> Iterator[Problem]:
    """`pip install -r requirements.txt` runs in an image before the COPY that brings the file."""
    for stage in image_stages(context.guide.blocks):
        if stage.earlier or not stage.is_debian:
            continue
        for position, instruction in enumerate(stage.instructions):
            if instruction.name in ("COPY", "ADD") or not instruction.lines:
                break
            text = "\n".join(line for _, line in instruction.lines)
            if instruction.name == "RUN" and _CREATES_FILES.search(text):
                break
            later = any(each.name in ("COPY", "ADD") for each in stage.instructions[position + 1 :])
            if later and instruction.name == "RUN" and (match := _REQUIREMENTS.search(text)):
                number = next((n for n, line in instruction.lines if match[1] in line), instruction.lines[0][0])
                yield Problem(
                    "error",
                    f"{match[1]} is not in the image at this step: the COPY that can bring it is below",
                    (guide_evidence(context, "command", match[0], number),),
                    f"Copy {match[1]} before this RUN.",
                    line=number,
                )
                break


@rule("RUN175", kind="guide", severity="error", cause="dependency-pin-violated", url=ARGUMENTS)
def argument_of_image_ends_with_its_stage(context: GuideContext) -> Iterator[Problem]:
    """An ARG above the first FROM, or of another stage, is empty in a RUN unless its stage declares it again."""
    for block in context.guide.blocks:
        arguments: dict[str, int] = {}  # of all stages so far, with their lines
        stages: dict[str, set[str]] = {}
        current: set[str] | None = None
        for each in parse_dockerfile(block.lines) if is_dockerfile(block) else ():
            number, text = each.lines[0] if each.lines else (0, "")
            if each.name == "FROM":
                words = [word.lower() for word in text.split() if not word.startswith("--")]
                current = set(stages.get(words[0], ())) if words else set()
                stages |= {words[2]: current} if words[1:2] == ["as"] and len(words) > 2 else {}
            elif each.name in ("ARG", "ENV"):
                names = _DECLARED.findall(" ".join(line for _, line in each.lines))
                if each.name == "ARG":
                    arguments |= dict.fromkeys(names, number)
                if current is not None:
                    current.update(names)
            elif each.name == "RUN" and current is not None:
                yield from _empty_arguments(context, each, {n: arguments[n] for n in arguments if n not in current})


def _empty_arguments(context: GuideContext, run: Instruction, ended: dict[str, int]) -> Iterator[Problem]:
    """The arguments that a RUN uses and does not set; images can have variables of some names themselves."""
    text = "\n".join(line for _, line in run.lines)
    for number, line in run.lines:
        for name in dict.fromkeys(_USED.findall(line)):
            is_set = re.search(rf"(?:^|[\s;&|(]){name}=|\bfor {name} in\b|\bread\b[^;&|\n]*\b{name}\b", text)
            if name in ended and not is_set and not _OF_IMAGES.fullmatch(name):
                ended = {other: at for other, at in ended.items() if other != name}
                yield Problem(
                    "error",
                    f"${name} is empty in this RUN: the ARG belongs to another stage of the Dockerfile",
                    (guide_evidence(context, "RUN", line.strip()[:120], number),),
                    f"Add `ARG {name}` below the FROM of this stage.",
                    line=number,
                )
