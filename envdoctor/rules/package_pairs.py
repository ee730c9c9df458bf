"""Rules on pairs of packages: parts of one project, and packages with the same module."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.imports import BrokenImport, broken_imports, cause_of
from envdoctor.knowledge.package_pairs import equal_versions, same_modules
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.versions import is_local_build, is_prerelease, public_part, satisfies
from envdoctor.rules.known_breaks import has_known_break
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import bounded, requirements_of, version_evidence, versions_of

_MAX_NAMES = 20  # that a package imports of another one


@rule("PKG040", kind="environment", severity=("error", "warning"), cause="dependency-pin-violated")
def parts_of_a_project_have_different_versions(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """Parts of one project, such as jaxlib and its CUDA plugin, have different versions.

    The project compares the versions when it is imported, and rejects or ignores the other part. Installers do not:
    the parts are extras, or require each other in one direction only. Builds from source are not compared.

    Fix: install all parts in one version.

    References:
    https://docs.jax.dev/en/latest/installation.html
    https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/installation.html
    """
    versions = versions_of(stack)
    for row in equal_versions():
        first, second = row.packages
        one, other = versions.get(first, ""), versions.get(second, "")
        if not one or not other or satisfies(public_part(one), row.versions) is not True:
            continue
        built = any(is_local_build(version) or is_prerelease(version) for version in (one, other))
        fitting = f"{'<=' if row.accepts_older else '=='}{public_part(one)}"
        if built or satisfies(public_part(other), fitting):
            continue
        yield Problem(
            row.status,
            f"{first} {one} does not fit {second} {other}: {row.consequence}",
            version_evidence(stack, first, second),
            f"Install {second} {public_part(one)}{' or older' if row.accepts_older else ''}.",
            steps(shell_command("uv pip install {}=={} {}", first, public_part(one), f"{second}{fitting}")),
        )


def _shared_modules(stack: Stack, *causes: str) -> Iterator[Problem]:
    versions = versions_of(stack)
    for row in same_modules():
        other, kept = row.packages
        if row.cause not in causes or other not in versions or kept not in versions:
            continue
        version = public_part(versions[kept])
        yield Problem(
            row.status,
            f"{other} {versions[other]} and {kept} {versions[kept]} both contain the module {row.module}: "
            f"{row.consequence}",
            version_evidence(stack, other, kept),
            f"Remove {other}, and install {kept} again.",
            steps(
                shell_command("uv pip uninstall {}", other),
                shell_command("uv pip install {}=={} --reinstall-package {}", kept, version, kept),
            ),
        )


@rule("PKG041", kind="environment", severity="warning", cause="ext-cpu-build")
def a_package_for_cpus_shares_the_module(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A package without CUDA and one with it install the same module, such as onnxruntime and onnxruntime-gpu.

    The one that was installed last overwrites the files of the other. If that is the package without CUDA, the module
    finds no GPU, although the one with CUDA is listed. Removing one of them removes files of the other.

    Fix: remove the package without CUDA, and install the other one again.

    References:
    https://github.com/microsoft/onnxruntime/issues/10685
    https://github.com/facebookresearch/faiss/issues/2892
    """
    yield from _shared_modules(stack, "ext-cpu-build")


@rule("PKG042", kind="environment", severity=("warning", "info"), cause="package-files-damaged")
def packages_share_a_module(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """Two packages install the same module, such as cupy-cuda11x and cupy-cuda12x.

    The one that was installed last overwrites files of the other, and removing one of them removes files of the
    other. What remains is a mixture of two builds or versions. Two packages of OpenCV are a note: many environments
    have both.

    Fix: remove one of them, and install the other one again.

    References:
    https://docs.cupy.dev/en/stable/install.html
    https://github.com/opencv/opencv-python#installation-and-usage
    """
    yield from _shared_modules(stack, "package-files-damaged")


@rule("PKG049", kind="environment", severity="error", cause="library-too-new")
def a_package_imports_a_name_that_another_one_lacks(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A package imports a name or a module that the installed release of another one does not have.

    The requirements of most packages have no upper bound, and some have too low a lower one, so that installers
    select a release that removed the name, or one that is too old to have it. The import is at the top level of a
    module, without a condition: `ImportError: cannot import name` or `No module named`. The table is derived from the
    wheels of both packages. Pairs that requirements, or a rule of their own, exclude are reported there.

    Fix: install a release of the other package that has the name, or one of the first that does not need it.

    References:
    https://packaging.python.org/en/latest/specifications/dependency-specifiers/
    """
    reported = {frozenset((each.requirer, each.name)) for each in requirements_of(stack).violations}
    versions = versions_of(stack)
    for broken in broken_imports(versions):
        user, package = broken.importer.package, broken.package
        if frozenset((user, package)) in reported or has_known_break(versions, user, package):
            continue
        has = "no longer has" if broken.is_newer else "does not have yet"
        yield Problem(
            "error",
            f"{user} {broken.version} imports {broken.name}, which {package} {broken.installed} {has}: "
            f"`import {broken.importer.module}` fails",
            version_evidence(stack, user, package),
            f"Install {package}{_range_with_name(broken)}, or {user}{_range_without_import(broken)}."
            if _range_without_import(broken)
            else f"Install {package}{_range_with_name(broken)}.",
            either(*_changes(broken)),
            cause=cause_of(package, is_newer=broken.is_newer),
        )


def _range_with_name(broken: BrokenImport) -> str:
    """The releases with the name that are nearest to the installed one, with all other names that are imported."""
    user, package, is_newer = broken.importer.package, broken.package, broken.is_newer
    nearest = broken.absence.before if is_newer else broken.absence.after
    for _ in range(_MAX_NAMES):
        others = broken_imports({user: broken.version, package: nearest})
        found = (each for each in others if (each.importer.package, each.package) == (user, package))
        absence = next((each.absence for each in found if each.is_newer == is_newer), None)
        if not absence or not (further := absence.before if is_newer else absence.after):
            break
        nearest = further
    return f"<={nearest}" if is_newer else bounded(f">={nearest}")


def _range_without_import(broken: BrokenImport) -> str:
    """The releases of the importing package that do not need the name; empty if there are none."""
    releases = broken.importer.releases
    if broken.is_newer:
        return bounded(f">={releases.after}") if releases.after else ""
    before = _newest_that_works(broken, releases.before) if releases.before else ""
    return f"<={before}" if before else ""


def _newest_that_works(broken: BrokenImport, newest: str) -> str:
    """The newest release of the importing package up to one, without a known break next to the installed package."""
    user, package = broken.importer.package, broken.package
    older = (each.version for each in published_releases(user) if satisfies(each.version, f"<{newest}"))
    for version in chain([newest], (each for each in older if not is_prerelease(each))):
        if not has_known_break({user: version, package: broken.installed}, user, package):
            return version
    return ""


def _changes(broken: BrokenImport) -> list[str]:
    user, package = broken.importer.package, broken.package
    other = _range_without_import(broken)
    found = [
        shell_command("uv pip install {} {}", f"{user}=={broken.version}", f"{package}{_range_with_name(broken)}")
    ]
    return [
        *found,
        *(
            [shell_command("uv pip install {} {}", f"{user}{other}", f"{package}=={broken.installed}")]
            if other
            else []
        ),
    ]
