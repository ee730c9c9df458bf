"""Commands for an older release of a package that the code of a checkout is written for."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import StepProblem, StepSolution

VERSIONS = {"torch": "2.8.0", "transformers": "5.5.4", "peft": "0.18.0", "rich": "14.1.0"}
CODE = "import rich\nfrom transformers import TrainingArguments\nTrainingArguments('out', evaluation_strategy='no')\n"


class OlderPeft(FixedSolver):
    """transformers 5 requires rich, and an older transformers an older peft."""

    peft = "0.17.1"

    def __call__(self, problem: StepProblem) -> StepSolution:
        """The packages, those of the release of transformers that the step names."""
        is_old = any(each.name == "transformers" and each.pin for each in problem.requirements)
        self.versions = {**VERSIONS, **({"transformers": "4.50.3", "peft": self.peft} if is_old else {})}
        self.required, self.requiring = ["rich"], () if is_old else ("transformers",)
        return super().__call__(problem)


class AncientPeft(OlderPeft):
    """The solver goes back to a release without bounds."""

    peft = "0.3.0"


@each_case(
    "install, solver, command, fix",
    [
        ("torch transformers", OlderPeft, "transformers==4.50.3 rich", "Use transformers 4.50.3"),
        ("torch transformers rich", OlderPeft, "transformers==4.50.3", "Use transformers 4.50.3"),
        ("torch transformers peft", OlderPeft, "transformers==4.50.3 peft==0.17.1 rich", "Use transformers 4.50.3"),
        ("torch transformers peft", AncientPeft, "", "With it, the step gets peft 0.3.0 of 2023-05-03."),
        ("torch 'transformers>=5.1'", OlderPeft, "", "Line 4 excludes it: transformers>=5.1."),
    ],
)
def test_an_older_release_fits_the_rest_of_its_step(
    install: str, solver: type[OlderPeft], command: str, fix: str, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "train.py").write_text(CODE)
    text = sh("uv venv --python 3.12", f"uv pip install {install}", "python train.py")
    result = audit_text(text, str(tmp_path / "README.md"), None, solver(FixedIndex(), VERSIONS)).result
    (found,) = [each for each in result.findings if each.id == "RUN222"]
    assert fix in found.fix
    assert [each.commands for each in found.remedies] == ([(f"uv pip install {command}",)] if command else [])
