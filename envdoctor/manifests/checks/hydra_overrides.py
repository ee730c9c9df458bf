"""Checks on the overrides with which commands start programs of Hydra, against the configuration of the checkout."""

from __future__ import annotations

import ast
import difflib
import posixpath
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, shown_line, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import is_ignored
from envdoctor.manifests.shell_records import is_known
from envdoctor.rules.registry import Problem, rule

OVERRIDES = "https://hydra.cc/docs/advanced/override_grammar/basic/"
_OVERRIDE = lazy_pattern(r"(?P<add>\+{0,2})(?P<key>[A-Za-z_][\w/.-]*)=(?P<value>[\w./-]*).*", re.DOTALL)
_CONFIG_NAME = lazy_pattern(r"(?:--config-name|-cn)(?:=(.+))?")
_OTHER_FOLDER = lazy_pattern(r"(?:--config-(?:path|dir)|-c[pd])(?:=.*)?|hydra\.searchpath.*")
# Configurations that are not files of the folder.
_IN_CODE = lazy_pattern(r"ConfigStore|SearchPathPlugin|hydra_zen|\bhydra\.initialize|\binitialize_config")
# A file of a group that a sentence selects: "just pass `loss=ipo`".
_SELECTED = lazy_pattern(
    r"(?i)\b(?:pass|us|set|add|specify|run\s+with|with)(?:ing|e)?\s+(?:[\w-]+\s+){0,2}`([a-z_]+)=([a-z][\w-]*)`"
)
_CREATES = lazy_pattern(
    r"(?i)\b(?:creat|new\b|own\b|your\b|custom|implement|writ|register|remov|deprecat|no longer|not\b|todo|coming)"
)
_KEY = lazy_pattern(r"([A-Za-z_][\w-]*)[\"']?\s*:")
_PLACEHOLDER = lazy_pattern(r"(?i)(?:^|[/_.-])(?:name|your?|my|path|some|foo|bar|x{2,}|example)(?:[/_.-]|$)")
_LIKENESS = 0.6
_SAME_KEY = 0.8


class HydraProgram(NamedTuple):
    """A program with `hydra.main`, and the folder of its configuration files."""

    path: str
    line: int
    folder: str
    files: frozenset[str]  # relative to the folder, without suffix
    keys: frozenset[str]  # of any file, at any depth

    @property
    def place(self) -> str:
        """The file and the line of the decorator."""
        return f"{self.path}:{self.line}"


@rule("RUN233", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=OVERRIDES)
def override_is_not_in_the_configuration(context: GuideContext) -> Iterator[Problem]:
    """A command starts a program of Hydra with a configuration file or a key that its configuration does not have.

    Only where all configuration is in files of the checkout. Keys that `+` adds are left out. A warning where a
    sentence selects the file, as in "pass `loss=ipo`", and the guide starts one program of Hydra.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    seen: set[str] = set()
    programs: dict[str, HydraProgram] = {}
    for launch in context.guide.launches:
        path = checkout.script(launch) if launch.line and launch.program.is_python else ""
        program = _hydra_program(checkout, path) if path else None
        if program is None or any(_OTHER_FOLDER.fullmatch(word) for word in launch.program.arguments):
            continue
        programs[path] = program
        for refusal in _refused(checkout, program, launch.program.arguments):
            if refusal[0] not in seen:
                seen.add(refusal[0])
                shown = f"{posixpath.basename(program.path)} ... {refusal[0]}"
                line = line_of(context, launch.line, refusal[0])
                yield _problem(program, refusal, guide_evidence(context, "command", shown, line), line)
    if len(programs) == 1:
        program = next(iter(programs.values()))
        for number, refusal in _refused_in_text(context, checkout, program):
            if refusal[0] not in seen:
                seen.add(refusal[0])
                evidence = guide_evidence(context, "text", shown_line(context.guide.lines[number - 1]), number)
                yield _problem(program, refusal, evidence, number, "warning")


def _refused_in_text(
    context: GuideContext, checkout: Checkout, program: HydraProgram
) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """The files of groups that sentences select and that the checkout does not have, with their lines."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, line in enumerate(context.guide.lines, 1):
        for match in _SELECTED.finditer(line) if number not in code and not _CREATES.search(line) else ():
            if _is_group(program, match[1]):
                found = _absent_file(checkout, program, f"{match[1]}={match[2]}", match[1], match[2])
                yield from ((number, each) for each in found)


def _problem(
    program: HydraProgram,
    refusal: tuple[str, str, str],
    evidence: Evidence,
    line: int,
    status: Literal["error", "warning"] = "error",
) -> Problem:
    word, reason, fix = refusal
    return Problem(
        status,
        f"{word}: {reason}: Hydra stops {program.path}",
        (evidence, table_evidence("configuration", program.folder, program.place)),
        fix,
        line=line,
    )


