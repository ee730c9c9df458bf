"""Calls of TRL in programs that import unsloth, and the line of a finding of an environment for later steps."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding

VERSIONS = {"torch": "2.8.0", "transformers": "4.51.3", "trl": "0.16.0", "unsloth": "2025.3.15"}
INSTALL = "pip install torch==2.8.0 transformers==4.51.3 trl==0.16.0 unsloth"
CALL = "from trl import SFTTrainer\nSFTTrainer(model=m, tokenizer=t, packing=False, max_seq_length=9, args=a)\n"


def refused(folder: Path, text: str, **files: str) -> list[Finding]:
    (folder / ".git").mkdir(exist_ok=True)
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    solver = FixedSolver(FixedIndex(), VERSIONS)
    result = audit_text(text, str(folder / "README.md"), None, solver).result
    return [each for each in result.findings if each.id == "RUN222"]


ACCEPTED = {
    "the program imports unsloth": {"train": f"from unsloth import FastLanguageModel\n{CALL}"},
    "a module of the program imports it": {"train": f"import models\n{CALL}", "models": "import unsloth\n"},
    "a field of a config": {"train": "import unsloth\nfrom trl import SFTConfig\nSFTConfig(dataset_batch_size=1)\n"},
}


@each_case("name", list(ACCEPTED))
def test_unsloth_accepts_arguments_of_older_releases(name: str, tmp_path: Path) -> None:
    assert not refused(tmp_path, sh(INSTALL, "python train.py"), **ACCEPTED[name])


REFUSED = {
    "without unsloth": CALL,
    "unsloth for one choice only": f"import sys\nif '--fast' in sys.argv:\n    import unsloth\n{CALL}",
    "without a config": "import unsloth\nfrom trl import SFTTrainer\nSFTTrainer(model=m, packing=False)\n",
    "a class of transformers": (
        "import unsloth, transformers\ntransformers.TrainingArguments('out', evaluation_strategy='no')\n"
    ),
}


@each_case("name", list(REFUSED))
def test_other_calls_are_refused(name: str, tmp_path: Path) -> None:
    assert refused(tmp_path, sh(INSTALL, "python train.py"), train=REFUSED[name])


def test_unsloth_in_the_code_of_a_guide_accepts_the_arguments(tmp_path: Path) -> None:
    text = f"{sh(INSTALL)}\n```python\nimport unsloth\n{CALL}```\n"
    assert not refused(tmp_path, text)


def test_the_line_is_that_of_the_step_where_the_program_starts_in_an_environment_before_it(tmp_path: Path) -> None:
    first = sh("uv venv", "uv pip install trl==0.12.2 transformers==4.46.3", "python train.py")
    text = f"{first}\nOr with today's releases:\n\n{sh('uv venv', INSTALL)}"
    found = refused(tmp_path, text, train=CALL)
    assert [each.line for each in found] == [text.splitlines().index(INSTALL) + 1]
