"""Keys of configuration files for HfArgumentParser that the dataclasses of the installed release no longer have."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text

VERSIONS = {"torch": "2.8.0", "transformers": "4.51.3", "trl": "0.16.0"}
TRL = """
from dataclasses import dataclass
from trl import SFTConfig, TrlParser
@dataclass
class Own:
    model_path: str = ""
parser = TrlParser((Own, SFTConfig))
own, training = parser.parse_args_and_config()
"""
HF = """
import sys
from transformers import HfArgumentParser, TrainingArguments
parser = HfArgumentParser((TrainingArguments,))
(training,) = parser.parse_yaml_file(sys.argv[1])
"""
DERIVED = """
import sys
from dataclasses import dataclass
import transformers
@dataclass
class Arguments(transformers.TrainingArguments):
    rank: int = 8
parser = transformers.HfArgumentParser(Arguments)
(training,) = parser.parse_yaml_file(sys.argv[1])
"""
OLD = "evaluation_strategy: steps\nlearning_rate: 1.0e-5\n"
# The program, the command, the file, and whether the release refuses it.
CASES = {
    "TRL": (TRL, "python train.py --config conf/a.yaml", OLD, True),
    "TRL with a launcher": (TRL, "accelerate launch --num_processes 2 train.py --config=conf/a.yaml", OLD, True),
    "the first argument": (HF, "python train.py conf/a.yaml", OLD, True),
    "a file that the program names": (HF.replace("sys.argv[1]", "'conf/a.yaml'"), "python train.py", OLD, True),
    "a call in a comment": (HF + "# parser.parse_yaml_file('conf/a.yaml')\n", "python train.py", OLD, False),
    "a derived class": (DERIVED, "python train.py conf/a.yaml", OLD, True),
    "the new name": (HF, "python train.py conf/a.yaml", "eval_strategy: steps\n", False),
    "a key of an own class": (
        TRL.replace("model_path", "evaluation_strategy"), "python train.py --config conf/a.yaml", OLD, False
    ),
    "a class that is not known": (
        "from other import Own\n" + HF.replace("(TrainingArguments,)", "(Own, TrainingArguments)"),
        "python train.py conf/a.yaml", OLD, False,
    ),
    "further keys are permitted": (
        HF.replace("argv[1]", "argv[1], allow_extra_keys=True"), "python train.py conf/a.yaml", OLD, False
    ),
    "TRL permits further keys": (
        TRL.replace("config()", "config(return_remaining_strings=True)"), "python train.py --config conf/a.yaml", OLD,
        False,
    ),
    "only the command line": (
        HF.replace("parse_yaml_file", "parse_known"), "python train.py conf/a.yaml", OLD, False
    ),
    "a field that a base class still has": (
        TRL.replace("SFTConfig", "GRPOConfig"), "python train.py --config conf/a.yaml",
        "per_device_train_batch_size: 2\n", False,
    ),
    "a file of another kind": (HF, "python train.py conf/a.txt", OLD, False),
}  # fmt: skip


@each_case("name", [*CASES])
def test_a_configuration_file_has_a_removed_field(name: str, tmp_path: Path) -> None:
    code, command, text, is_refused = CASES[name]
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "conf").mkdir(exist_ok=True)
    (tmp_path / "train.py").write_text(code)
    for suffix in ("yaml", "txt"):
        (tmp_path / f"conf/a.{suffix}").write_text(text)
    guide = sh("pip install torch==2.8.0 transformers trl", command)
    result = audit_text(guide, str(tmp_path / "README.md"), None, FixedSolver(FixedIndex(), VERSIONS)).result
    found = [(each.status, each.message) for each in result.findings if each.id == "RUN222"]
    assert [status for status, _ in found] == ["error"] * is_refused, found
    assert all("conf/a.yaml sets evaluation_strategy, a field of" in message for _, message in found)


def test_a_field_that_no_compared_release_before_has_names_no_release(tmp_path: Path) -> None:
    """TRL 0.11.4 has no GRPOConfig, and no older release has one."""
    (tmp_path / "conf").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("")
    (tmp_path / "conf/a.yaml").write_text("beta: 0.1\nnum_generations: 4\n")
    (tmp_path / "train.py").write_text(TRL.replace("SFTConfig", "GRPOConfig"))
    versions = {**VERSIONS, "trl": "0.11.4"}
    text = sh("pip install torch transformers trl==0.11.4", "python train.py --config conf/a.yaml")
    found = audit_text(text, str(tmp_path / "README.md"), None, FixedSolver(FixedIndex(), versions), python="3.12")
    reported = [each for each in found.result.findings if each.id == "RUN222"]
    assert reported
    assert not [each for each in reported if each.remedies or "Use trl ," in each.fix], reported
