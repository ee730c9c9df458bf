"""Checks on builds of repositories: their modules, the torch that they compile for, and builds without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.torch_builds import torch_releases
from envdoctor.knowledge.versions import minor_of, satisfies
from envdoctor.manifests.built_repositories import BuiltRepository, built_repositories
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.isolated_builds import is_isolated
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

BACKEND = "https://pip.pypa.io/en/stable/reference/build-system/"
CPP_EXTENSION = "https://docs.pytorch.org/docs/stable/cpp_extension.html"
_PACKAGES = {"pkg_resources": "setuptools<82", "pip": "pip"}  # setuptools 82 removed pkg_resources
_WITH_PKG_RESOURCES = "<3.9"  # setuptools 82 requires Python 3.9
_BUILD_CONSTRAINTS = ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "UV_BUILD_CONSTRAINT", "UV_OVERRIDE", "UV_CONSTRAINT")
# Images of NVIDIA set TORCH_CUDA_ARCH_LIST.
_WITHOUT_ARCHITECTURES = ("nvidia/cuda", "pytorch/pytorch", "ubuntu", "debian", "python")


@rule("RUN113", kind="guide", severity="error", cause="build-isolation-no-torch", url=BACKEND, needs=("isolation",))
def isolated_build_of_a_repository_lacks_a_module(context: GuideContext) -> Iterator[Problem]:
    """setup.py of a repository imports pip, numpy or pkg_resources, and its build requirements do not name it.

    An isolated build has setuptools and wheel alone, and setuptools 82 removed pkg_resources.
    """
    for built in built_repositories(context):
        row, requirement = built.row, built.requirement
        if "torch" in row.modules or built.is_fork or not row.lacks_modules(built.release) or not is_isolated(built):
            continue
        python = built.install.before.python or context.trace.python
        if row.modules == ("pkg_resources",) and satisfies(python, _WITH_PKG_RESOURCES) is not False:
            continue
        line = line_of(context, requirement.line, requirement.text)
        modules = " and ".join(row.modules)
        needed = list(dict.fromkeys((*(_PACKAGES.get(each, each) for each in row.modules), "wheel")))
        needed += [] if "setuptools<82" in needed else ["setuptools"]
        yield Problem(
            "error",
            f"{built.title} is built in isolation without {modules}, which its setup.py imports",
            (
                guide_evidence(context, row.package, built.install.action.command, line),
                table_evidence("setup.py", f"import {modules}", row.source, row.date),
            ),
            f"Install {', '.join(needed)} first, then add --no-build-isolation.",
            steps(
                shell_command("uv pip install {}", needed),
                shell_command("uv pip install {} --no-build-isolation", requirement.text),
            ),
            line=line,
            proven=("isolation",) if built.has_pyproject else (),
        )


@rule("RUN114", kind="guide", severity="warning", cause="torch-abi-mismatch", url=BACKEND)
def isolated_build_compiles_for_another_torch(context: GuideContext) -> Iterator[Problem]:
    """The build requirements of a repository name torch: an isolated build compiles for the newest one.

    An extension that was compiled for another release of torch ends with `undefined symbol` at its import.
    """
    newest = list(torch_releases())[-1]
    for built in built_repositories(context):
        row, requirement, action = built.row, built.requirement, built.install.action
        torch = built.install.before.packages.get("torch")
        if (
            not row.compiles_for_newest_torch(built.release)
            or not is_isolated(built)
            or not torch
            or not torch.version
        ):
            continue
        is_older = minor_of(torch.version) != newest and satisfies(torch.version, f">={newest}") is False
        if not is_older or _selects_torch(built):  # a nightly build of the newest release is not older
            continue
        line = line_of(context, requirement.line, requirement.text)
        yield Problem(
            "warning",
            f"{built.title} is compiled for torch {newest}, the newest one, in an isolated build: "
            f"it does not load with torch {minor_of(torch.version)}",
            (
                guide_evidence(context, row.package, action.command, line),
                guide_evidence(context, "torch", torch.reason, torch.line),
                table_evidence("build-system.requires", "torch", row.source, row.date),
            ),
            "Install setuptools, wheel, packaging and ninja first, then add --no-build-isolation.",
            steps(
                shell_command("uv pip install '{}' wheel packaging ninja", "setuptools<82"),
                shell_command("uv pip install {} --no-build-isolation", requirement.text),
            ),
            line=line,
        )


def _selects_torch(built: BuiltRepository) -> bool:
    """Whether the step can select the torch of the build: by an index, a constraint, or a date."""
    action, variables = built.install.action, built.install.variables
    has_index = action.index_url or action.extra_indexes or action.find_links or action.torch_backend
    is_bound = "constraint" in action.command or any(name in variables for name in _BUILD_CONSTRAINTS)
    return bool(has_index or is_bound or action.exclude_newer or action.no_index)


@rule("RUN115", kind="guide", severity="warning", cause="cuda-home-missing", url=CPP_EXTENSION)
def build_in_an_image_finds_no_gpu(context: GuideContext) -> Iterator[Problem]:
    """The build of an image has no GPU: CUDA extensions need TORCH_CUDA_ARCH_LIST, and some FORCE_CUDA as well.

    torch.utils.cpp_extension ends with `IndexError: list index out of range`. Other builds compile the code for
    the CPU alone, which the first use on a GPU reports: `Not compiled with GPU support`.
    """
    text = "\n".join(context.guide.lines)
    for built in built_repositories(context):
        row, requirement, before = built.row, built.requirement, built.install.before
        if not row.without_gpu or not before.in_dockerfile or built.install.action.only_binary:
            continue
        if is_isolated(built) and row.lacks_modules(built.release):
            continue  # it stops before
        if (
            not before.toolkit
            or not _has_no_architectures(before.image)
            or any(each in text for each in row.variables)
        ):
            continue
        line = line_of(context, requirement.line, requirement.text)
        effect = "stops" if row.without_gpu == "stops" else "compiles no CUDA code"
        needed = [_assignment(name) for name in row.variables if name.isupper()]
        yield Problem(
            "warning",
            f"the build of {built.title} in an image {effect}: torch finds no GPU"
            + (f", and {' or '.join(row.variables)} is not set" if row.variables else ""),
            (
                guide_evidence(context, row.package, built.install.action.command, line),
                table_evidence("setup.py", f"without a GPU: {row.without_gpu}", row.source, row.date),
            ),
            f"Add `ENV {' '.join(needed)}` above this step, with the compute capabilities of your GPUs."
            if needed
            else "Build it when the container starts with a GPU.",
            line=line,
        )


def _assignment(name: str) -> str:
    values = {
        "TORCH_CUDA_ARCH_LIST": '"8.0;9.0"',
        "NATTEN_CUDA_ARCH": '"8.0;9.0"',
        "TCNN_CUDA_ARCHITECTURES": '"80;90"',
    }
    return f"{name}={values.get(name, '1')}"


def _has_no_architectures(image: str) -> bool:
    """Whether an image is known to set no TORCH_CUDA_ARCH_LIST."""
    name = image.rpartition(":")[0].removeprefix("docker.io/").removeprefix("library/")
    return name in _WITHOUT_ARCHITECTURES
