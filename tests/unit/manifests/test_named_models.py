"""The models that commands of a guide name need a release of transformers with their code."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.remedies import commands_of

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

MODELS = {
    "--model_name_or_path Qwen/Qwen3-8B": "qwen3",
    "--model_path=/data/Qwen3-30B-A3B": "qwen3_moe",
    "--model_path qwen3.5_9b_base": "qwen3_5",
    "--base-model google/gemma-3-4b-it": "gemma3",
    "--tokenizer Qwen/Qwen2.5-VL-7B-Instruct": "qwen2_5_vl",
    "--model openai/gpt-oss-20b": "gpt_oss",
    "--model Qwen/Qwen2.5-7B": "",
    "--model Qwen/Qwen3-TTS-12Hz": "",
    "--output_dir out/Qwen3-8B": "",
    "--model gpt-4o": "",
    "--model THUDM/glm-4-9b": "",
    "--model Qwen3-Coder": "",
    "Qwen/Qwen3-8B": "",
}


def audit(folder: Path, arguments: str, transformers: str, code: str = "import transformers\n") -> list[Finding]:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "train.py").write_text(code)
    versions = {"torch": "2.8.0", "transformers": transformers}
    text = sh("pip install torch==2.8.0 transformers", f"python train.py {arguments}")
    solver = FixedSolver(FixedIndex(IndexedRelease("chain", "1.0", "2026-10-01")), versions)
    found = audit_text(text, str(folder / "README.md"), None, solver, python="3.12").result.findings
    return [each for each in found if each.id in ("RUN078", "RUN222")]


@each_case("arguments", [*MODELS])
def test_a_model_needs_a_newer_release(arguments: str, tmp_path: Path) -> None:
    found = audit(tmp_path, arguments, "4.46.3")
    module = MODELS[arguments]
    expected = f"names a model of transformers.models.{module}, which transformers 4.46.3 does not have"
    assert [expected in each.message for each in found] == ([True] if module else [])
    assert not audit(tmp_path, arguments, "5.24.0")
    if module:
        (command,) = commands_of(found[0])
        assert command.startswith("uv pip install 'transformers>=")


CALL = "from transformers import TrainingArguments\nTrainingArguments('a', evaluation_strategy='no')\n"


@each_case(
    ("arguments", "fix"),
    [
        ("--model_path qwen3.5_9b_base", "The guide names a model of transformers.models.qwen3_5, which"),
        ("--model_path Qwen/Qwen2.5-7B", "Use transformers 4."),
    ],
)
def test_a_release_without_the_model_is_not_proposed(arguments: str, fix: str, tmp_path: Path) -> None:
    (found,) = audit(tmp_path, arguments, "5.20.2", CALL)
    assert found.id == "RUN222"
    assert found.fix.startswith(fix)
    assert bool(found.remedies) == fix.startswith("Use")
