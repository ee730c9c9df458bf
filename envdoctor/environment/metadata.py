"""Installed distributions, read from their metadata.

Long descriptions are not parsed, and no regular expression is used for what each distribution has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envdoctor.core.files import LISTING_BYTES, read_file, read_file_head, read_file_text
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Distribution
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.releases import is_requirement, normalize_name

HEAD_BYTES = 1 << 13  # most headers are shorter
MAX_HEAD_BYTES = 17 << 16
SHOWN_LENGTH = 80  # characters of an invalid value
MAX_PATH_LINES = 1000  # of a .pth file
MAX_VERSION_LENGTH = 128  # Python reads no int of 5,000 digits
# Versions and names with other characters are not used: they would add words to a command, as `Version: 1.0 other`.
UNSAFE = lazy_pattern(r"[^A-Za-z0-9._+!~-]")
NAMES = ("name", "version", "requires-dist", "requires-python", "home-page", "project-url")
FIELDS = {name.encode(): name for name in NAMES}
FOLDS = (b"\r\n ", b"\r\n\t", b"\n ", b"\n\t")  # the end of a line that the next one continues
HOME_LABELS = ("homepage", "home", "repository", "source", "sourcecode", "code", "github")


class DirectUrl(msgspec.Struct):
    """The fields of direct_url.json (PEP 610) that are used."""

    url: str = ""
    vcs_info: dict[str, str] = {}
    dir_info: dict[str, bool] = {}


class FoundDistribution(Record, frozen=True):
    """A distribution, the path of its metadata, and the requirements that do not parse."""

    distribution: Distribution
    metadata: Path
    invalid_requirements: tuple[str, ...] = ()


class FolderMetadata(Record, frozen=True):
    """The distributions in one package directory, what could not be read, and other notes."""

    found: list[FoundDistribution]
    notes: list[str]
    unread: list[str]


def read_folder(folder: Path, markers: Markers) -> FolderMetadata:
    """Read every distribution in a package directory."""
    folder_metadata = FolderMetadata([], [], [])
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  faster than iterdir, and this is the hot path
    except FileNotFoundError:
        return folder_metadata
    except OSError as error:
        folder_metadata.unread.append(f"{folder}: {error.strerror}")
        return folder_metadata
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            _read_distribution(folder, name, markers, folder_metadata)
        elif name.endswith(".egg"):
            folder_metadata.unread.append(f"{folder / name}: an egg, whose packages are not read")
        elif name.endswith(".pth"):
            _read_path_file(folder / name, markers, folder_metadata)
        elif name.endswith(".egg-link"):
            _read_link(folder / name, markers, folder_metadata)
    return folder_metadata


def _read_path_file(path: Path, markers: Markers, folder_metadata: FolderMetadata) -> None:
    """Read the distributions of the folders that a .pth file adds to sys.path (`conda develop`)."""
    try:
        lines = read_file_text(path).splitlines()[:MAX_PATH_LINES]
    except OSError as error:
        folder_metadata.unread.append(f"{path}: {error.strerror}")
        return
    for line in lines:
        added = path.parent / line.strip()
        if not line.strip() or line.startswith(("#", "import ", "import\t")) or added == path.parent:
            continue
        try:
            names = sorted(os.listdir(added))  # noqa: PTH208
        except (OSError, ValueError):  # Python ignores it as well
            continue
        for name in names:
            if name.endswith(".dist-info"):
                _read_distribution(added, name, markers, folder_metadata)


def _read_link(link: Path, markers: Markers, folder_metadata: FolderMetadata) -> None:
    """Read the project that `setup.py develop` links: its folder is the first line, and has an .egg-info."""
    try:
        project = Path(read_file_text(link).partition("\n")[0].strip())
        names = sorted(name for name in os.listdir(project) if name.endswith(".egg-info"))  # noqa: PTH208
    except (OSError, ValueError) as error:
        folder_metadata.unread.append(f"{link}: {getattr(error, 'strerror', None) or error}")
        return
    for name in names:
        _read_distribution(project, name, markers, folder_metadata)
    if not names:
        folder_metadata.unread.append(f"{link}: no .egg-info in {project}")


def list_metadata(folder: Path) -> list[Path]:
    """The metadata paths in a package directory; empty if it cannot be listed."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []
    return [folder / name for name in names if name.endswith((".dist-info", ".egg-info")) and name[0] != "~"]


def name_from_metadata_path(metadata: Path) -> str:
    """The distribution name in a metadata path: `Flash_Attn-2.8.3.dist-info` is "flash-attn"."""
    return UNSAFE.sub("-", normalize_name(metadata.stem.partition("-")[0]))


