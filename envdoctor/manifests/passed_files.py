"""The files that commands pass to the programs of a checkout which they start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.paths import exists
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.program_launches import Launch, started_program
from envdoctor.manifests.shell_records import is_known


class PassedFile(NamedTuple):
    """A word of a command that can be a file, the option before it, and the start of the program that gets it."""

    option: str  # empty for a positional argument
    path: str
    launch: Launch

    def is_there(self, checkout: Checkout) -> bool:
        """Whether the file is where the command, the root or the program can mean it."""
        folders = (*self.launch.folders, checkout.root, (checkout.root / checkout.script(self.launch)).parent)
        return any(exists(each / self.path) for each in folders)


def passed_files(context: GuideContext, checkout: Checkout, pattern: re.Pattern[str]) -> Iterator[PassedFile]:
    """The words of known value that match a pattern, in commands that start programs which the checkout has."""
    launches = {(each.line, each.program): each for each in context.guide.launches if each.line}
    for command in context.guide.commands:
        program = started_program(command)
        launch = launches.get((command.line, program)) if program else None
        if not (program and launch and checkout.script(launch)):
            continue
        before = ""
        for word in command.words[1:]:
            option, _, value = word.rpartition("=") if word.startswith("-") else (before, "", word)
            if program.script not in (word, value) and pattern.fullmatch(value) and is_known(value):
                yield PassedFile(option, value, launch)
            before = word if word.startswith("-") else ""
