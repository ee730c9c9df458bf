"""The release of a library that accepts all arguments of a guide's code is proposed, and is part of the set."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests import CorrectedSet
from envdoctor.resolution.index_facts import IndexedRelease

VERSIONS = {"torch": "2.15.0", "transformers": "5.24.0", "trl": "1.16.0", "peft": "0.21.2"}
ARGUMENTS = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments({})\n"
RATIO, BY_LENGTH = "    warmup_ratio=0.03,\n", "    group_by_length=True,\n"
NEWER = "    train_sampling_strategy='random',\n"
DPO = "from trl import DPOConfig\nargs = DPOConfig(\n    max_prompt_length=512,\n    bf16=True,\n)\n"


def audit(folder: Path, code: str, packages: str, required: str = "") -> tuple[list[Finding], CorrectedSet]:
    (folder / "train.py").write_text("import transformers\n")
    text = sh(f"pip install {packages}") + f"\n```python\n{code}```\n"
    index = FixedIndex(IndexedRelease("chain", "1.0", "2026-10-01"))
    index.requirements = {"peft 1.0": [required]} if required else {}
    versions = VERSIONS | ({"peft": "1.0"} if required else {})
    audited = audit_text(text, str(folder / "README.md"), None, FixedSolver(index, versions), python="3.12").audit
    assert audited
    return [each for each in audited.findings if each.id == "RUN070"], audited.sets[0]


def multiline(arguments: str) -> str:
    return ARGUMENTS.replace("{}", f"\n{arguments}")


PROPOSED = {
    "one argument": (multiline(RATIO), "transformers torch", "transformers==5.14.1"),
    "two of different releases": (multiline(RATIO + BY_LENGTH), "transformers torch", "transformers==5.1.0"),
    "a range that has it": (multiline(RATIO), "'transformers>=5.1' torch", "transformers==5.14.1"),
    "another package": (DPO, "trl transformers", "trl==0.28.0"),
}


@each_case("name", [*PROPOSED])
def test_a_release_accepts_all_arguments(name: str, tmp_path: Path) -> None:
    code, packages, pin = PROPOSED[name]
    found, corrected = audit(tmp_path, code, packages)
    assert found
    assert {each.fix for each in found} == {f"Leave it out, or use {pin}."}
    assert {each.remedies[0].commands for each in found} == {(f"uv pip install {pin}",)}
    assert pin in corrected.requirements


NOT_PROPOSED = {
    "a pin": (multiline(RATIO), "transformers==5.24.0 torch"),
    "a range without it": (multiline(RATIO), "'transformers>=5.20' torch"),
    "a dependency": (multiline(RATIO), "trl torch"),
    "an argument of newer releases": (multiline(BY_LENGTH + NEWER), "transformers torch"),
    "a name of newer releases": (
        multiline(BY_LENGTH).replace("Trainer,", "AutoExportConfig, Trainer,"), "transformers torch"
    ),
}  # fmt: skip


@each_case("name", [*NOT_PROPOSED])
def test_no_release_is_proposed(name: str, tmp_path: Path) -> None:
    code, packages = NOT_PROPOSED[name]
    found, corrected = audit(tmp_path, code, packages)
    assert found or name == "a dependency"
    assert not [each.remedies for each in found if each.remedies]
    assert not {"transformers==5.14.1", "transformers==5.1.0"} & set(corrected.requirements)


def test_a_package_excludes_the_release(tmp_path: Path) -> None:
    found, _ = audit(tmp_path, multiline(RATIO), "transformers peft torch", required="transformers>=5.20")
    assert [each.remedies for each in found] == [()]
    assert [each.fix for each in found] == ["Leave it out, or use transformers<=5.14.1."]


def test_a_program_uses_the_package_as_well(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    code = multiline(RATIO) + "```\n```bash\npython train.py\n"
    found, _ = audit(tmp_path, code, "transformers torch")
    assert [each.remedies for each in found] == [()]


def test_accepted_arguments(tmp_path: Path) -> None:
    for arguments in ("    bf16=True,\n", NEWER, "    learning_rate=1e-4,\n"):
        assert not audit(tmp_path, multiline(arguments), "transformers torch")[0]
