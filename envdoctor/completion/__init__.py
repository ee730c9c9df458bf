"""Replies to the shell when the user presses Tab.

The import of a command's module takes up to 100 ms. This reads `words.json`, which
`docs/generate.py` writes from the same declarations, and the names of the user's profiles.

A shell's script (`scripts`) sets two variables: _ENVDOCTOR_COMPLETE is the shell, _ENVDOCTOR_LINE the command line up
to the cursor.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from typing import Any

SHELL, LINE, BREAKS = "_ENVDOCTOR_COMPLETE", "_ENVDOCTOR_LINE", "_ENVDOCTOR_BREAKS"
WORDS_FILE = os.path.join(os.path.dirname(__file__), "words.json")  # noqa: PTH118, PTH120  pathlib takes 8 ms

Candidates = dict[str, str]  # value -> description


def main() -> None:
    """Print the candidates for the last word of the command line, one per line."""
    line, shell = os.environ.get(LINE, ""), os.environ[SHELL]
    candidates = complete(line, os.environ)
    breaks = os.environ.get(BREAKS, "") if shell == "bash" else ""
    skipped = max(((split(line) or [""])[-1].rfind(letter) for letter in "=:" if letter in breaks), default=-1) + 1
    sys.stdout.write("".join(f"{format_candidate(shell, *each)[skipped:]}\n" for each in candidates.items()))


def format_candidate(shell: str, value: str, description: str) -> str:
    """A candidate as the script of the shell reads it."""
    if shell == "fish":
        return f"{value}\t{description}"
    return f"{value.replace(':', chr(92) + ':')}:{description}" if shell == "zsh" else value


def complete(line: str, environ: Mapping[str, str]) -> Candidates:
    """The candidates for the last word of a command line. Empty: the shell completes file names."""
    with open(WORDS_FILE, encoding="utf-8") as file:  # noqa: PTH123
        words = json.load(file)
    given = split(line)[1:]
    incomplete = given[-1] if given else ""
    node, positional, previous = _walk(words["commands"], given[:-1])
    options = node.get("options", {})
    option, is_assignment, value = incomplete.partition("=")
    if previous and previous in options and options[previous]["values"] is not None:
        found = _values(options[previous]["values"], words, positional, incomplete, environ)
        return _matching(found, incomplete)
    if option.startswith("--") and is_assignment and options.get(option, {}).get("values") is not None:
        found = _values(options[option]["values"], words, positional, value, environ)
        return {f"{option}={each}": text for each, text in _matching(found, value).items()}
    if incomplete.startswith("-"):
        return _matching({name: each["help"] for name, each in options.items()}, incomplete)
    commands = {} if positional else node.get("commands", {})
    found = {name: each["help"] for name, each in commands.items()}
    kinds = node.get("arguments", [])
    if kinds and (len(positional) < len(kinds) or node.get("repeats")):
        kind = kinds[min(len(positional), len(kinds) - 1)]
        found |= _values(kind, words, positional, incomplete, environ)
    return _matching(found, incomplete)


def split(line: str) -> list[str]:
    """The words of a command line. The last one, at the cursor, may be empty or an open quotation."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words += lexer
    except ValueError:  # an open quotation
        return [*words, lexer.token]
    return words if line and not line[-1].isspace() else [*words, ""]


def _walk(root: dict[str, Any], words: list[str]) -> tuple[dict[str, Any], list[str], str]:
    """The command of the complete words, its positional arguments, and the option that waits for a value."""
    node, waiting = root, ""
    positional: list[str] = []
    for word in words:
        option = node.get("options", {}).get(word)
        if waiting:
            waiting = ""
        elif option:
            waiting = word if option["values"] is not None else ""
        elif not positional and word in node.get("commands", {}):
            node = node["commands"][word]
        elif not word.startswith("-"):
            positional.append(word)
    return node, positional, waiting


def _matching(found: Candidates, incomplete: str) -> Candidates:
    return {value: text for value, text in found.items() if value.lower().startswith(incomplete.lower())}


def _values(
    kind: str | list[str], words: dict[str, Any], positional: list[str], incomplete: str, environ: Mapping[str, str]
) -> Candidates:
    """The values of an option or argument: a list, or the name of a list in words.json; empty for files."""
    if isinstance(kind, list):
        return dict.fromkeys(kind, "")
    if kind == "settings":
        return _settings(words, positional, incomplete)
    found: Candidates = dict(words["values"].get(kind, {}))
    return found | _user_profiles(environ) if kind == "profiles" else found


def _settings(words: dict[str, Any], positional: list[str], incomplete: str) -> Candidates:
    """`NAME=` for each setting of the recipe's trainer and task; after `NAME=` its choices."""
    recipe = words["recipes"].get(positional[0] if positional else "sort", {"engine": "grpo", "task": "dataset"})
    settings = words["settings"][recipe["engine"]]
    name, is_assignment, _ = incomplete.partition("=")
    if is_assignment:
        return {f"{name}={choice}": "" for choice in settings.get(name, {}).get("choices", ())}
    task = recipe["task"]
    return {f"{name}=": each["help"] for name, each in settings.items() if task in each.get("tasks", (task,))}


def _user_profiles(environ: Mapping[str, str]) -> Candidates:
    """The user's profiles, from the names of their files."""
    base = environ.get("XDG_CONFIG_HOME", "")
    base = base if base.startswith("/") else environ.get("HOME", "") + "/.config"
    try:
        files = sorted(os.listdir(f"{base}/envdoctor/profiles"))  # noqa: PTH208
    except OSError:
        return {}
    return {name.removesuffix(".toml"): "your profile" for name in files if name.endswith(".toml")}
