"""The audit of a directory: finds manifests, audits each, and compares them with one another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from envdoctor.commands.audit_file import AuditResult, FileAudit, UnreadableFile, audit_file, is_environment
from envdoctor.commands.audit_fix import Corrections
from envdoctor.commands.audit_repeated import without_repeated
from envdoctor.core.errors import BadInput
from envdoctor.core.files import read_file_text
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding, Machine
from envdoctor.manifests.files import TextsOfFiles, small_text
from envdoctor.manifests.inputs.comparison import NamedDocument, compare_documents
from envdoctor.manifests.inputs.linked_pages import GUIDE, is_page_of_commands, linked_pages
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.manifests.program_launches import NOTEBOOK
from envdoctor.resolution.step import StepSolver

_MANIFEST = lazy_pattern(
    r"(?:.*[._ -])?(?:requirements?|constraints)(?:[._-].*)?\.(?:txt|in)|pyproject\.toml|setup\.(?:cfg|py)|"
    r"pixi\.(?:toml|lock)|Pipfile(?:\.lock)?|(?:uv|poetry|pdm)\.lock|pylock(?:\..*)?\.toml|(?:conda-)?environment(?:[._-].*)?\.ya?ml|"
    r"(?:.*[.-])?conda-lock\.ya?ml|(?:.*[.-])?(?:Dockerfile|Containerfile)(?:[.-].*)?|.*\.def|devcontainer\.json|"
    r".*\.(?:sh|sbatch|slurm|ipynb)|(?:.*[._-])?(?:README|INSTALL(?:ATION)?|SETUP|GETTING[_-]?STARTED|QUICKSTART)(?:[._-].*)?\.(?:md|rst)",
    re.IGNORECASE,
)
_COMMAND = lazy_pattern(
    r"^\s*\"(?:\w+\s*=\s*)?[!%]|[\"n]\s*[!%]{1,2}\s*(?:pip|conda|mamba|uv|bash|sh)\b", re.MULTILINE
)
_YAML = lazy_pattern(r".*\.ya?ml")
_CONDA_KEYS = (lazy_pattern(r"^dependencies:\s*$", re.MULTILINE), lazy_pattern(r"^channels:", re.MULTILINE))
_SKIPPED_FOLDERS = frozenset({
    ".git", ".hg", ".svn", "node_modules", "site-packages", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pixi",
    ".ruff_cache", ".pytest_cache", "build", "dist", ".eggs", "vendor", "vendored", "_vendor", "third_party",
    "third-party", "3rdparty", "extern", "external", "submodules", "mlruns",
})  # fmt: skip
_RUN_OF_WANDB = lazy_pattern(r"(?:offline-)?run-\d{8}_\d{6}-\w+")  # with the packages of a run that has ended
MAX_DEPTH = 8
MAX_ENTRIES = 50_000
MAX_FILES = 300
_MAX_NOTEBOOKS = 8  # without commands, that guides name


class DirectoryAudit(NamedTuple):
    """The results of the files of a directory."""

    audits: tuple[AuditResult, ...]
    skipped: tuple[str, ...]
    unreadable: tuple[UnreadableFile, ...]
    differences: tuple[Finding, ...]
    omitted: tuple[str, ...]


def _is_conda_environment(path: Path) -> bool:
    """Whether a YAML file under any name has the keys of an environment.yml."""
    return bool(_YAML.fullmatch(path.name)) and all(key.search(small_text(path)) for key in _CONDA_KEYS)


def _has_commands(path: str) -> bool:
    """Whether a notebook has commands of a shell."""
    try:
        return bool(_COMMAND.search(read_file_text(path)))
    except (OSError, UnicodeError, ValueError):
        return True  # the audit states why it cannot be read


def _named_notebooks(paths: Iterable[str]) -> list[str]:
    """The notebooks that a guide names, which are steps of it: "Run the notebook `train.ipynb`"."""
    found = [*map(Path, paths)]
    notebooks = [each for each in found if each.suffix == NOTEBOOK]
    text = "\n".join(_text(each) for each in found if GUIDE.fullmatch(each.name)) if notebooks else ""
    return [str(each) for each in notebooks if re.search(rf"(?<![\w-]){re.escape(each.name)}", text)][:_MAX_NOTEBOOKS]


def _text(path: Path) -> str:
    try:
        return read_file_text(path)
    except (OSError, UnicodeError, ValueError):
        return ""


def audit_directory(
    target: str,
    machine: Machine | None,
    solver: StepSolver | None = None,
    fix: Corrections | None = None,
    *,
    python: str = "",
) -> DirectoryAudit:
    """Audit the manifests below a directory. Raises NothingToAudit if none of them can be judged.

    With `fix`, a lock is corrected after its manifest.
    """
    search = _Search(target)
    paths = list(search.paths())
    paths = sorted(paths, key=_is_lock) if fix else paths
    below = fix.below(Path(target)) if fix else None
    on_disk = TextsOfFiles()
    audits: list[FileAudit] = []
    skipped: list[str] = []
    unreadable: list[UnreadableFile] = []
    named = _named_notebooks(paths)
    for path in paths:
        if path.endswith(NOTEBOOK) and path not in named and not _has_commands(path):  # they can be many
            skipped.append(path)
            continue
        try:
            audit = audit_file(path, machine, solver, below, fix_only_problems=True, python=python, on_disk=on_disk)
            is_prose = path in search.linked and audit.document.origin  # it only names packages
            (skipped.append(path) if is_prose else audits.append(audit))
        except NothingToAudit:
            skipped.append(path)
        except BadInput as error:
            reason = error.message.removeprefix(path).removeprefix(Path(path).name).lstrip(",: ")
            unreadable.append(UnreadableFile(path, reason))
    if not audits and not unreadable:
        found = f"{len(paths)} files with requirements or install steps" if paths else "no manifest"
        raise NothingToAudit(
            f"nothing in {target} can be judged: it contains {found}",
            expected="a directory with manifests of a GPU training stack, or an environment",
            hint="envdoctor audit --help",
        )
    compared = [NamedDocument(each.result.name, each.document, each.stack) for each in audits]
    return DirectoryAudit(
        without_repeated(audits), tuple(skipped), tuple(unreadable), compare_documents(compared),
        tuple(search.omitted),
    )  # fmt: skip


def _is_lock(path: str) -> bool:
    return Path(path).name.lower().endswith((".lock", "-lock.yml", "-lock.yaml")) or "pylock" in Path(path).name


class _Search:
    """Finds the manifests below a directory, without environments and copies of other projects."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.entries = 0
        self.omitted: list[str] = []
        self.linked: set[str] = set()  # the pages to which guides link

    def paths(self) -> Iterator[str]:
        """The paths of the manifests, those of upper directories first, and of the pages to which guides link."""
        found = []
        for path in self._manifests():
            found.append(Path(path))
            yield path
        guides = [each for each in found if GUIDE.fullmatch(each.name)]
        for page in linked_pages(guides, Path(self.target))[: MAX_FILES - len(found)]:
            if _SKIPPED_FOLDERS.isdisjoint(page.parts):
                self.linked.add(str(Path(self.target, page)))
                yield str(Path(self.target, page))

    def _manifests(self) -> Iterator[str]:
        count = 0
        for folder, names, files in os.walk(self.target, onerror=self._report_error):
            depth = len(Path(folder).relative_to(self.target).parts)
            names[:] = sorted(name for name in names if self._is_searched(Path(folder, name), depth))
            self.entries += len(names) + len(files)
            if self.entries > MAX_ENTRIES:
                self.omitted.append(f"{folder} and later directories: more than {MAX_ENTRIES} entries")
                return
            for name in sorted(files):
                if not self._is_manifest(folder, name):
                    continue
                if count == MAX_FILES:
                    self.omitted.append(f"{Path(folder, name)} and later files: more than {MAX_FILES} manifests")
                    return
                count += 1
                yield str(Path(folder, name))

    def _report_error(self, error: OSError) -> None:
        """Refuse a directory that cannot be read; list one below it."""
        if error.filename == self.target:
            raise BadInput(
                f"cannot read {self.target}: {error.strerror}",
                expected="a readable directory",
                hint="envdoctor audit --help",
            ) from error
        self.omitted.append(f"{error.filename}: {error.strerror}")

    def _is_searched(self, path: Path, depth: int) -> bool:
        if path.name in _SKIPPED_FOLDERS or _RUN_OF_WANDB.fullmatch(path.name) or path.is_symlink():
            return False
        if is_environment(path):
            self.omitted.append(f"{path}: an environment")
            return False
        if depth >= MAX_DEPTH:
            self.omitted.append(f"{path}: more than {MAX_DEPTH} directories deep")
            return False
        return True

    def _is_manifest(self, folder: str, name: str) -> bool:
        in_workflows = folder.endswith(os.path.join(".github", "workflows"))  # noqa: PTH118
        if _MANIFEST.fullmatch(name) or (in_workflows and _YAML.fullmatch(name)):
            return True
        path = Path(folder, name)
        return folder == self.target and (is_page_of_commands(path) or _is_conda_environment(path))
