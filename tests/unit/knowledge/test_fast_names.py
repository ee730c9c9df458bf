"""The names that transformers 5 has without `Fast` and finds with it: imported with 5.0.0, 5.17.0 and 5.20.2."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.program_imports import audit_imports

from envdoctor.knowledge.imports import broken_imports, spans_of_name
from envdoctor.knowledge.modules import spans_of_module_name

NAMES = {  # whether transformers 5.20.2 has it
    "GPT2TokenizerFast": True,
    "T5TokenizerFast": True,
    "LlamaTokenizerFast": True,
    "ViTImageProcessorFast": True,
    "MT5TokenizerFast": False,
    "ViTFeatureExtractor": False,
    "AdamW": False,
}


@each_case("name", [*NAMES])
def test_names_that_transformers_finds_by_another_one(name: str) -> None:
    spans = (*spans_of_module_name("transformers", name), *spans_of_name("transformers", name))
    assert all(each.can_be_in("5.20.2") for each in spans) is NAMES[name]
    assert all(each.can_be_in("4.48.3") for each in spans)


def test_a_package_that_imports_such_a_name() -> None:
    found = broken_imports({"transformers": "5.20.2", "flair": "0.15.1"})
    assert not [each.name for each in found if each.name.endswith("TokenizerFast")]


@each_case("name", [*NAMES])
def test_a_program_that_uses_such_a_name(name: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "run.py").write_text(f"import transformers\nKINDS = (transformers.{name},)\n")
    text = sh("pip install transformers==5.20.2", "python run.py")
    assert bool(audit_imports(tmp_path / "README.md", text, transformers="5.20.2")) is not NAMES[name]
