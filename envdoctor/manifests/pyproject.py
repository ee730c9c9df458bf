"""Requirements of a pyproject.toml: PEP 621, dependency groups, extras, tool.uv, Poetry and PDM."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Install
from envdoctor.manifests.files import Files
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.requirement_files import requirements_of_file
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement

_MACHINE = lazy_pattern(r"platform_machine\s*(==|!=)\s*['\"](\w+)['\"]")
_LINUX = lazy_pattern(r"(?:sys_platform|platform_system)\s*(==|!=)\s*['\"](\w+)['\"]")
# A part of the name of an extra for one kind of accelerator.
_ACCELERATOR = lazy_pattern(
    r"(?i)(?:^|[-_.])(cpu|gpu|cuda|cu(?:da)?\d{2,3}|rocm|amd|npu|ascend|xpu|hpu|tpu|mps|mlx|metal)(?=[\d.]*(?:[-_.]|$))"
)
_ARM = lazy_pattern(r"aarch64|arm64", re.IGNORECASE)  # the audit of a file without a machine is for x86_64
_OTHERS_THAN_NVIDIA = frozenset({"cpu", "rocm", "amd", "npu", "ascend", "xpu", "hpu", "tpu", "mps", "mlx", "metal"})
_MAX_DEPTH = 8  # of groups that include groups


class PyProject(NamedTuple):
    """What a pyproject.toml installs. Each variant is an environment; all but the first are extras or groups that
    tool.uv declares as conflicting.
    """

    name: str
    python: str  # specifier
    variants: dict[str, tuple[InstallRequirement, ...]]
    constraints: tuple[InstallRequirement, ...]
    overrides: tuple[InstallRequirement, ...]
    indexes: dict[str, tuple[str, ...]]  # of each variant, for torch, the most specific first
    default_index: str
    torch_backend: str
    built_with_torch: frozenset[str]  # packages whose build has torch, by tool.uv
    unread: tuple[str, ...]  # what could not be read, with the reason
    base: tuple[InstallRequirement, ...] = ()  # without extras and groups

    def without_extras(self) -> PyProject | None:
        """The project alone; None if a variant is the same."""
        if not self.base or len(self.base) in map(len, self.variants.values()):
            return None
        indexes = next(iter(self.indexes.values()), ())
        return self._replace(variants={"": self.base}, indexes={"": indexes})

    def install(self, variant: str, line: int, name: str = "pyproject.toml") -> Install:
        """The installation of a variant."""
        return Install(
            line,
            name,
            "uv",
            self.variants[variant],
            self.constraints,
            self.overrides,
            index_url=self.default_index,
            extra_indexes=self.indexes[variant],
            torch_backend=self.torch_backend,
            built_with_torch=self.built_with_torch,
        )


def parse_pyproject(
    lines: tuple[Line, ...], files: Files | None = None, *, each_extra: bool = False
) -> PyProject | None:
    """Parse a pyproject.toml; None if it is not valid TOML. With `each_extra`, each extra and group is a variant."""
    reader = _reader(lines, files)
    return reader.read(each_extra=each_extra) if reader else None


def project_requirements(
    lines: tuple[Line, ...], files: Files, extras: Collection[str]
) -> list[InstallRequirement] | None:
    """What `pip install .[extras]` installs besides the project; None if the build of the project computes it."""
    reader = _reader(lines, files)
    return reader.requirements(extras) if reader else None


def pyproject_of_data(
    data: dict[str, Any], lines: tuple[Line, ...], files: Files, *, each_extra: bool = False
) -> PyProject:
    """The project of tables that another file states, such as the arguments of a setup.py."""
    return _Reader(data, lines, files).read(each_extra=each_extra)


def requirements_of_data(
    data: dict[str, Any], lines: tuple[Line, ...], files: Files, extras: Collection[str]
) -> list[InstallRequirement] | None:
    """The requirements of such a project and of some of its extras."""
    return _Reader(data, lines, files).requirements(extras)


def _reader(lines: tuple[Line, ...], files: Files | None) -> _Reader | None:
    import tomllib

    try:
        data = tomllib.loads("\n".join(text for _, text in lines))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    return _Reader(data, lines, files or Files())


def _of_hatch(tool: dict[str, Any]) -> dict[str, Any]:
    """The files that the plugin hatch-requirements-txt reads, as setuptools states them."""
    hook = table(table(table(table(tool, "hatch"), "metadata"), "hooks"), "requirements_txt")
    paths = items(hook.get("files")) or [each for each in (hook.get("filename"),) if each]
    extras = {name: {"file": items(value)} for name, value in table(hook, "optional-dependencies").items()}
    return ({"dependencies": {"file": paths}} if paths else {}) | (
        {"optional-dependencies": extras} if extras else {}
    )


class _Reader:
    """Collects the requirements of the tables of a file."""

    def __init__(self, data: dict[str, Any], lines: tuple[Line, ...], files: Files) -> None:
        self.project = table(data, "project")
        self.groups = table(data, "dependency-groups")
        tool = table(data, "tool")
        self.uv, self.poetry, self.pdm = (table(tool, name) for name in ("uv", "poetry", "pdm"))
        self.name = normalize_name(str(self.project.get("name") or self.poetry.get("name") or ""))
        self.setuptools = table(table(tool, "setuptools"), "dynamic") | _of_hatch(tool)
        self.lines = lines
        self.files = files
        dynamic = items(self.project.get("dynamic"))
        self.is_computed = "dependencies" in dynamic and "dependencies" not in self.setuptools
        self.unread = [
            f"{key}: it is dynamic, and the build of the project computes it"
            for key in ("dependencies", "optional-dependencies")
            if key in dynamic and key not in self.setuptools
        ]

    def requirements(self, extras: Collection[str]) -> list[InstallRequirement] | None:
        """The requirements of the project and of some of its extras."""
        if self.is_computed or not (self.project or self.poetry):
            return None
        own = self._dependencies() + list(self._poetry([table(self.poetry, "dependencies")]))
        named = {normalize_name(name): found for name, found in self._extras().items()}
        reached = list(extras)
        for name in reached:  # it grows: an extra can name others of the project, `all = ["project[train,serve]"]`
            own_extras = (extra for each in named.get(name, ()) if each.name == self.name for extra in each.extras)
            reached += dict.fromkeys(extra for extra in own_extras if extra not in reached)
        found = own + [each for name in reached for each in named.get(name, ())]
        return [each for each in found if each.name != self.name or not self.name]

    def _dependencies(self) -> list[InstallRequirement]:
        listed = self._listed(self.setuptools.get("dependencies"))
        return [*self._texts(self.project.get("dependencies")), *listed]

    def _extras(self) -> dict[str, list[InstallRequirement]]:
        stated = table(self.project, "optional-dependencies")
        listed = table(self.setuptools, "optional-dependencies")
        return {name: [*self._texts(stated.get(name)), *self._listed(listed.get(name))] for name in (stated | listed)}

    def _listed(self, value: object) -> list[InstallRequirement]:
        """The requirements of the files that setuptools reads: `{ file = ["requirements.txt"] }`."""
        paths = value.get("file") if isinstance(value, dict) else None
        found = [paths] if isinstance(paths, str) else [str(each) for each in items(paths)]
        return [each for path in found for each in requirements_of_file(path, self._line_of(path), self.files)]

    def read(self, *, each_extra: bool) -> PyProject:
        extras = self._extras()
        groups = {name: list(self._group(name, 0)) for name in self.groups}
        for name, value in table(self.pdm, "dev-dependencies").items():
            groups[name] = self._texts(value)
        tables = [table(self.poetry, "dependencies"), table(self.poetry, "dev-dependencies")]
        tables += [
            table(group, "dependencies") for group in table(self.poetry, "group").values() if isinstance(group, dict)
        ]
        development = self._texts(self.uv.get("dev-dependencies"))
        base = common = [*self._dependencies(), *development, *self._poetry(tables)]
        conflicts = [
            {str(item.get("extra") or item.get("group", "")) for item in rows(conflict)}
            for conflict in items(self.uv.get("conflicts"))
        ]
        named = extras | groups
        exclusive = set() if conflicts else _exclusive(named)
        conflicts = [set(named)] if each_extra else conflicts or [exclusive]
        conflicting = set().union(*conflicts) if conflicts else set()
        for name, requirements in named.items():
            if name not in conflicting:
                common = [*common, *requirements]
        common = [each for each in common if each.name != self.name or not self.name]
        overrides = {each.name: each for each in self._texts(self.uv.get("override-dependencies"))}
        base, common = ([overrides.get(each.name, each) for each in part] for part in (base, common))
        named = {name: [overrides.get(each.name, each) for each in named[name]] for name in named}
        # An extra for GPUs of another vendor is judged without the other extras, which may be for NVIDIA's.
        defaults = [str(each) for each in items(self.uv.get("default-groups")) if each in conflicting]
        variants = {
            name: (
                *(base if name in exclusive and _is_of_other_vendor(name) else common),
                *named[name],
                # `uv sync --group NAME` installs the default groups as well.
                *(each for group in defaults if not _conflict(conflicts, group, name) for each in named[group]),
            )
            for conflict in conflicts
            for name in sorted(conflict)
            if name in named and not (name in exclusive and _ARM.search(name) and _is_of_other_vendor(name))
        }
        if not variants or (exclusive and not each_extra):
            variants = {"": tuple(common)} | variants
        return PyProject(
            self.name,
            str(self.project.get("requires-python") or self._poetry_python()),
            variants,
            tuple(self._texts(self.uv.get("constraint-dependencies"))),
            tuple(overrides.values()),
            {variant: tuple(dict.fromkeys(self._indexes(variant, variants))) for variant in variants},
            self._default_index(),
            str(table(self.uv, "pip").get("torch-backend") or ""),
            frozenset(self._built_with_torch(base + [each for found in named.values() for each in found])),
            tuple(dict.fromkeys(self.unread)),
            tuple(each for each in base if each.name != self.name or not self.name),
        )

    def _texts(self, value: object) -> list[InstallRequirement]:
        found = []
        for item in items(value):
            requirement = parse_install_requirement(item, self._line_of(item)) if isinstance(item, str) else None
            if requirement:
                found.append(self._at_source(requirement))
            elif not (isinstance(item, dict) and "include-group" in item):
                self.unread.append(f"`{str(item)[:80]}`: it is not a requirement")
        return found

    def _at_source(self, requirement: InstallRequirement) -> InstallRequirement:
        """The requirement with the repository, path or URL that tool.uv.sources has for it."""
        for source in self._sources(requirement.name):
            url = next((str(source[key]) for key in ("git", "url", "path") if key in source), "")
            if source.get("workspace") is True:
                return requirement._replace(url=f"./{requirement.name}", specifier="")
            if url:
                prefix = "git+" if "git" in source and not url.startswith("git+") else ""
                tag = next((f"@{source[key]}" for key in ("tag", "rev", "branch") if key in source), "")
                return requirement._replace(url=f"{prefix}{url}{tag}", specifier="")
            address = self._index_addresses().get(str(source.get("index", "")), "")
            if address and not published_releases(requirement.name):  # PyPI can have another package of this name
                return requirement._replace(url=address, specifier="")
        return requirement

    def _index_addresses(self) -> dict[str, str]:
        """The indexes of the project by name."""
        listed = (self.uv.get("index"), self.poetry.get("source"), self.pdm.get("source"))
        return {str(row.get("name", "")): str(row.get("url", "")) for each in listed for row in rows(each)}

    def _sources(self, name: str) -> list[dict[str, Any]]:
        """The sources of a package whose marker holds on Linux."""
        for key, value in table(self.uv, "sources").items():
            if normalize_name(key) == name:
                found = rows(value if isinstance(value, list) else [value])
                return [row for row in found if _holds_on_linux(str(row.get("marker", "")))]
        return []

    def _group(self, name: str, depth: int) -> Iterator[InstallRequirement]:
        """The requirements of a dependency group and of those that it includes."""
        value = items(self.groups.get(name))
        yield from self._texts(value)
        for row in rows(value):
            if "include-group" in row and depth < _MAX_DEPTH:
                yield from self._group(str(row["include-group"]), depth + 1)

    def _poetry(self, tables: Iterable[dict[str, Any]]) -> Iterator[InstallRequirement]:
        for dependencies in tables:
            for name, value in dependencies.items():
                row = next(iter(rows(value if isinstance(value, list) else [value])), {})
                text = value if isinstance(value, str) else str(row.get("version") or "*")
                if name.lower() != "python":
                    extras = tuple(normalize_name(str(extra)) for extra in items(row.get("extras")))
                    url = next((str(row[key]) for key in ("git", "url", "path") if key in row), "")
                    specifier = "" if url else poetry_specifier(text)
                    marker = str(row.get("markers") or "")
                    shown = f"{name}{specifier}" if specifier else name
                    line = self._line_of_key(name)
                    yield InstallRequirement(normalize_name(name), specifier, extras, url, shown, line, marker)

    def _poetry_python(self) -> str:
        value = table(self.poetry, "dependencies").get("python")
        return poetry_specifier(value) if isinstance(value, str) else ""

    def _indexes(self, variant: str, variants: Collection[str]) -> Iterator[str]:
        """The indexes that may have torch: that of its source first, then those that are not explicit.

        A source for an extra or a group does not count in another variant: `{ index = "cpu", extra = "cpu" }`.
        """
        listed = rows(self.uv.get("index"))
        urls = self._index_addresses()
        names = [
            str(source.get("index", ""))
            for source in self._sources("torch")
            if str(source.get("extra") or source.get("group") or variant) not in set(variants) - {variant}
        ]
        poetry = table(self.poetry, "dependencies").get("torch")
        names += [str(row.get("source", "")) for row in rows(poetry if isinstance(poetry, list) else [poetry])]
        yield from (urls[name] for name in names if urls.get(name))
        yield from (str(row.get("url", "")) for row in listed if not row.get("explicit") and not row.get("default"))
        yield from (url for url in items(self.uv.get("extra-index-url")) if isinstance(url, str))

    def _built_with_torch(self, requirements: Sequence[InstallRequirement]) -> Iterator[str]:
        """The packages that uv builds without isolation, or with torch among their build requirements."""
        if self.uv.get("no-build-isolation") is True:
            yield from (each.name for each in requirements)
        yield from (normalize_name(str(name)) for name in items(self.uv.get("no-build-isolation-package")))
        for name, added in table(self.uv, "extra-build-dependencies").items():
            texts = [
                str(each.get("requirement", "")) if isinstance(each, dict) else str(each) for each in items(added)
            ]
            if any(re.match(r"torch(?![\w.-])", text.strip()) for text in texts):
                yield normalize_name(name)

    def _default_index(self) -> str:
        listed = rows(self.uv.get("index"))
        default = next((str(row.get("url", "")) for row in listed if row.get("default")), "")
        return default or str(self.uv.get("index-url") or "")

    def _line_of(self, text: str) -> int:
        first = self.lines[0][0] if self.lines else 0
        return next((number for number, line in self.lines if text in line), first)

    def _line_of_key(self, name: str) -> int:
        pattern = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
        first = self.lines[0][0] if self.lines else 0
        return next((number for number, line in self.lines if pattern.match(line)), first)


def _conflict(conflicts: Sequence[Collection[str]], *names: str) -> bool:
    """Whether extras or groups cannot be installed together; one with itself as well."""
    return names[0] == names[1] or any(set(names) <= set(conflict) for conflict in conflicts)


def _exclusive(named: Mapping[str, Sequence[InstallRequirement]]) -> set[str]:
    """The extras of which a reader installs one: for different accelerators, or with different pins of a package.

    A single extra for NVIDIA's GPUs belongs to the environment.
    """
    accelerators = {name for name in named if _ACCELERATOR.search(name)}
    found = accelerators if len(accelerators) > 1 or any(map(_is_of_other_vendor, accelerators)) else set()
    pins: dict[str, dict[str, set[str]]] = {}  # package -> pin -> extras
    for name, requirements in named.items():
        for each in requirements:
            if each.pin:
                pins.setdefault(each.name, {}).setdefault(each.pin, set()).add(name)
    return found.union(*(extras for each in pins.values() if len(each) > 1 for extras in each.values()))


def _is_of_other_vendor(extra: str) -> bool:
    """Whether the name of an extra is that of an accelerator other than NVIDIA's GPUs."""
    match = _ACCELERATOR.search(extra)
    return bool(match and match[1].lower() in _OTHERS_THAN_NVIDIA)


