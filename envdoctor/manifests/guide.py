"""A Markdown guide as the actions it asks for, its code, and what it says of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from envdoctor.manifests.actions import Action, Environment, Image, Install, Variables
from envdoctor.manifests.documents import described_project, dockerfile_instructions, is_dockerfile
from envdoctor.manifests.markdown import COMMANDS, Block, Line, parse_blocks
from envdoctor.manifests.requirement import parse_wanted
from envdoctor.manifests.shell import Command, parse_commands, without_prompts
from envdoctor.manifests.steps import Files, actions_of, requirement_lines, split_image

_SHELL = frozenset(
    {"bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "terminal", "sh-session", "ksh"}
)
_SESSION = frozenset({"console", "shell-session", "shellsession", "sh-session", "pycon"})
_PYTHON = frozenset({"python", "py", "python3", "ipython", "pycon"})
_PLAIN = frozenset(
    {"", "text", "txt", "plaintext", "ini", "requirements", "requirements.txt", "pip-requirements", "pip", "none"}
)
_FILE = re.compile(
    r"([\w.-]{0,60}(?:requirements|constraints)[\w.-]{0,40}\.(?:txt|in)|[\w-]{0,40}env[\w-]{0,40}\.ya?ml|pyproject\.toml)"
)
_DRIVER = re.compile(r"\b([3-9]\d{2}(?:\.\d{1,3}){0,2})\b")
_DRIVER_WORD = re.compile(r"driver|treiber|驱动|pilote|controlador|ドライバ|драйвер|sterownik", re.IGNORECASE)
_ARM = re.compile(r"aarch64|arm64|\bGH200\b|\bGB200\b|Grace[ -]Hopper|\bsbsa\b", re.IGNORECASE)
_X86 = re.compile(r"x86_64|amd64|\b(?:H100|H200|A100|A10G?|L40S?|RTX|V100|T4|B200)\b", re.IGNORECASE)
_MOST_STEPS = 3000


class Stated(NamedTuple):
    """What a guide says of the machine, and on which line; empty where it says nothing."""

    architecture: str = ""
    driver: str = ""
    driver_line: int = 0


class Code(NamedTuple):
    """Python code of the guide."""

    lines: tuple[Line, ...]


class Guide(NamedTuple):
    """All of it."""

    name: str
    actions: tuple[Action, ...]
    commands: tuple[Command, ...]
    code: tuple[Code, ...]
    stated: Stated
    lines: tuple[str, ...]


def parse_guide(text: str, name: str) -> Guide:
    """A guide by its parts, in order."""
    blocks = parse_blocks(text)
    reader = _Reader(blocks)
    actions = tuple(islice(reader.actions(), _MOST_STEPS))
    lines = tuple(text.split("\n"))
    return Guide(name, actions, tuple(reader.commands), tuple(reader.code), _stated(lines, blocks), lines)


class _Reader:
    """Turns blocks into actions; files and variables of earlier blocks hold in later ones."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.variables: dict[str, str] = {}
        self.files: Files = {}
        self.commands: list[Command] = []
        self.code: list[Code] = []
        for block in blocks:
            self._keep_file(block)
        text = "\n".join(block.text for block in blocks)
        self.used = {
            name
            for name in self.files
            if re.search(r"(?:-r|-c|-f|--file|--requirement|sync)[ =]\S{0,80}" + re.escape(name), text)
        }

    def _keep_file(self, block: Block) -> None:
        name = _file_of(block)
        if name and block.language not in _SHELL | _PYTHON:
            self.files.setdefault(name, block.lines)

    def actions(self) -> Iterator[Action]:
        for block in self.blocks:
            yield from self._block(block)

    def _block(self, block: Block) -> Iterator[Action]:
        if is_dockerfile(block):
            yield from self._dockerfile(block)
        elif block.language in _PYTHON:
            self.code.append(Code(block.lines))
            yield from self._notebook(block)
        elif block.language == "toml":
            yield from self._project(block)
        elif block.language in ("yaml", "yml") or _file_of(block):
            yield from self._file(block)
        elif block.language in _SHELL or (block.language in _PLAIN and _looks_like_shell(block)):
            yield from self._script(without_prompts(block.lines, console=block.language in _SESSION))

    def _script(self, lines: tuple[Line, ...]) -> Iterator[Action]:
        for command in parse_commands(lines, self.variables):
            self.commands.append(command)
            if command.document:
                self._keep_document(command)
            if command.assignments and command.words == ("export",):
                yield Variables(command.line, str(command), command.assignments)
                continue
            yield from actions_of(command, self.files)

    def _keep_document(self, command: Command) -> None:
        name = (command.output or (command.words[-1] if command.name == "tee" else "")).rpartition("/")[2]
        if name:
            self.files[name] = command.document
            self.used.add(name)
        if name.endswith(".py") or command.name.startswith("python"):
            self.code.append(Code(command.document))

    def _notebook(self, block: Block) -> Iterator[Action]:
        """`!pip install` and `%pip install` of a notebook."""
        lines = tuple((number, text.strip()[1:]) for number, text in block.lines if text.strip()[:1] in ("!", "%"))
        yield from self._script(lines)

    def _dockerfile(self, block: Block) -> Iterator[Action]:
        for name, lines in dockerfile_instructions(block.lines):
            if name == "FROM":
                words = [word for word in lines[0][1].split() if not word.startswith("--")]
                image, tag = split_image(words[0]) if words else ("", "")
                yield Image(lines[0][0], f"FROM {lines[0][1]}"[:200], image, tag, building=True)
            elif name == "RUN":
                plain = tuple((number, text) for number, text in lines if not text.lstrip().startswith("#"))
                yield from self._script(_without_mounts(plain))
            elif name in ("ENV", "ARG") and lines:
                yield from self._script(
                    tuple((number, f"{'export ' if not at else ''}{text}") for at, (number, text) in enumerate(lines))
                )

        if block.lines:
            yield Environment(block.lines[-1][0], "", "leave", "", new=False)

    def _project(self, block: Block) -> Iterator[Action]:
        project = described_project(block)
        if not project or not project.wanted:
            return
        index = next(
            (project.indexes.get(name, "") for package, name in project.sources.items() if package == "torch"), ""
        )
        line = block.lines[0][0]
        extra = (index,) if index else ()
        yield Install(line, "pyproject.toml", "uv", tuple(project.wanted), extra_indexes=extra)

    def _file(self, block: Block) -> Iterator[Action]:
        """A file that no command of the guide reads is taken as installed where it stands."""
        name = _file_of(block)
        if name in self.used or "constraints" in name or not block.lines:
            return
        line = block.lines[0][0]
        if name.endswith((".yml", ".yaml")):
            command = Command(line, ("conda", "env", "create", "-f", name))
            yield from actions_of(command, self.files)
        elif name and (wanted := requirement_lines(block.lines, self.files)[0]):
            command = Command(line, ("pip", "install", "-r", name))
            yield from (
                each._replace(wanted=tuple(wanted))
                for each in actions_of(command, self.files)
                if isinstance(each, Install)
            )


