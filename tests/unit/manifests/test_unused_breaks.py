"""A break that only some programs meet is a note, where the checkout has no such program."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from msgspec.structs import replace
from support.cases import each_case
from support.text_files import uv_lock

from envdoctor.commands.audit_file import audit_file
from envdoctor.core.records import Evidence, Finding
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.unused_breaks import lower_unused
from envdoctor.resolution.step import NoSolver

OLD_ACCELERATE = "transformers==4.53.3\naccelerate==0.34.2\n"
OLD_TRL = "trl==0.9.6\ntransformers==4.46.3\n"
TRL = "trl==0.26.0\ntransformers==5.4.0\n"
RAY = "ray==2.49.2\nclick==8.3.0\n"
TENSORBOARD = "torch==1.10.1\ntensorboard==2.11.2\nsetuptools==60.9.3\n"
LOCK = uv_lock({"accelerate": "0.34.2", "transformers": "4.53.3"})


@each_case(
    ("manifest", "rule", "files", "status"),
    [
        (OLD_ACCELERATE, "HF006", {"train.py": "loss.backward()  # Trainer settings\n"}, "info"),
        (OLD_ACCELERATE, "HF006", {"own.py": "class Mine(transformers.Trainer):\n    pass\n"}, "error"),
        (OLD_ACCELERATE, "HF006", {"train.py": "from transformers import Seq2SeqTrainer\n"}, "error"),
        (
            OLD_ACCELERATE,
            "HF006",
            {"train.py": "from transformers import (\n    AutoModel,\n    Trainer,\n)\n"},
            "error",
        ),
        (
            OLD_ACCELERATE,
            "HF006",
            {"own.py": "from transformers import AutoModel\nclass Trainer: ...\nTrainer()\n"},
            "info",
        ),
        (OLD_TRL, "HF016", {"train.py": "from trl import SFTTrainer\n"}, "info"),
        (OLD_TRL, "HF016", {"train.py": "from trl import DPOTrainer\n"}, "warning"),
        (TRL, "HF001", {"train.py": "from trl import SFTTrainer\n"}, "info"),
        (TRL, "HF001", {"train.py": "from trl import GRPOConfig\n"}, "error"),
        (OLD_ACCELERATE, "HF006", {"train.ipynb": "from trl import SFTConfig"}, "error"),
        (OLD_ACCELERATE, "HF006", {"run.sh": "python -m llamafactory.cli\n", "a.py": ""}, "error"),
        (OLD_ACCELERATE, "HF006", {}, "error"),  # the programs are not there
        (RAY, "RAY001", {"train.py": "import ray\nray.init()\n"}, "info"),
        (RAY, "RAY001", {"train.py": "import ray\n", "start.sh": "ray start --head\n"}, "warning"),
        (TENSORBOARD, "PKG072", {"train.py": "import torch\n"}, "info"),
        (TENSORBOARD, "PKG072", {"train.py": "from torch.utils.tensorboard import SummaryWriter\n"}, "warning"),
        (LOCK, "HF006", {"train.py": "import torch\n"}, "info"),
        (LOCK, "HF006", {"train.py": "from transformers import Trainer\n"}, "error"),
    ],
)
def test_a_break_is_a_note_without_a_program_that_meets_it(
    manifest: str, rule: str, files: dict[str, str], status: str, tmp_path: Path
) -> None:
    root = Path(mkdtemp(dir=tmp_path))
    for name, text in {**files, "README.md": "# A project\n", "setup.cfg": "[metadata]\nname = a\n"}.items():
        (root / name).write_text(text)
    path = root / ("uv.lock" if manifest == LOCK else "requirements.txt")
    path.write_text(manifest)
    python = "3.9" if rule == "PKG072" else "3.10"
    found = audit_file(str(path), None, NoSolver(), python=python).result.findings
    named = [each for each in found if rule in (each.id, *(item.fact for item in each.evidence))]
    assert [each.status for each in named] == [status]
    assert ("(no program of the checkout uses it)" in named[0].message) is (status == "info")


def test_a_finding_with_a_further_break_stays(tmp_path: Path) -> None:
    """transformers is too new for accelerate, which only some programs meet, and for torch, which all of them do."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("import transformers\n")
    checkout = Checkout(tmp_path)
    facts = [Evidence(rule, "text", "table") for rule in ("HF006", "PKG008")]
    finding = Finding("RUN003", "library-too-old", "error", "message", tuple(facts))
    (lowered,) = lower_unused(checkout, [replace(finding, evidence=tuple(facts[:1]))])
    assert lowered.status == "info"
    assert lower_unused(checkout, [finding]) == [finding]
