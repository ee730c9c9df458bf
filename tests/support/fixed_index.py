"""An index and a solver with a few releases, for the rules on guides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date

from envdoctor.core.records import Finding
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.manifests import audit_paths
from envdoctor.manifests.guide import parse_guide, parse_paths
from envdoctor.resolution.index_facts import (
    AbsentImport,
    AbsentMember,
    AbsentProgram,
    BuildFailure,
    BuildFiles,
    BuildImport,
    CodeImport,
    ComparedNames,
    IndexedRelease,
    InheritedMember,
    InstalledSet,
    MissingName,
    Numpy1Build,
    RefusedRelease,
    RejectedRelease,
    RemovedImport,
    RustBuild,
    SharedFile,
    UndeclaredImport,
)
from envdoctor.resolution.step import StepProblem, StepSolution

DAY = date(2026, 11, 26)


class FixedIndex:
    """An index of a few releases, of which the last one is the newest."""

    def __init__(self, *releases: IndexedRelease, missing: Sequence[MissingName] = ()) -> None:
        self.releases, self.missing = releases, missing
        self.sets: list[InstalledSet] = []
        self.skipped: Sequence[str] = ()
        self.rejected: Sequence[RejectedRelease] = ()
        self.numpy_1: Sequence[Numpy1Build] = ()
        self.refused: Sequence[RefusedRelease] = ()
        self.older: Mapping[str, Mapping[str, str]] = {}  # that pip refuses
        self.shared: Sequence[SharedFile] = ()
        self.removed: Sequence[RemovedImport] = ()
        self.undeclared: Sequence[UndeclaredImport] = ()
        self.compiled: frozenset[str] = frozenset()
        self.imported: dict[tuple[str, str], bool] = {}
        self.modules: dict[str, tuple[str, ...]] = {}
        self.requirements: dict[str, Sequence[str]] = {}
        self.failing: Sequence[BuildFailure] = ()
        self.files: dict[str, BuildFiles] = {}
        self.unread: Collection[str] = ()  # packages whose requirements are not read in time
        self.listed: dict[tuple[str, str], PublishedRelease] = {}  # that the built-in tables do not have

    def newest_release(self, name: str) -> IndexedRelease | None:
        return next((each for each in reversed(self.releases) if each.name == name), None)

    def usable_releases(self, name: str) -> Sequence[IndexedRelease]:
        return [each for each in self.releases if each.name == name]

    def release(self, name: str, version: str) -> IndexedRelease | None:
        return next((each for each in self.releases if (each.name, each.version) == (name, version)), None)

    def published(self, name: str, version: str) -> PublishedRelease | None:
        return self.listed.get((name, version))

    def imports_package(self, installed: InstalledSet, requiring: str, name: str) -> bool | None:
        return self.imported.get((requiring, name)) if requiring in installed.versions else None

    def imports_module(self, installed: InstalledSet, requiring: str, module: str) -> bool | None:
        return self.imports_package(installed, requiring, module)

    def is_published_from(self, name: str, url: str) -> bool:
        return f"huggingface/{name}" in url

    def missing_names(self, installed: InstalledSet) -> ComparedNames:
        self.sets.append(installed)
        return ComparedNames([each for each in self.missing if each.user.name in installed.users], self.skipped)

    def rejected_releases(self, installed: InstalledSet) -> Sequence[RejectedRelease]:
        return [each for each in self.rejected if each.user.name in installed.versions]

    def numpy_1_builds(self, installed: InstalledSet) -> Sequence[Numpy1Build]:
        return [each for each in self.numpy_1 if each.release.name in installed.versions]

    def refused_releases(self, installed: InstalledSet) -> Sequence[RefusedRelease]:
        return [each for each in self.refused if each.release.name in installed.versions]

    def refused_versions(self, versions: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
        return {name: self.older[name] for name, version in versions.items() if version in self.older.get(name, {})}

    def shared_files(self, installed: InstalledSet) -> Sequence[SharedFile]:
        return [each for each in self.shared if {each.first.name, each.second.name} <= installed.versions.keys()]

    def removed_imports(self, installed: InstalledSet) -> Sequence[RemovedImport]:
        return [
            each for each in self.removed if each.since.startswith("Python") and each.user.name in installed.versions
        ]

    def removed_torch_imports(self, installed: InstalledSet) -> Sequence[RemovedImport]:
        return [each for each in self.removed if each.since.partition(" ")[0] in installed.torch_family]

    def undeclared_imports(self, installed: InstalledSet) -> Sequence[UndeclaredImport]:
        return [each for each in self.undeclared if each.user.name in installed.versions]

    def absent_members(self, installed: InstalledSet, members: Sequence[InheritedMember]) -> Sequence[AbsentMember]:
        names = {each.name for each in self.releases} & installed.versions.keys()
        return [
            AbsentMember(each, release, each.member, "0.9" if each.required else "")
            for each in members
            if each.module in names and "old" in each.member and (release := self.newest_release(each.module))
        ]

    def absent_programs(
        self, installed: InstalledSet, programs: Mapping[str, Sequence[str]]
    ) -> Sequence[AbsentProgram]:
        names = {each.name for each in self.releases} & installed.versions.keys()
        return [
            AbsentProgram(program, release, "1.0")
            for program, packages in programs.items()
            if "old" in program and (named := names.intersection(packages))
            if (release := self.newest_release(min(named)))
        ]

    def absent_imports(self, installed: InstalledSet, used: Sequence[CodeImport]) -> Sequence[AbsentImport]:
        names = {each.name for each in self.releases} & installed.versions.keys()
        return [
            AbsentImport(each, f"{each.module}.{each.name}".strip("."), release)
            for each in used
            if each.top in names
            and (release := self.newest_release(each.top))
            and "old" in (each.name or each.module)
        ]

    def absent_modules(self, installed: InstalledSet, tops: Collection[str]) -> frozenset[str]:
        return frozenset(tops).difference(*(self.modules.get(name, (name,)) for name in installed.versions))

    def module_package(self, top: str) -> str:
        return top if self.newest_release(top) else ""

    def required_packages(self, named: Mapping[str, str]) -> Mapping[str, str] | None:
        if not named.keys().isdisjoint(self.unread):
            return None
        required = (each for name in named for each in self.requirements.get(f"{name} 1.0", ()))
        return {**dict.fromkeys(required, "1.0"), **{name: version or "1.0" for name, version in named.items()}}

    def specifiers_of(self, installed: InstalledSet, package: str) -> Mapping[str, str]:
        texts = (
            (f"{name} {each}", text)
            for name, each in installed.versions.items()
            for text in self.requirements.get(f"{name} {each}", ())
        )
        return {user: text.removeprefix(package) for user, text in texts if text.startswith(package)}

    def build_imports(self, name: str, version: str, python: str) -> Sequence[BuildImport]:  # noqa: ARG002
        release = self.release(name, version)
        return (BuildImport(release, "pkg_resources", 6, f"{name}-{version}.tar.gz"),) if release else ()

    def build_failures(self, name: str, version: str, python: str) -> Sequence[BuildFailure]:  # noqa: ARG002
        return [each for each in self.failing if (each.release.name, each.release.version) == (name, version)]

    def build_files(self, name: str, version: str) -> BuildFiles | None:
        return self.files.get(f"{name} {version}")

    def buildable_release(self, name: str, python: str, platform: str) -> IndexedRelease | None:  # noqa: ARG002
        failing = {each.release for each in self.failing}
        return next((each for each in reversed(self.releases) if each.name == name and each not in failing), None)

    def requires(self, name: str, version: str) -> Sequence[str]:
        return self.requirements.get(f"{name} {version}", ())

    def compiled_archive(self, name: str, version: str) -> str:
        return f"{name}-{version}.tar.gz" if name in self.compiled else ""

    def rust_build(self, name: str, version: str, platform: str) -> RustBuild | None:  # noqa: ARG002
        release = self.release(name, version)
        return RustBuild(f"{name}-{version}.tar.gz", ("3.11", "3.10")) if release else None


class FixedSolver:
    """Solves each step with these versions; those of `built` have no wheel."""

    reason = ""

    def __init__(self, index: FixedIndex, versions: Mapping[str, str], built: Sequence[str] = ()) -> None:
        self.index, self.versions, self.built = index, versions, frozenset(built)
        self.required = ["starlette"]
        self.requiring: Sequence[str] = ("webui",)  # the packages that require them
        self.refused: Mapping[str, str] = {}
        self.problems: list[StepProblem] = []
        self.conflicts: Mapping[str, str] = {}  # by the requirement with which a step has no solution

    def __call__(self, problem: StepProblem) -> StepSolution:
        self.problems.append(problem)
        names = {each.name for each in problem.requirements}
        for name in names & self.conflicts.keys():
            return StepSolution(conflict=self.conflicts[name])
        if "no-such-release" in names:
            return StepSolution(conflict="there is no version of no-such-release")
        requiring = tuple(each for each in self.requiring if each in names)
        required_by = dict.fromkeys(self.required, requiring) if requiring else {}
        chosen = {name: self.versions[name] for name in {*names, *required_by} & self.versions.keys()}
        refused = {name: text for name, text in self.refused.items() if name in chosen}
        return StepSolution(chosen, required_by, self.built & chosen.keys(), refused=refused)


def findings(text: str, solver: FixedSolver, *identifiers: str) -> list[Finding]:
    """The findings of some rules on a guide."""
    guide = parse_guide(text, "SETUP.md")
    audit = audit_paths(guide, parse_paths(guide, text, "SETUP.md"), today=DAY, solver=solver)
    return [each for each in audit.findings if each.id in identifiers]
