"""`envdoctor completion`: print or install the completion script of a shell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from envdoctor.completion.scripts import SCRIPTS
from envdoctor.core.directories import config_directory, data_directory
from envdoctor.core.errors import BadInput, Refused
from envdoctor.core.options import Argument, Option
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult, TextOutput, WrittenFile


class CompletionRequest(Record, frozen=True, kw_only=True):
    """Prints the script that completes commands, options, profiles, recipes, settings, rules, machines and probes.

    Example: envdoctor completion bash --install
    """

    shell: Annotated[str, Argument("bash, zsh or fish; default: the shell of SHELL.", "SHELL")] = ""
    install: Annotated[bool, Option("--install", "Write the script to the shell's directory of completions.")] = False


def run(request: CompletionRequest) -> CommandResult:
    """Print the script, or write it where the shell finds it."""
    shell = request.shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SCRIPTS:
        source = "" if request.shell else f" (SHELL is {os.environ.get('SHELL') or 'not set'})"
        raise BadInput(
            f"there is no completion for {shell or 'an unknown shell'}{source}",
            expected=f"one of {', '.join(SCRIPTS)}",
            hint="envdoctor completion bash",
        )
    if not request.install:
        return CommandResult(TextOutput(SCRIPTS[shell]))
    path, activation = _place(shell)
    _write(path, SCRIPTS[shell], f"# envdoctor completion {shell}\n")
    return CommandResult(WrittenFile(str(path), activation))


def _place(shell: str) -> tuple[Path, str]:
    """The file of a shell's completion, and how it becomes active."""
    data, config = data_directory().parent, config_directory().parent
    if shell == "fish":
        return config / "fish/completions/envdoctor.fish", "active in new shells"
    if shell == "zsh":
        folder = data / "zsh/site-functions"
        return folder / "_envdoctor", f"active in new shells with fpath=({folder} $fpath) before compinit in ~/.zshrc"
    return data / "bash-completion/completions/envdoctor", "active in new shells with the package bash-completion"


def _write(path: Path, script: str, mark: str) -> None:
    if path.exists() and mark not in path.read_text(encoding="utf-8", errors="replace"):
        raise Refused(
            f"{path} was not written by envdoctor",
            expected="no file, or an earlier script of envdoctor",
            hint=f"rm {path}",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script, encoding="utf-8")
