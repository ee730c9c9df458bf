"""Converts blocks of code to actions: scripts, Dockerfiles, requirements, environment.yml and pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from urllib.parse import unquote

from envdoctor.core.paths import is_folder
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import (
    PACKAGE_LIST,
    Action,
    AddWheel,
    Install,
    SelectEnvironment,
    SetVariables,
    UseImage,
)
from envdoctor.manifests.command_parsers import parse_actions, split_image
from envdoctor.manifests.console_scripts import console_scripts, started_console_script
from envdoctor.manifests.container_files import (
    Instruction,
    copied_file,
    heredoc_file,
    is_apptainer,
    is_dockerfile,
    parse_apptainer,
    parse_dockerfile,
    script_of,
)
from envdoctor.manifests.files import Files
from envdoctor.manifests.local_projects import with_local_projects
from envdoctor.manifests.markdown import SHELL_COMMANDS, Block, Line
from envdoctor.manifests.marked_languages import is_shell_marked_as_python
from envdoctor.manifests.own_names import name_key
from envdoctor.manifests.program_launches import Launch, Program, started_program
from envdoctor.manifests.pyproject import parse_pyproject
from envdoctor.manifests.python_commands import python_commands, string_variables
from envdoctor.manifests.requirement_files import parse_requirement_lines
from envdoctor.manifests.shell import expand_word, parse_commands, strip_prompts, without_prompt
from envdoctor.manifests.shell_records import Command, ShellState
from envdoctor.manifests.working_directory import WorkingDirectory
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement

_SHELL = frozenset({
    "bash", "sh", "shell", "zsh", "console", "shell-session", "shellsession", "terminal", "sh-session", "ksh",
    "commandline", "command-line", "cmdline", "cli", "shellscript", "shell-script",
})  # fmt: skip
_SESSION = frozenset({"console", "shell-session", "shellsession", "sh-session", "pycon"})
_PYTHON = frozenset({"python", "py", "python3", "ipython", "pycon"})
_PLAIN_TEXT = frozenset(
    {"", "text", "txt", "plaintext", "ini", "requirements", "requirements.txt", "pip-requirements", "pip", "none"}
    # Of the README template of Papers with Code, and others that name the purpose of the commands.
    | {"setup", "train", "training", "eval", "evaluate", "evaluation", "test", "install", "installation", "run"}
    | {"usage", "inference", "demo", "code", "command", "commands", "linux", "ubuntu", "unix", "git", "conda"}
)
_VARIABLE_FILES = frozenset({"env", "dotenv", "properties"})
_FILE_NAME = lazy_pattern(
    r"([\w.-]{0,60}(?:requirements|constraints)[\w.-]{0,40}\.(?:txt|in)|[\w-]{0,40}env[\w-]{0,40}\.ya?ml|pyproject\.toml)"
)
_STARTS_SCRIPT = lazy_pattern(r"\s*(?:\$ )?(?:(?:bash|sh)\s+\S+\.sh\b|deepspeed\s+(?:-|\S+\.py\b))")
_NAME = lazy_pattern(r"[A-Za-z][\w.-]*(?:\[[\w,-]+\])?")  # of a package
_CONDITION = lazy_pattern(r"==\s*(?:True|False|None|[\"'])")  # a variable is compared with a value
# `!pip`, `%pip`, `%sx pip` and `log = !pip` of IPython: what follows is a command.
_SYSTEM_COMMAND = lazy_pattern(r"\s*(?:[A-Za-z_][\w.,\s]{0,80}=\s*(?=[!%]))?(?:!!?|%(?:system|sx)\b|%)")


def is_shell_block(block: Block) -> bool:
    """Whether a block is shell code, by its language or by its commands."""
    if is_shell_marked_as_python(block):
        return True
    if block.language not in _SHELL and (block.language not in _PLAIN_TEXT or _file_name(block)):
        return False
    is_image = is_dockerfile(block) or is_apptainer(block)
    return not is_image and (block.language in _SHELL or _is_shell(block))


class BlockReader:
    """Converts code blocks to actions. Files and variables of a block are available to later blocks.

    An action between the blocks is one that a format states without a command, such as the image of a job.
    """

    def __init__(self, pieces: Sequence[Block | Action], choice: int = 0, files: Files | None = None) -> None:
        self.pieces = pieces
        blocks = [piece for piece in pieces if isinstance(piece, Block)]
        self.files = files or Files()
        self.shell = ShellState(choice, self.files.platform)
        self.shell.has_file = self.files.has_file
        self.directory = WorkingDirectory(self.files)
        self.running: set[tuple[int, tuple[Line, ...]]] = set()  # scripts of the repository, by the lines of commands
        self.commands: list[Command] = []
        self.launches: list[Launch] = []
        self.syncs: list[Command] = []  # `uv sync` in the directory of the project
        self.copied_folders: list[Path] = []
        self.is_own_release = False  # the programs of the project are those of a release on the index
        self.instruction = ""  # of a Dockerfile, that starts the container
        self.python_blocks: list[tuple[Line, ...]] = []
        for block in blocks:
            name = _file_name(block)
            if name and block.language not in _SHELL | _PYTHON:
                self.files.texts.setdefault(name, block.lines)
        text = "\n".join(block.text for block in blocks)
        self.used_files = {
            name
            for name in self.files.texts
            if re.search(r"(?:-r|-c|-f|--file|--requirement|sync)[ =]\S{0,80}" + re.escape(name), text)
        }

    def actions(self) -> Iterator[Action]:
        """The actions of all blocks, in the order of the text."""
        for piece in self.pieces:
            if isinstance(piece, Block):
                yield from self._block(piece)
            else:
                yield piece

    def _block(self, block: Block) -> Iterator[Action]:
        self.directory.is_later_block = True
        if is_dockerfile(block):
            yield from self._image(block, parse_dockerfile(block.lines))
        elif is_apptainer(block):
            yield from self._image(block, parse_apptainer(block.lines))
        elif block.language in _PYTHON and not is_shell_marked_as_python(block):
            commands, code = _split_cell(block.lines)
            self.python_blocks.append(code)
            self.shell.variables |= string_variables(code)
            commands = tuple((number, self._with_python_variables(text)) for number, text in commands)
            called = python_commands(code)
            if called is None:
                self.shell.unread[code[0][0]] = (
                    "this code is not valid Python, and its install commands were not read"
                )
            yield from self._script(tuple(sorted((*commands, *(called or ())), key=itemgetter(0))))
        elif block.language == "toml":
            yield from self._pyproject(block)
        elif block.language in ("yaml", "yml") or _file_name(block):
            yield from self._file(block)
        elif block.language in _PLAIN_TEXT | _VARIABLE_FILES and _is_assignments(block):
            yield from self._script(block.lines)
        elif is_shell_block(block):
            yield from self._script(strip_prompts(block.lines, console=block.language in _SESSION))

    @cached_property
    def console_scripts(self) -> dict[str, Program]:
        """The programs that an installation of the project puts on PATH, by their names."""
        return console_scripts(self.files)

    def _with_python_variables(self, command: str) -> str:
        """The command of a cell with the values of `{name}`, which IPython inserts."""
        known = self.shell.variables
        return re.sub(r"(?<!\$)\{([A-Za-z_]\w*)\}", lambda match: known.get(match[1], match[0]), command)

    def _script(self, lines: tuple[Line, ...]) -> Iterator[Action]:
        for command in parse_commands(lines, self.shell):
            self.directory.follow(command)
            files = self.directory.files
            self.commands.append(command)
            program = started_program(command)
            if program is None or program.launcher == "uv":  # a word after `uv run NAME` can be a file
                scripts = {} if self.is_own_release else self.console_scripts
                program = started_console_script(command, scripts) or program
            if program and (folders := self.directory.folders_of(program.script)):
                own = [self.files.folder.absolute()] if self.files.folder else []  # of a block for a new shell
                folders = tuple(dict.fromkeys((*folders, *self.copied_folders, *own)))
                has_returned = self.directory.has_returned
                self.launches.append(
                    Launch(command.line, str(command), program, folders, has_returned, self.instruction)
                )
            if command.words[:2] == ("uv", "sync") and not self.directory.place and self.directory.folders:
                self.syncs.append(command)
            if command.heredoc:
                self._store_heredoc(command)
            if command.assignments and command.words == ("export",):
                yield SetVariables(command.line, str(command), command.assignments)
            else:
                actions = [*map(self._with_local_projects, parse_actions(command, files))]
                self._note_own_release(actions)
                if any(isinstance(each, SelectEnvironment) and each.new for each in actions):
                    self.directory.create_environment()
                yield from actions
                yield from self._repository_script(command, files)

    def _note_own_release(self, actions: list[Action]) -> None:
        """Whether the programs of the project are those of a release on the index, and not those of the checkout."""
        for each in (each for action in actions if isinstance(action, Install) for each in action.requirements):
            if each.url.startswith("."):
                self.is_own_release = False
            elif not each.url and name_key(each.name) in self.directory.own_names:
                self.is_own_release = True

    def _with_local_projects(self, action: Action) -> Action:
        if isinstance(action, Install):
            return with_local_projects(action, self.files, self.directory.place_of)
        return action

    def _repository_script(self, command: Command, files: Files) -> Iterator[Action]:
        """The actions of a script of the repository that a command runs."""
        before = self.directory.current
        script = self.directory.script(command, files)
        program = started_program(command)
        # A guide leaves out steps such as `cd ..`.
        if not script and (self.directory.folders or (program and self.directory.folders_of(program.script))):
            script = self.directory.script(command, self.directory.own_files)
            self.directory.current = self.directory.start if script else before
        if script and (command.line, script) not in self.running:
            self.running.add((command.line, script))  # a script can run itself
            yield from self._script(script)
            if command.name not in ("source", "."):  # a shell of its own
                self.directory.current = before
        elif script:
            self.directory.current = before

    def _store_heredoc(self, command: Command) -> None:
        name = (command.output or (command.words[-1] if command.name == "tee" else "")).rpartition("/")[2]
        if name:
            self.files.add(name, command.heredoc)
            self.used_files.add(name)
        if name.endswith(".py") or command.name.startswith("python"):
            self.python_blocks.append(command.heredoc)

    def _image(self, block: Block, instructions: list[Instruction]) -> Iterator[Action]:
        """The actions of a Dockerfile or of an Apptainer definition."""
        workdir = self.directory.current
        for instruction in instructions:
            name, lines = instruction.name, instruction.lines
            if name == "WORKDIR" and lines:
                workdir = self.directory.enter(workdir, expand_word(lines[0][1].strip("'\" "), self.shell))
            elif name == "FROM" and lines:
                yield self._base_image(*lines[0])
            elif name in ("RUN", "CMD", "ENTRYPOINT"):
                self.directory.current = workdir
                self.instruction = name.removeprefix("RUN")
                yield from self._script(script_of(instruction))
                self.instruction = ""
            elif name in ("ADD", "COPY") and lines:
                yield from _added_wheels(instruction)
                self.copied_folders += self._copied_folders(instruction)
                if file := heredoc_file(instruction):
                    self.files.add(*file)
                elif copy := copied_file(instruction):
                    self.files.add_copy(*copy, workdir)
                self._note_copies_of_clones(instruction)
            elif name in ("ENV", "ARG") and lines:
                yield from self._script(_exports(name, lines))
        if block.lines:
            yield SelectEnvironment(block.lines[-1][0], "", "leave", "", new=False)

    def _copied_folders(self, instruction: Instruction) -> list[Path]:
        """The folders of the project whose files COPY puts into a directory of the image: `COPY src/ /app/`."""
        words = instruction.lines[0][1].replace('"', " ").strip("[] ").split()
        sources = [word.strip(",").removesuffix("/*") for word in words if not word.startswith("--")][:-1]
        is_of_stage = any(word.startswith("--from") for word in words)
        own = (self.files.folder, self.files.folder.parent) if self.files.folder and not is_of_stage else ()
        return [folder / each for each in sources for folder in own if each.strip("./") and is_folder(folder / each)]

    def _note_copies_of_clones(self, instruction: Instruction) -> None:
        """A file that COPY takes from the clone of another project is not the file of that name in this one."""
        words = instruction.lines[0][1].split()
        sources = [word for word in words if not word.startswith("--")][:-1]
        for source in sources if len(sources) < len(words) - 1 else ():
            if self.directory.is_of_other_clone(source):
                self.files.copies[source.rpartition("/")[2]] = source

    def _base_image(self, number: int, text: str) -> UseImage:
        words = [word for word in text.split() if not word.startswith("--")]
        image, tag = split_image(expand_word(words[0], self.shell)) if words else ("", "")
        stage = words[2] if len(words) > 2 and words[1].lower() == "as" else ""
        return UseImage(number, f"FROM {text}"[:200], image, tag, in_dockerfile=True, stage=stage)

    def _pyproject(self, block: Block) -> Iterator[Action]:
        project = parse_pyproject(block.lines)
        if project and any(project.variants.values()):
            yield project.install(next(iter(project.variants)), block.lines[0][0])

    def _file(self, block: Block) -> Iterator[Action]:
        """Install a requirements file or environment.yml that no command of the guide reads."""
        name = _file_name(block)
        if name in self.used_files or "constraints" in name or not block.lines:
            return
        line = block.lines[0][0]
        if name.endswith((".yml", ".yaml")):
            yield from parse_actions(Command(line, ("conda", "env", "create", "-f", name)), self.files)
        elif name and (requirements := _valid_requirements(block.lines, self.files)):
            for action in parse_actions(Command(line, ("pip", "install", "-r", name)), self.files):
                if isinstance(action, Install):
                    command = action.command if _stated_name(block) else PACKAGE_LIST
                    yield action._replace(requirements=tuple(requirements), command=command)


def _exports(name: str, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The shell text of ENV and ARG."""
    (number, text), *continuations = lines
    key, blank, value = text.partition(" ")
    if name == "ENV" and blank and "=" not in key and not continuations:
        text = f"{key}='{value.strip()}'"  # the older form `ENV KEY value`
    return ((number, f"export {text}"), *continuations)


