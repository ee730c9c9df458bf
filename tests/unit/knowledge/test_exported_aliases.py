"""Names that transformers exports by `__all__` of a model file, without a class of this name."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.knowledge_check import library_members
from envdoctor.manifests import audit_guide

EXPORTED = (
    "BartTokenizer", "MobileBertTokenizer", "MODEL_FOR_CAUSAL_LM_MAPPING", "CONFIG_MAPPING", "T5TokenizerFast",
)  # fmt: skip
GONE = ("MT5TokenizerFast", "BartOnnxConfig", "FLAX_MODEL_FOR_CAUSAL_LM_MAPPING")


def reported(name: str) -> list[str]:
    text = sh("pip install transformers==5.24.0") + f"\n```python\nfrom transformers import {name}\n```\n"
    return [each.message for each in audit_guide(text, name="guide.md").findings if each.id in ("RUN077", "RUN078")]


@each_case("name", EXPORTED)
def test_a_name_that_transformers_5_exports(name: str) -> None:
    assert reported(name) == []


@each_case("name", GONE)
def test_a_name_that_is_gone(name: str) -> None:
    assert len(reported(name)) == 1


def test_exported_names_of_model_files_are_members() -> None:
    text = 'from .r import R as _R\n\nBartTokenizer = _R\n__all__ = [\n    "BartTokenizer",\n    "BartModel"\n]\n'
    found = library_members.read_members("transformers", [("models/bart/tokenization_bart.py", text)])
    assert {"BartTokenizer", "BartModel"} <= found.model_names
