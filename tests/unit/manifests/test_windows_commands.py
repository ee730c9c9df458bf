"""Commands of Windows in guides for other systems, and blocks with the name of their purpose as language."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

WRONG = {"copy .env.example .env": "cp", "py -3.10 -m venv env": "python3", "del model.pt": "rm", "move a.py b": "mv"}
SOUND: dict[str, tuple[str, ...]] = {
    "commands of Linux": ("cp .env.example .env", "mv a b", "rm c"),
    "a guide that names Windows": ("# Windows", "copy .env.example .env"),
    "other programs": ("py-spy top", "copy", "del", "del model", "move it there"),
}


@each_case("command", WRONG)
def test_a_command_that_only_windows_has(command: str) -> None:
    (found,) = _audit(sh("pip install torch==2.6.0", command))
    assert (found.status, found.line, found.fix.split()[1]) == ("error", 4, WRONG[command])
    (unmarked,) = _audit(sh("pip install torch==2.6.0", command).replace("```bash", "```"))
    assert unmarked.status == "warning"


@each_case("name", SOUND)
def test_commands_that_linux_has_or_that_are_for_windows(name: str) -> None:
    assert _audit(sh("pip install torch==2.6.0", *SOUND[name])) == []


@each_case("language", ["setup", "train", "eval", "run", "commands"])
def test_a_language_that_names_the_purpose_of_commands(language: str) -> None:
    guide = f"# A\n```{language}\npip install torch==2.6.0\ncopy a.py b\n```\n"
    assert [each.line for each in _audit(guide)] == [4]


def _audit(guide: str) -> list[Finding]:
    found = audit_text(guide, "guide.md", None, NoSolver()).result.findings
    return [each for each in found if each.id == "RUN266"]
