"""Modules that Python does not find, and the packages that a message requests."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.core.side_lines import without_notes
from envdoctor.explain.outcome import WARNING_LINE
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.bounds import bounded_packages
from envdoctor.knowledge.module_names import SAME_NAME, packages_of_module
from envdoctor.knowledge.published import published_packages
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.symptoms import Symptom
from envdoctor.redact.output import without_secrets

NO_MODULE = lazy_pattern(
    r"No module named ['\"]?(?P<top>[A-Za-z_]\w{0,60})(?P<part>(?:\.\w{1,60}){0,8})['\"]?(?![\w.])"
)
# Compiled modules of Python that its build leaves out if the headers of a system library are missing.
OF_PYTHON = ("_bz2", "_ctypes", "_lzma", "_sqlite3", "_ssl", "_tkinter", "tkinter", "readline", "_uuid")
PIP_INSTALL = lazy_pattern(r"pip3? install (?P<words>[^`\n]{1,200})")
NAMED_PACKAGE = lazy_pattern(
    r"requires? the `?(?P<library>[\w-]{2,40})`? library|requires `?(?P<required>[\w.-]{2,40})`? (?:to be )?installed"
    r"|need to have `?(?P<needed>[\w-]{2,30})`?|must have `?(?P<must>[\w-]{2,30})`? installed"
    r"|`?(?P<absent>[\w-]{2,40})`? (?:package )?is not installed|requires `?(?P<least>[\w-]{2,40}>=[\d.]{1,12})"
)
# Packages whose build depends on the driver, torch or the compiler: a plain install can take the wrong one.
BUILT_FOR_THE_MACHINE = (
    "torch", "torchvision", "torchaudio", "vllm", "sglang", "flash-attn", "xformers", "deepspeed", "triton",
    "mamba-ssm", "causal-conv1d", "transformer-engine", "sgl-kernel", "flashinfer-python", "apex",
)  # fmt: skip
UPGRADES = ("-U", "--upgrade")
OPTIONS = (*UPGRADES, "-q", "--quiet")
RELEASE = lazy_pattern(
    r"requires? `?(?P<name>[\w-]{2,40})`? version (?P<version>\d[\d.]{0,12}\d) or (?:higher|newer|later)"
)
# A found module is missing in this Python; an unknown one can also be a file of the program.
WEIGHT, WEIGHT_OF_UNKNOWN = 84, 60


def missing_module(text: str) -> dict[Symptom, Hit]:
    """The last module that an error does not find, for a text without another symptom."""
    text = without_notes(text)
    lines = text.split("\n")
    for match in reversed(list(NO_MODULE.finditer(text))):
        top = match["top"]
        number = text.count("\n", 0, match.start())
        is_of_python = top in sys.stdlib_module_names and top not in OF_PYTHON
        is_part = match["part"] and package_of(top)  # the package is there, in another release
        if is_of_python or is_part or WARNING_LINE.search(lines[number]):
            continue
        line = without_secrets(lines[number])
        symptom = _symptom(top)
        return {symptom: Hit(symptom.id, number + 1, line, {"module": top})}
    return {}


def _symptom(top: str) -> Symptom:
    package = package_of(top)
    if top in OF_PYTHON:
        fix = (
            f"This Python was built without {top}: the headers of a system library were missing. Use a Python of uv, "
            "which has it, or install the headers and build Python again."
        )
        remedies: tuple[tuple[str, ...], ...] = (("uv venv --managed-python --python 3.12 .venv-3.12",),)
    elif package:
        is_plain = package not in BUILT_FOR_THE_MACHINE and not package.startswith("git+")
        fix = (
            f"No package of the Python that runs the program has the module {top}: install {package} there"
            + ("" if is_plain else ", in its build for this machine")
            + ", or start the program with the Python that has it."
        )
        install = [shell_command("uv pip install {}", package)] if is_plain else ["uv pip list"]
        remedies = (("which -a python", *install),)
    else:
        return Symptom(
            id="unknown-module-missing",
            cause="module-of-program-missing",
            pattern="",
            weight=WEIGHT_OF_UNKNOWN,
            sample="",
        )
    return Symptom(
        id="module-missing",
        cause="wrong-python-env",
        pattern="",
        weight=WEIGHT,
        sample="",
        fix=fix,
        remedies=remedies,
        check=shell_command("python -c {}", f"import {top}"),
    )


def package_of(module: str) -> str:
    """The package to install for a top-level module; empty if it is unknown, or if there is none on PyPI."""
    if named := packages_of_module(module):
        return named.install
    package = normalize_name(module)
    return package if is_known(package) else ""


def is_known(package: str) -> bool:
    """Whether the tables have a package, whose name then is no typing error and no trap."""
    return (
        package in BUILT_FOR_THE_MACHINE
        or package in SAME_NAME
        or package in published_packages()
        or package in bounded_packages()
    )


def requested_packages(lines: Iterable[str]) -> str:
    """The requirements that messages ask to install, those of known packages only; empty if there is none."""
    return " ".join(dict.fromkeys(each for line in lines for each in _requested(line)))


def _requested(line: str) -> list[str]:
    if release := RELEASE.search(line):
        return [f"{release['name']}>={release['version']}"] if _has_one_build(release["name"]) else []
    for match in PIP_INSTALL.finditer(line):
        if found := list(_requirements_of_command(match["words"])):
            return found
    named = [next(value for value in match.groups() if value).lower() for match in NAMED_PACKAGE.finditer(line)]
    return [each for each in named if _has_one_build(each)]


def _requirements_of_command(text: str) -> Iterator[str]:
    """The packages of `pip install`, up to the first word that is none or is unknown: the sentence continues."""
    upgrades = False
    for word in (each.strip("'\".,:;)") for each in text.split()):
        if word in OPTIONS:
            upgrades = upgrades or word in UPGRADES
        elif _is_known_requirement(word):
            if _has_one_build(word):
                yield word
                # uv keeps an installed release; --upgrade would replace the dependencies, such as torch, as well.
                yield from [f"--upgrade-package {word}"] if upgrades and re.fullmatch(r"[\w-]+", word) else []
        else:
            return


def _is_known_requirement(text: str) -> bool:
    requirement = parse_requirement(text)
    return requirement is not None and is_known(requirement.name)


def _has_one_build(text: str) -> bool:
    """Whether a requirement is of a known package that has the same build for each machine."""
    requirement = parse_requirement(text)
    return requirement is not None and is_known(requirement.name) and requirement.name not in BUILT_FOR_THE_MACHINE
