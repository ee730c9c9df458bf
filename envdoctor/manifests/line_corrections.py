"""Corrects the lines of a text that findings are about, where the finding determines the correction.

Versions of packages are corrected by write_back, with a set that uv solved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from envdoctor.core.command_line import command_line
from envdoctor.core.records import Finding
from envdoctor.manifests import image_corrections, install_corrections
from envdoctor.manifests.checks.names import REMOVED_OPTIONS
from envdoctor.manifests.edited_lines import EditedLines, named
from envdoctor.manifests.missing_backslashes import without_comment

Correct = Callable[[EditedLines, Finding], bool]


class LineCorrections(NamedTuple):
    """A text after its corrections, and the findings that they are for."""

    text: str
    findings: tuple[Finding, ...]


def correct_lines(
    text: str, kind: str, findings: Sequence[Finding], without: Collection[str] = (), torch: str = "torch"
) -> LineCorrections:
    """Correct the lines of findings, without those of some causes. `torch` is the one that the text installs."""
    lines = EditedLines(text, kind, torch)
    corrected = [
        finding
        for finding in findings
        if finding.status in ("error", "warning") and finding.line and finding.cause not in without
        for correct in [_CORRECTIONS.get(finding.id)]
        if correct and correct(lines, finding)
    ]
    return LineCorrections(lines.text, tuple(corrected))


def _quote(lines: EditedLines, finding: Finding) -> bool:
    word = finding.evidence[0].value
    return lines.replace(finding.line, rf"(?<![\w'\"]){re.escape(word)}(?!['\"\w])", f"'{word}'")


def _use_hf(lines: EditedLines, finding: Finding) -> bool:
    """The commands of huggingface-cli and the options that `hf` does not have."""
    found = False
    for number in lines.statement(finding.line):
        lines.replace(number, r"\bhuggingface-cli (login|whoami)\b", r"hf auth \1")
        found |= lines.replace(number, r"\bhuggingface-cli\b", "hf") or lines.of(number) != lines.original(number)
        lines.replace(number, REMOVED_OPTIONS.pattern, "")
    if found:
        install_corrections.install_before(lines, finding)  # of huggingface-hub, if no step installs it
    return found


def _use_named(lines: EditedLines, finding: Finding, pattern: str) -> bool:
    """Write what the fix names in place of the evidence."""
    return lines.replace_text(finding.line, finding.evidence[0].value, named(pattern, finding.fix))


_use_tag = partial(_use_named, pattern=r"^Use \S+:([\w.-]+)\.$")  # of an image


def _end_comment(lines: EditedLines, finding: Finding) -> bool:
    """Remove what ends a continued command: an empty or comment line, or a blank or comment after a backslash."""
    line = lines.of(finding.line)
    if not line.strip() or line.lstrip().startswith("#"):
        return lines.delete(finding.line)
    return lines.replace(finding.line, r"(?<=\s)\\[ \t]+(?:#.*)?$", r"\\")


def _join_commands(lines: EditedLines, finding: Finding) -> bool:
    if finding.fix.startswith("Remove the line above"):
        return lines.delete(finding.line - 1)
    return "&& \\" in finding.fix and lines.replace(finding.line - 1, r"\s*\\\s*$", r" && \\")


def _continue_command(lines: EditedLines, finding: Finding) -> bool:
    """Add the backslashes, with the comments above the command, unless a further command would become arguments."""
    last = int(named(r"^End lines \d+ to (\d+) with", finding.fix) or finding.line)
    numbers = range(finding.line, last + 1)
    following = [lines.original(number) for number in lines.statement(last + 1)]
    if any(re.search(r"\binstall\b", each) for each in following) or lines.kind_at(finding.line) == "notebook":
        return False
    for number in numbers:
        text = lines.of(number).rstrip()
        code = without_comment(text)
        if comment := text.removeprefix(code).strip():
            option = f"{words[0]}: " if (words := code.split())[0].startswith("-") else ""
            lines.insert_above(finding.line, f"# {option}{comment.lstrip('# ')}")
        lines.set(number, f"{code} \\")
    return True


def _wait_for_command(lines: EditedLines, finding: Finding) -> bool:
    return lines.replace(finding.line, r"(?<!&)\s&\s(?!&)", " && ")


def _use_directory(lines: EditedLines, finding: Finding) -> bool:
    return lines.replace_text(finding.line, finding.evidence[-1].value, named(r"^Use (cd .+)\.$", finding.fix))


def _without_yes(lines: EditedLines, finding: Finding) -> bool:
    option = named(r"^Remove (-y|--yes)\.$", finding.fix)
    numbers = lines.statement(finding.line) if option else []
    return any(
        lines.replace(number, rf"(\bpip3?\s+install\b[^&|;#]*?)\s{option}(?=\s|$)", r"\1") for number in numbers
    )


def _clone(lines: EditedLines, finding: Finding) -> bool:
    address = named(r"^Use git clone (\S+)\.$", finding.fix)
    return lines.replace_text(finding.line, address, command_line("git", "clone", address))


def _use_release(lines: EditedLines, finding: Finding) -> bool:
    release = named(r"^Use (pytorch=[\d.]+),", finding.fix)
    return bool(release) and lines.replace_text(finding.line, finding.evidence[0].value, release)


def _use_bash(lines: EditedLines, finding: Finding) -> bool:
    return finding.fix.startswith("Write") and lines.replace(1, r"^#!.*$", "#!/bin/bash")


def _start_with_bash(lines: EditedLines, finding: Finding) -> bool:
    script = named(r"^Use bash (\S+)\.$", finding.fix)
    return bool(script) and lines.replace(finding.line, rf"(?<![\w/.-])sh(?=\s[^;&|]*{re.escape(script)})", "bash")


def _enter_directory(lines: EditedLines, finding: Finding) -> bool:
    if finding.fix.startswith("Run mkdir"):
        return _make_directory(lines, finding)
    before, after = named(r"^`cd (\S+)` fails", finding.message), named(r"^Use cd (\S+)\.$", finding.fix)
    pattern = rf"\bcd\s+{re.escape(before)}(?=[\s;&]|$)"
    return bool(before and after) and lines.replace(finding.line, pattern, f"cd {after}")


def _make_directory(lines: EditedLines, finding: Finding) -> bool:
    """Make the directory that a step enters, or name the one that is meant."""
    if path := named(r"^Run mkdir -p (\S+) first\.$", finding.fix):
        return lines.replace(finding.line, r"(?<!\S)cd\s", f"mkdir -p {path} && cd ")
    other, path = named(r"^(\S+) is a directory", finding.message), named(r"^Use (\S+)\.$", finding.fix)
    return bool(other and path) and lines.replace_text(finding.line, other, path)


def _use_unix_line_ends(lines: EditedLines, finding: Finding) -> bool:  # noqa: ARG001
    return lines.remove_carriage_returns()


def _read_hook(lines: EditedLines, finding: Finding) -> bool:
    return lines.insert_above(finding.line, 'eval "$(conda shell.bash hook)"')


def _without_blanks(lines: EditedLines, finding: Finding) -> bool:
    is_spaced = lines.replace(finding.line, r"\b([A-Z][A-Z0-9_]+)\s+=\s+(?=\S)", r"\1=")
    return is_spaced or lines.replace(finding.line, r"(?<=CUDA_VISIBLE_DEVICES=)\d+(?:,\s+\d+)+", _without_spaces)


def _without_spaces(found: re.Match[str]) -> str:
    return "".join(found[0].split())


def _use_magic(lines: EditedLines, finding: Finding) -> bool:
    if lines.replace(finding.line, r"!\s*cd\s+", "%cd "):
        return True
    return lines.replace(finding.line, r"!\s*export\s+([A-Za-z_]\w*)=([\w./:-]+)(?=\s*(?:\\n|$))", r"%env \1=\2")


def _without_python(lines: EditedLines, finding: Finding) -> bool:
    """`torchrun python train.py` starts a file: the word python is removed, or a module gets its name."""
    if module := named(r"^Use -m ([\w.]+)\.$", finding.fix):
        return lines.replace_text(finding.line, named(r"finds no module (\S+)", finding.message), module)
    if option := named(r"^Write (--\S+) before \S+\.$", finding.fix):
        return _move_option(lines, finding.line, option)
    python = named(r"^Remove (python3?)\.$", finding.fix)
    numbers = lines.statement(finding.line) if python else []
    return any(lines.replace(number, rf"\s{python}(?=\s+\S+\.py\b)", "") for number in numbers)


def _move_option(lines: EditedLines, line: int, option: str) -> bool:
    """Write an option of a launcher before the script, in a command of one line."""
    if len(lines.statement(line)) > 1:
        return False
    value = "" if "=" in option else r"(?:\s+(?!-)[\w.:$/{}\"-]+)?"
    found = re.search(rf"(\s\S+\.py\b.*?)(\s{re.escape(option)}{value})(?=\s|$)", lines.of(line))
    return bool(found) and lines.set(
        line, lines.of(line).replace(found[0], f"{found[2]}{found[1]}", 1) if found else ""
    )


def _use_other_variable(lines: EditedLines, finding: Finding) -> bool:
    """Set the variable that is read, or delete a line that only sets one that nothing reads."""
    name = re.escape(finding.evidence[0].fact)
    if instead := named(r"^Use ([A-Z]\w+=\w+)(?=\.| or |,)", finding.fix):
        return lines.replace(finding.line, rf"\b{name}[= ]['\"]?[\w.-]+['\"]?", instead)
    is_alone = re.fullmatch(rf"\s*(?:[$]\s*)?(?:export|ENV)\s+{name}[= ]\S+\s*", lines.of(finding.line))
    return bool(is_alone) and len(lines.statement(finding.line)) == 1 and lines.delete(finding.line)


def _compare(lines: EditedLines, finding: Finding) -> bool:
    name = named(r"^Use == to compare (\w+)\.$", finding.fix)
    return bool(name) and lines.replace(finding.line, rf"\b{name}\s*:=\s*", f"{name} == ")


def _keep_installed(lines: EditedLines, finding: Finding) -> bool:
    option = named(r"or use uv \w+ (--inexact|--no-sync)\.$", finding.fix)
    return bool(option) and lines.replace(finding.line, r"\buv (sync|run)\b", rf"uv \1 {option}")


def _without_remote_name(lines: EditedLines, finding: Finding) -> bool:
    numbers = lines.statement(finding.line)
    return any(
        lines.replace(number, r"\s-([a-zA-Z]*)O([a-zA-Z]*)(?=\s)|\s--remote-name(?=\s)", _without_o)
        for number in numbers
    )


def _without_o(found: re.Match[str]) -> str:
    letters = f"{found[1] or ''}{found[2] or ''}"
    return f" -{letters}" if letters else ""


def _move_docker_option(lines: EditedLines, finding: Finding) -> bool:
    option = named(r"^Write it before the image: docker run (.+) \S+\.$", finding.fix)
    numbers = lines.statement(finding.line) if option else []
    if not any(lines.replace(number, rf"\s{re.escape(option)}(?!\S)", "") for number in numbers):
        return False
    added = option.replace("\\", r"\\")
    return any(lines.replace(number, r"\bdocker run\b", rf"\g<0> {added}") for number in numbers)


def _use_docker(lines: EditedLines, finding: Finding) -> bool:
    is_run = lines.replace(finding.line, r"\bnvidia-docker run\b(?! .*--gpus)", "docker run --gpus all")
    return is_run or lines.replace(finding.line, r"\bnvidia-docker (?=run|exec|build)", "docker ")


def _add_interpreter(lines: EditedLines, finding: Finding) -> bool:
    return finding.fix.startswith("Add `#!/bin/bash`") and lines.insert_above(1, "#!/bin/bash")


def _use_valid_requirement(lines: EditedLines, finding: Finding) -> bool:
    new = named(r"^Write '?([^ ].*?)'?(?: without the comma)?\.$", finding.fix)
    if not new or re.match(r"each requirement|the name,", new):
        return False
    return lines.replace_text(finding.line, finding.evidence[0].value.removeprefix("-e "), new)


def _use_package_of_module(lines: EditedLines, finding: Finding) -> bool:
    stated, new = finding.evidence[0].value, named(r"^Use (\S+): the index has it under this name\.$", finding.fix)
    return not re.search(r"[;\[]", stated) and lines.replace_text(finding.line, stated, new)


def _without_user(lines: EditedLines, finding: Finding) -> bool:
    removed = named(r"^Remove (--user|sudo)\.$", finding.fix)
    return bool(removed) and lines.replace(finding.line, rf"(?<!\S){removed}\s+|\s+{removed}$", "")


def _use_library_path(lines: EditedLines, finding: Finding) -> bool:
    """Name the packages, or the script, of the Python that the environment has."""
    if python := named(r"the environment has Python (3\.\d+)", finding.message):
        return lines.replace(finding.line, r"/python3\.\d+/", f"/python{python}/")
    python = named(r"the guide installs Python (3\.\d+)", finding.message)
    script = rf"\g<0>pip/{python}/"
    return bool(python) and lines.replace(finding.line, r"bootstrap\.pypa\.io/(?=get-pip\.py)", script)


_CORRECTIONS: dict[str, Correct] = {
    "RUN005": install_corrections.use_python,
    "RUN015": _use_package_of_module,
    "RUN022": _use_other_variable,
    "RUN023": _quote,
    "RUN040": install_corrections.build_without_isolation,
    "RUN041": install_corrections.install_build_requirements,
    "RUN044": install_corrections.limit_jobs,
    "RUN047": _use_library_path,
    "RUN048": install_corrections.build_without_isolation,
    "RUN055": install_corrections.keep_pypi,
    "RUN056": install_corrections.use_wheels_of_torch,
    "RUN060": install_corrections.rename,
    "RUN061": _use_hf,
    "RUN066": install_corrections.install_before,
    "RUN081": _end_comment,
    "RUN082": _wait_for_command,
    "RUN083": _use_directory,
    "RUN100": partial(_use_named, pattern=r"^Use runs-on: (\S+)\.$"),
    "RUN101": partial(_use_named, pattern=r"^Use (\S+@\S+)\.$"),
    "RUN102": _use_tag,
    "RUN103": image_corrections.use_archive,
    "RUN104": _move_docker_option,
    "RUN105": _use_docker,
    "RUN106": image_corrections.accept_terms,
    "RUN107": image_corrections.permit_pip,
    "RUN108": image_corrections.use_new_key,
    "RUN109": install_corrections.install_system_packages,
    "RUN111": _use_tag,
    "RUN112": install_corrections.install_system_packages,
    "RUN130": _add_interpreter,
    "RUN150": image_corrections.use_instruction,
    "RUN151": image_corrections.use_bash,
    "RUN152": install_corrections.install_system_packages,
    "RUN153": image_corrections.confirm,
    "RUN155": image_corrections.copy_before,
    "RUN156": _join_commands,
    "RUN157": _use_bash,
    "RUN177": _continue_command,
    "RUN158": _use_unix_line_ends,
    "RUN159": _read_hook,
    "RUN160": _without_blanks,
    "RUN161": _without_python,
    "RUN164": _use_magic,
    "RUN165": _compare,
    "RUN166": _use_valid_requirement,
    "RUN167": _use_valid_requirement,
    "RUN168": _without_user,
    "RUN169": _keep_installed,
    "RUN170": _without_remote_name,
    "RUN171": install_corrections.install_system_packages,
    "RUN175": image_corrections.declare_argument,
    "RUN179": _without_yes,
    "RUN180": _clone,
    "RUN189": _use_release,
    "RUN215": _start_with_bash,
    "RUN217": _enter_directory,
    "RUN219": _make_directory,
}
