"""Files that sentences of a guide name with another spelling, and paths of Windows in blocks for bash."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

FILES = {
    "tts/configs/fast.yaml": "a: 1\n", "tts/configs/slow.yaml": "a: 1\n", "scripts/evaluate_model.py": "\n",
    "conf/train1.yaml": "\n", "train.py": "\n", ".git/HEAD": "\n",
}  # fmt: skip


def _found(root: Path, sentence: str, rule: str = "RUN259") -> list[Finding]:
    write_files(root, FILES)
    text = sh("pip install torch==2.6.0") + f"\n{sentence}\n"
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, NoSolver()).result.findings
    return [each for each in found if each.id == rule]


@each_case("sentence, nearest", [
    ("Feel free to change `tts/config/fast.yaml`.", "tts/configs/fast.yaml"),
    ("Edit the learning rate in `./tts/config/slow.yaml` first.", "tts/configs/slow.yaml"),
    ("To score the model, run `scripts/evalute_model.py`.", "scripts/evaluate_model.py"),
    ("You can refer to ```tts/config/fast.yaml``` for an example.", "tts/configs/fast.yaml"),
    ("Please see `script/evaluate_model.py` for the options.", "scripts/evaluate_model.py"),
])  # fmt: skip
def test_a_sentence_names_a_file_that_is_not_there(sentence: str, nearest: str, tmp_path: Path) -> None:
    (found,) = _found(tmp_path, sentence)
    assert found.message.endswith(f"is not in the checkout; {nearest} is")
    assert found.status == "warning"


@each_case("sentence", [
    "Edit `tts/configs/fast.yaml`.", "Edit `configs/fast.yaml`.", "The old `tts/config/fast.yaml` was renamed.",
    "Create `tts/config/fast.yaml` and edit it.", "`tts/config/fast.yaml` holds the settings.",
    "Edit `conf/train2.yaml`.", "Edit `other/place/fast.yaml`.", "Results are saved: see `tts/config/fast.yaml`.",
    "Edit `tts/config/fast.yaml` or `tts/configs/fast.yaml`.", "Run `path/to/evaluate_model.py`.",
])  # fmt: skip
def test_a_sentence_that_is_right_or_not_certain(sentence: str, tmp_path: Path) -> None:
    assert _found(tmp_path, sentence) == []


@each_case("language, line, is_found", [
    ("sh", r"ESPEAK=C:\Program Files\eSpeak\lib.dll", True),
    ("bash", r"export CUDA_HOME=C:\cuda", True),
    ("bash", r"$ DATA=D:\data\train", True),
    ("bash", r'export CUDA_HOME="C:\Program Files\cuda"', False),
    ("bash", "export CUDA_HOME=/usr/local/cuda", False),
    ("powershell", r"$ESPEAK=C:\eSpeak", False),
    ("cmd", r"set ESPEAK=C:\eSpeak", False),
    ("bash", r"export PATTERN=a:\w+ # a pattern", False),
])  # fmt: skip
def test_a_path_of_windows(language: str, line: str, is_found: bool, tmp_path: Path) -> None:
    found = _found(tmp_path, f"```{language}\n{line}\n```", "RUN258")
    assert bool(found) is is_found
    assert all(("blank" in each.message) is (" F" in line) for each in found)
