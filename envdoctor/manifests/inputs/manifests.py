"""Readers of manifests without commands: requirements, pyproject.toml, setup.cfg, setup.py, conda, pixi, Pipfile."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from envdoctor.core.errors import BadInput
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Action, Install, SelectEnvironment
from envdoctor.manifests.command_parsers import parse_actions
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.pieces import guide_of_actions, numbered, unread_parts, with_absent_files
from envdoctor.manifests.inputs.records import STANDARD_INPUT, Document
from envdoctor.manifests.local_projects import with_local_projects
from envdoctor.manifests.pyproject import PyProject, items, parse_pyproject, rows, table
from envdoctor.manifests.setup_cfg import parse_setup_cfg
from envdoctor.manifests.setup_py import invalid_line, parse_setup_py
from envdoctor.manifests.shell_records import Command
from envdoctor.manifests.stated_python import exact_python
from envdoctor.resolution.requirement import InstallRequirement


def _environment(python: str, line: int = 1) -> list[Action]:
    return [SelectEnvironment(line, "", "uv", ".venv", python)] if python else []


def read_requirements(text: str, name: str, files: Files) -> Document:
    """A requirements or constraints file with its includes, or the output of `pip freeze`."""
    files.add(name, numbered(text))
    command = Command(1, ("uv", "pip", "install", "-r", name))
    actions = [
        with_local_projects(_with_installed_build(action, name), files) if isinstance(action, Install) else action
        for action in parse_actions(command, files)
    ]
    guide = guide_of_actions(actions, text, name)
    return Document("requirements", with_absent_files([guide], files), unread=unread_parts([guide], files))


def _with_installed_build(install: Install, name: str) -> Install:
    """The output of `pip freeze` on standard input with the index of its torch: `torch==2.8.0+cu128` is installed."""
    if name != STANDARD_INPUT or not all(each.pin or each.url for each in install.requirements):
        return install
    torch = next((each.pin for each in install.requirements if each.name == "torch"), "")
    return install._replace(torch_backend=install.torch_backend or torch.partition("+")[2])


def read_conda_environment(text: str, name: str, files: Files) -> Document:
    """An environment.yml."""
    files.add(name, numbered(text))
    actions = list(parse_actions(Command(1, ("conda", "env", "create", "-f", name)), files))
    guide = guide_of_actions(actions, text, name)
    return Document("conda", (guide,), unread=unread_parts([guide], files))


def read_pyproject(
    text: str, name: str, files: Files, *, each_extra: bool = False, is_alone: bool = False
) -> Document:
    """A pyproject.toml. Conflicting extras and groups, or all of them, are environments of their own.

    `is_alone` reads the project without them; the document is empty if it has none.
    """
    project = parse_pyproject(numbered(text), files, each_extra=each_extra)
    if is_alone:
        project = project.without_extras() if project else None
    pixi = _toml(text).get("tool", {}).get("pixi")
    if isinstance(pixi, dict):
        common = project.variants[next(iter(project.variants))] if project else ()
        return _read_pixi(pixi, text, name, common)
    return _document_of_project("pyproject", project, text, name, files)


def read_setup_py(
    text: str, name: str, files: Files, *, each_extra: bool = False, is_alone: bool = False
) -> Document:
    """A setup.py of setuptools, which is not run: what its text states."""
    project = parse_setup_py(numbered(text), files, each_extra=each_extra)
    if project is None and (line := invalid_line(text)):
        python = ".".join(map(str, sys.version_info[:2]))
        raise BadInput(
            f"{name}, line {line}: not valid for Python {python}, so that it was not read",
            expected="a script of this Python that calls setup() of setuptools",
            hint="envdoctor audit --help",
        )
    if is_alone:
        project = project.without_extras() if project else None
    return _document_of_project("setup.py", project, text, name, files)


def _document_of_project(kind: str, project: PyProject | None, text: str, name: str, files: Files) -> Document:
    if project is None:
        return Document(kind)
    environment = _environment(exact_python(project.python))
    guides = [
        guide_of_actions([*environment, project.install(variant, 1, name)], text, name, branch=variant)._replace(
            permitted_python=project.python
        )
        for variant, requirements in project.variants.items()
        if requirements or files.missing
    ]
    unread = (*unread_parts(guides, files), *project.unread)
    return Document(kind, with_absent_files(guides, files), unread=unread)


def read_setup_cfg(text: str, name: str, files: Files) -> Document:
    """A setup.cfg of setuptools: install_requires and all extras."""
    project = parse_setup_cfg(numbered(text), files)
    if project is None:
        return Document("setup.cfg")
    requirements = [*project.requirements, *(each for extra in project.extras.values() for each in extra)]
    install = Install(1, name, "pip", tuple(requirements))
    guide = guide_of_actions([*_environment(exact_python(project.python)), install], text, name)
    guide = guide._replace(permitted_python=project.python)
    unread = unread_parts([guide], files)
    return Document(
        "setup.cfg", with_absent_files([guide] * bool(requirements or files.missing), files), unread=unread
    )


def read_pixi(text: str, name: str, files: Files) -> Document:  # noqa: ARG001
    """A pixi.toml. Each environment is judged by itself."""
    return _read_pixi(_toml(text), text, name, ())


def _read_pixi(data: dict[str, Any], text: str, name: str, common: tuple[InstallRequirement, ...]) -> Document:
    workspace = table(data, "workspace") or table(data, "project")
    channels = tuple(channel for channel in items(workspace.get("channels")) if isinstance(channel, str))
    listed = [str(each) for each in items(workspace.get("platforms"))]
    platforms = [each for each in listed if each.startswith("linux-")] or ["linux-64"]
    environments = {key: _features(value) for key, value in table(data, "environments").items()}
    environments.setdefault("default", ["default"])
    features = table(data, "feature")
    guides = []
    for platform in platforms:
        for environment, names in environments.items():
            tables = [table(features, each) if each != "default" else data for each in names]
            conda = [row for each in tables for row in _pixi_requirements(each, "dependencies", platform, text)]
            pypi = [row for each in tables for row in _pixi_requirements(each, "pypi-dependencies", platform, text)]
            indexes = tuple(dict.fromkeys(url for each in [data, *tables] for url in _pixi_indexes(each)))
            actions = _pixi_actions(name, conda, [*common, *pypi], channels, indexes)
            label = ", ".join(
                part for part in (environment * (len(environments) > 1), platform * (len(platforms) > 1)) if part
            )
            machine = {"linux-aarch64": "aarch64"}.get(platform, "x86_64")
            if actions:
                guides.append(guide_of_actions(actions, text, name, branch=label, platform=machine))
    return Document("pixi", tuple(guides), unread=unread_parts(guides, Files()))


def _features(value: object) -> list[str]:
    """The features of an environment; the default feature unless it is excluded."""
    row = value if isinstance(value, dict) else {"features": value}
    listed = [str(each) for each in items(row.get("features"))]
    return listed if row.get("no-default-feature") else ["default", *listed]


def _pixi_requirements(feature: dict[str, Any], key: str, platform: str, text: str) -> Iterator[InstallRequirement]:
    targets = table(feature, "target")
    places = [feature, *(table(targets, target) for target in ("linux", "unix", platform))]
    for place in places:
        for package, value in table(place, key).items():
            row = value if isinstance(value, dict) else {}
            version = str(row.get("version") or ("*" if row else value)).strip()
            url = _address(row)
            specifier = "" if version == "*" or url else "".join(version.split())
            if specifier[:1].isdigit():
                exact = key == "dependencies" and "*" not in specifier and specifier.count(".") < 2
                specifier = f"=={specifier}{'.*' if exact else ''}"
            elif re.match(r"=\d", specifier):
                specifier = f"={specifier}{'' if '*' in specifier else '.*'}"
            extras = tuple(normalize_name(str(each)) for each in items(row.get("extras")))
            shown = f"{package}{specifier}"
            yield InstallRequirement(
                normalize_name(package), specifier.partition("|")[0], extras, url, shown, _line_of_key(text, package)
            )


def _address(row: dict[str, Any]) -> str:
    """The address of a package: of a repository with `git+` and its revision, as pip and uv write it."""
    if git := str(row.get("git") or ""):
        revision = next((str(row[each]) for each in ("rev", "ref", "tag", "branch") if row.get(each)), "")
        address = git if git.startswith("git+") else f"git+{git}"
        return f"{address}@{revision}" if revision else address
    return next((str(row[each]) for each in ("url", "file", "path") if each in row), "")


def _pixi_indexes(feature: dict[str, Any]) -> Iterator[str]:
    """The indexes of a feature besides PyPI, and those of its packages."""
    options = table(feature, "pypi-options")
    yield from (str(url) for url in items(options.get("extra-index-urls")))
    for row in table(feature, "pypi-dependencies").values():
        if isinstance(row, dict) and "index" in row:
            yield str(row["index"])


def _pixi_actions(
    name: str,
    conda: list[InstallRequirement],
    pypi: list[InstallRequirement],
    channels: tuple[str, ...],
    indexes: tuple[str, ...],
) -> list[Action]:
    python = next((each for each in conda if each.name == "python"), None)
    version = exact_python(python.specifier) if python else ""
    packages = tuple(each for each in conda if each.name not in ("python", "pip"))
    actions: list[Action] = [SelectEnvironment(1, "", "conda", "default", version, seeded=True)]
    actions += [Install(1, name, "conda", packages, channels=channels)] if packages else []
    actions += [Install(1, name, "uv", tuple(pypi), extra_indexes=indexes)] if pypi else []
    return actions if packages or pypi else []


def read_pipfile(text: str, name: str, files: Files) -> Document:  # noqa: ARG001
    """A Pipfile: packages and development packages."""
    data = _toml(text)
    requirements = []
    for section in ("packages", "dev-packages"):
        for package, value in table(data, section).items():
            row = value if isinstance(value, dict) else {}
            version = str(row.get("version") or ("*" if row else value)).strip()
            specifier = "" if version == "*" else version
            extras = tuple(normalize_name(str(each)) for each in items(row.get("extras")))
            url = _address(row)
            requirements.append(
                InstallRequirement(
                    normalize_name(package), specifier, extras, url, f"{package}{specifier}",
                    _line_of_key(text, package), str(row.get("markers") or ""),
                )
            )  # fmt: skip
    urls = tuple(str(row.get("url", "")) for row in rows(data.get("source")))
    python = str(table(data, "requires").get("python_version") or "")
    install = Install(1, name, "pip", tuple(requirements), index_url=next(iter(urls), ""), extra_indexes=urls[1:])
    guide = guide_of_actions([*_environment(python), install], text, name)
    unread = unread_parts([guide], Files())
    return Document("Pipfile", (guide,) if requirements else (), unread=unread)


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _line_of_key(text: str, key: str) -> int:
    pattern = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
    return next((number for number, line in numbered(text) if pattern.match(line)), 1)
