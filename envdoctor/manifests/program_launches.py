"""The programs of a project that commands start: `python train.py`, `uvicorn app.main:app`, `bash scripts/run.sh`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.shell_records import Command, is_known

NOTEBOOK = ".ipynb"
_PYTHON = lazy_pattern(r"(?:i?python|pypy)(?:3(?:\.\d+)?)?")
# Programs whose arguments name the script that they start.
_LAUNCHERS = frozenset({
    "torchrun", "accelerate", "deepspeed", "streamlit", "gradio", "chainlit", "fabric", "lightning", "composer", "uv",
    "colossalai", "bentoml", "ray", "horovodrun", "mpiexec", "kernprof", "debugpy", "nsys", "ncu", "xvfb-run",
})  # fmt: skip
# Servers whose argument names the module of an application: `app.main:app`.
_SERVERS = frozenset({"uvicorn", "gunicorn", "hypercorn", "granian"})
_APPLICATION = lazy_pattern(r"([A-Za-z_]\w*(?:\.\w+)*):[A-Za-z_][\w.]*(?:\(\))?")
_OTHER_FOLDER = lazy_pattern(r"--(?:app-dir|chdir|pythonpath|working-dir)\b.*")
_OF_ARGPARSE = frozenset({"torchrun", "accelerate", "deepspeed"})
_LAUNCHER_MODULES = lazy_pattern(
    r"torch\.distributed\.(?:run|launch|launcher)|accelerate\.commands\.launch|deepspeed(?:\.launcher.*)?"
)
# Launchers that add `--local_rank=0`, and their options without which they do.
_ADDS_RANK = {
    "torch.distributed.launch": frozenset({"--use_env", "--use-env", "--no_python", "--no-python"}),
    "deepspeed": frozenset({"--no_local_rank", "--launcher"}),
}
_SCRIPT = lazy_pattern(r"[\w./-]+\.py")
_SHELL_SCRIPT = lazy_pattern(r"[\w./-]+\.(?:sh|bash|slurm|sbatch)")
_SHELLS = frozenset({"bash", "sh", "zsh", "sbatch"})
_MODULE = lazy_pattern(r"[A-Za-z_]\w*(?:\.\w+)*")
_SUBCOMMAND = lazy_pattern(r"[A-Za-z][\w-]*")
OWN_REQUIREMENTS = lazy_pattern(r"(?m)^# /// script\s*$")  # of a program, from which `uv run` makes an environment
_WITH_VALUE = frozenset({"-W", "-X"})  # options of Python


class Program(NamedTuple):
    """What a command starts: a script, or a module of `-m`, and its launcher."""

    script: str = ""
    module: str = ""
    launcher: str = ""
    arguments: tuple[str, ...] = ()  # that the program gets
    function: str = ""  # of the module, that an entry point of the project names
    gets_rank: bool = False  # the launcher adds the option `--local_rank`, or `--local-rank` from torch 2.0

    @property
    def is_python(self) -> bool:
        """Whether it is a module or a file of Python, and no shell script."""
        return bool(self.module) or self.script.endswith((".py", NOTEBOOK))

    @property
    def is_notebook(self) -> bool:
        """Whether it is a notebook."""
        return self.script.endswith(NOTEBOOK)

    @property
    def subcommand(self) -> str:
        """The first argument, if it can be the name of a subcommand."""
        word = next(iter(self.arguments), "")
        return word if _SUBCOMMAND.fullmatch(word) else ""


class Launch(NamedTuple):
    """The start of a program in a directory of the checkout."""

    line: int
    command: str
    program: Program
    folders: tuple[Path, ...]  # in which it can run, the likely one first
    has_returned: bool = False  # from a directory that only a reader has, which a block before enters
    instruction: str = ""  # CMD or ENTRYPOINT of a Dockerfile: the command of a container


def started_program(command: Command) -> Program | None:
    """The program that a command starts; None for other commands, and for a name of unknown value."""
    inner = unwrap(command)
    words, name = inner.words[1:], inner.name
    if name in _SHELLS:
        script = next((word for word in words if not word.startswith("-")), "")
        return Program(script=script, launcher=name) if _SHELL_SCRIPT.fullmatch(script) else None
    if _PYTHON.fullmatch(name):
        return _of_python(words)
    # The word with its directory, which `unwrap` removes.
    first = next((word for word in command.words if name and word.rpartition("/")[2] == name), "")
    if _SCRIPT.fullmatch(first) or (_SHELL_SCRIPT.fullmatch(first) and "/" in first):
        return Program(script=first, arguments=words)
    if name in _SERVERS:
        return _of_server(words, name)
    return _of_launcher(words, name) if name in _LAUNCHERS else None


def _of_python(words: tuple[str, ...]) -> Program | None:
    while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
        words = words[2 if words[0] in _WITH_VALUE else 1 :]
    if words[:1] == ("-m",) and len(words) > 1:
        if _LAUNCHER_MODULES.fullmatch(words[1]):
            return _of_launcher(words[2:], words[1])
        if words[1] in _SERVERS:
            return _of_server(words[2:], words[1])
        return Program(module=words[1], arguments=words[2:]) if _MODULE.fullmatch(words[1]) else None
    is_script = words and _SCRIPT.fullmatch(words[0]) and is_known(words[0])
    return Program(script=words[0], arguments=words[1:]) if is_script else None


def _of_server(words: tuple[str, ...], server: str) -> Program | None:
    """The module of the application; None if an option selects another folder for its import."""
    if any(map(_OTHER_FOLDER.fullmatch, words)):
        return None
    found = next(filter(None, map(_APPLICATION.fullmatch, words)), None)
    return Program(module=found[1], launcher=server) if found else None


def _of_launcher(words: tuple[str, ...], launcher: str) -> Program | None:
    """The program of a launcher: the first script, or the module of `-m`, among its arguments."""
    for index, word in enumerate(words):
        if word in ("-m", "--module") and index + 1 < len(words) and _MODULE.fullmatch(words[index + 1]):
            arguments, gets_rank = _passed(words[index + 2 :], launcher), _adds_rank(words[:index], launcher)
            return Program(module=words[index + 1], launcher=launcher, arguments=arguments, gets_rank=gets_rank)
        if _PYTHON.fullmatch(word):
            return _of_python(words[index + 1 :])
        if _SCRIPT.fullmatch(word):
            arguments, gets_rank = _passed(words[index + 1 :], launcher), _adds_rank(words[:index], launcher)
            return Program(script=word, launcher=launcher, arguments=arguments, gets_rank=gets_rank)
    return None


def _adds_rank(options: tuple[str, ...], launcher: str) -> bool:
    """Whether a launcher with these options certainly adds the rank to the arguments of the program."""
    without = _ADDS_RANK.get(launcher)
    names = {each.partition("=")[0] for each in options}
    return without is not None and without.isdisjoint(names) and all(map(is_known, options))


def _passed(words: tuple[str, ...], launcher: str) -> tuple[str, ...]:
    """The arguments that a launcher passes on.

    argparse removes a `--` directly after the program, where its rest is argparse.REMAINDER: run with Python 3.11.
    """
    is_removed = words[:1] == ("--",) and (launcher in _OF_ARGPARSE or _LAUNCHER_MODULES.fullmatch(launcher))
    return words[1:] if is_removed else words