def _without_mounts(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """`RUN --mount=type=cache,target=/x pip install` without the options of RUN."""
    if not lines:
        return lines
    words = lines[0][1].split()
    while words and words[0].startswith("--"):
        words = words[1:]
    return ((lines[0][0], " ".join(words) if lines[0][1].lstrip().startswith("--") else lines[0][1]), *lines[1:])


def _file_of(block: Block) -> str:
    """The file that a block shows: named in its info string, its first comment, or the text above; or known by
    its look.
    """
    first = block.lines[0][1].strip() if block.lines else ""
    places = [block.info, first if first.startswith(("#", "//")) else ""]
    if block.language in _PLAIN | {"yaml", "yml", "toml"}:
        places.append(block.before)
    found = next((found[1] for place in places if (found := _FILE.search(place))), "")
    if block.language in ("yaml", "yml") or found.endswith((".yml", ".yaml")):
        listed = any(text.startswith("dependencies:") for _, text in block.lines)
        return (found if found.endswith((".yml", ".yaml")) else "environment.yml") if listed else ""
    if block.language in _PLAIN and found.endswith((".txt", ".in")) and not _looks_like_shell(block):
        return found
    return "requirements.txt" if block.language in _PLAIN and _is_requirements(block) else ""


def _is_requirements(block: Block) -> bool:
    texts = [text.partition("#")[0].strip() for _, text in block.lines]
    texts = [text for text in texts if text and not text.startswith("-")]
    pinned = [
        text
        for text in texts
        if re.fullmatch(r"[A-Za-z0-9._\[\],-]+\s*(?:==|>=|~=|<=|<)\s*\S+.*", text) and parse_wanted(text, 0)
    ]
    return len(pinned) >= 2 and len(pinned) * 2 > len(texts) and not _looks_like_shell(block)


def _looks_like_shell(block: Block) -> bool:
    for _, text in block.lines:
        words = text.strip().removeprefix("$ ").split(None, 2)
        if len(words) > 1 and (words[0] in COMMANDS or re.match(r"[A-Z_]{3,}=", words[0])):
            return True
        if re.match(r"\s*(?:\([\w.-]+\)\s*)?\$\s+\w", text):
            return True
    return False


def _stated(lines: tuple[str, ...], blocks: list[Block]) -> Stated:
    code = "\n".join(block.text for block in blocks)
    head = "\n".join(line for line in lines if line.startswith("# ") or line.lstrip().startswith("|"))[:20_000]
    architecture = ""
    for text in (head, code, "\n".join(lines)):  # the title and tables first: wheels of a guide may be the wrong ones
        arm, x86 = len(_ARM.findall(text)), len(_X86.findall(text))
        if arm != x86:
            architecture = "aarch64" if arm > x86 else "x86_64"
            break
    driver, line = _driver(lines, blocks)
    return Stated(architecture or "x86_64", driver, line)


def _driver(lines: tuple[str, ...], blocks: list[Block]) -> tuple[str, int]:
    """The driver of a table row or of code: `| Driver | 550.54.15 |`, `Driver Version: 550.54.15`."""
    rows = [(at, line) for at, line in enumerate(lines, 1) if line.lstrip().startswith("|")]
    rows += [each for block in blocks for each in block.lines]
    for at, line in rows:
        word = _DRIVER_WORD.search(line)
        found = _DRIVER.search(line, word.end()) if word else None
        if (
            found
            and found.start() - (word.end() if word else 0) < 40
            and 390 <= int(found[1].partition(".")[0]) < 700
        ):
            return found[1], at
    return "", 0