def _refused(checkout: Checkout, program: HydraProgram, words: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """The words that Hydra refuses, each with the reason and the fix."""
    for index, word in enumerate(words):
        if name := _CONFIG_NAME.fullmatch(word):
            value = name[1] or (words[index + 1] if index + 1 < len(words) else "")
            yield from _absent_file(checkout, program, word, "", value)
            continue
        match = _OVERRIDE.fullmatch(word)
        if match is None or not is_known(word) or match["key"].startswith("hydra"):
            continue
        key, value = match["key"], match["value"]
        if _is_group(program, key):
            if f"{match['add']}{key}={value}" == word:
                yield from _absent_file(checkout, program, word, key, value)
            continue
        last = key.rpartition(".")[2]
        if not match["add"] and "/" not in key and not last.isdecimal() and last not in program.keys:
            nearest = _nearest_key(last, program.keys)
            fix = f"Use the key {nearest}, if it is meant." if nearest else (
                f"Use a key of the configuration, or +{word} for a key that the program reads without it."
            )  # fmt: skip
            yield word, f"no file in {program.folder} has the key {last}", fix


def _nearest_key(key: str, keys: frozenset[str]) -> str:
    """The key that is like another one, or the only one that begins with it."""
    longer = [each for each in keys if each.startswith(f"{key}_")]
    alike = difflib.get_close_matches(key, sorted(keys), n=1, cutoff=_SAME_KEY)
    return longer[0] if len(longer) == 1 else next(iter(alike), "")


def _is_group(program: HydraProgram, key: str) -> bool:
    return any(each.startswith(f"{key}/") for each in program.files)


def _absent_file(
    checkout: Checkout, program: HydraProgram, word: str, group: str, value: str
) -> Iterator[tuple[str, str, str]]:
    value = re.sub(r"\.ya?ml$", "", value)
    path = posixpath.normpath(posixpath.join(group, value))
    is_judged = (
        value and is_known(value) and value not in ("null", "none", "None") and not value.startswith(("/", ".."))
    )
    if not is_judged or path in program.files or _is_group(program, path) or _PLACEHOLDER.search(value):
        return
    file = posixpath.join(program.folder, f"{path}.yaml")
    if value.isupper() or is_ignored(checkout, file):
        return
    folder = posixpath.dirname(path)
    names = sorted(posixpath.basename(each) for each in program.files if posixpath.dirname(each) == folder)
    nearest = next(iter(difflib.get_close_matches(posixpath.basename(path), names, n=1, cutoff=_LIKENESS)), "")
    fix = f"Use {posixpath.join(posixpath.dirname(value), nearest)}, if it is meant." if nearest else (
        f"Use one of {', '.join(names[:8])}." if names else "Name a file of the checkout."
    )  # fmt: skip
    yield word, f"{file} is not in the checkout", fix


def _hydra_program(checkout: Checkout, path: str) -> HydraProgram | None:
    """The program, if all its configuration is in files of the checkout."""
    text = checkout.text(path)
    if "hydra" not in text or _IN_CODE.search(text):
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    calls = [
        each
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        for each in node.decorator_list
        if isinstance(each, ast.Call) and ast.unparse(each.func) in ("hydra.main", "main")
    ]
    if len(calls) != 1:
        return None
    named = {word.arg: word.value for word in calls[0].keywords}
    folder = _folder(named.get("config_path", next(iter(calls[0].args), None)), posixpath.dirname(path))
    files = [each for each in checkout.paths if each.startswith(f"{folder}/") and each.endswith((".yaml", ".yml"))]
    if not folder or not files:
        return None
    texts = [checkout.text(each) for each in files]
    code = [checkout.text(each) for each in checkout.paths if each.endswith(".py") and each != path]
    if any("searchpath" in each or "pkg://" in each for each in texts) or any("ConfigStore" in each for each in code):
        return None
    keys = {key for each in texts for key in _KEY.findall(each)}
    names = {posixpath.splitext(each.removeprefix(f"{folder}/"))[0] for each in files}
    return HydraProgram(path, calls[0].lineno, folder, frozenset(names), frozenset(keys))


def _folder(value: ast.expr | None, start: str) -> str:
    """The folder of `config_path`, relative to the root; empty if it is not known."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return posixpath.normpath(posixpath.join(start, value.value))
    if isinstance(value, ast.JoinedStr) and len(value.values) == 2:
        first, last = value.values  # f"{root}/configs"
        is_root = isinstance(first, ast.FormattedValue) and ast.unparse(first.value).lower().endswith("root")
        return posixpath.normpath(str(last.value).lstrip("/")) if is_root and isinstance(last, ast.Constant) else ""
    return ""
