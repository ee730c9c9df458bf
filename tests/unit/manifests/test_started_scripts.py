"""Scripts of a checkout that its guides start with a shell that cannot run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests.line_corrections import correct_lines

ACTIVATES = "conda create -n sim python=3.10 -y\nconda activate sim\npip install torch==2.8.0\n"
ARRAY = "PINS=(torch==2.8.0)\npip install ${PINS[@]}\n"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts").mkdir()
    return tmp_path


def _found(path: Path, text: str, *rules: str) -> list[Finding]:
    path.write_text(text)
    return [each for each in audit_text(text, str(path), None, None).result.findings if each.id in rules]


STARTS: dict[str, tuple[str, str, list[str]]] = {  # the script, the command of the guide, and its findings
    "an activation": (ACTIVATES, "bash scripts/install.sh", ["RUN216"]),
    "a start without a shell": ("#!/bin/bash\n" + ACTIVATES, "./scripts/install.sh", ["RUN216"]),
    "syntax of bash": (ARRAY, "sh scripts/install.sh", ["RUN215"]),
    "both": (ACTIVATES + ARRAY, "sh scripts/install.sh", ["RUN215", "RUN216"]),
    "source": (ACTIVATES + ARRAY, "source scripts/install.sh", []),
    "an interactive shell": (ACTIVATES, "bash -i scripts/install.sh", []),
    "a login shell": ("#!/bin/bash -l\n" + ACTIVATES, "./scripts/install.sh", []),
    "the hook": ('eval "$(conda shell.bash hook)"\n' + ACTIVATES, "bash scripts/install.sh", []),
    "the hook in a condition": (
        "if [ -d ~/conda ]; then\n  source ~/conda/etc/profile.d/conda.sh\nfi\n" + ACTIVATES,
        "bash scripts/install.sh", [],
    ),
    "a stage that may not run": (f"if [ $1 -le 0 ]; then\n{ACTIVATES}fi\n", "bash scripts/install.sh", []),
    "bash": (ARRAY, "bash scripts/install.sh", []),
    "a here-document": (
        "python - <<EOF\nPINS=(1)\nEOF\npip install torch==2.8.0\n", "sh scripts/install.sh", [],
    ),
    "the environment of the caller": (
        "conda activate sim\npip install torch==2.8.0\n", "conda activate sim && bash scripts/install.sh", [],
    ),
    "the environment of the caller, and a script that stops": (
        "set -e\nconda activate sim\npip install torch==2.8.0\n",
        "conda activate sim\nbash scripts/install.sh", ["RUN216"],
    ),
}  # fmt: skip


@each_case("name", [*STARTS])
def test_a_guide_starts_a_script(name: str, clone: Path) -> None:
    script, command, ids = STARTS[name]
    (clone / "scripts/install.sh").write_text(script)
    found = _found(clone / "README.md", sh("pip install numpy", *command.split("\n")), "RUN215", "RUN216")
    assert [each.id for each in found] == ids


def test_the_command_is_corrected(clone: Path) -> None:
    (clone / "scripts/install.sh").write_text(ARRAY)
    text = sh("pip install numpy", "sh ./scripts/install.sh")
    found = _found(clone / "README.md", text, "RUN215")
    corrected = correct_lines(text, "guide", found).text
    assert corrected == text.replace("sh ./scripts", "bash ./scripts")
    assert not _found(clone / "README.md", corrected, "RUN215")


SCRIPTS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {  # the script, a line of the README, and the findings
    "started with bash": (ACTIVATES, "Run `bash scripts/install.sh`.", [("RUN159", "error")]),
    "started with sh": (ARRAY, "Run `sh scripts/install.sh`.", [("RUN157", "warning")]),
    "sourced": (ACTIVATES + ARRAY, "Run `source scripts/install.sh`, or `bash scripts/install.sh`.", []),
    "not named": ("#!/bin/bash\n" + ACTIVATES, "", [("RUN159", "info")]),
    "named only": (ACTIVATES + ARRAY, "See scripts/install.sh.", []),
}


@each_case("name", [*SCRIPTS])
def test_a_script_that_a_guide_starts(name: str, clone: Path) -> None:
    script, line, expected = SCRIPTS[name]
    (clone / "README.md").write_text(f"# Installation\n{line}\n")
    found = _found(clone / "scripts/install.sh", script, "RUN157", "RUN159")
    assert [(each.id, each.status) for each in found] == expected
