"""Files that a guide names, and that its steps or its reader can make: they need not be in the checkout."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import Clone
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.own_names import name_key, repository_name

# What a reader is to replace: `path/to/train.py`, `your_script.py`, `scene_name.yaml`.
_PLACEHOLDER = lazy_pattern(
    r"(?:^|[/_.-])(?:(?:path|to|your?|my|some|foo|bar|x{2,}|custom|user|new)(?:[/_.-]|$)"
    r"|(?:example|script)(?:[_.-]|$))"
    r"|(?:^|/)(?:\w+[_-])?name\.\w+$",
    re.IGNORECASE,
)
_EXAMPLES = ("_example_", "_script_")
# Before the name: `Create a file scripts/start.py`.
_MADE = (
    r"\b(?:creat|writ|wrote|sav|generat|cop(?:y|ied)|download|add|put|renam|mov|nam|assum)\w*\s+(?:\S+\s+){0,6}\S*"
    r"|(?:>|-O|-o|tee|cp|mv|ln)\s[^|;]{0,200}"
)
_SAVED = r"\b(?:sav|writ|creat|cop(?:y|i)|past|put)\w*\s[^.;]{0,80}?\b(?:file|as|into|in|to|named|called)\s+\W{0,3}"
_BUILT = frozenset({"build", "dist", "out", "output", "outputs", "data", "tmp", "results", "checkpoints", "venv"})
# Not `export NAME=value`.
_COMPILED = lazy_pattern(r"\bpip-compile\b|\b(?:pip compile|freeze|pipreqs|lock)\b|(?<=\s)export\b", re.IGNORECASE)


def can_come_from_elsewhere(
    guide: Guide, checkout: Checkout, path: str, uses: Container[int], built: Container[str] = _BUILT
) -> bool:
    """Whether a step makes, downloads or clones a file, or a reader is to replace its name.

    `uses` are its lines, and `built` the first folders of files that steps make.
    """
    path = posixpath.normpath(path)
    name = path.rpartition("/")[2]
    first = path.partition("/")[0]
    clones = {repository_name(each.url) for each in _clones(guide)}
    if path.startswith("..") or first in built or _is_placeholder(checkout, path) or first in clones:
        return True
    if any(first in each for each in submodule_paths(checkout)):
        return True
    if _is_of_linked_project(guide, name):
        return True
    made = re.compile(f"(?:{_MADE}){re.escape(name)}", re.IGNORECASE)
    saved = re.compile(f"(?:{_SAVED}){re.escape(name)}", re.IGNORECASE)
    for number, line in enumerate(guide.lines, 1):
        if name in line and saved.search(line):  # also in the sentence that starts it
            return True
        is_shown = name in line and not any(start in uses for start in range(number - 2, number + 1))
        if is_shown and made.search(line):
            return True
    return False


def submodule_paths(checkout: Checkout) -> list[str]:
    """The directories of the checkout whose files come from other repositories."""
    return re.findall(r"(?m)^\s*path\s*=\s*(\S+)", checkout.text(".gitmodules"))


def _is_placeholder(checkout: Checkout, path: str) -> bool:
    """Whether a reader is to replace a name; not `run_example_b.sh` next to `run_example_a.sh`."""
    folder, _, name = path.rpartition("/")
    word = next((each for each in _EXAMPLES if each in name), "")
    end = f"{folder}/" if folder else ""
    others = (each for each in checkout.paths if word and posixpath.splitext(each)[1] == posixpath.splitext(name)[1])
    is_own = any(
        word in posixpath.basename(each) and f"/{posixpath.dirname(each)}/".endswith(f"/{end}") for each in others
    )
    return _PLACEHOLDER.search(path.replace(word, "_") if is_own else path) is not None


def _is_of_linked_project(guide: Guide, name: str) -> bool:
    """Whether the text links another repository that has the name of a script: `WikiExtractor.py`."""
    links = re.findall(r"(?:github|gitlab)\.com/[\w.-]+/([\w.-]+)", "\n".join(guide.lines))
    stem = name_key(name.partition(".")[0])
    return any(name_key(each.removesuffix(".git")) == stem for each in links)


def clones_another(guide: Guide, checkout: Checkout) -> bool:
    """Whether the guide clones a repository other than its own, which can have a script."""
    clones = [name_key(repository_name(each.url)) for each in _clones(guide)]
    return bool(clones) and not checkout.own_names("\n".join(guide.lines)).issuperset(clones)


def compiles_requirements(guide: Guide) -> bool:
    """Whether a step of a guide writes a requirements file or a lock file."""
    return any(_COMPILED.search(str(command)) for command in guide.commands)


def is_ignored(checkout: Checkout, path: str) -> bool:
    """Whether git ignores files of this name, which a step or a person makes."""
    name = posixpath.basename(path)
    rows = (row.strip().strip("/") for row in checkout.text(".gitignore").splitlines() if not row.startswith("#"))
    return any(row and (row == name or row in (path, posixpath.dirname(path))) for row in rows)


def _clones(guide: Guide) -> Iterator[Clone]:
    return (each for each in guide.actions if isinstance(each, Clone))
