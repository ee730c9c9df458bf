"""Activations of environments of venv that a shell on Linux does not find."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

VENV = "python3 -m venv env"
WRONG: dict[str, tuple[tuple[str, ...], str]] = {  # commands, and the correction
    "the path on Windows": (("python -m venv .venv", ".venv/Scripts/activate"), "source .venv/bin/activate"),
    "with source": (("virtualenv env", "source env/Scripts/activate"), "source env/bin/activate"),
    "with backslashes": (("virtualenv env", r"env\Scripts\activate"), "source env/bin/activate"),
    "activate of conda": ((VENV, "source activate env"), "source env/bin/activate"),
    "conda activate": ((VENV, "conda activate ./env"), "source env/bin/activate"),
    "without bin": (("uv venv env", "source env/activate"), "source env/bin/activate"),
    "without source": ((VENV, "./env/bin/activate"), "source env/bin/activate"),
    "another name": ((VENV, "source venv/bin/activate"), "source env/bin/activate"),
}
SOUND: dict[str, tuple[str, ...]] = {
    "source": (VENV, "source env/bin/activate", ". ./env/bin/activate"),
    "an environment of conda": ("conda create -n env python=3.10", "source activate env"),
    "environments of both": (VENV, "conda create -n env python=3.10", "conda activate env"),
    "both systems": (VENV, "source env/bin/activate", "env/Scripts/activate"),
    "a comment on Windows": (VENV, "# on Windows:", "env/Scripts/activate"),
    "the directory of a reader": (VENV, "source your_env/bin/activate", "source ~/env/bin/activate"),
    "another directory": ("python -m venv ../env", "source ../env/bin/activate"),
    "before it is made": ("source old/bin/activate", "deactivate", VENV),
    "a variable": ("python -m venv $NAME", "source $NAME/bin/activate"),
    "two environments": (VENV, "python -m venv other", "source other/bin/activate"),
    "a tool that creates another one": (VENV, "uv sync", "source .venv/bin/activate"),
    "options": ("python -m venv --prompt tool env", "source env/bin/activate"),
}


@each_case("name", WRONG)
def test_an_environment_is_not_activated(name: str) -> None:
    commands, correction = WRONG[name]
    (found,) = _audit(*commands)
    assert (found.status, found.line, found.fix) == ("error", 4, f"Use {correction}.")


@each_case("name", SOUND)
def test_an_environment_is_activated(name: str) -> None:
    assert _audit(*SOUND[name]) == []


def _audit(*commands: str) -> list[Finding]:
    found = audit_text(sh(*commands, "pip install torch==2.6.0"), "guide.md", None, NoSolver()).result.findings
    return [each for each in found if each.id == "RUN265"]
