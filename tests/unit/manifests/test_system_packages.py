"""Packages that apt does not have in an image: RUN291."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

GL = "RUN apt-get update && apt-get install -y git \\\n    libgl1-mesa-glx \\\n    libglib2.0-0\n"
# Image, steps, and the finding: its line, a part of the message and of the fix.
CASES: dict[str, tuple[str, str, tuple[int, str, str] | None]] = {
    "a newest image of Python": ("python:3.11-slim", GL, (3, "glx in python:3.11-slim", "libgl1 instead")),
    "Ubuntu 24.04": ("nvidia/cuda:12.8.1-devel-ubuntu24.04", GL, (3, "an image of ubuntu24.04", "Install libgl1")),
    "a stage": ("python:3.12 AS base\nFROM base", GL, (4, "an image of debian13", "Install libgl1")),
    "a name that several packages provide": (
        "ubuntu:24.04", "RUN apt-get install -y curl netcat\n", (2, "no package netcat", "Install netcat-openbsd"),
    ),
    "no other name": (
        "python:3.13-slim-trixie", "RUN apt install -y software-properties-common\n", (2, "no package", "Remove it"),
    ),
    "an older image of Python": ("python:3.11-slim-bookworm", GL, None),
    "an image at a patch release": ("python:3.11.4-slim", GL, None),
    "Ubuntu 22.04": ("ubuntu:22.04", GL, None),
    "an unknown system": ("my/image:1", GL, None),
    "a source of packages": ("ubuntu:24.04", "RUN add-apt-repository -y ppa:a/b\n" + GL, None),
    "an alternative": (
        "ubuntu:24.04", "RUN apt-get install -y libgl1-mesa-glx || apt-get install -y libgl1\n", None,
    ),
    "present names": ("python:3.11-slim", "RUN apt-get install -y libgl1 libglib2.0-0 python3-dev\n", None),
}  # fmt: skip


@each_case("name", [*CASES])
def test_the_packages_of_a_system(name: str) -> None:
    image, steps, expected = CASES[name]
    text = f"FROM {image}\n{steps}RUN pip install trl==0.23.1\n"
    findings = audit_text(text, "Dockerfile", None, NoSolver()).result.findings
    found = [each for each in findings if each.id == "RUN291"]
    assert [(each.status, each.line) for each in found] == ([("error", expected[0])] if expected else [])
    if expected:
        assert expected[1] in found[0].message
        assert expected[2] in found[0].fix
