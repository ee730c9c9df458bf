"""Commands that a guide writes as lines of text, in items of lists or in backticks on one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fixed_index import FixedIndex, FixedSolver

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.markdown import Block, parse_blocks


def commands(text: str) -> list[tuple[int, str]]:
    return [line for block in parse_blocks(text) for line in block.lines]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Terminal\n   To generate captions, run:\n   python3 app.py\n", [(3, "python3 app.py")]),
        ("1. Web\n   Start it:\n   python3 web.py --port 7860\n   Open it.\n", [(3, "python3 web.py --port 7860")]),
        ("- python -m venv venv\n- source venv/bin/activate # Linux\n- pip install -r r.txt\n",
         [(1, "python -m venv venv"), (2, "source venv/bin/activate # Linux"), (3, "pip install -r r.txt")]),
        ("**To train run:** \npython train.py\n", [(2, "python train.py")]),
        ("4. python train.py\n", [(1, "python train.py")]),
        ("Install:\n\npip install torch numpy\n\ncd src\n", [(3, "pip install torch numpy"), (5, "cd src")]),
        ("1. Generate\n```python run.py content_image out_dir```\n", [(2, "python run.py content_image out_dir")]),
        ("then run \n```python3 app.py```\n", [(2, "python3 app.py")]),
        ("- ```conda create --name sd python=3.8```\n", [(1, "conda create --name sd python=3.8")]),
        ("```cd qm9/property_prediction```  \n```python main.py --lr 5e-4```  \n",
         [(1, "cd qm9/property_prediction"), (2, "python main.py --lr 5e-4")]),
        ("2. Run python train.py --lr 2\n3. Then run bash scripts/eval.sh\n",
         [(1, "python train.py --lr 2"), (2, "bash scripts/eval.sh")]),
        ("Training: python train.py --lr 1\n\n- **Test**: python -m tool.test\n",
         [(1, "python train.py --lr 1"), (3, "python -m tool.test")]),
        ("1. Install the requirements: pip install -r requirements.txt\n", [(1, "pip install -r requirements.txt")]),
    ],
)  # fmt: skip
def test_commands_of_the_text_are_steps(text: str, expected: list[tuple[int, str]]) -> None:
    assert commands(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "- python train.py starts the training\n- pip install the requirements\n- git clone this repository\n",
        "- python app.py: the web server\n- train.py\n- cd into the folder\n- conda activate the environment first\n",
        "The server is started by\npython app.py in the background.\n",
        "Do not run:\npython old.py\n",
        "python main.py and then\npython eval.py\n",
        "pip install is not enough here\n",
        "Set the path in ```config.yaml```\n```~/.cache/huggingface/hub```\n",
        "| step | command |\n|---|---|\n| 1 | python train.py |\n",
        "torchrun is a launcher of PyTorch.\n",
        "Run python train.py with the same options\n",
        "Usage: python train.py --lr LR\n",
        "Never run python old.py\n\n- Do not run: python old.py\n",
        "Run python train.py\nto start the training.\n",
        "- CPU: pip install torch\n- GPU: pip install torch --index-url https://a.b/cu126\n",
    ],
)
def test_sentences_are_no_commands(text: str) -> None:
    assert commands(text) == []


def test_a_program_that_the_text_starts_is_absent(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("1-captions.py", "scripts/1_draw.py", "1_clean.py", "2_clean.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("print(1)\n")
    text = "# Captions\n\n1. Terminal\n   To generate captions, run:\n   python3 captions.py\n"
    text += "2. Data\n```python draw.py```\n\npython clean.py\n"
    (tmp_path / "README.md").write_text(text)
    found = audit_text(text, str(tmp_path / "README.md"), None, FixedSolver(FixedIndex(), {}), python="3.12")
    absent = [each for each in found.result.findings if each.id == "RUN182"]
    fix = "Start 1-captions.py, if it is the script that is meant."
    assert [(each.line, each.fix) for each in absent] == [(5, fix)]


@pytest.mark.parametrize(
    ("line", "is_shell"),
    [("(base) me@host:~/x$ python train.py", True), ("root@node:/work# pip install torch", True),
     ("me@host wrote a text", False), ("python: a language", False)],
)  # fmt: skip
def test_a_block_without_a_language_with_prompts(line: str, is_shell: bool) -> None:
    assert is_shell_block(Block("", "", ((1, line),))) is is_shell
