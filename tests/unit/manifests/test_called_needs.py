"""Packages and data that calls of programs need, and that no step of the guide brings."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

LOAD = "AutoModel.from_pretrained('a', device_map='auto')\n"
MODEL = f"from transformers import AutoModel\nmodel = {LOAD}"
VERSIONS = {"torch": "2.8.0", "transformers": "4.57.6", "pandas": "2.2.3", "nltk": "3.9.1", "spacy": "3.8.7"}
INSTALL = "pip install torch==2.8.0 transformers==4.57.6 pandas==2.2.3 nltk==3.9.1 spacy==3.8.7"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def _audit(folder: Path, files: dict[str, str], *commands: str, **versions: str) -> list[Finding]:
    write_files(folder, files)
    index = FixedIndex(*(IndexedRelease(name, "1.0", "2026-10-01") for name in ("chain",)))
    solver = FixedSolver(index, {**VERSIONS, **versions})
    text = sh(INSTALL, *commands)
    (folder / "README.md").write_text(text)
    found = audit_text(text, str(folder / "README.md"), None, solver, python="3.12").result.findings
    for name in files:
        (folder / name).unlink()
    return [each for each in found if each.id in ("RUN224", "RUN225")]


NEEDED: dict[str, tuple[dict[str, str], str]] = {  # files, and a part of the message
    "at the top": (
        {"train.py": MODEL}, "train.py:2 calls transformers.AutoModel.from_pretrained(device_map='auto')",
    ),
    "in main": (
        {"train.py": f"import transformers\ndef main():\n    transformers.{LOAD}"
                     "if __name__ == '__main__':\n    main()\n"},
        "which needs accelerate, and no step installs it",
    ),
    "in another file": (
        {"train.py": "from models.load import build\nbuild()\n", "models/load.py": f"{MODEL}def build(): pass\n"},
        "models/load.py:2",
    ),
    "in a class of another file": (
        {"train.py": "from load import Model\nmodel = Model()\nmodel.read()\n",
         "load.py": f"from transformers import AutoModel\nclass Model:\n    def read(self):\n        {LOAD}"},
        "load.py:4",
    ),
    "a method": (
        {"train.py": "import pandas as pd\ntable = pd.DataFrame()\nprint(table.to_markdown())\n"},
        "which needs tabulate",
    ),
    "below a base class": (
        {"train.py": "from transformers import Trainer\nclass Own(Trainer):\n    pass\nOwn()\n"}, "needs accelerate",
    ),
}  # fmt: skip


MODES = """
import argparse
import pandas as pd
from transformers import AutoModel
def main(args):
    if args.mode == "large":
        model = AutoModel.from_pretrained("a", device_map="auto")
    elif not args.small:
        table = pd.DataFrame()
        table.to_markdown()
parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="base")
parser.add_argument("--small", action="store_true")
args = parser.parse_args()
main(args)
"""


@each_case(("arguments", "needed"), [
    ("", "tabulate"), ("--small", ""), ("--mode large", "accelerate"), ("--mode=large --small", "accelerate"),
    ("--mode $MODE", ""), ("--mode small ...", ""),
])  # fmt: skip
def test_a_call_under_a_condition_on_an_option(arguments: str, needed: str, checkout: Path) -> None:
    found = _audit(checkout, {"train.py": MODES}, f"python train.py {arguments}")
    assert [each.message.split("needs ")[1].split(",")[0] for each in found] == ([needed] if needed else [])


@each_case("change", [
    ("args.mode == ", "args.size == "), ("main(args)\n", "args.small = args.mode\nmain(args)\n"),
    ("parser.parse_args()", "Settings()"), ("main(args)\n", "args = with_args(args)\nmain(args)\n"),
    ("args = parser", "parser.set_defaults(small=True)\nargs = parser"),
])  # fmt: skip
def test_a_condition_that_options_do_not_decide(change: tuple[str, str], checkout: Path) -> None:
    old, new = change
    assert not _audit(checkout, {"train.py": MODES.replace(old, new)}, "python train.py")


@each_case(("command", "is_found"), [
    ("accelerate launch --use_deepspeed --num_processes 2 train.py", True),
    ("accelerate launch --config_file two_gpus.yaml train.py", True),
    ("accelerate launch --config_file=plain.yaml train.py", False),
    ("accelerate launch train.py --use_deepspeed", False),
])  # fmt: skip
def test_accelerate_starts_deepspeed(command: str, is_found: bool, checkout: Path) -> None:
    files = {"train.py": "import torch\n", "two_gpus.yaml": "distributed_type: DEEPSPEED\n", "plain.yaml": "a: 1\n"}
    found = _audit(checkout, files, "pip install accelerate==1.15.0", command, accelerate="1.15.0")
    assert ["needs deepspeed" in each.message for each in found] == [True] * is_found


@each_case("name", [*NEEDED])
def test_a_call_needs_a_package(name: str, checkout: Path) -> None:
    files, message = NEEDED[name]
    (found,) = _audit(checkout, files, "python train.py")
    assert (found.id, found.status, found.line) == ("RUN224", "error", 4)
    assert message in found.message


@each_case(("release", "is_found"), [("4.36.2", True), ("4.57.6", False)])
def test_a_class_of_the_checkout_uses_flash_attention(release: str, is_found: bool, checkout: Path) -> None:
    files = {
        "train.py": "import transformers\nfrom own import Model\nchosen = [Model][0]\n"
        "chosen.from_pretrained('a', use_flash_attention_2=True)\n",
        "own.py": "from transformers import PreTrainedModel\nclass Model(PreTrainedModel): pass\n",
    }
    install = f"pip install transformers=={release}"
    found = _audit(checkout, files, install, "python train.py", transformers=release)
    assert ["needs flash-attn" in each.message for each in found] == [True] * is_found


GYM = "import gymnasium as gym\nfrom argparse import ArgumentParser\nparser = ArgumentParser()\n"
WALK = f"{GYM}parser.add_argument('--env-name', type=str, default='LunarLander-v3')\nargs = parser.parse_args()\n"


def test_an_environment_that_an_option_names(checkout: Path) -> None:
    files = {"train.py": f"{WALK}env = gym.make(args.env_name)\n"}
    gym = "pip install gymnasium==1.4.0"
    (found,) = _audit(checkout, files, gym, "python train.py", gymnasium="1.4.0")
    assert "which needs box2d or box2d-py, and no step installs it" in found.message
    (other,) = _audit(checkout, files, gym, "python train.py --env-name Ant-v5", gymnasium="1.4.0")
    assert "which needs mujoco" in other.message
    assert _audit(checkout, files, gym, "python train.py --env-name=CartPole-v1", gymnasium="1.4.0") == []


DATASET = "import torchaudio\nclass Own(torchaudio.datasets.LJSPEECH):\n    pass\nOwn('a')\n"


def test_a_dataset_of_torchaudio_needs_a_decoder(checkout: Path) -> None:
    def needed(program: str, release: str) -> list[str]:
        install = f"pip install torchaudio=={release}"
        found = _audit(checkout, {"train.py": program}, install, "python train.py", torchaudio=release)
        return [each.message for each in found]

    assert ["needs torchcodec" in each for each in needed(DATASET, "2.9.0")] == [True]
    assert not needed(DATASET, "2.8.0")
    assert not needed(DATASET.replace("LJSPEECH", "CMUDict"), "2.9.0")
    assert not needed(f"import torchcodec\n{DATASET}", "2.9.0")


SOUND: dict[str, dict[str, str]] = {
    "no device map": {"train.py": MODEL.replace("'auto'", "None")},
    "a condition": {"train.py": f"from transformers import AutoModel\nimport sys\nif sys.argv:\n    {LOAD}"},
    "after a return": {
        "train.py": f"from transformers import AutoModel\ndef main(a):\n    if a: return\n    {LOAD}\nmain(1)\n"
    },
    "a handler": {"train.py": f"from transformers import AutoModel\ntry:\n    {LOAD}except Exception:\n    pass\n"},
    "a function that is not used": {"train.py": f"from transformers import AutoModel\ndef build():\n    {LOAD}"},
    "a class of the checkout": {
        "train.py": f"from load import AutoModel\n{LOAD}",
        "load.py": "class AutoModel: pass\n",
    },
    "a module that the program does not load": {"train.py": "import torch\n", "other.py": MODEL},
    "a lambda": {"train.py": f"from transformers import AutoModel\nbuild = lambda: {LOAD}"},
    "a method of another library": {"train.py": "import torch\ntable = torch.load('a')\ntable.to_markdown()\n"},
    "a guide that names the package": {"train.py": MODEL, "INSTALL.md": "# Installation\nInstall accelerate.\n"},
}


@each_case("name", [*SOUND])
def test_calls_that_need_nothing(name: str, checkout: Path) -> None:
    assert not _audit(checkout, SOUND[name], "python train.py")


def test_a_step_brings_the_package(checkout: Path) -> None:
    assert not _audit(checkout, {"train.py": MODEL}, "pip install accelerate", "python train.py", accelerate="1.0")


def test_a_part_of_the_environment_is_not_read(checkout: Path) -> None:
    (found,) = _audit(checkout, {"train.py": MODEL}, "conda install numba", "python train.py")
    assert found.status == "unknown"
    assert found.remedies[0].commands == ("python -c 'import accelerate'",)


def test_the_release_does_not_need_the_package(checkout: Path) -> None:
    files = {"train.py": "import transformers\ntransformers.T5Tokenizer.from_pretrained('a')\n"}
    (found,) = _audit(checkout, files, "python train.py")
    assert "needs sentencepiece" in found.message
    assert not _audit(checkout, files, "python train.py", transformers="5.24.0")


def test_a_launcher_needs_its_package(checkout: Path) -> None:
    (found,) = _audit(checkout, {"train.py": "import torch\n"}, "pip install -r none.txt", "deepspeed train.py --a 1")
    assert "`deepspeed train.py --a 1` needs deepspeed" in found.message


TOKENIZE = "import nltk\nnltk.word_tokenize('a')\n"
SPACY = "import spacy\nnlp = spacy.load('en_core_web_sm')\n"


@each_case(("text", "command"), [
    (TOKENIZE, "python -m nltk.downloader punkt_tab"),
    (f"{TOKENIZE}nltk.download('punkt')\n", "python -m nltk.downloader punkt_tab"),
    ("from nltk import pos_tag\npos_tag(['a'])\n", "python -m nltk.downloader averaged_perceptron_tagger_eng"),
    (SPACY, "python -m spacy download en_core_web_sm"),
])  # fmt: skip
def test_data_that_no_step_downloads(text: str, command: str, checkout: Path) -> None:
    (found,) = _audit(checkout, {"train.py": text}, "python train.py")
    assert (found.id, found.status) == ("RUN225", "warning")
    assert found.remedies[0].commands == (command,)


@each_case(("text", "command"), [
    (TOKENIZE, "python -m nltk.downloader punkt_tab"),
    (f"{TOKENIZE}nltk.download('all')\n", ""),
    (f"try:\n    import nltk\n    nltk.data.find('a')\nexcept LookupError:\n    pass\n{TOKENIZE}", ""),
    (SPACY, "python -m spacy download en_core_web_sm"),
    (SPACY, "pip install https://a.b/en_core_web_sm-3.8.0-py3-none-any.whl"),
    ("import spacy\nnlp = spacy.load('./model')\nspacy.blank('en')\n", ""),
])  # fmt: skip
def test_data_that_a_step_or_the_code_downloads(text: str, command: str, checkout: Path) -> None:
    commands = [command] if command else []
    assert not _audit(checkout, {"train.py": text}, *commands, "python train.py")