def _valid_requirements(lines: tuple[Line, ...], files: Files) -> list[InstallRequirement]:
    return [each for each in parse_requirement_lines(lines, files)[0] if each.name or each.url]


def _split_cell(lines: tuple[Line, ...]) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """The shell commands of a notebook cell with their continuation lines, such as `%pip install`, and its code."""
    commands: list[Line] = []
    code: list[Line] = []
    continues = False
    for number, text in lines:
        command = _SYSTEM_COMMAND.match(text)
        if command or continues:
            commands.append((number, text[command.end() :] if command else text))
            if command:  # a statement, so that the block around it stays valid Python
                code.append((number, f"{text[: len(text) - len(text.lstrip())]}pass"))
            continues = text.rstrip().endswith("\\")
        else:
            code.append((number, text))
    return tuple(commands), tuple(code)


def _added_wheels(instruction: Instruction) -> Iterator[AddWheel]:
    """The wheels of `ADD URL /wheels/x.whl`, `COPY a.whl b.whl /wheels/`."""
    number, first = instruction.lines[0]
    words = " ".join(text.rstrip("\\") for _, text in instruction.lines).replace('"', " ").strip("[] ").split()
    paths = [word.strip(",") for word in words if not word.startswith("--")]
    *sources, target = paths or [""]
    for source in sources:
        path = target if target.endswith(".whl") else f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
        folder, _, file = unquote(path).rpartition("/")
        if file.endswith(".whl"):
            yield AddWheel(number, f"{instruction.name} {first}"[:200], file, folder)


