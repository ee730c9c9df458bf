"""Checks on commands that start containers, and on steps that fail in the build of an image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.images import public_repository
from envdoctor.knowledge.services import service_tables
from envdoctor.manifests.actions import UseImage
from envdoctor.manifests.checks.evidence import command_evidence, guide_command, guide_evidence, table_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.options import parse_options
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

DOCKER_RUN = "https://docs.docker.com/reference/cli/docker/container/run/"
TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
TERMS = "https://anaconda.com/docs/getting-started/tos-plugin"
MANAGED = "https://packaging.python.org/en/latest/specifications/externally-managed-environments/"
KEYS = "https://developer.nvidia.com/blog/updating-the-cuda-linux-gpg-repository-key/"
_DOCKER = frozenset({"docker", "nvidia-docker"})
# Options of `docker run` without a value; every other one takes the next word.
_FLAGS = frozenset({
    "--rm", "--detach", "--interactive", "--tty", "--privileged", "--init", "--read-only", "--publish-all",
    "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet", "--help", "--disable-content-trust",
    "--use-api-socket",
})  # fmt: skip
_SHORT_FLAGS = lazy_pattern(r"-[ditPq]+")
_AFTER_IMAGE_WITH_VALUE = ("--gpus", "--shm-size", "--ipc", "--ulimit")
# What only Docker understands. A program in the image can have options such as --gpus 4 of its own.
_AFTER_IMAGE = lazy_pattern(
    r"--gpus(?:=| )\S*(?:all|device=)|--(?:rm|shm-size|ipc|ulimit|runtime=nvidia)\b|-(?:it|ti)$"
)
# Options of `docker run` that the command docker itself does not have.
_BEFORE_RUN = lazy_pattern(
    r"--(?:gpus|rm|detach|interactive|tty|name|ipc|shm-size|ulimit|runtime|network|privileged|publish|volume|env|mount)"
    r"(?:=\S*)?|-(?:[ditpe]|it|ti|itd|dit)"
)
_CUT = lazy_pattern(r"\\[ \t]+(?:#.*)?$")  # a backslash that continues nothing, which RUN081 reports
_INSTALLER = lazy_pattern(r"repo\.(?:anaconda|continuum)\.(?:com|io)/miniconda/Miniconda3-latest")
_ACCEPTED = lazy_pattern(
    r"conda tos accept|AUTO_ACCEPT_TOS|\.condarc|nodefaults|default_channels|--remove(?:-key)? channels|ENV CI[= ]"
)
_OTHER_PYTHON = lazy_pattern(
    r"venv|virtualenv|conda|mamba|pyenv|deadsnakes|uv python|EXTERNALLY-MANAGED|break[-_]system[-_]packages"
    r"|make (?:alt)?install|python-build-standalone|pixi|COPY --from=\S*python",
    re.IGNORECASE,
)
_OLD_KEY = lazy_pattern(r"/compute/cuda/repos/\S+/7fa2af80\.pub")
_NEW_KEY = lazy_pattern(r"3bf863cc|cuda-keyring")


@rule("RUN104", kind="guide", severity="error", cause="container-no-gpu", url=DOCKER_RUN)
def docker_option_is_in_the_wrong_place(context: GuideContext) -> Iterator[Problem]:
    """Docker passes an option after the image to the program, and an option without its value takes the image.

    With `docker run IMAGE --gpus all` the container has no GPU. `docker run -v IMAGE` stops without an image, and
    `docker --gpus all run IMAGE` with an unknown flag.
    """
    for command in map(unwrap, context.guide.commands):
        if _has_options_before_run(command):
            yield _before_run(context, command)
        if command.name not in _DOCKER or command.words[1:2] != ("run",) or len(command.words) < 3:
            continue
        position = _image_position(command)
        if position is None:
            is_complete = not command.words[-1].startswith("$") and "--help" not in command.words
            if is_complete and not _is_cut(context, command):
                yield _without_image(context, command)
        elif found := _option_after(command, position):
            image = command.words[position]
            yield Problem(
                "error",
                f"`{found}` stands after the image {image}: Docker passes it to the program in the container",
                command_evidence(context, command),
                f"Write it before the image: docker run {found} {image}.",
                line=command.line,
            )


def _has_options_before_run(command: Command) -> bool:
    """Whether the first option of docker is one of `docker run`, which follows."""
    is_docker = command.name in (*_DOCKER, "podman") and len(command.words) > 2
    return is_docker and bool(_BEFORE_RUN.fullmatch(command.words[1])) and "run" in command.words[2:]


def _before_run(context: GuideContext, command: Command) -> Problem:
    position = command.words.index("run")
    options = " ".join(command.words[1:position])
    return Problem(
        "error",
        f"`{command}` stops with an unknown flag: {command.words[1].partition('=')[0]} is an option of "
        f"`{command.name} run`, not of {command.name}",
        command_evidence(context, command),
        f"Write it after run: {command.name} run {options}.",
        line=command.line,
    )


def _image_position(command: Command) -> int | None:
    """The position of the image among the words; None if the options take all words."""
    position = 2
    while position < len(command.words):
        word = command.words[position]
        if not word.startswith("-"):
            return position
        is_flag = word in _FLAGS or "=" in word or _SHORT_FLAGS.fullmatch(word)
        # -v/data:/data: a short option with its value in one word
        has_value = bool(re.match(r"-[a-z].", word)) and not is_flag
        position += 1 if is_flag or has_value else 2
    return None


def _option_after(command: Command, position: int) -> str:
    """The first words after the image, if they are an option of Docker."""
    first, second = (*command.words[position + 1 :], "", "")[:2]
    text = f"{first} {second}" if first in _AFTER_IMAGE_WITH_VALUE else first
    return text if _AFTER_IMAGE.match(text) else ""


def _is_cut(context: GuideContext, command: Command) -> bool:
    """Whether the last of its lines ends in a backslash that a comment or a blank follows."""
    lines = context.guide.lines[command.line - 1 :]
    return bool(_CUT.search(next((line for line in lines if not line.endswith("\\")), "")))


def _without_image(context: GuideContext, command: Command) -> Problem:
    option = next((word for word in reversed(command.words) if word.startswith("-")), "an option")
    has_value = "=" in command.words[-1]
    return Problem(
        "error",
        f"`{command}` has no image"
        + (" in the same command" if has_value else f": {option} takes the last word as its value"),
        command_evidence(context, command),
        "Name the image last, and end each line before it with a backslash."
        if has_value
        else f"Give {option} a value or remove it, and name the image last.",
        line=command.line,
    )


@rule("RUN105", kind="guide", severity="warning", cause="container-no-gpu", url=TOOLKIT)
def nvidia_docker_is_discontinued(context: GuideContext) -> Iterator[Problem]:
    """The command nvidia-docker was replaced by `docker run --gpus` with the NVIDIA Container Toolkit."""
    for command in map(unwrap, context.guide.commands):
        if command.name == "nvidia-docker" and command.words[1:2] in (("run",), ("exec",), ("build",)):
            yield Problem(
                "warning",
                "nvidia-docker is no longer supported, and the NVIDIA Container Toolkit does not have this command",
                (
                    guide_evidence(context, "command", str(command), command.line),
                    table_evidence("nvidia-docker", "archived 2024-01-22", TOOLKIT, "2026-11-26"),
                ),
                "Use docker run --gpus all with the NVIDIA Container Toolkit.",
                line=command.line,
            )  # fmt: skip


@rule("RUN106", kind="guide", severity=("error", "warning"), cause="service-auth", url=TERMS)
def terms_of_conda_channels_are_not_accepted(context: GuideContext) -> Iterator[Problem]:
    """In the build of an image, a current conda stops at Anaconda's channels until their terms are accepted.

    CondaToSNonInteractiveError: the newest Miniconda contains the plugin that requires it. A warning if the command
    names other channels, as the default ones remain in use next to them.
    """
    if _ACCEPTED.search("\n".join(context.guide.lines)):
        return
    for image in context.actions(UseImage):
        source = _conda_source(context, image) if image.in_dockerfile else None
        if source is None:
            continue
        end = min((each.line for each in context.actions(UseImage) if each.line > image.line), default=1 << 30)
        used = (each for each in map(unwrap, context.guide.commands)
                if image.line < each.line < end and _uses_channels(each))  # fmt: skip
        if command := next(used, None):
            name, line = source
            yield Problem(
                "warning" if _names_channels(command) else "error",
                f"`{command}` stops with CondaToSNonInteractiveError: {name} requires the terms of its channels",
                (
                    guide_evidence(context, "conda", name, line),
                    guide_evidence(context, "command", str(command), command.line),
                    table_evidence("conda-anaconda-tos", "part of Miniconda since 2025-07-15", TERMS, "2026-11-26"),
                ),
                "Accept the terms before, or install Miniforge, which uses conda-forge alone.",
                guide_command(
                    "conda tos accept --override-channels --channel https://repo.anaconda.com/pkgs/main "
                    "--channel https://repo.anaconda.com/pkgs/r"
                ),
                line=command.line,
            )


def _conda_source(context: GuideContext, image: UseImage) -> tuple[str, int] | None:
    """The newest conda that a step below the line of an image installs, with its line."""
    lines = enumerate(context.guide.lines[image.line :], image.line + 1)
    return next((("Miniconda3-latest", number) for number, text in lines if _INSTALLER.search(text)), None)


def _uses_channels(command: Command) -> bool:
    words = command.words
    if command.name != "conda" or "--override-channels" in words:
        return False
    verbs = words[2:3] if words[1:2] == ("env",) else words[1:2]
    return verbs in (("create",), ("install",), ("update",), ("search",)) and "--offline" not in words


def _names_channels(command: Command) -> bool:
    """Whether a command names other channels than those of Anaconda, or a file that can name some."""
    options = parse_options(command.words[2:])
    named = {*options.all("-c", "--channel")} - {"defaults", "main", "anaconda"}
    return bool(named or options.all("-f", "--file")) or command.words[1:2] == ("env",)


@rule("RUN107", kind="guide", severity="error", cause="wrong-python-env", url=MANAGED)
def python_of_the_system_refuses_pip(context: GuideContext) -> Iterator[Problem]:
    """The Python of Debian 12 and Ubuntu 24.04 refuses `pip install` outside a virtual environment (PEP 668).

    The build of the image stops with `externally-managed-environment`. Reported where apt installs python3-pip.
    """
    for install in context.trace.installs:
        if _is_refused(context, install):
            line = install.action.line
            image = install.before.image
            yield Problem(
                "error",
                f"`{install.action.command[:120]}` stops with externally-managed-environment: the Python of {image} "
                "refuses pip outside a virtual environment",
                (
                    guide_evidence(context, "image", image, install.before.image_line),
                    *(table_evidence(row.system, "EXTERNALLY-MANAGED", row.source, row.date)
                      for row in service_tables().managed_python if row.system == install.before.system),
                ),
                "Create a virtual environment and install into it, or add --break-system-packages.",
                guide_command(shell_command("python3 -m venv /opt/venv")),
                line=line,
            )  # fmt: skip
            return


def _is_refused(context: GuideContext, install: InstallStep) -> bool:
    """Whether pip of the system runs in a bare image of such a system, and nothing brings another Python before."""
    action, before = install.action, install.before
    repository = public_repository(before.image.rpartition(":")[0]).removeprefix("library/")
    if before.tool != "image" or repository not in ("ubuntu", "debian", "nvidia/cuda"):
        return False
    if before.system not in {row.system for row in service_tables().managed_python} or action.target:
        return False
    earlier = "\n".join(context.guide.lines[before.image_line - 1 : action.line + 1])
    same = [each for each in context.guide.commands if each.line == action.line]
    is_permitted = any("--break-system-packages" in each.words for each in same)
    if action.tool == "uv":
        is_of_system = any("--system" in each.words for each in same) or "UV_SYSTEM_PYTHON" in earlier
        return is_of_system and "python3" in earlier and not _OTHER_PYTHON.search(earlier) and not is_permitted
    return (
        action.tool == "pip" and "python3-pip" in earlier and not _OTHER_PYTHON.search(earlier) and not is_permitted
    )


@rule("RUN108", kind="guide", severity="error", cause="service-withdrawn", url=KEYS)
def key_of_the_cuda_repository_was_replaced(context: GuideContext) -> Iterator[Problem]:
    """NVIDIA replaced the key 7fa2af80 of its CUDA repositories on 2022-04-27: apt rejects them with the old one."""
    text = "\n".join(context.guide.lines)
    if _NEW_KEY.search(text):
        return
    for command in context.guide.commands:
        if _OLD_KEY.search(command.text):
            yield Problem(
                "error",
                "the key 7fa2af80 no longer signs NVIDIA's CUDA repositories: apt-get update rejects them",
                (
                    guide_evidence(context, "key", str(command), command.line),
                    table_evidence("key of the CUDA repositories", "3bf863cc since 2022-04-27",
                                   "github.com/NVIDIA/nvidia-docker/issues/1631", "2026-11-26"),
                ),
                "Install the package cuda-keyring, or fetch 3bf863cc.pub in its place.",
                guide_command(command.text.replace("7fa2af80.pub", "3bf863cc.pub")),
                line=command.line,
            )  # fmt: skip
