"""Errors that name an argument or an attribute without its class, and objects that pickle cannot restore.

Python 3.9 and older print `__init__()` alone. Sources: github.com/instructlab/instructlab/issues/2542,
JonasSchult/Mask3D/issues/188, xyjigsaw/Text2Graph/issues/1, huggingface/transformers/issues/45850,
kijai/ComfyUI-Florence2/issues/199 (2026-11-28).
"""

from __future__ import annotations

from support.cases import each_case
from support.explained import explain_text

from envdoctor.explain.name_errors import name_error_symptoms
from envdoctor.explain.searches import Hit


def causes_of(text: str, versions: dict[str, str]) -> list[str]:
    return [symptom.cause for symptom in name_error_symptoms([Hit("x", 1, text, {})], versions)]


def without_class(argument: str) -> str:
    return f"TypeError: __init__() got an unexpected keyword argument '{argument}'"


def of_trainer(argument: str) -> str:
    return f"TypeError: Trainer.__init__() got an unexpected keyword argument '{argument}'"


@each_case(
    ("text", "versions", "causes"),
    [
        (without_class("dispatch_batches"), {}, ["library-too-new"]),
        (without_class("dispatch_batches"), {"accelerate": "0.34.2"}, []),
        (without_class("progress_bar_refresh_rate"), {}, ["library-too-new"]),
        (without_class("progress_bar_refresh_rate"), {"pytorch_lightning": "1.6.5"}, []),
        (of_trainer("weights_save_path"), {}, ["library-too-new"]),
        (of_trainer("weights_save_path"), {"pytorch_lightning": "1.7.7"}, []),
        (of_trainer("distributed_backend"), {"pytorch_lightning": "1.5.0"}, ["library-too-new"]),
        (of_trainer("checkpoint_callback"), {"pytorch_lightning": "2.0.0"}, ["library-too-new"]),
        # Names that a program can have given to an argument of its own class.
        (without_class("hidden_size"), {}, []),
        (without_class("num_classes"), {}, []),
        (without_class("prefix"), {}, []),
        (without_class("num_layers_per_block"), {}, []),
    ],
)
def test_an_argument_that_only_one_class_had_names_it(text: str, versions: dict[str, str], causes: list[str]) -> None:
    assert causes_of(text, versions) == causes


@each_case(
    ("name", "module", "causes"),
    [
        ("T5DenseReluDense", "transformers.models.t5.modeling_t5", ["transformers-too-new"]),
        ("MyNet", "__main__", []),
        ("Model", "models.common", []),
        ("Linear", "torch.nn.modules.linear", []),
    ],
)
def test_an_object_of_a_class_that_its_module_lacks(name: str, module: str, causes: list[str]) -> None:
    text = f"AttributeError: Can't get attribute '{name}' on <module '{module}' from '/venv/{module}.py'>"
    assert causes_of(text, {}) == causes
    assert [cause.cause for cause in explain_text(text).causes] == causes


@each_case(
    ("text", "is_known"),
    [
        ("'BertConfig' object has no attribute 'pad_token_id'", True),
        ("'Florence2LanguageConfig' object has no attribute 'forced_bos_token_id'", True),
        ("'InternLMConfig' object has no attribute 'bos_token_id'", True),
        ("'XcodecConfig' object has no attribute 'is_decoder'", True),
        ("'BertTokenizer' object has no attribute 'encode_plus'", True),
        ("MBartTokenizerFast has no attribute prepare_seq2seq_batch. Did you mean: 'prepare_for_batch'?", True),
        ("'TrainConfig' object has no attribute 'save_every'", False),
        ("'LoraConfig' object has no attribute 'max_length'", False),
        ("'MyTokenizer' object has no attribute 'vocab_path'", False),
        ("'Namespace' object has no attribute 'pad_token_id'", False),
    ],
)
def test_what_the_classes_of_transformers_5_no_longer_set(text: str, is_known: bool) -> None:
    causes = explain_text(f"AttributeError: {text}").causes
    assert [cause.cause for cause in causes][:1] == (["transformers-too-new"] if is_known else [])
