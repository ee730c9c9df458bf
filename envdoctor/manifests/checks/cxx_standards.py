"""A check on extensions of torch that are compiled with an older C++ standard than its headers require."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.core.wording import join_words
from envdoctor.knowledge.cxx_standards import (
    HeaderStandard,
    header_standards,
    rejecting_headers,
    standard_of_build,
    standard_of_setup,
)
from envdoctor.knowledge.git_builds import MAIN
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.built_repositories import built_repositories, release_of
from envdoctor.manifests.checks.builds import BUILT_WITH_TORCH, has_wheel_of_release, possible_builds, torch_of_step
from envdoctor.manifests.checks.certainty import builds_in_isolation
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.fitting_releases import excluding_package
from envdoctor.manifests.checks.isolated_builds import is_isolated, torch_of_time, without_wheel
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import setuptools_for
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

HEADERS = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/ATen.h"
_TAG = lazy_pattern(r"@([^#]+)")
_EDITABLE = lazy_pattern(r"\s(?:-e|--editable)\b")
_LIMITED = lazy_pattern(r"torch[`'\" *]{0,3}(?:==|<|~=|v?\d)", re.IGNORECASE)


class _Build(NamedTuple):
    """A build with the standard of its flags."""

    install: InstallStep
    title: str
    line: int
    standard: int
    evidence: Evidence
    requirement: str = ""  # with which a command repeats the build; empty: the step does
    newest_torch: str = ""  # which an isolated build installs, as the build requirements name torch


@rule("RUN290", kind="guide", severity=("error", "warning"), cause="library-too-old", url=HEADERS,
      needs=("release", "wheels", "python"))  # fmt: skip
def headers_of_torch_require_a_newer_standard(context: GuideContext) -> Iterator[Problem]:
    """An extension is compiled with -std=c++17 or -std=c++14, and the headers of torch require a newer C++ standard.

    torch 2.14 requires C++20 and torch 2.1 C++17: `C++20 or later compatible compiler is required to use ATen`.
    torch.utils.cpp_extension adds its own -std only where an extension has none. A warning if no step installs torch.

    Fix: install an older torch before the build, or use a release of the extension with the newer standard.
    """
    reported: set[tuple[int, str]] = set()
    for build in (*_releases(context), *_repositories(context), *_projects(context)):
        installed = torch_of_step(build.install)
        torch = build.newest_torch or (installed.version if installed else "")
        newest = header_standards()[0]
        headers = rejecting_headers(build.standard, torch) if torch else newest
        is_old = headers is not None and headers.standard > build.standard
        key = (build.line, build.title)
        is_unread = installed and not build.newest_torch and _is_torch_unread(build.install)
        if is_unread or key in reported:
            continue
        if headers and is_old and (torch or _presupposes_torch(context, build)):
            reported.add(key)
            yield _rejected(context, build, headers, torch)


def _is_torch_unread(install: InstallStep) -> bool:
    """Whether a project or a file that the guide does not show can have installed another torch before a step."""
    return install.before.resolution in ("partial", "unresolved") and "torch" not in install.before.packages


def _presupposes_torch(context: GuideContext, build: _Build) -> bool:
    """Whether a reader installs some torch: no step has one, and no text limits it."""
    before = build.install.before
    return not before.image and before.tool != "conda" and not any(map(_LIMITED.search, context.guide.lines))


def _releases(context: GuideContext) -> Iterator[_Build]:
    """Releases without a wheel, and repositories of packages with a row."""
    for install, requirement, line in possible_builds(context):
        tag = _TAG.search(requirement.url)
        release = release_of(tag[1] if tag else "")
        package = install.resolution.packages.get(requirement.name)
        version = requirement.pin or (package.version if package else "")
        if requirement.url:
            version = "" if release == MAIN else release or "unknown"
        row = standard_of_build(requirement.name, version)
        if row and torch_of_step(install) and not has_wheel_of_release(context, install, requirement):
            evidence = table_evidence("setup.py", f"-std=c++{row.standard}", row.source, row.date)
            title = f"`{requirement.text}`" if requirement.url else f"{row.package} {version}"
            yield _Build(install, title, line, row.standard, evidence, requirement.text)
    for install in context.trace.installs:
        if not install.action.only_binary and install.action.tool != "conda":
            yield from _archives(context, install)


def _archives(context: GuideContext, install: InstallStep) -> Iterator[_Build]:
    for name in sorted(install.resolution.built):
        package, index = install.resolution.packages.get(name), context.index_facts
        is_known = package is not None and standard_of_build(name, package.version)
        files = index.build_files(name, package.version) if index and package and not is_known else None
        found = standard_of_setup(files.setup) if files else None
        if not (package and files and found):
            continue
        is_installed = install.action.no_build_isolation or name in install.action.built_with_torch
        named = [each for text in files.requires if (each := parse_requirement(text)) and each.name == "torch"]
        newest = releases_in_range("torch", named[0].specifier)[:1] if named and not is_installed else ()
        has_torch = is_installed or builds_in_isolation(install) is False or name in BUILT_WITH_TORCH
        if newest or (has_torch and torch_of_step(install)):
            pin = f"{name}=={package.version}"
            yield _Build(
                install,
                f"{name} {package.version}",
                line_of(context, package.line or install.action.line, package.reason),
                found.standard,
                table_evidence(f"setup.py:{found.line}", f"-std=c++{found.standard}", files.archive),
                pin,
                newest[0].version if newest else "",
            )


def _repositories(context: GuideContext) -> Iterator[_Build]:
    """The main branches of repositories with a row."""
    for built in built_repositories(context):
        row, requirement = built.row, built.requirement
        is_own = not row.folder or requirement.url.startswith("git+")
        if not row.standard or built.release != MAIN or built.is_fork or not is_own:
            continue
        takes_newest = is_isolated(built) and row.compiles_for_newest_torch(MAIN)
        if takes_newest or torch_of_step(built.install):
            newest = releases_in_range("torch", "")[0].version if takes_newest else ""
            evidence = table_evidence(row.build_file, f"-std=c++{row.standard}", row.source, row.date)
            line = line_of(context, requirement.line, requirement.text)
            yield _Build(built.install, built.title, line, row.standard, evidence, requirement.text, newest)


def _projects(context: GuideContext) -> Iterator[_Build]:
    """Projects on disk."""
    for install in context.trace.installs:
        for build in install.action.own_builds:
            if build.standard is None:
                continue
            is_kept = install.action.no_build_isolation or install.action.tool == "conda"
            is_alone = not is_kept and (build.has_pyproject or builds_in_isolation(install) is not False)
            if is_alone and build.torch is None and "torch" not in dict(build.imports):
                continue  # without torch, it compiles nothing
            takes_newest = build.torch is not None and not is_kept
            newest = releases_in_range("torch", build.torch or "")[0].version if takes_newest else ""
            evidence = table_evidence(
                f"setup.py:{build.standard.line}", f"-std=c++{build.standard.standard}", "the project next to it"
            )
            yield _Build(
                install,
                f"`{build.url}`",
                line_of(context, install.action.line, build.url),
                build.standard.standard,
                evidence,
                newest_torch=newest,
            )


def _rejected(context: GuideContext, build: _Build, headers: HeaderStandard, torch: str) -> Problem:
    installed = torch_of_step(build.install)
    where = f"torch {torch}" if torch else f"torch {headers.torch} and newer"
    isolated = " in an isolated build" if build.newest_torch else ""
    fix, remedies = _fix(context, build, headers)
    return Problem(
        "error" if torch else "warning",
        f"{build.title} is compiled with -std=c++{build.standard}{isolated}, and the headers of {where} require "
        f"C++{headers.standard}{'' if torch else '; nothing limits torch'}",
        (
            guide_evidence(context, "command", build.install.action.command, build.line),
            build.evidence,
            *([table_evidence("torch", f"{torch}: the newest one that the build requirements permit", "build-system")]
              if build.newest_torch else
              [guide_evidence(context, "torch", f"{installed.version} ({installed.reason})", installed.line)]
              if installed else []),
            table_evidence(f"torch {headers.torch}", f"requires C++{headers.standard}", headers.source, headers.date),
        ),
        fix,
        remedies,
        line=build.line,
    )  # fmt: skip


def _later_torch(context: GuideContext, build: _Build) -> str:
    """The torch that the last step leaves in the environment, if its headers accept the code; empty otherwise."""
    last = [each for each in context.trace.installs if each.after.name == build.install.after.name][-1]
    torch = last.after.packages.get("torch")
    is_fitting = (
        torch
        and last.after.resolution in ("solved", "tables")
        and not rejecting_headers(build.standard, torch.version)
    )
    return public_part(torch.version) if torch and is_fitting else ""


def _fix(context: GuideContext, build: _Build, headers: HeaderStandard) -> tuple[str, tuple[Remedy, ...]]:
    """An older torch, and the build without isolation; no command if another package excludes that torch."""
    state, index = build.install.before, context.index_facts
    installed = torch_of_step(build.install)
    older = releases_in_range("torch", f"<{headers.torch}")[0].version
    others = {name: each for name, each in build.install.after.packages.items() if name not in TORCH_FAMILY}
    python = state.python or context.trace.python
    excluding = excluding_package(index, others, "torch", older, python=python) if index else ""
    if excluding:
        return (
            f"{excluding} excludes torch below {headers.torch}: change -std in setup.py to c++{headers.standard}, "
            f"or use a release of {excluding.partition(' ')[0]} with an older torch."
        ), ()
    is_fitting = installed is not None and rejecting_headers(build.standard, installed.version) is None
    of_time = torch_of_time(build.title.replace(" ", "=="))
    if of_time and not is_fitting and not build.newest_torch:  # a much newer torch changed more than the standard
        fix = f"Install torch {of_time.version} of the time of {build.title} first, then build without isolation."
        return f"{fix}{without_wheel(context, build.install, of_time)}", ()
    later = _later_torch(context, build)
    needed = f"torch=={later}" if later else f"torch<{headers.torch}"
    family = [needed, *(name for name in ("torchvision", "torchaudio") if name in state.packages)]
    first = [] if is_fitting else [shell_command("uv pip install {}", family)]
    action = build.install.action
    if action.command.endswith(".toml"):  # uv builds the project
        name = build.title.split()[0]
        has_setting = name in action.built_with_torch
        setting = [] if has_setting else [f"{name} in no-build-isolation-package of tool.uv"]
        limit = [] if is_fitting else [f"a limit of torch to releases below {headers.torch}"]
        return f"Add {join_words([*limit, *setting])}.", ()
    is_repeated = build.requirement and not _EDITABLE.search(action.command)
    tools = (
        [shell_command("uv pip install {} wheel packaging ninja", [setuptools_for(state)])]
        if build.newest_torch
        else []
    )
    then = [shell_command("uv pip install {} --no-build-isolation", build.requirement)] if is_repeated else []
    chosen = f"torch {later}, which a later step installs," if later else f"torch below {headers.torch}"
    before = "" if is_fitting else f"Install {chosen} first, then build"
    return (
        f"{before or 'Build'} without isolation{'' if is_repeated else ' as the step does'}.",
        steps(*first, *tools, *then),
    )
