"""Checks on mistakes in shell code that install nothing or work in another directory, without a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import directory_of_clone
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence, shown_line
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.markdown import Block, Line
from envdoctor.manifests.missing_backslashes import blanks_after_backslashes, leading_backslashes, missing_backslashes
from envdoctor.manifests.shell import strip_prompts, without_prompt
from envdoctor.rules.registry import Problem, rule

ESCAPES = "https://www.gnu.org/software/bash/manual/html_node/Escape-Character.html"
LISTS = "https://www.gnu.org/software/bash/manual/html_node/Lists.html"
_CONTINUES = lazy_pattern(r"(?<!\\)(?:\\\\)*\\\s*$")
_COMMENT_AFTER = lazy_pattern(r"(?<=\s)\\[ \t]+#(?!.*['\"`])")
# What is no command of its own: an option, a quoted word, a requirement with a version.
_ARGUMENT = lazy_pattern(r"\s*(?:--?[A-Za-z]|['\"]|[A-Za-z][\w.-]*(?:\[[\w,-]+\])?\s*(?:==|>=|<=|~=|!=))")
# A program and its verb at the start of a continuation line, and the commands that take no other command.
_INSTALLS_NOTHING = lazy_pattern(
    r"[\s$]*(?:uv\s+|python3?\s+-m\s+)?(?:pip3?|conda|mamba)\s+install(?:\s+-\S+)*\s*\\\s*"
)
_NEXT_COMMAND = lazy_pattern(
    r"\s*(?:RUN\s+)?(?:(?:apt-get|apt|pip3?|conda|mamba)\s+(?:install|update|create)\b|python3? -m pip install\b"
    r"|git clone\s|uv pip install\b)"
)
_ENDED = lazy_pattern(r"(?:&&|\|\||[;|&({]|\b(?:then|do|else))\s*\\?\s*$")
_TAKES_NO_COMMAND = frozenset({"apt-get", "apt", "pip", "pip3", "git", "mkdir", "rm", "wget", "curl"})
_BACKGROUND = lazy_pattern(
    r"^\s*(?:sudo\s+)?((?:cd|source|export|mkdir|git clone|(?:conda|mamba) (?:activate|install|create)"
    r"|(?:uv )?pip3? install|python3? -m pip install|apt(?:-get)? (?:install|update)|cmake|\./configure|unzip|tar)\b"
    r"[^&|;#'\"`()]*?)"
    r"\s&\s+(?=[\w./~$])"
)


@rule("RUN081", kind="guide", severity="error", cause="dependency-pin-violated", url=ESCAPES)
def comment_ends_a_continued_command(context: GuideContext) -> Iterator[Problem]:
    """A comment or an empty line between the lines of one command ends it: the rest is another command.

    A backslash that a comment or a blank follows continues nothing either, nor one at the start of a line.
    Dockerfiles are different: Docker removes comment lines and blanks before a shell reads the command.
    """
    for block in _shell_blocks(context):
        lines = list(block.lines)
        for position, (number, text) in enumerate(lines):
            rest = _next_code(lines, position + 1)
            is_first = position == 0 or not _COMMENT_AFTER.search(lines[position - 1][1])
            if rest and is_first and _COMMENT_AFTER.search(text) and not text.lstrip().startswith("#"):
                yield _ended(context, number, rest)
            is_end = text.lstrip().startswith("#") or not text.strip()
            is_continued = position > 0 and _CONTINUES.search(lines[position - 1][1])
            if is_end and is_continued and rest and _ARGUMENT.match(rest[1]) and _is_in_command(lines[:position]):
                yield _ended(context, number, rest)
        commands = strip_prompts(block.lines, console=False)
        for position in blanks_after_backslashes(commands):
            yield _blank(context, commands[position], commands[position + 1])
        for position in leading_backslashes(commands):
            yield _leading(context, commands[position], commands[position + 1])


def _shell_blocks(context: GuideContext) -> Iterator[Block]:
    yield from (block for block in context.guide.blocks if is_shell_block(block))


def _next_code(lines: list[Line], start: int) -> Line | None:
    following = (lines[position] for position in range(start, len(lines)))  # a slice for each line is quadratic
    return next((line for line in following if line[1].strip() and not line[1].lstrip().startswith("#")), None)


def _is_in_command(lines: list[Line]) -> bool:
    """Whether the continued lines begin with a command, and no comment is continued."""
    start = len(lines) - 1
    while start > 0 and _CONTINUES.search(lines[start - 1][1]):
        start -= 1
    return not lines[start][1].lstrip().startswith("#")


def _ended(context: GuideContext, number: int, rest: Line) -> Problem:
    shown = rest[1].strip().rstrip("\\").strip()
    text = context.guide.lines[number - 1].strip()
    return Problem(
        "error",
        f"the {'comment' if text else 'empty line'} of line {number} ends the command above it: the shell runs "
        f"`{shown}` as a command of its own",
        (
            guide_evidence(context, "comment" if text else "empty line", text or "(empty)", number),
            guide_evidence(context, "rest of the command", shown, rest[0]),
        ),
        "Move the comment above the command." if text else "Remove the empty line.",
        line=number,
    )


def _blank(context: GuideContext, line: Line, following: Line) -> Problem:
    number, text = line
    shown = shown_line(following[1])
    return Problem(
        "error",
        f"a blank follows the backslash at the end of line {number} and ends the command: the shell runs `{shown}` "
        "as a command of its own",
        (
            guide_evidence(context, "end of the command", f"`{text.strip()} `", number),
            guide_evidence(context, "rest of the command", shown, following[0]),
        ),
        "Remove the blank after the backslash.",
        line=number,
    )


def _leading(context: GuideContext, line: Line, following: Line) -> Problem:
    shown = shown_line(following[1])
    return Problem(
        "error",
        f"the backslash is at the start of this line, and line {line[0]} ends the command: the shell runs `{shown}` "
        "as a command of its own",
        (
            guide_evidence(context, "end of the command", shown_line(line[1]), line[0]),
            guide_evidence(context, "rest of the command", shown, following[0]),
        ),
        "Move each backslash to the end of the line above it.",
        line=following[0],
    )


@rule("RUN177", kind="guide", severity="error", cause="dependency-pin-violated", url=ESCAPES)
def command_lacks_a_backslash(context: GuideContext) -> Iterator[Problem]:
    """A line of a command has no backslash at its end, and the next line has only arguments of it.

    The shell runs the next line as a command of its own, or takes `name==version` for a variable. A requirement is
    not installed, and a program starts without its options.
    """
    for block in _shell_blocks(context):
        lines = strip_prompts(block.lines, console=False)
        for positions in missing_backslashes(lines):
            (number, text), (following, argument) = lines[positions[0]], lines[positions[0] + 1]
            last = lines[positions[-1]][0]
            ended = f"line {number} ends" if number == last else f"lines {number} to {last} end"
            more = "" if number == last else ", and each line below it,"
            yield Problem(
                "error",
                f"{ended} the command: the shell runs `{shown_line(argument)}` of line {following}{more} as a "
                "command of its own",
                (
                    guide_evidence(context, "end of the command", shown_line(text), number),
                    guide_evidence(context, "next line", shown_line(argument), following),
                ),
                f"End {ended.rpartition(' ')[0]} with a backslash.",
                line=number,
            )


@rule("RUN156", kind="guide", severity="error", cause="dependency-pin-violated", url=LISTS)
def continued_line_begins_another_command(context: GuideContext) -> Iterator[Problem]:
    """A line that continues with a backslash lacks `&&`: the next command becomes arguments of the first one."""
    for command in context.guide.commands:
        installs = command.name in ("conda", "mamba") and command.words[1:2] != ("run",)
        if installs and _are_arguments(["pip", "install"], command.words[1:]):
            yield Problem(
                "error",
                f"`{command}` has a command as its arguments: conda installs the packages pip and install",
                command_evidence(context, command),
                "Run pip install as a command of its own.",
                line=command.line,
            )
        if command.name not in _TAKES_NO_COMMAND:
            continue
        for number, text in _continuations(context.guide.lines, command.line):
            match = _NEXT_COMMAND.match(text)
            if match and _are_arguments(match[0].split(), command.words):
                yield Problem(
                    "error",
                    f"`{match[0].strip()}` of line {number} becomes arguments of `{command.name}`: `&&` is missing",
                    (guide_evidence(context, "command", command.text[:120], command.line),
                     guide_evidence(context, "next line", text.strip(), number)),
                    "Remove the line above, which installs nothing."
                    if _INSTALLS_NOTHING.fullmatch(context.guide.lines[number - 2])
                    else "End the line above with `&& \\`, or without a backslash.",
                    line=number,
                )  # fmt: skip
                break


def _are_arguments(words: list[str], of: tuple[str, ...]) -> bool:
    """Whether words are among the arguments of a command, and are not that command after its assignments."""
    return any(list(of[n : n + len(words)]) == words for n in range(1, len(of)))


def _continuations(lines: Sequence[str], first: int) -> Iterator[Line]:
    """The lines that continue the command of a line and do not follow the end of a command."""
    for number in range(first, len(lines)):
        if not _CONTINUES.search(lines[number - 1]) or _ENDED.search(lines[number - 1]):
            return
        yield number + 1, lines[number]


@rule("RUN082", kind="guide", severity="warning", cause="dependency-pin-violated", url=LISTS)
def command_runs_in_the_background(context: GuideContext) -> Iterator[Problem]:
    """One `&` between two commands runs the first one in the background: `cd` and `export` then have no effect."""
    for block in _shell_blocks(context):
        for number, text in block.lines:
            if match := _BACKGROUND.match(without_prompt(text)):
                first = match[1].strip()
                yield Problem(
                    "warning",
                    f"`{first} &` runs in the background, and the next command does not wait for it",
                    (guide_evidence(context, "command", text.strip(), number),),
                    "Use && between the commands.",
                    line=number,
                )


@rule("RUN083", kind="guide", severity="error", cause="dependency-pin-violated", url="")
def directory_of_a_clone_has_another_case(context: GuideContext) -> Iterator[Problem]:
    """`cd` names the directory of a clone in another case, which Linux distinguishes.

    Not reported below the directory of a clone, which can have one of that name.
    """
    created: dict[str, tuple[str, int]] = {}
    entered: set[str] = set()
    for command in context.guide.commands:
        words = [word for word in command.words if not word.startswith("-")]
        if words[:2] == ["git", "clone"] and len(words) > 2:
            path = words[-1] if "://" not in words[-1] and "@" not in words[-1] else words[2]
            name = directory_of_clone(path)
            created[name] = command.text, command.line
        elif command.name in ("mkdir", "mv", "ln", "unzip", "tar", "cp"):
            created |= {word.strip("/").rpartition("/")[2]: (command.text, command.line) for word in words[1:]}
        elif command.name == "cd" and len(words) == 2:
            name = words[1].rstrip("/").rpartition("/")[2]
            same = next((each for each in created if each.lower() == name.lower()), "")
            is_inside = same in entered or same in words[1].split("/")
            entered |= set(words[1].split("/"))
            if same and name not in created and not is_inside:
                text, line = created[same]
                yield Problem(
                    "error",
                    f"`{command.text}` fails: the directory is {same}",
                    (guide_evidence(context, "directory", text, line),
                     guide_evidence(context, "command", command.text, command.line)),
                    f"Use cd {words[1].rstrip('/').removesuffix(name)}{same}.",
                    line=command.line,
                )  # fmt: skip
