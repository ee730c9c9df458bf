"""Remedies as commands of the tool that owns a manifest: what `uv pip install` adds, its next sync removes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, Remedy, Step, Uninstall, UserCommand, remedy_of
from envdoctor.core.shell_commands import shell_command
from envdoctor.core.wording import join_words
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import leading_name
from envdoctor.knowledge.versions import newest_patch, satisfies
from envdoctor.manifests.actions import Install as InstallAction
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.stated_python import permits
from envdoctor.resolution.index_facts import IndexFacts

TORCH_INDEX = "--index pytorch-{0}=https://download.pytorch.org/whl/{0}"
_PYTHONS = ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
_SECTION = lazy_pattern(r"\s*\[+([^\]]+)\]+")
_REQUIRES_PYTHON = lazy_pattern(r"(?m)^requires-python\s*=\s*[\"']([^\"'\n]+)")
_INSTALLS_PACKAGES = lazy_pattern(r"\b(?:pip3?|conda|mamba)\s+install\b")
_OTHER_PYTHON = lazy_pattern(r"uv venv .*--python (\d\S+)")
_KEY = lazy_pattern(r"\s*[\"']?([\w.-]+)[\"']?\s*=\s*\[")


class Tool(NamedTuple):
    """The commands of a tool: `add` and `remove` take requirements or names."""

    add: str
    remove: str
    index_option: str = ""  # adds the PyTorch index; empty if the tool has none
    folder_option: str = ""  # selects the project of another directory
    folder_variable: str = ""  # the same as a variable: the path of the manifest

    def at(self, path: Path) -> Tool:
        """The tool for the project of a manifest or a lock."""
        folder = path.parent
        if str(folder) == ".":
            return self
        if self.folder_variable:
            prefix = f"{self.folder_variable}={shlex.quote(str(folder / 'Pipfile'))} "
            return self._replace(add=prefix + self.add, remove=prefix + self.remove)
        is_pixi = self.folder_option == "--manifest-path"
        project = folder / (path.name if path.name == "pyproject.toml" else "pixi.toml") if is_pixi else folder
        option = f" {self.folder_option} {shlex.quote(str(project))}"
        return self._replace(add=self.add + option, remove=self.remove + option)


_UV = Tool("uv add", "uv remove", TORCH_INDEX, "--project")
_POETRY = Tool("poetry add", "poetry remove", folder_option="--directory")
_PDM = Tool("pdm add", "pdm remove", folder_option="--project")
_PIPENV = Tool("pipenv install", "pipenv uninstall", folder_variable="PIPENV_PIPFILE")
_PIXI = Tool("pixi add --pypi", "pixi remove --pypi", folder_option="--manifest-path")
_PIXI_CONDA = Tool("pixi add", "pixi remove", folder_option="--manifest-path")
_TOOLS = {
    "uv.lock": _UV, "poetry.lock": _POETRY, "pdm.lock": _PDM, "Pipfile.lock": _PIPENV, "pixi.lock": _PIXI,
    "Pipfile": _PIPENV, "pixi": _PIXI,
}  # fmt: skip
# Locks that are written from another file, lists, and conda's files: no command of a tool changes them.
_SETUPTOOLS = frozenset({"setup.cfg", "setup.py"})
# `uv add` writes a key that is dynamic as well, which makes the file invalid.
_DYNAMIC = lazy_pattern(r"^dynamic\s*=\s*\[[^\]]{0,400}[\"']dependencies[\"']", re.MULTILINE)
_OF_AN_ISOLATED_BUILD = frozenset({"packaging", "wheel"})  # setuptools brings them
_WITHOUT_COMMANDS = frozenset({"pylock.toml", "conda-lock", "conda list", "conda"}) | _SETUPTOOLS


def tool_of_pyproject(text: str) -> Tool:
    """The tool that a pyproject.toml is for."""
    if re.search(r"^\[tool\.poetry(?:\.dependencies)?\]", text, re.MULTILINE):
        return _POETRY
    return _PDM if re.search(r"^\[tool\.pdm[.\]]", text, re.MULTILINE) else _UV


def project_remedies(
    finding: Finding, kind: str, text: str = "", name: str = "", origin: str = "", *, index: IndexFacts | None = None
) -> Finding:
    """The finding with remedies that change the project. Formats without a tool of their own keep theirs.

    `name` is the path of the file. `origin` is "conda" if a lock has the package from a channel of conda. The `index`
    has the Pythons of releases that the built-in tables do not have.
    """
    if kind == "conda" and (remedies := _edits(finding, text, name)):
        return replace(finding, remedies=remedies)
    is_dynamic = kind == "pyproject" and _DYNAMIC.search(text) and not _place(text, finding.line)[1]
    if kind in _WITHOUT_COMMANDS or is_dynamic:
        where = "where the build of the project reads its dependencies" if is_dynamic else "in install_requires"
        fix = f"{finding.fix}{_statement(finding, where)}" if kind in _SETUPTOOLS or is_dynamic else finding.fix
        return replace(finding, fix=fix, remedies=_without_installs(finding.remedies))
    tool = tool_of_pyproject(text) if kind == "pyproject" else _TOOLS.get(kind)
    if tool is None:
        return finding
    header, place = _place(text, finding.line) if kind in ("pyproject", "pixi") else ("", "")
    if tool is _PIXI and (origin == "conda" or re.search(r"(?<!pypi-)dependencies$", header)):
        tool = _PIXI_CONDA
    finding = _for_permitted_pythons(finding, text, index)
    if tool is _PDM:
        place = place.replace("--group", "--dev --group").replace("--optional", "--group")
    is_uv, tool = tool is _UV, tool.at(Path(name))
    if kind == "uv.lock":
        finding = _with_python_of_sync(finding, tool)

    def convert(step: Step) -> Step | None:
        return None if _is_uv(step) and not is_uv else _tool_step(step, tool, place)

    fix = f"{finding.fix}{_build_dependencies(finding) if is_uv else ''}"
    return replace(finding, fix=fix, remedies=_converted(finding.remedies, convert))


def synced_remedies(finding: Finding, guide: Guide) -> Finding:
    """The finding with remedies for the project that a guide installs with `uv sync` alone.

    The next `uv sync` or `uv run` removes what `uv pip install` adds to its environment.
    """
    others = (each for each in guide.actions if isinstance(each, InstallAction))
    if not guide.syncs or any(_INSTALLS_PACKAGES.search(each.command) for each in others):
        return finding
    return replace(finding, remedies=_converted(finding.remedies, lambda step: _tool_step(step, _UV, "")))


def _with_python_of_sync(finding: Finding, tool: Tool) -> Finding:
    """The finding with `uv sync` in place of another environment: it installs the lock into that of the project."""
    commands = (step.command for remedy in finding.remedies for step in remedy.steps if isinstance(step, UserCommand))
    python = next((found[1] for each in commands if (found := _OTHER_PYTHON.match(each))), "")
    sync = f"{tool.add.replace('uv add', 'uv sync', 1)} --python {python}"
    return replace(finding, remedies=(remedy_of([UserCommand(command=sync)]),)) if python else finding


def _build_dependencies(finding: Finding) -> str:
    """The setting with which uv builds a package of the project; empty if no command builds without isolation.

    `uv add` has no option for one package. Measured with uv 0.13.9: a build has the packages of the setting.
    """
    installs = [step for step in finding.remedies[0].steps if isinstance(step, Install)] if finding.remedies else []
    built = [leading_name(text) for step in installs if step.no_build_isolation for text in step.packages]
    tools = [text for step in installs if not step.no_build_isolation for text in step.packages]
    is_with_torch = finding.cause == "build-isolation-no-torch" or "torch" in map(leading_name, tools)
    needed = ['{ requirement = "torch", match-runtime = true }'] if is_with_torch else []
    needed += [f'"{text}"' for text in tools if leading_name(text) not in {"torch", *_OF_AN_ISOLATED_BUILD}]
    settings = [f"`{name} = [{', '.join(needed)}]`" for name in built if needed]
    return f" With uv, add to [tool.uv.extra-build-dependencies]: {join_words(settings)}." if settings else ""


def _statement(finding: Finding, where: str) -> str:
    """Where a project of setuptools has to have the packages that the first remedy installs; empty without one."""
    steps = (step for remedy in finding.remedies[:1] for step in remedy.steps)
    installs = [step for step in steps if isinstance(step, Install)]
    if built := [f"`{text}`" for step in installs if step.no_build_isolation for text in step.packages]:
        names = " and ".join(built)
        return f" Install {names} this way before the project: an isolated build has no packages of install_requires."
    packages = [f"`{text}`" for step in installs for text in step.packages]
    return f" State {' and '.join(packages)} {where}." if packages else ""


def _for_permitted_pythons(finding: Finding, text: str, index: IndexFacts | None) -> Finding:
    """The finding with upper limits in place of releases without a wheel for the oldest Python of a project.

    A project is locked for all Pythons that it permits: for an older one the tool selects an older release.
    """
    stated = _REQUIRES_PYTHON.search(text)
    oldest = next((each for each in _PYTHONS if stated and permits(stated[1], each)), "")
    pins = {
        package
        for remedy in finding.remedies
        for step in remedy.steps
        if isinstance(step, Install)
        for package in step.packages
        if oldest and not _is_for(package, oldest, index)
    }
    if not pins:
        return finding
    limits = {pin: f"{pin.partition('==')[0]}{_limit(pin, text)}" for pin in pins}

    def limited(step: Step) -> Step:
        packages = step.packages if isinstance(step, Install) else ()
        return replace(step, packages=tuple(limits.get(each, each) for each in packages)) if packages else step

    fix = finding.fix
    for pin, limit in limits.items():
        fix = fix.replace(pin, limit)
    return replace(finding, fix=fix, remedies=_converted(finding.remedies, limited))


def _limit(pin: str, text: str) -> str:
    """The release as an upper limit, after the lower ones of the project, which `uv add` replaces: ">=2.8,<=2.9"."""
    name, _, version = pin.partition("==")
    stated = re.search(rf"(?mi)[\"']{re.escape(name.partition('[')[0])}(?:\[[^\]]*\])?\s*([<>=!~][^;\"'\n]*)", text)
    bounds = [each.strip() for each in stated[1].split(",")] if stated else []
    lower = [each for each in bounds if re.match(r">=?|!=", each)]
    return ",".join([*lower, f"<={version}"])


def _is_for(pin: str, python: str, index: IndexFacts | None) -> bool:
    """Whether a release, such as "torch==2.8.0", has a wheel for a Python; true if that is not known."""
    name, _, version = pin.partition("==")
    release = find_release(name, version) if version else None
    if release and release.kind == "wheels" and not release.has_wheel("", python):
        return False
    indexed = index.release(leading_name(name), version) if index and version else None
    stated = indexed.requires_python if indexed else ""
    return not stated or satisfies(newest_patch(python), stated) is not False


def _converted(remedies: Sequence[Remedy], convert: Callable[[Step], Step | None]) -> tuple[Remedy, ...]:
    """The remedies of which each step has a form for the project."""
    changed = [[convert(step) for step in remedy.steps] for remedy in remedies]
    return tuple(remedy_of([step for step in steps if step]) for steps in changed if steps and all(steps))


def _without_installs(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    return _converted(remedies, lambda step: None if isinstance(step, Install | Uninstall) or _is_uv(step) else step)


def _is_uv(step: Step) -> bool:
    return isinstance(step, UserCommand) and step.command.startswith("uv ")


def _tool_step(step: Step, tool: Tool, place: str) -> Step | None:
    """The step with the tool. `place` are options that select the part of the manifest."""
    if isinstance(step, Uninstall):
        return UserCommand(command=" ".join([tool.remove, *place.split(), *map(shlex.quote, step.packages)]))
    if not isinstance(step, Install):
        return step
    if (
        step.reinstall
        or step.from_source
        or step.no_build_isolation
        or step.variables
        or (step.backend and not tool.index_option)
    ):
        return None
    is_build = step.backend and step.backend != "auto"
    options = [tool.index_option.format(step.backend)] if is_build else []
    return UserCommand(command=" ".join([tool.add, *place.split(), *map(shlex.quote, step.packages), *options]))


def _place(text: str, line: int) -> tuple[str, str]:
    """The table of a line, and the options of `uv add` and `pixi add` for its group, extra or feature."""
    lines = text.split("\n")[:line]
    header = next((found[1].strip() for each in reversed(lines) if (found := _SECTION.match(each))), "")
    key = next((found[1] for each in reversed(lines) if (found := _KEY.match(each))), "")
    options = ""
    if feature := re.match(r"(?:tool\.pixi\.)?feature\.[\"']?([\w-]+)", header):
        options = f"--feature {feature[1]}"
    elif header == "dependency-groups" and key:
        options = "--dev" if key == "dev" else f"--group {key}"
    elif header == "project.optional-dependencies" and key:
        options = f"--optional {key}"
    elif group := re.match(r"tool\.poetry\.group\.([\w-]+)\.dependencies", header):
        options = f"--group {group[1]}"
    return header, options


def _edits(finding: Finding, text: str, name: str) -> tuple[Remedy, ...]:
    """Changes of the line of a conda environment, and the update of the environment."""
    lines = text.split("\n")
    line = lines[finding.line - 1] if 0 < finding.line <= len(lines) else ""
    found = []
    for remedy in finding.remedies:
        step = remedy.steps[0] if len(remedy.steps) == 1 else None
        if not isinstance(step, Install) or len(step.packages) != 1 or step.backend:
            continue
        (new,) = step.packages
        package = re.escape(re.split(r"[^\w.-]", new)[0])
        old = re.search(rf"-\s+[\"']?({package}(?![\w.-])[^\"'#]*?)\s*[\"']?\s*(?:#.*)?$", line)
        if old and not re.search(r"[|&\\]", old[1] + new):
            pattern = re.sub(r"([.\[\]*^$])", r"\\\1", old[1])  # a basic regular expression
            edit = f"sed -i {shlex.quote(f'{finding.line}s|{pattern}|{new}|')} {shlex.quote(name)}"
            update = shell_command("conda env update --file {}", name)
            found.append(remedy_of([UserCommand(command=edit), UserCommand(command=update)]))
    return tuple(found)
