"""Corrections of commands that install: the order of builds, what they need first, indexes, names, and the Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, SetVariable, Step, SystemPackages, UserCommand
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.edited_lines import EditedLines, named

# Names on PyPI that refer to another package than their users expect.
RENAMED = {
    "pynvml": "nvidia-ml-py",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "pytorch": "torch",
    "tensorflow-gpu": "tensorflow",
}
_PIP = r"(?:uv\s+|python3?\s+-m\s+)?pip3?\s+install"
# A command of pip on one line: its program with `install`, and its arguments.
_BEFORE = (
    r"(?:[A-Za-z_]\w*=\S+\s+)*(?:sudo\s+(?:-\w+\s+)*)?(?:(?:conda|mamba)\s+run\s+(?:-n\s+\S+\s+|--?[\w-]+\s+)*)?"
)
_COMMAND = lazy_pattern(rf"(?<![\w./=-])({_BEFORE}{_PIP})(?=\s)([^&|;\\\"`\n]*)")
_INDEX = lazy_pattern(
    r"(?:--index-url|-i)(?:=|\s+)(https?://download\.pytorch\.org/whl/(?:nightly/)?(cu\d+|cpu))(?=[\s\"\\]|$)"
)
_CONDA_INSTALL = lazy_pattern(r"(?<![\w./-])(?:conda|mamba)\s+install\s([^&|;\\\"\n]*)")
# What stands before the version of a Python that a command, an image or an environment selects.
_SELECTS_PYTHON = r"(\b[Pp]ython\s*(?:={1,2}|:)\s*[\"']?|--python[ =]|\bpython)"
# The official images have no new Python for a distribution that ended before it.
_OLD_IMAGE = lazy_pattern(r"\bpython:\d[\w.]*-(?:slim-)?(?:jessie|stretch|buster)\b")
_OF_TORCH = ("torch", "torchvision", "torchaudio")
_NAME = lazy_pattern(r"[A-Za-z0-9][\w.-]*")


def build_without_isolation(lines: EditedLines, finding: Finding) -> bool:
    """Let a build use the installed packages: after a command with what it needs, and after the other packages."""
    if lines.kind_at(finding.line) == "guide":  # a sentence
        return False
    needs = _first_install(finding)
    command = _command_with(lines, finding.line, finding.evidence[0].fact)
    if not needs or not command:
        return bool(needs) and _build_file_without_isolation(lines, finding.line, needs)
    number, found, words = command
    own = [word for word in words if _is_package(word, finding.evidence[0].fact)]
    others = [word for word in words if word not in own]
    if "--no-build-isolation" in words or not own or any(word.startswith("-r") for word in others):
        return False
    options = _options(others)
    packages = [word for word in others if not word.startswith("-") and word not in options]
    commands = [f"{found[1]} {shlex.join(needs)}", f"{found[1]} --no-build-isolation {_joined([*options, *own])}"]
    if packages:
        if any(_is_package(word, "torch") for word in packages):
            commands[0] = f"{found[1]} {shlex.join(_without_torch(needs))}"
        commands.insert(0, f"{found[1]} {_joined(others)}")
    return _replace_command(lines, number, found, commands)


def _without_torch(needs: Sequence[str]) -> list[str]:
    return [each for each in needs if not _is_package(each, "torch")]


def _build_file_without_isolation(lines: EditedLines, line: int, needs: Sequence[str]) -> bool:
    """Let the builds of a requirements file use the installed packages: torch and the tools come first."""
    for number in lines.statement(line):
        for found in _pip_commands(lines, number):
            if re.search(r"\s(?:-r|--requirement)[ =]?\S", found[2]) and "--no-build-isolation" not in found[2]:
                first = f"{found[1]} {lines.torch} {shlex.join(_without_torch(needs))}"
                return _replace_command(
                    lines, number, found, [first, f"{found[1]} --no-build-isolation{found[2].rstrip()}"]
                )
    return False


def install_build_requirements(lines: EditedLines, finding: Finding) -> bool:
    """Install what a build without isolation needs, in a command before it."""
    needs = _first_install(finding)
    commands = [(number, found) for number in lines.statement(finding.line) for found in _pip_commands(lines, number)]
    if not needs or not commands:
        return False
    number, found = commands[0]
    return _replace_command(lines, number, found, [f"{found[1]} {shlex.join(needs)}", found[0].rstrip()])


def install_before(lines: EditedLines, finding: Finding) -> bool:
    """Install a package that a command uses, in a command above it."""
    needs = _first_install(finding)
    return bool(needs) and lines.insert_above(finding.line, shell_command("pip install {}", needs))


def install_system_packages(lines: EditedLines, finding: Finding) -> bool:
    """Install packages of the distribution above the step that needs them."""
    names = _system_packages(finding)
    kind = lines.kind_at(finding.line)
    if not names:
        return False
    if kind == "Dockerfile":
        command = f"apt-get update && apt-get install -y --no-install-recommends {shlex.join(names)}"
        return lines.insert_instruction(finding.line, f"RUN {command} && rm -rf /var/lib/apt/lists/*")
    update = "apt-get update && apt-get" if kind == "Apptainer" else "sudo apt-get"
    return lines.insert_above(finding.line, f"{update} install -y {shlex.join(names)}")


def limit_jobs(lines: EditedLines, finding: Finding) -> bool:
    """Set the variable of the remedy above the build that reads it."""
    steps = (step for remedy in finding.remedies for step in remedy.steps)
    assignment = next((step.assignment for step in steps if isinstance(step, SetVariable)), "")
    if not assignment:
        return False
    if lines.kind_at(finding.line) == "notebook":  # each line of a cell has a shell of its own
        return False
    is_instruction = lines.insert_instruction(finding.line, f"ENV {assignment}")
    return is_instruction or lines.insert_above(finding.line, shell_command("export {}", assignment))


def keep_pypi(lines: EditedLines, finding: Finding) -> bool:
    """Add the PyTorch index to PyPI in place of replacing it. uv selects the build by --torch-backend."""
    for number in lines.statement(finding.line):
        is_uv = bool(re.search(r"\buv\s+pip\s+install\b", "\n".join(map(lines.of, lines.statement(finding.line)))))
        new = r"--torch-backend=\2" if is_uv else r"--extra-index-url \1"
        if lines.replace(number, _INDEX.pattern, new):
            return True
    return False


def rename(lines: EditedLines, finding: Finding) -> bool:
    """Write the name of the package that is meant. Its releases have other numbers, except those of torch."""
    name = finding.evidence[0].fact
    text, new = finding.evidence[0].value, RENAMED.get(name, "")
    version = text[len(name) :] if new == "torch" else ""
    return bool(new) and lines.replace(finding.line, rf"(?<![\w./-]){re.escape(text)}(?![\w.-])", f"{new}{version}")


def use_python(lines: EditedLines, finding: Finding) -> bool:
    """Write the Python for which the release has wheels, where the text selects the Python."""
    suggested = named(r"^Use Python (3\.\d+)\.$", finding.fix)
    old = next((each.value for each in finding.evidence if each.fact == "Python"), "")
    if not suggested or not re.fullmatch(r"3\.\d+", old) or _OLD_IMAGE.search(lines.of(finding.line)):
        return False
    number = rf"{re.escape(old)}(?:\.\d+)?(?![\w.]*\d)"
    return lines.replace(finding.line, rf"{_SELECTS_PYTHON}{number}", rf"\g<1>{suggested}")


def use_wheels_of_torch(lines: EditedLines, finding: Finding) -> bool:
    """Install torch and its companions with pip, where the conda channel has no such release."""
    if finding.status != "error":
        return False
    for number in lines.statement(finding.line):
        found = _CONDA_INSTALL.search(lines.of(number))
        command = _wheels_of(found[1].split()) if found else ""
        if found and command:
            line = lines.of(number)
            return lines.set(number, line[: found.start()] + command + line[found.end() :])
    return False


def _wheels_of(words: Sequence[str]) -> str:
    """The command of pip for one of conda that installs torch alone; empty for another one."""
    packages, cuda, skipped = list[str](), "", False
    for word in words:
        name, _, version = word.partition("=")
        if skipped or word in ("-y", "--yes"):
            skipped = False
        elif word in ("-c", "--channel"):
            skipped = True
        elif name == "pytorch-cuda":
            cuda = version.strip("=").replace(".", "")
        elif name in ("pytorch", *_OF_TORCH):
            release = version.strip("=")
            packages.append(f"{'torch' if name == 'pytorch' else name}{f'=={release}' if release else ''}")
        else:
            return ""
    index = ["--index-url", f"https://download.pytorch.org/whl/cu{cuda}"] if cuda else []
    return shell_command("pip install {}", [*packages, *index]) if packages else ""


def _first_install(finding: Finding) -> tuple[str, ...]:
    """The packages of the first step of the remedy, if it installs some."""
    steps: list[Step] = [step for remedy in finding.remedies[:1] for step in remedy.steps[:1]]
    return next((step.packages for step in steps if isinstance(step, Install)), ())


def _system_packages(finding: Finding) -> tuple[str, ...]:
    """The packages of the distribution that a remedy or the fix names."""
    for remedy in finding.remedies:
        for step in remedy.steps:
            if isinstance(step, SystemPackages):
                return step.packages
            words = step.command.split() if isinstance(step, UserCommand) else []
            if words[:3] == ["apt-get", "install", "-y"]:
                return tuple(words[3:])
    name = named(r"^Install ([a-z0-9][a-z0-9.+-]*) with apt-get", finding.fix)
    return (name,) if name else ()


def _pip_commands(lines: EditedLines, number: int) -> list[re.Match[str]]:
    return list(_COMMAND.finditer(lines.of(number)))


def _command_with(lines: EditedLines, number: int, package: str) -> tuple[int, re.Match[str], list[str]] | None:
    """The command of a line that installs a package: the number, the command, and its arguments."""
    for found in _pip_commands(lines, number):
        try:
            words = shlex.split(found[2])
        except ValueError:
            continue
        if any(_is_package(word, package) for word in words):
            return number, found, words
    return None


def _is_package(word: str, package: str) -> bool:
    """Whether a word of a command is a requirement of a package, or its repository."""
    if "git+" in word or "://" in word:
        name = re.sub(r"(?:\.git)?(?:@[^/#]*)?(?:#.*)?$", "", word).rpartition("/")[2]
        names = {name, word.partition(" @ ")[0], *re.findall(r"egg=([\w.-]+)", word)}
        return any(_normalized(each) == _normalized(package) for each in names)
    found = _NAME.match(word.rstrip("/").rpartition("/")[2] if word.startswith((".", "/")) else word)
    return bool(found) and _normalized(found[0] if found else "") == _normalized(package)


def _normalized(name: str) -> str:
    known = {"flash-attention": "flash-attn"}
    normalized = normalize_name(name)
    return known.get(normalized, normalized)


def _options(words: Sequence[str]) -> list[str]:
    """The options of a command, with the values that follow them as words of their own."""
    found: list[str] = []
    takes_value = False
    for word in words:
        if takes_value or word.startswith("-"):
            found.append(word)
        takes_value = word in ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "--constraint")
    return [word for word in found if word not in ("-U", "--upgrade")]


def _joined(words: Sequence[str]) -> str:
    """Words of a command; a variable of the shell stays outside of quotes."""
    return " ".join(word if re.fullmatch(r"[\w@%+=:,./$-]+", word) else shlex.quote(word) for word in words)


def _replace_command(lines: EditedLines, number: int, found: re.Match[str], commands: Sequence[str]) -> bool:
    """Replace a command by several: as lines of their own if it has its line alone, else joined with `&&`."""
    line = lines.of(number)
    head, tail = line[: found.start()], line[found.end() :]
    is_alone = (
        re.fullmatch(r"\s*(?:RUN\s+|[$!%>]\s*)?", head) and not tail.strip() and len(lines.statement(number)) == 1
    )
    if lines.kind_at(number) == "notebook":
        is_alone = None
    joined = f"\n{head}".join(commands) if is_alone else " && ".join(commands)
    space = " " if tail[:1].strip() or tail[:1] == "\\" else ""
    return lines.set(number, f"{head}{joined}{space}{tail}")
