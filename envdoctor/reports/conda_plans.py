"""Parsers for the packages that conda and mamba are about to install, or have installed, and for exported files."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.package_lists import CONDA_EXPORT, PINNED, add_conda_package
from envdoctor.reports.section import Line, Section, distribution_name

NAME = r"(?P<name>[a-z0-9_][\w.-]{0,80})"
VERSION, BUILD = r"(?P<version>\d[\w.!+]{0,40})", r"(?P<build>\w[\w.]{0,60})"
SIZE = r"\d[\d.]{0,8}\s?[kKMG]?i?B"
ROWS = tuple(
    lazy_pattern(pattern)
    for pattern in (
        # pytorch-1.12.1             |      py3.8_cpu_0       133.8 MB  pytorch
        rf"{NAME}-{VERSION}\s*\|\s*{BUILD}\s+{SIZE}(?:\s+(?P<channel>[\w./-]{{2,60}}))?\s*$",
        # pytorch            pytorch/win-64::pytorch-1.10.0-py3.6_cpu_0
        rf"(?P<first>[a-z0-9_][\w.-]{{0,80}}):?\s+(?P<channel>[\w./-]{{2,60}})::(?P=first)-{VERSION}-{BUILD}\s*(?:None)?\s*$",
        # pytorch   pytorch::pytorch-2.0.1-py3.11_cuda11.7_cudnn8_0 --> conda-forge::pytorch-2.0.0-cpu_generic_py311_1
        # numpy     1.24.3-py311h08b1b3b_1 --> 1.23.5-py311h43a39b2_0 None
        (
            rf"(?P<first>[a-z0-9_][\w.-]{{0,80}}):?\s+(?P<replaced>\S{{3,160}})(?:\s+[\w./-]{{2,60}})?\s+-+>\s+"
            rf"(?:(?P<channel>[\w./-]{{2,60}})::)?(?:(?P=first)-)?{VERSION}-{BUILD}(?:\s+[\w./-]{{2,60}})?\s*$"
        ),
        # pytorch:     1.12.1-py3.9_cpu_0     pytorch
        rf"{NAME}:\s+{VERSION}-{BUILD}\s+(?P<channel>[\w./-]{{2,60}})\s*$",
        # + pytorch    2.5.1  py3.12_cpu_0  pytorch  100MB
        rf"(?:\+ )?{NAME}\s+{VERSION}\s+{BUILD}\s+(?P<channel>[\w./-]{{2,60}})\s+(?:{SIZE}|Cached)\s*$",
    )
)
TITLE = lazy_pattern(
    r"## Package Plan ##|added / updated specs"
    r"|The following (?:NEW )?packages will be (?:downloaded|INSTALLED|UPDATED|SUPERSEDED|DOWNGRADED)"
    r"|^\s*package\s+\|\s+build|^\s*Package\s+Version\s+Build\s+Channel"
)
CUDA_BUILD, CPU_BUILD = (
    lazy_pattern(r"\d[\w.]{2,20}-[\w.]{0,16}cuda\w[\w.]{0,40}"),
    lazy_pattern(r"(?:^|_)cpu(?:_|$)"),
)
FEWEST = 3  # rows, if no title is in the text
ITEM = lazy_pattern(r"- ([\w./-]{1,60}::)?(\S.{0,160})$")
EXACT = lazy_pattern(r"([a-z0-9_][\w.-]{0,80})=(\d{1,4}(?:\.\d{1,4}){2,3})$")  # without the build
CONDA_PYTHON = lazy_pattern(r"python==?(3\.\d{1,2}(?:\.\d{1,2})?)(?:\.\*)?$")


def parse_conda_plan(lines: list[Line]) -> Section | None:
    """Parse the plan of `conda install`: the packages to download and to install, each with its build.

    ```
    The following packages will be downloaded:
        package                    |            build
        pytorch-1.12.1             |      py3.8_cpu_0       133.8 MB  pytorch
    The following NEW packages will be INSTALLED:
      pytorch            pytorch/win-64::pytorch-1.12.1-py3.8_cpu_0
    ```
    """
    section = Section("conda install")
    for line in lines:
        match = next(filter(None, (row.match(line.text) for row in ROWS)), None)
        if not match:
            continue
        named = match.groupdict()
        words = [named.get("name") or named["first"], match["version"], match["build"], match["channel"] or ""]
        _record_replaced_build(section, named)
        if add_conda_package(section, words):
            section.consumed.add(line.number)
    has_title = any(TITLE.search(line.text) for line in lines)
    return section if section.consumed and (has_title or len(section.consumed) >= FEWEST) else None


def _record_replaced_build(section: Section, named: dict[str, str | None]) -> None:
    """The build of torch for CUDA that a build for CPUs replaces."""
    found = CUDA_BUILD.search(named.get("replaced") or "")
    if named.get("first") == "pytorch" and found and CPU_BUILD.search(named["build"] or ""):
        section.set_absent(
            "stack.torch.cuda", f"a build without CUDA (conda build {named['build']}); it replaced torch {found[0]}"
        )


def parse_conda_environment(lines: list[Line]) -> Section | None:
    """Parse the file of `conda env export`. pip installs after conda, so that its releases replace those of conda.

    ```
    dependencies:
      - python=3.8.19=h1aa4202_0
      - pytorch=2.3.0=py3.8_cuda11.8_cudnn8_0
      - pip:
          - torch==2.2.1
    ```
    """
    section = Section("conda environment file")
    of_conda: list[list[str]] = []
    is_list = False
    for line in lines:
        item = ITEM.match(line.text)
        if not item or not is_list:
            is_list = line.key == "dependencies" and not line.value
            section.consumed |= {line.number} if is_list else set()
        elif match := PINNED.match(item[2]):
            section.add_distribution(match[1], match[2])
            section.consumed.add(line.number)
        elif build := CONDA_EXPORT.match(item[2]) or EXACT.match(item[2]):
            of_conda.append([*build.groups(), (item[1] or "").rstrip(":")])
            section.consumed.add(line.number)
        elif python := CONDA_PYTHON.match(item[2]):
            section.set_fact("stack.python_version", python[1])
            section.consumed.add(line.number)
        elif item[2].startswith("pip:"):
            section.consumed.add(line.number)
    for words in of_conda:
        replaced = distribution_name(words[0]) in section.distributions
        add_conda_package(section, words[:2] if replaced else words)
    return section if len(section.distributions) >= FEWEST else None
