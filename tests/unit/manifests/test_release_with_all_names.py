"""A command on a name of a program installs a release that has all names which the programs use of the package."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

IMPORT = "import bitsandbytes as bnb\nimport torch.nn as nn\n"
VERSIONS = {"torch": "2.8.0", "bitsandbytes": "0.50.2", "transformers": "4.57.6"}
BASE = "from transformers import PreTrainedModel\nclass Base(PreTrainedModel): ...\n"
HOOK = "def prepare_inputs_for_generation(self, ids): ..."
MODEL = f"class Model(Base):\n    {HOOK}\n"
MIXIN = (
    "from transformers import GenerationMixin, PreTrainedModel\n"
    f"class Model(PreTrainedModel, GenerationMixin):\n    {HOOK}\n"
)
CAPTION = (
    "class Caption:\n    def run(self):\n        self.decoder = Model()\n"
    "        return self.decoder.generate(1)\nCaption().run()\n"
)
RUN = "model = Model()\nmodel.generate(1)\n"


def audit(folder: Path, code: str, transformers: str = "4.57.6", lightning: str = "2.6.6") -> list[Finding]:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "train.py").write_text(code)
    versions = VERSIONS | {"transformers": transformers, "pytorch-lightning": lightning}
    text = sh("pip install torch bitsandbytes transformers pytorch-lightning", "python train.py")
    solver = FixedSolver(FixedIndex(IndexedRelease("chain", "1.0", "2026-10-01")), versions)
    found = audit_text(text, str(folder / "README.md"), None, solver, python="3.12").result.findings
    return [each for each in found if each.id == "RUN078"]


def test_no_release_has_all_names(tmp_path: Path) -> None:
    (found,) = audit(tmp_path, f"{IMPORT}print(bnb.nn.Linear4bit)\nprint(bnb.nn.Linear8bit)")
    assert not found.remedies
    assert found.fix == (
        "bitsandbytes 0.35.0 has it, but not bitsandbytes.nn.Linear4bit, which the programs use as well: "
        "change the code."
    )
    (found,) = audit(tmp_path, f"{IMPORT}print(bnb.nn.Linear8bit, bnb.nn.Linear8bitLt, bnb.optim.Adam8bit)")
    assert found.fix == "Use bitsandbytes==0.35.0, which has it."


LIGHTNING = "import pytorch_lightning as pl\nfrom pytorch_lightning.loggers import LightningLoggerBase\n"
CLASS_OF_BAR = "class Bar(pl.callbacks.progress.ProgressBar): ...\nBar()\n"
OLDER_RELEASES = {
    "of the removed name": (LIGHTNING, "1.8.6"),
    "of a name that came back": (LIGHTNING + "print(pl.callbacks.progress.ProgressBar)\n", "1.6.5.post0"),
    "of the base of a class": (LIGHTNING + CLASS_OF_BAR, "1.6.5.post0"),
    "of a decorator": (
        "import pytorch_lightning as pl\n@pl.utilities.distributed.rank_zero_only\ndef save(): ...\nsave()\n", "1.9.5"
    ),
}  # fmt: skip


@each_case("name", [*OLDER_RELEASES])
def test_an_older_release_has_all_names(name: str, tmp_path: Path) -> None:
    code, version = OLDER_RELEASES[name]
    (found,) = audit(tmp_path, code, lightning="2.6.6")
    assert found.fix == f"Use pytorch-lightning=={version}, which has it."
    assert not audit(tmp_path, code, lightning="1.6.5.post0")


def test_bases_that_all_releases_have(tmp_path: Path) -> None:
    assert not audit(tmp_path, f"import pytorch_lightning as pl\n{CLASS_OF_BAR}", lightning="2.6.6")
    guarded = (
        "import pytorch_lightning as pl\nif hasattr(pl, 'B'):\n    class B(pl.loggers.LightningLoggerBase): ...\n"
    )
    assert not audit(tmp_path, guarded, lightning="2.6.6")
    assert not audit(tmp_path, "class Own(list): ...\nOwn()\n", lightning="2.6.6")


CLASSES = {
    "without a base that generates": (BASE + MODEL + RUN, True),
    "an object in a method": (BASE + MODEL + CAPTION, True),
    "of a model of transformers": (
        BASE.replace("PreTrainedModel", "BertPreTrainedModel") + MODEL + RUN, True
    ),
    "with the mixin": (MIXIN + RUN, False),
    "with its own method": (BASE + MODEL + "    def generate(self, ids): ...\n" + RUN, False),
    "a base of its own kind": (BASE.replace("(PreTrained", "(Unknown, PreTrained") + MODEL + RUN, False),
    "of a class that generates": (
        f"from transformers import LlamaForCausalLM\nclass Model(LlamaForCausalLM):\n    {HOOK}\n{RUN}", False
    ),
    "no call": (BASE + MODEL + "Model()\n", False),
    "an encoder": (BASE + "class Model(Base): ...\n" + RUN, False),
    "nothing uses it": (BASE + MODEL + "pipe = print\npipe.generate(1)\n", False),
}  # fmt: skip


@each_case("name", [*CLASSES])
def test_a_class_relies_on_a_base_that_no_longer_generates(name: str, tmp_path: Path) -> None:
    code, is_reported = CLASSES[name]
    found = audit(tmp_path, code)
    assert ["transformers.PreTrainedModel.generate, which transformers 4.57.6" in each.message for each in found] == (
        [True] if is_reported else []
    )
    assert [each.remedies[0].commands for each in found] == [("uv pip install transformers==4.51.3",)] * is_reported
    assert not audit(tmp_path, code, transformers="4.51.3")