def _read_distribution(folder: Path, name: str, markers: Markers, folder_metadata: FolderMetadata) -> None:
    path = folder / name
    if name.startswith("~"):
        folder_metadata.notes.append(f"{path}: left by an interrupted pip run")
        return
    try:
        head = _read_head(path)
    except OSError as error:
        folder_metadata.unread.append(f"{path}: {error.strerror}")
        fields = parse_head(b"")
    else:
        fields = parse_head(head)
        if problem := _problem_of_head(head, fields) or _problem_of_name(path, fields):
            folder_metadata.unread.append(f"{path}: {problem}")
    version, requires = path.stem.partition("-")[2], fields["requires-dist"]
    if name.endswith(".egg-info"):
        version = re.sub(r"-py3\.\d+$", "", version)
        requires = requires or _egg_requires(path)
    applicable = markers.applicable(requires)
    distribution = Distribution(
        name=_safe(normalize_name(_first(fields, "name"))) or name_from_metadata_path(path),
        version=_safe((_first(fields, "version") or version)[:MAX_VERSION_LENGTH]),
        requires=tuple(line for line in applicable if is_requirement(line)),
        requires_python=_first(fields, "requires-python"),
        location=str(folder),
        home=choose_home_page(_first(fields, "home-page"), fields["project-url"]),
        source=_read_source(path),
    )
    invalid = tuple(line for line in applicable if not is_requirement(line))
    folder_metadata.found.append(FoundDistribution(distribution, path, invalid))


def _problem_of_head(head: bytes, fields: dict[str, list[str]]) -> str:
    """Why the fields of a metadata file may not be those of its distribution; empty if nothing is wrong."""
    if missing := [name for name in ("name", "version") if not _first(fields, name)]:
        return f"it has no {' and no '.join(missing)}"
    for name in ("name", "version"):
        if UNSAFE.search(value := _first(fields, name)):
            return f"the {name} {value[:SHOWN_LENGTH]!a} is invalid"
    if (length := len(_first(fields, "version"))) > MAX_VERSION_LENGTH:
        return f"its version has {length} characters"
    if len(head) == MAX_HEAD_BYTES and _end_of_fields(head) is None:
        return f"its fields are longer than {MAX_HEAD_BYTES} bytes"
    return ""


def _problem_of_name(path: Path, fields: dict[str, list[str]]) -> str:
    """Why the fields are those of another release than the folder's name; empty if they agree.

    Installers find a release by the folder, Python by the fields.
    """
    if repeated := [name for name in ("name", "version") if len(set(fields[name])) > 1]:
        return f"it has several fields {repeated[0]}"
    folder, _, version = path.stem.partition("-")
    if path.suffix != ".dist-info" or not version:
        return ""
    if UNSAFE.sub("-", normalize_name(folder)) != normalize_name(_first(fields, "name")):
        return f"its name is {_first(fields, 'name')[:SHOWN_LENGTH]!a}, not that of its folder"
    stated = _first(fields, "version")
    if version != stated and _canonical(version) != _canonical(stated):
        return f"its version is {stated[:SHOWN_LENGTH]!a}, not that of its folder"
    return ""


def _canonical(version: str) -> str:
    """A version in its usual form: installers write `_` in the name of a folder where the version has `-`."""
    from packaging.utils import canonicalize_version  # 10 ms, and most names of folders are canonical

    return canonicalize_version(version.replace("_", "-"))


def parse_head(head: bytes) -> dict[str, list[str]]:
    """Fields of a METADATA or PKG-INFO file up to the first blank line, with keys in lower case.

    Example lines: `Name: trl`, `Version: 0.23.1`, `Requires-Dist: vllm>=0.10.2; extra == "vllm"`. A line that starts
    with a space or a tab continues the one before it.
    """
    fields: dict[str, list[str]] = {name: [] for name in NAMES}
    block = head[: _end_of_fields(head)]
    for fold in FOLDS:
        block = block.replace(fold, fold[-1:])
    for line in block.split(b"\n"):
        key, colon, value = line.partition(b":")
        if colon and (name := FIELDS.get(key.lower())):
            fields[name].append(value.strip(b" \t\r").decode(errors="replace"))
    return fields


def _end_of_fields(head: bytes) -> int | None:
    """The index of the first blank line; None if there is none."""
    end = head.find(b"\n\n")
    with_return = head.find(b"\n\r\n", 0, end if end >= 0 else None)
    return next((index for index in (with_return, end) if index >= 0), None)


def choose_home_page(home_page: str, project_urls: list[str]) -> str:
    """The home page: the Home-page header, otherwise the best Project-URL (`Repository, https://github.com/...`)."""
    if home_page and home_page != "UNKNOWN":
        return home_page
    labelled: dict[str, str] = {}
    for line in project_urls:
        label, _, url = line.partition(",")
        labelled.setdefault("".join(filter(str.isalnum, label)).lower(), url.strip())
    return next((labelled[label] for label in HOME_LABELS if label in labelled), next(iter(labelled.values()), ""))


