"""Checks on requirements that name what does not exist: an extra of a release, a folder of another machine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import leading_name, normalize_name
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.pyproject import items, table
from envdoctor.rules.registry import Problem, rule

EXTRAS = "https://packaging.python.org/en/latest/specifications/dependency-specifiers/#extras"
_HOME = lazy_pattern(r"file:/{2,3}(?:home/[^/]+/|Users/[^/]+/|root/|[A-Za-z]:[/\\\\])", re.IGNORECASE)
_OUTSIDE = lazy_pattern(r"[#&]subdirectory=((?:\./)?\.\.(?:/[^&#]*)?)(?:&|$)")
DIRECT = "https://packaging.python.org/en/latest/specifications/version-specifiers/#direct-references"
# Folders in which conda-build and the builders of its channels make packages; pip freeze lists them.
_BUILD_FOLDER = lazy_pattern(
    r"file:///(?:croot/|tmp/build/|private/tmp/build/|work/ci_|home/(?:conda|builder|task_\d+)/|Users/(?:builder|runner)/"
    r"|[A-Z]:/(?:bld|b/abs)|.*(?:feedstock_root|conda-bld|/croot/))"
)

# huggingface-hub 2.4.0 requires click and has the program hf without an extra: its METADATA, 2026-11-26.
_IN_THE_RELEASE = {("huggingface-hub", "cli")}


@rule("RUN132", kind="guide", severity="warning", cause="dependency-pin-violated", url=EXTRAS, needs=("python",))
def release_has_no_such_extra(context: GuideContext) -> Iterator[Problem]:
    """A requirement names an extra that the release does not have: installers warn, and install nothing for it.

    Extras are renamed and removed, and an open requirement takes the newest release.
    """
    index = context.index_facts
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            package = install.resolution.packages.get(requirement.name)
            for extra in sorted(set(requirement.extras)) if package and not requirement.url else ():
                is_absent = (requirement.name, extra) in install.resolution.absent_extras
                # An extra can become a requirement: transformers[hf_xet], and huggingface-hub 1 requires hf-xet.
                is_there = extra in install.after.packages or (requirement.name, extra) in _IN_THE_RELEASE
                if not package or not is_absent or is_there:
                    continue
                newest = index.newest_release(requirement.name) if index and not requirement.pin else None
                if newest and newest.version != package.version:
                    continue  # an old release without the extra, which is there where the newest one cannot be solved
                line = line_of(context, requirement.line, requirement.text)
                release = f"{requirement.name} {package.version}"
                yield Problem(
                    "warning",
                    f"{release} has no extra {extra}: installers ignore it, and install nothing for it",
                    (
                        guide_evidence(context, requirement.name, requirement.text, line),
                        table_evidence(release, f"no Provides-Extra: {extra}", "the package index"),
                    ),
                    f"Name a release of {requirement.name} that has the extra, or its packages.",
                    line=line,
                )


@rule("RUN133", kind="guide", severity="error", cause="dependency-pin-violated", url=DIRECT)
def requirement_is_in_a_folder_of_a_build_machine(context: GuideContext) -> Iterator[Problem]:
    """`pip freeze` in an environment of conda lists the folders in which conda packages were built.

    No other machine has these folders, so that pip stops at the first one.

    Fix: list the versions with `pip list --format=freeze`, or export the environment with conda.
    """
    for install in context.trace.installs:
        found = [each for each in install.action.requirements if _BUILD_FOLDER.match(each.url)]
        if found:
            first = found[0]
            line = line_of(context, first.line, first.text)
            others = f" and {len(found) - 1} others" if found[1:] else ""
            yield Problem(
                "error",
                f"{first.name}{others}: the requirement is a folder of the machine that built the conda package, "
                "which exists nowhere else",
                (guide_evidence(context, first.name, first.url, line),),
                "Use the output of `pip list --format=freeze` in place of `pip freeze`.",
                line=line,
            )


@rule("RUN172", kind="guide", severity="error", cause="dependency-pin-violated", url=DIRECT)
def requirement_is_in_a_folder_of_its_author(context: GuideContext) -> Iterator[Problem]:
    """A requirement is a file in the home directory of a person, or a folder above the root of a repository.

    `pip freeze` lists packages that were installed from a folder by their path. `subdirectory=../..` of an editable
    install is outside of the clone. No other machine has them, so that the installation stops.
    """
    for install in context.trace.installs if not context.guide.commands else ():
        for each in install.action.requirements:
            home = _HOME.match(each.url)
            outside = _OUTSIDE.search(each.url) if each.url.startswith("git+") else None
            if not (home or outside) or _BUILD_FOLDER.match(each.url):
                continue
            if home and exists(Path(unquote(urlsplit(each.url).path))):
                continue
            line = line_of(context, each.line, each.text)
            what = (
                "a folder of the machine of its author"
                if home
                else f"{outside[1] if outside else ''} is above the clone"
            )
            yield Problem(
                "error",
                f"{each.name}: {what}, so that the installation stops at this line",
                (guide_evidence(context, each.name, each.url, line),),
                f"Name a release of {each.name}, or the address of its repository.",
                line=line,
            )


@rule("RUN188", kind="guide", severity="error", cause="dependency-pin-violated", url=EXTRAS)
def extra_lists_names_of_extras(context: GuideContext) -> Iterator[Problem]:
    """An extra of a project lists its other extras by name alone: installers take packages of these names from PyPI.

    Those are other projects, or do not exist. `all = ["project[train,serve]"]` names the extras.
    """
    if context.guide.name.rpartition("/")[2] != "pyproject.toml":
        return
    project, extras = _extras(context.guide.lines)
    for name, texts in extras.items():
        named = [normalize_name(text) for text in texts]
        own = [each for each in named if each in extras and each != name and not _is_package(each, extras[each])]
        if own:
            pattern = re.compile(rf"\s*[\"']?{name}[\"']?\s*=", re.IGNORECASE)
            line = next((n for n, text in enumerate(context.guide.lines, 1) if pattern.match(text)), 1)
            names = "these are the names of other extras" if own[1:] else "this is the name of another extra"
            yield Problem(
                "error",
                f"the extra {name} lists {', '.join(own)} as packages of PyPI: {names} of the project",
                (guide_evidence(context, name, ", ".join(texts)[:120], line),),
                f'Write "{project}[{",".join(own)}]" in their place.',
                line=line,
            )


def _extras(lines: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    """The name of a project and its extras by their normalized names."""
    try:
        project = table(tomllib.loads("\n".join(lines)), "project")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return "", {}
    stated = table(project, "optional-dependencies")
    extras = {normalize_name(name): [str(each) for each in items(texts)] for name, texts in stated.items()}
    return str(project.get("name") or "project"), extras


def _is_package(name: str, texts: Sequence[str]) -> bool:
    """Whether the name of an extra alone can mean a package: a known one, or one that the extra contains."""
    return bool(published_releases(name)) or name in map(leading_name, texts)
