"""Checks on steps that clone their own project, and use its files without a step that enters its directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from envdoctor.core.paths import is_file, is_folder
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.own_names import name_key, repository_name
from envdoctor.manifests.shell_records import Command, is_known
from envdoctor.rules.registry import Problem, rule

GIT_CLONE = "https://git-scm.com/docs/git-clone"
_ENTERS = frozenset({"cd", "pushd"})
_FILE_OPTIONS = frozenset({"-r", "--requirement", "-f", "--file"})
_DIRECTORY = lazy_pattern(r"(?!\.)[\w.-]+/?")  # below the current one
_SHELLS = frozenset({"bash", "sh", "python", "python3"})


@rule("RUN246", kind="guide", severity="warning", cause="dependency-pin-violated", url=GIT_CLONE)
def steps_do_not_enter_their_clone(context: GuideContext) -> Iterator[Problem]:
    """A block clones the project of the guide, and its next steps use files of it without a `cd`.

    Only steps of one block, and files that the checkout has: `pip install -r requirements.txt`, `cd scripts/app`.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    names = checkout.own_names("\n".join(context.guide.lines))
    for block in filter(is_shell_block, context.guide.blocks):
        numbers = {number for number, _ in block.lines}
        commands = [each for each in context.guide.commands if each.line in numbers]
        for position, command in enumerate(commands):
            directory = _cloned(command, names)
            used = _first_use(commands[position + 1 :], directory, checkout) if directory else None
            if used:
                step, path = used
                yield Problem(
                    "warning",
                    f"`{step}` runs next to the clone: {path} is in {directory}, and no step enters it",
                    (
                        guide_evidence(context, "clone", str(command), command.line),
                        guide_evidence(context, "command", str(step), step.line),
                    ),
                    f"Run {shell_command('cd {}', directory)} after git clone.",
                    line=step.line,
                )
                break


def _cloned(command: Command, names: frozenset[str]) -> str:
    """The directory of a clone of the own project; empty for another command."""
    words = [word for word in command.words if not word.startswith("-")]
    if words[:2] != ["git", "clone"] or len(words) < 3 or not all(map(is_known, words)):
        return ""
    index = next((index for index, word in enumerate(words[2:], 2) if "/" in word or ":" in word), 0)
    name = repository_name(words[index]) if index else ""
    directory = words[index + 1] if len(words) > index + 1 else name
    is_own = bool(name) and name_key(name) in names and "huggingface.co/" not in words[index]  # a model has its name
    return directory if is_own and _DIRECTORY.fullmatch(directory) else ""


def _first_use(commands: Sequence[Command], directory: str, checkout: Checkout) -> tuple[Command, str] | None:
    """The first command that uses a file of the project outside of it, and that file."""
    for command in map(unwrap, commands):
        if command.name in _ENTERS:
            path = command.words[1].removeprefix("./").rstrip("/") if len(command.words) == 2 else ""
            is_of_clone = name_key(path.partition("/")[0]) == name_key(directory)
            is_there = _is_below(path) and not is_of_clone and is_folder(checkout.root / path)
            return (command, path) if is_there else None
        path = next((each for each in _files(command) if _is_below(each) and is_file(checkout.root / each)), "")
        if path:
            return command, path
    return None


def _is_below(path: str) -> bool:
    """Whether a known path is below the current directory."""
    return bool(path) and is_known(path) and not path.startswith(("/", "~", "..", "-"))


def _files(command: Command) -> Iterator[str]:
    """The files that a command installs from or starts."""
    words = command.words
    yield from (value for option, value in pairwise(words) if option in _FILE_OPTIONS and command.name != "rm")
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    if command.name in _SHELLS and words[1:2] == (script,) and script.endswith((".py", ".sh")):
        yield script
