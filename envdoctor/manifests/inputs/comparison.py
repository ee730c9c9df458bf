"""Compares the manifests of a directory with one another: versions that differ between a lock and a Dockerfile."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence, Finding, Stack
from envdoctor.knowledge.versions import major_minor, public_part, satisfies
from envdoctor.manifests.actions import Install
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.manifests.inputs.records import Document
from envdoctor.manifests.write_back import MANIFESTS
from envdoctor.rules.registry import DIRECTORY_RULES, Problem, rule, run_rule

# Packages whose versions decide whether a stack works. Others differ between manifests on purpose.
_COMPARED = (
    "torch", "torchvision", "torchaudio", "triton", "vllm", "sglang", "transformers", "trl", "peft", "accelerate",
    "flash-attn", "bitsandbytes", "deepspeed", "verl", "unsloth", "xformers", "numpy",
)  # fmt: skip

# Kinds of files that make their directory a project. Dockerfiles and scripts belong to the project above them.
_OF_PROJECTS = MANIFESTS | {
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "pixi.lock", "conda-lock",
}  # fmt: skip
# The part of a file name that names a build, a system or a Python.
_VARIANT = lazy_pattern(
    r"(?:[-_.](?:(?:cuda|cu|rocm|torch|pytorch|python|py)[-_.]?\d[\d_.]*|cuda|cpu|gpu|rocm|xpu|mps|macos|mac|osx|linux|windows|win))+"
    r"(?=\.|[-_])",
    re.IGNORECASE,
)
_FOR_GPU = lazy_pattern(r"gpu|cuda|(?<![a-z])cu\d", re.IGNORECASE)  # in the name of a file
_NOT_COMPARED = frozenset({"guide", "text", "web page", "notebook", "workflow"})


class NamedDocument(NamedTuple):
    """A document with the path of its file and the environment that it creates."""

    name: str
    document: Document
    stack: Stack | None


class _Statement(NamedTuple):
    """A version that a file states: exact, or a range of a manifest."""

    file: str
    line: int
    version: str  # empty for a range
    specifier: str = ""


def compare_documents(documents: Sequence[NamedDocument]) -> tuple[Finding, ...]:
    """The packages that two files of a project name in versions that exclude each other."""
    projects: dict[str, list[NamedDocument]] = {}
    folders = {_folder(each) for each in documents if each.document.kind in _OF_PROJECTS}
    for each in documents:
        projects.setdefault(_project(_folder(each), folders), []).append(each)
    findings = [
        finding
        for each in DIRECTORY_RULES.values()
        for files in projects.values()
        for finding in run_rule(each, files)
    ]
    return tuple({finding.message: finding for finding in findings}.values())


def _folder(named: NamedDocument) -> str:
    return named.name.rpartition("/")[0]


def _project(folder: str, projects: Collection[str]) -> str:
    """The nearest directory with a manifest or a lock: a directory below with its own is another project."""
    while folder and folder not in projects:
        folder = folder.rpartition("/")[0]
    return folder


@rule(
    "RUN090",
    kind="directory",
    severity=("error", "warning"),
    cause="dependency-pin-violated",
    url="https://packaging.python.org/en/latest/specifications/version-specifiers/",
)
def files_contradict_each_other(documents: Sequence[NamedDocument]) -> Iterator[Problem]:
    """Two files of a directory name versions of a package that exclude each other.

    The lock of a project and its Dockerfile then create different environments, and the tests run with another stack
    than the training. Two different pins are a warning. A pin outside the range of another file is an error. The rule
    compares the packages that decide whether a stack works, such as torch, vllm and transformers. It does not compare
    guides, notebooks, workflows, files with several environments, files for several builds
    (`environment-cuda118.yml` and `environment-cuda121.yml`), and a directory below with manifests of its own.

    Use one version of the package in both files.
    """
    for name in _COMPARED:
        yield from _compare(name, documents)


def _compare(name: str, documents: Sequence[NamedDocument]) -> Iterator[Problem]:
    statements = [each for document in documents for each in _statements(document, name)]
    exact = [each for each in statements if each.version]
    for first, second in combinations(exact, 2):
        is_other_machine = _is_cpu_and_gpu(first, second) or _is_cpu_and_gpu(second, first)
        if is_other_machine or _are_apart(first.file, second.file):
            continue
        if public_part(first.version) != public_part(second.version):
            yield _difference(name, first, second)
    for wide, each in product([each for each in statements if each.specifier], exact):
        if not _are_apart(each.file, wide.file) and satisfies(public_part(each.version), wide.specifier) is False:
            yield _difference(name, wide, each)


def _is_cpu_and_gpu(first: _Statement, second: _Statement) -> bool:
    """Whether a build for the CPU is compared with a file for a GPU: `torch==1.7.0+cpu`, `requirements_gpu.txt`."""
    return first.version.endswith("+cpu") and bool(_FOR_GPU.search(posixpath.basename(second.file)))


def _are_apart(first: str, second: str) -> bool:
    """Whether two files are one, or alternatives: `environment-cuda11_8.yaml` and `environment-cuda12_1.yaml`.

    requirements.txt and requirements-gpu.txt can be installed together.
    """
    names = [_VARIANT.subn("", posixpath.basename(each)) for each in (first, second)]
    is_same_folder = posixpath.dirname(first) == posixpath.dirname(second)
    is_alternative = is_same_folder and names[0][0] == names[1][0] and all(count for _, count in names)
    return first == second or is_alternative


def _statements(named: NamedDocument, name: str) -> list[_Statement]:
    """What a file states about a package. Alternatives are not compared with other files."""
    document = named.document
    if document.kind in _NOT_COMPARED or len(document.sets) > 1 or len(document.paths) > 1:
        return []
    if document.sets:
        packages = document.sets[0].packages
        return [_Statement(named.name, each.line, each.version) for each in packages if each.name == name]
    found = (named.stack.distributions.value or {}).get(name) if named.stack else None
    if document.paths:
        requested = list(_requested(named, name))
        in_image = found and found.source == IMAGE_ORIGIN and not requested
        return [_Statement(named.name, 0, found.version)] if found and in_image else requested
    return [_Statement(named.name, 0, found.version)] if found else []


def _requested(named: NamedDocument, name: str) -> Iterator[_Statement]:
    """The requirements of the commands of a file."""
    for action in named.document.paths[0].actions:
        for each in action.requirements if isinstance(action, Install) else ():
            if each.name == name and not each.url and each.specifier:
                yield _Statement(named.name, each.line, each.pin, "" if each.pin else each.specifier)


def _difference(name: str, first: _Statement, second: _Statement) -> Problem:
    """The problem is at the second file."""
    stated = f"{name} {first.version}" if first.version else f"{name}{first.specifier}"
    is_minor = not first.version or major_minor(first.version) != major_minor(second.version)
    return Problem(
        "error" if not first.version else "warning",
        f"{second.file} has {name} {second.version}, but {first.file} has {stated}",
        (_evidence(name, first), _evidence(name, second)),
        f"Use one version of {name} in both files" + (", or the tests run with another stack." if is_minor else "."),
        line=second.line,
        file=second.file,
    )


def _evidence(name: str, each: _Statement) -> Evidence:
    place = f"{each.file}, line {each.line}" if each.line else each.file
    return Evidence(name, each.version or each.specifier, place)