def _safe(value: str) -> str:
    return "" if UNSAFE.search(value) else value


def _first(fields: dict[str, list[str]], key: str) -> str:
    return fields[key][0] if fields[key] else ""


def _read_head(path: Path) -> bytes:
    """The header block of a distribution's metadata; an .egg-info may be a file itself."""
    names = ("METADATA",) if path.name.endswith(".dist-info") else ("PKG-INFO", "")
    for name in names:
        try:
            file = f"{path}/{name}" if name else path
            head = read_file_head(file, HEAD_BYTES)
            # Some headers contain licences of 100 KB.
            return head if _end_of_fields(head) is not None else read_file_head(file, MAX_HEAD_BYTES)
        except (NotADirectoryError, FileNotFoundError) as error:
            missing = error
    raise missing


def _egg_requires(path: Path) -> list[str]:
    try:
        return parse_egg_requires(read_file_text(path / "requires.txt"))
    except OSError:
        return []


def parse_egg_requires(text: str) -> list[str]:
    """Requirements of an egg's requires.txt as Requires-Dist lines, without extras.

    `numpy`, then a section `[:python_version < "3.8"]` with a marker, then a section `[test]` for an extra.
    """
    requirements, marker, is_required = [], "", True
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            extra, _, marker = line.strip("[]").partition(":")
            is_required = not extra
        elif line and is_required:
            requirements.append(f"{line} ; {marker}" if marker else line)
    return requirements


def _read_source(path: Path) -> str:
    """The installer or the source: uv, pip, conda, "flash_attn-2.8.3-...whl", "verl@4d1c9e6"."""
    if path.name.endswith(".egg-info"):
        return ""
    installer = _read_small(f"{path}/INSTALLER").decode(errors="replace").strip()[:40]
    direct = (
        b"" if installer == "conda" else _read_small(f"{path}/direct_url.json")
    )  # conda's contains its build directory
    return parse_direct_url(direct) if direct else installer


def _read_small(path: str) -> bytes:
    try:
        return read_file_head(path, HEAD_BYTES)
    except OSError:
        return b""


def parse_direct_url(data: bytes) -> str:
    """The last part of a direct URL, with the commit of a checkout. The host may contain credentials and is omitted.

    `{"url": "https://github.com/volcengine/verl.git", "vcs_info": {"vcs": "git", "commit_id": "4d1c9e6f..."}}`
    """
    try:
        direct = msgspec.json.decode(data, type=DirectUrl)
    except (msgspec.DecodeError, RecursionError):
        return "direct URL"
    name = re.sub(r"[?#].*", "", direct.url).rstrip("/").rpartition("/")[2]
    if commit := direct.vcs_info.get("commit_id"):
        return f"{name.removesuffix('.git')}@{commit[:12]}"
    return f"{name} (editable)" if direct.dir_info.get("editable") else name or "direct URL"


def editable_project(metadata: Path) -> Path | None:
    """The project directory of an editable distribution; None for any other."""
    data = _read_small(f"{metadata}/direct_url.json") if metadata.name.endswith(".dist-info") else b""
    try:
        direct = msgspec.json.decode(data, type=DirectUrl)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not direct.dir_info.get("editable") or not direct.url.startswith("file://"):
        return None
    from urllib.parse import unquote

    return Path(unquote(direct.url.removeprefix("file://")))


def compiled_files(metadata: Path) -> Iterator[str] | None:
    """Compiled files in a distribution's RECORD, relative to its directory; None without a RECORD.

    Raises OSError for a RECORD that cannot be read.
    """
    name = "RECORD" if metadata.name.endswith(".dist-info") else "installed-files.txt"
    try:
        return parse_record(read_file(f"{metadata}/{name}", LISTING_BYTES), relative_to=name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def parse_record(record: bytes, *, relative_to: str = "RECORD") -> Iterator[str]:
    """Compiled files of a RECORD: `torch/lib/libc10.so,sha256=...,1234` gives "torch/lib/libc10.so".

    It searches for the suffix, which is faster than reading lines: a venv with vLLM has 37,000 lines in 156 RECORDs.
    """
    strip = "../" if relative_to == "installed-files.txt" else ""
    for found in re.finditer(rb'\.so(?:[.\d]*\d[a-z]?)?(?=["\r\n,]|$)', record):
        start = record.rfind(b"\n", 0, found.start()) + 1
        path = record[start : found.end()].strip(b'"').decode(errors="replace")
        if "," not in path:
            yield path.removeprefix(strip)