def poetry_specifier(text: str) -> str:
    """The PEP 440 form of a constraint of Poetry: `^2.5`, `~0.10.2`, `0.10.2`, `*`, `>=1,<2`. The last of `||`."""
    clauses = [clause.strip() for clause in text.rpartition("||")[2].split(",")]
    return ",".join(converted for clause in clauses if (converted := _convert_clause(clause)))


def _convert_clause(clause: str) -> str:
    match = re.fullmatch(r"(\^|~(?!=))\s*(\d+(?:\.\d+)*)(\S*)", clause)
    if match:
        numbers = [int(part) for part in match[2].split(".")]
        if match[1] == "^":
            index = next((i for i, number in enumerate(numbers) if number), len(numbers) - 1)
        else:
            index = min(1, len(numbers) - 1)
        bound = [*numbers[:index], numbers[index] + 1]
        return f">={match[2]}{match[3]},<{'.'.join(map(str, bound))}"
    if clause in ("", "*"):
        return ""
    return "".join(clause.split()) if re.match(r"[=<>~!]", clause) else f"=={clause}"


def _holds_on_linux(marker: str) -> bool:
    """Whether a marker does not exclude Linux on x86_64."""
    machines = _MACHINE.findall(marker)
    return (
        all((machine.lower() in ("x86_64", "amd64")) is (operator == "==") for operator, machine in machines)
        and all((system.lower() == "linux") is (operator == "==") for operator, system in _LINUX.findall(marker))
    ) or " or " in marker


def table(data: object, name: str) -> dict[str, Any]:
    """A table of TOML data; empty if it is missing or something else."""
    value = data.get(name) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """A list of TOML data; empty for anything else."""
    return value if isinstance(value, list) else []


def rows(value: object) -> list[dict[str, Any]]:
    """The tables of a list."""
    return [row for row in items(value) if isinstance(row, dict)]
