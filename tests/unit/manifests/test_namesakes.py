"""Packages with the module name of another project, which the code means."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

VERSIONS = {
    "torch": "2.8.0", "whisper": "1.1.10", "clip": "0.2.0", "ffmpeg": "1.4", "docx": "0.2.4", "haystack": "0.42",
    "serial": "0.0.97", "openai-whisper": "20250625", "jwt": "1.4.0",
}  # fmt: skip
# The package of the step, the program, and a part of the message.
MEANT = {
    "a call": (
        "whisper", "import whisper\nmodel = whisper.load_model('base')\n", "whisper.load_model of openai-whisper"
    ),
    "a call in a function": (
        "whisper", "import whisper as w\ndef main():\n    return w.load_model('base')\nmain()\n",
        "whisper.load_model of openai-whisper",
    ),
    "a name": ("clip", "from clip import tokenize\n", "clip.tokenize of git+https://github.com/openai/CLIP.git"),
    "a function of another module": ("ffmpeg", "import ffmpeg\nffmpeg.input('a').output('b')\n", "of ffmpeg-python"),
    "any import": ("docx", "import docx\n", "docx of python-docx"),
    "a submodule": ("haystack", "from haystack.nodes import PromptNode\n", "of farm-haystack"),
    "a class": ("haystack", "from haystack import Pipeline\n", "of haystack-ai"),
}  # fmt: skip
SOUND = {
    "its own name": ("whisper", "import whisper\nwhisper.create('a')\n"),
    "both": ("whisper openai-whisper", "import whisper\nwhisper.load_model('base')\n"),
    "the other project": ("openai-whisper", "import whisper\nwhisper.load_model('base')\n"),
    "its repository": (
        "whisper git+https://github.com/openai/whisper.git", "import whisper\nwhisper.load_model('base')\n"
    ),
    "an own module": ("serial", "from tools.serial import Serial\n"),
    "a handler": ("clip", "try:\n    from clip import load\nexcept ImportError:\n    load = None\n"),
    "a class that exports it": ("jwt", "from jwt import JWT\n"),
}  # fmt: skip


def audit(folder: Path, install: str, code: str) -> list[Finding]:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "train.py").write_text(f"import torch\n{code}")
    solver = FixedSolver(FixedIndex(IndexedRelease("torch", "2.8.0", "2026-10-01")), VERSIONS)
    text = sh(f"pip install torch {install}", "python train.py")
    result = audit_text(text, str(folder / "README.md"), None, solver).result
    assert not [each for each in result.findings if each.status == "crashed"]
    return [each for each in result.findings if each.id == "RUN078"]


@each_case("name", [*MEANT])
def test_code_means_another_package(name: str, tmp_path: Path) -> None:
    install, code, message = MEANT[name]
    found = audit(tmp_path, install, code)
    assert [(message in each.message, each.status) for each in found] == [(True, "error")], found


@each_case("name", [*SOUND])
def test_code_means_the_installed_package(name: str, tmp_path: Path) -> None:
    assert audit(tmp_path, *SOUND[name]) == []
