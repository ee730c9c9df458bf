"""Recognises an input by its content, with its name as a hint, and calls the reader of its format."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from envdoctor.core.decoding import parse_toml
from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.conda_environment import parse_environment_yml
from envdoctor.manifests.container_files import is_apptainer, is_dockerfile
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs import conda_locks, locks, manifests, scripts, workflows
from envdoctor.manifests.inputs.notebook_programs import with_notebook_program
from envdoctor.manifests.inputs.pieces import numbered
from envdoctor.manifests.inputs.project_programs import with_programs
from envdoctor.manifests.inputs.records import (
    STANDARD_INPUT,
    Document,
    NothingToAudit,
    OtherCommandsInput,
    PackageSet,
)
from envdoctor.manifests.inputs.steps_of_text import with_steps_of_text
from envdoctor.manifests.inputs.yaml_nodes import load_yaml, yaml_error
from envdoctor.manifests.markdown import Block
from envdoctor.manifests.pyproject import items, rows, table
from envdoctor.manifests.requirement_files import logical_lines, requirement_text
from envdoctor.manifests.restructured_text import is_restructured_text
from envdoctor.manifests.setup_py import is_setup_py
from envdoctor.manifests.stated_python import permits, python_of_file
from envdoctor.resolution.requirement import is_stated_requirement, parse_install_requirement

EXPECTED = (
    "a manifest (requirements, pyproject.toml, setup.cfg, setup.py, environment.yml, pixi.toml, Pipfile), a lock "
    "file, a Dockerfile, a script, a workflow, a notebook, a setup guide, or a directory of these"
)
HINT = "envdoctor audit ."  # finds the manifests of the directory
REPORT_START = 20_000  # characters that decide whether a text is an environment report
Reader = Callable[[str, str, Files], Document]

_GUIDE_NAME = lazy_pattern(r".*\.(?:md|markdown|mdx|rst|qmd)", re.IGNORECASE)
_README_NAME = lazy_pattern(r"(?:readme|install)(?:\.txt)?", re.IGNORECASE)
_DOCKERFILE_NAME = lazy_pattern(r"(?:.*[.-])?(?:Dockerfile|Containerfile)(?:[.-].*)?", re.IGNORECASE)
_SCRIPT_NAME = lazy_pattern(r".*\.(?:sh|bash|zsh|ksh|sbatch|slurm|sub|job|pbs)", re.IGNORECASE)
_REQUIREMENTS_NAME = lazy_pattern(
    r"(?:.*[._ -])?(?:requirements?|constraints|freeze)(?:[._-].*)?\.(?:txt|in|lock)", re.IGNORECASE
)
_PAGE_NAME = lazy_pattern(r".*\.html?", re.IGNORECASE)
_SETUP_NAME = lazy_pattern(r".*\.cfg", re.IGNORECASE)
_SETUP_SCRIPT_NAME = lazy_pattern(r"setup\.py")
_SHEBANG = lazy_pattern(
    r"\A#!\s*\S*(?:/|env\s+(?:-S\s+)?)(?:ba|z|k|da)?sh\b|^#(?:SBATCH|PBS|BSUB|\$) -", re.MULTILINE
)
_PACKAGE_TABLE = lazy_pattern(
    r"^(?:Package\s+Version\b.*\n-{3,}|# packages in environment at |#\s+Name\s+Version)", re.MULTILINE
)
# A file of a package in the locks of uv, Poetry and PDM. They are two thirds of the text, and decide nothing.
_FILE_ROW = lazy_pattern(r"^    \{ ?(?:url|file) = \".*$", re.MULTILINE)
# A traceback, an exception with its message, or a line of a logger.
_ERROR_TEXT = lazy_pattern(
    r"^[^#\n]*(?:Traceback \(most recent call last\)|\b\w+(?:Error|Exception): |\b(?:ERROR|CRITICAL|FATAL)\b[ :\]])",
    re.MULTILINE,
)


def read_input(text: str, name: str, files: Files, platform: str = "x86_64", path: str = "") -> Document:
    """Read an input. `platform` is the CPU architecture that lock files are judged for, `path` that of the file.

    Raises BadInput for content of no known format, and for content that its format does not allow.
    """
    try:
        document = _read(text, name, files, platform)
    except OtherCommandsInput as error:
        raise error.with_file(path or name) from None
    if name != STANDARD_INPUT:
        document = with_steps_of_text(document, scripts.files_of_guide(text, name, files))
    return with_notebook_program(with_programs(document, name, files), name, files, read_input)


def _read(text: str, name: str, files: Files, platform: str) -> Document:
    for pattern, reader in _READERS_BY_NAME:
        if pattern.fullmatch(name):
            return reader(text, name, files)
    suffix = name.lower().rpartition(".")[2]
    if suffix in ("json", "ipynb") or re.match(r"\s*(?:\{|\[\s*\{)", text):
        return _read_json(text, name, files, platform)
    if suffix in ("toml", "lock") or name == "Pipfile":
        return _read_toml_or_yaml(text, name, files, platform)
    if suffix in ("yml", "yaml"):
        return _read_yaml(text, name, files)
    for is_format, reader in _READERS_BY_CONTENT:
        if is_format(text):
            return reader(text, name, files)
    if _README_NAME.fullmatch(name):
        return scripts.read_guide(text, name, files)
    raise unknown_content(name, text)


def _starts_as(is_format: Callable[[Block], bool]) -> Callable[[str], bool]:
    return lambda text: is_format(Block("", "", numbered(text)))


def _reject_error_text(text: str, name: str, files: Files) -> Document:  # noqa: ARG001
    raise OtherCommandsInput(f"{name} is an error text or a log", "envdoctor explain {}", name, expected=EXPECTED)


def _read_explicit(text: str, name: str, files: Files) -> Document:  # noqa: ARG001
    return Document("conda list", sets=conda_locks.explicit_sets(text))


def unknown_content(name: str, text: str) -> BadInput:
    """The error for a text of no known format, for an environment report, or for nothing but comments."""
    from envdoctor.reports import parse_report

    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n")):
        return NothingToAudit(
            f"there is no requirement or install step in {name} ({len(text.splitlines())} lines)",
            expected=EXPECTED,
            hint=HINT,
        )
    if kinds := parse_report(text[:REPORT_START]).kinds:
        message = f"{name} is an environment report ({', '.join(kinds)})"
        return OtherCommandsInput(message, "envdoctor check --from-report {}", name, expected=EXPECTED)
    # Without a line of the file, which may be a link to a secret.
    return BadInput(f"{name} has no known format ({len(text.splitlines())} lines)", expected=EXPECTED, hint=HINT)


def _read_requirements(text: str, name: str, files: Files) -> Document:
    """A file whose name is that of a requirements file. Its lines must be requirements, or be meant as such."""
    for number, line in _requirement_lines(text):
        requirement = parse_install_requirement(line, number)
        is_valid = requirement is not None and (requirement.has_valid_specifier or "$" in line)
        if not is_valid and not is_stated_requirement(line):
            raise BadInput(
                f"{name}, line {number}: {line[:80]!r} is not a requirement",
                expected="requirements such as torch==2.8.0",
                hint=HINT,
            )
    return manifests.read_requirements(text, name, files)


def _requirement_lines(text: str) -> list[tuple[int, str]]:
    """The lines that name a package, without comments and options."""
    lines = logical_lines(numbered(text))
    return [(number, requirement_text(line)) for number, line in lines if line and not line.startswith("-")]


def _is_requirements(text: str) -> bool:
    """Whether all lines are requirements or options.

    A version can be a placeholder, as in `vllm==VERSION`. The `=` of a setting is no operator of a requirement.
    """
    lines = _requirement_lines(text)
    has_options = re.search(r"^\s*-(?:r|c|e|i|-requirement|-constraint|-index-url)\b", text, re.MULTILINE)
    parsed = [parse_install_requirement(line, number) for number, line in lines]
    if any(each is None or re.match(r"=(?!=)", each.specifier) for each in parsed):
        return False
    return bool(has_options) or any(each and (each.has_valid_specifier or "$" in each.specifier) for each in parsed)


def _read_package_table(text: str, name: str, files: Files) -> Document:  # noqa: ARG001
    """The output of `pip list` or `conda list`, as a table."""
    from envdoctor.reports import parse_report

    return Document("package list", stack=parse_report(text).stack)


def _read_json(text: str, name: str, files: Files, platform: str) -> Document:
    data = workflows.parse_json_with_comments(text)
    if packages := [row for row in rows(data) if {"name", "version"} <= row.keys()]:
        lines = [f"{row['name']} {row['version']}" for row in packages]
        return _read_package_table("\n".join(["Package Version", "------- -------", *lines]), name, files)
    if data is None:
        raise BadInput(f"{name} is not valid JSON", expected=EXPECTED, hint=HINT)
    if not isinstance(data, dict):
        raise unknown_content(name, text)
    if isinstance(data.get("cells"), list):
        return scripts.read_notebook(text, name, files)
    if "_meta" in data and ("default" in data or "develop" in data):
        return Document(
            "Pipfile.lock", sets=locks.pipenv_sets(data, text, platform), unread=locks.pipenv_unread(data)
        )
    if name.endswith("devcontainer.json") or {"features", "postCreateCommand"} & data.keys():
        return workflows.read_devcontainer(text, name, files)
    raise unknown_content(name, text)


def _read_toml_or_yaml(text: str, name: str, files: Files, platform: str) -> Document:
    """A TOML file. pixi.lock has the suffix of TOML locks, and is YAML."""
    if re.match(r"\s*(?:#.*\n\s*)*version:\s*\d", text):
        return _read_yaml(text, name, files)
    shortened = _FILE_ROW.sub("", text) if name.endswith(".lock") else text
    data = parse_toml(shortened, source=name, expected=EXPECTED, hint=HINT)
    for is_format, read in _TOML_FORMATS:
        if is_format(data):
            try:
                return read(data, text, name, files, platform)
            except ValueError as error:
                raise BadInput(f"{name}: {str(error)[:200]}", expected=EXPECTED, hint=HINT) from error
    raise unknown_content(name, text)


def _is_toml(text: str) -> bool:
    """Whether a text without a telling name, such as standard input, has tables of TOML and is valid."""
    if not re.search(r"^\[{1,2}[\w.\"-]+\]{1,2}\s*$", text, re.MULTILINE):
        return False
    try:
        return bool(parse_toml(text, source="", expected="", hint=""))
    except BadInput:
        return False


def _read_toml_text(text: str, name: str, files: Files) -> Document:
    return _read_toml_or_yaml(text, name, files, files.platform or "x86_64")


def _read_yaml(text: str, name: str, files: Files) -> Document:
    data = load_yaml(text)
    if not isinstance(data, dict):
        line, reason = yaml_error(text)
        if parse_environment_yml(numbered(text)).packages:
            document = manifests.read_conda_environment(text, name, files)
            error = ((line, reason),) if line else ()
            return document._replace(paths=tuple(path._replace(syntax_errors=error) for path in document.paths))
        what = f"is not valid YAML: line {line}: {reason}" if line else "is not a YAML mapping"
        raise BadInput(f"{name} {what}", expected=EXPECTED, hint=HINT)
    if "environments" in data and "packages" in data:
        return Document("pixi.lock", sets=conda_locks.pixi_sets(data, text), unread=conda_locks.other_platforms(data))
    if "metadata" in data and rows(data.get("package")):
        return Document(
            "conda-lock", sets=conda_locks.conda_lock_sets(data, text), unread=conda_locks.other_platforms(data)
        )
    if "jobs" in data or "steps" in table(data, "runs"):
        return workflows.read_workflow(text, name, files)
    if isinstance(data.get("dependencies"), list):
        return manifests.read_conda_environment(text, name, files)
    raise unknown_content(name, text)


def _is_poetry_lock(data: dict[str, Any]) -> bool:
    return "content-hash" in table(data, "metadata")


def _is_pdm_lock(data: dict[str, Any]) -> bool:
    return bool({"content_hash", "lock_version"} & table(data, "metadata").keys())


def _is_uv_lock(data: dict[str, Any]) -> bool:
    return "version" in data and any("source" in row for row in rows(data.get("package")))


def _is_pylock(data: dict[str, Any]) -> bool:
    return "lock-version" in data and "packages" in data


def _is_pixi(data: dict[str, Any]) -> bool:
    return bool({"workspace", "pypi-dependencies", "feature"} & data.keys()) or "channels" in table(data, "project")


def _is_pipfile(data: dict[str, Any]) -> bool:
    return ("packages" in data or "dev-packages" in data) and not items(data.get("packages"))


def _is_pyproject(data: dict[str, Any]) -> bool:
    return bool({"project", "tool", "build-system", "dependency-groups"} & data.keys())


def _of_sets(
    kind: str, sets: Callable[[dict[str, Any], str, str], tuple[PackageSet, ...]]
) -> Callable[..., Document]:
    def read(data: dict[str, Any], text: str, name: str, files: Files, platform: str) -> Document:  # noqa: ARG001
        return Document(kind, sets=sets(data, text, platform))

    return read


def _read_uv_lock(data: dict[str, Any], text: str, name: str, files: Files, platform: str) -> Document:  # noqa: ARG001
    """A uv.lock, for the Python of the file .python-version if the project permits it: uv creates no other one."""
    python = python_of_file(files)
    if python and permits(str(data.get("requires-python") or ""), python):
        data = data | {"requires-python": f"=={python}.*"}
    return Document("uv.lock", sets=locks.UvLock(data, text).sets(platform))


def _of_text(reader: Reader) -> Callable[..., Document]:
    def read(data: dict[str, Any], text: str, name: str, files: Files, platform: str) -> Document:  # noqa: ARG001
        return reader(text, name, files)

    return read


_TOML_FORMATS: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[..., Document]], ...] = (
    (_is_poetry_lock, _of_sets("poetry.lock", locks.poetry_sets)),
    (_is_pdm_lock, _of_sets("pdm.lock", locks.pdm_sets)),
    (_is_uv_lock, _read_uv_lock),
    (_is_pylock, _of_sets("pylock.toml", locks.pylock_sets)),
    (_is_pixi, _of_text(manifests.read_pixi)),
    (_is_pipfile, _of_text(manifests.read_pipfile)),
    (_is_pyproject, _of_text(manifests.read_pyproject)),
)
# Formats whose files have a name of their own and no other sign in their content.
_READERS_BY_NAME: tuple[tuple[re.Pattern[str], Reader], ...] = (
    (_GUIDE_NAME, scripts.read_guide),
    (_DOCKERFILE_NAME, scripts.read_dockerfile),
    (_SCRIPT_NAME, scripts.read_script),
    (_REQUIREMENTS_NAME, _read_requirements),
    (_PAGE_NAME, scripts.read_web_page),
    (_SETUP_NAME, manifests.read_setup_cfg),
    (_SETUP_SCRIPT_NAME, manifests.read_setup_py),
)
_READERS_BY_CONTENT: tuple[tuple[Callable[[str], object], Reader], ...] = (
    (re.compile(r"\s*(?:<!doctype html|<html\b)", re.IGNORECASE).match, scripts.read_web_page),
    (is_setup_py, manifests.read_setup_py),
    (_starts_as(is_apptainer), scripts.read_apptainer),
    (_starts_as(is_dockerfile), scripts.read_dockerfile),
    (_SHEBANG.search, scripts.read_script),
    (re.compile(r"^\s*(?:fi|done|esac|set -[a-z]+)\s*$", re.MULTILINE).search, scripts.read_script),
    (re.compile(r"^@EXPLICIT", re.MULTILINE).search, _read_explicit),
    (_PACKAGE_TABLE.search, _read_package_table),
    (re.compile(r"^\s*(?:```|~~~)", re.MULTILINE).search, scripts.read_guide),
    (is_restructured_text, scripts.read_guide),
    (_is_requirements, manifests.read_requirements),
    (_is_toml, _read_toml_text),
    (re.compile(r"^(?:dependencies|channels|jobs|metadata|environments):\s*$", re.MULTILINE).search, _read_yaml),
    (_ERROR_TEXT.search, _reject_error_text),
    (lambda text: any(map(scripts.is_command_line, text.split("\n"))), scripts.read_text),
)