def _stated_name(block: Block) -> str:
    """The file that the info string of a block, its first comment, or the text above it names."""
    first = block.lines[0][1].strip() if block.lines else ""
    texts = [block.info, first if first.startswith(("#", "//")) else ""]
    if block.language in _PLAIN_TEXT | {"yaml", "yml", "toml"}:
        texts.append(block.preceding_text)
    return next((match[1] for text in texts if (match := _FILE_NAME.search(text))), "")


def _file_name(block: Block) -> str:
    """The file in a block, by its name or its content."""
    name = _stated_name(block)
    if block.language in ("yaml", "yml") or name.endswith((".yml", ".yaml")):
        has_dependencies = any(text.startswith("dependencies:") for _, text in block.lines)
        return (name if name.endswith((".yml", ".yaml")) else "environment.yml") if has_dependencies else ""
    if block.language in _PLAIN_TEXT and name.endswith((".txt", ".in")) and not _is_shell(block):
        return name
    return "requirements.txt" if block.language in _PLAIN_TEXT and _is_requirements(block) else ""


def _is_requirements(block: Block) -> bool:
    """Whether most lines are requirements with a version, and none compares a variable with a value.

    One third is enough where the others are names alone.
    """
    texts = [text.partition("#")[0].strip() for _, text in block.lines]
    texts = [text for text in texts if text and not text.startswith("-")]
    with_specifier = [
        text
        for text in texts
        if re.fullmatch(r"[A-Za-z0-9._\[\],-]+\s*(?:==|>=|~=|<=|<)\s*\S+.*", text)
        and parse_install_requirement(text, 0)
    ]
    has_conditions = any(_CONDITION.search(text) for text in texts)
    has_only_names = all(_NAME.fullmatch(text) for text in texts if text not in with_specifier)
    share = 3 if has_only_names else 2
    is_list = len(with_specifier) >= 2 and len(with_specifier) * share > len(texts)
    return is_list and not has_conditions and not _is_shell(block)


def _is_assignments(block: Block) -> bool:
    """Whether a block has lines such as `NAME=value` only, as a `.env` file has."""
    texts = [text.strip() for _, text in block.lines if text.strip() and not text.lstrip().startswith("#")]
    return bool(texts) and all(re.fullmatch(r"(?:export\s+)?[A-Z][A-Z0-9_]{2,60}=\S*", text) for text in texts)


def _is_shell(block: Block) -> bool:
    for _, text in block.lines:
        if _STARTS_SCRIPT.match(text):
            return True
        words = without_prompt(text).split(None, 2)
        if len(words) > 1 and (words[0] in SHELL_COMMANDS or re.match(r"[A-Z_]{3,}=", words[0])):
            return True
        if re.match(r"\s*(?:\([\w.-]+\)\s*)?\$\s+\w", text):
            return True
    return False
