"""The order of the cells of a notebook, and the files that they read."""

from __future__ import annotations

import json
from pathlib import Path

from support.cases import each_case
from support.text_files import write_files

from envdoctor.commands.audit_directory import audit_directory
from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

INSTALL = "!pip install torch==2.6.0"


def _notebook(*cells: str) -> str:
    parts = [{"cell_type": "code", "source": each.splitlines(keepends=True)} for each in cells]
    return json.dumps({"cells": parts, "metadata": {}, "nbformat": 4}, indent=1)


def _findings(root: Path, *cells: str, name: str = "") -> list[Finding]:
    write_files(root, {"README.md": "# Demo\n", "net.py": "\n", ".git/HEAD": "\n", "data/train.csv": "a\n"})
    text = _notebook(INSTALL, *cells)
    (root / "demo.ipynb").write_text(text)
    found = audit_text(text, str(root / "demo.ipynb"), None, NoSolver()).result.findings
    return [each for each in found if each.id == (name or each.id)]


EARLY: dict[str, tuple[tuple[str, ...], str]] = {  # cells, and the start of the message
    "an import": (("t = transforms.Compose([])", "from torchvision import transforms"), "code cell 2 uses t"),
    "a function": (("x = 1", "y = run(x)", "def run(v):\n    return v"), "code cell 3 uses run, which"),
    "a class in an argument": (("print(Net())", "class Net: pass"), "code cell 2 uses Net"),
    "a loop": (("for i in range(2):\n    plt.plot(i)", "import matplotlib.pyplot as plt"), "code cell 2 uses plt"),
    "no cell": (("x = 1", "model = wrap(model)"), "code cell 3 uses wrap, which no cell imports or defines"),
}


@each_case("name", [*EARLY])
def test_a_cell_uses_what_a_later_one_defines(name: str, tmp_path: Path) -> None:
    cells, message = EARLY[name]
    (found,) = _findings(tmp_path, *cells, name="RUN256")
    assert (found.status, found.message.startswith(message)) == ("warning", True)


ORDERED: dict[str, tuple[str, ...]] = {
    "in order": ("from torchvision import transforms", "t = transforms.Compose([])"),
    "imported twice": ("import os", "os.listdir()", "import os"),
    "in a function": ("def run():\n    return np.ones(1)", "import numpy as np", "run()"),
    "a handler": ("try:\n    np\nexcept NameError:\n    pass", "import numpy as np"),
    "a magic that defines names": ("%run setup.py", "t = transforms.Compose()", "from torchvision import transforms"),
    "an import of all names": ("from net import *", "x = run()", "def run(): pass"),
    "a variable of the cell": ("x = [np for np in range(3)]", "import numpy as np"),
    "a name that a reader replaces": ("print(TOKEN, your_token)",),
    "a name in a condition": ("if False:\n    print(history)", "x = None and history"),
    "output of a command": ("files = !ls\nprint(files)",),
    "a name that code can set": ("locals()['a'] = 1", "print(a)"),
    "a name of Databricks": ("spark.read.csv('a')",),
    "a name that only a statement assigns": ("print(loss)", "loss = 1"),
    "a cell of another language": ("%%bash\necho $np", "import numpy as np"),
    "a cell that does not parse": ("def f(:", "np.ones(1)", "import numpy as np"),
}


@each_case("name", [*ORDERED])
def test_cells_in_an_order_that_works(name: str, tmp_path: Path) -> None:
    assert not _findings(tmp_path, *ORDERED[name], name="RUN256")


ABSENT: dict[str, tuple[tuple[str, ...], str]] = {
    "an array": (("import numpy as np\ndata = np.load('scans.npz')",), "scans.npz"),
    "a table": (("import pandas as pd", "PATH = 'data/reviews.csv'", "df = pd.read_csv(PATH)"), "data/reviews.csv"),
    "a field of a class": (
        ("class Config:\n    DATA = 'faq.json'", "load_dataset('json', data_files=Config.DATA)"),
        "faq.json",
    ),
    "a file that is opened": (("with open('vocab.txt') as f:\n    words = f.read()",), "vocab.txt"),
}


@each_case("name", [*ABSENT])
def test_a_file_that_no_cell_makes(name: str, tmp_path: Path) -> None:
    cells, path = ABSENT[name]
    (found,) = _findings(tmp_path, *cells, name="RUN257")
    assert found.message == f"{path} is not in the checkout, and no cell makes or downloads it"


PRESENT: dict[str, tuple[str, ...]] = {
    "in the checkout": ("df = pd.read_csv('data/train.csv')",),
    "in another directory": ("df = pd.read_csv('train.csv')",),
    "written before": ("df.to_csv('out.csv')", "df = pd.read_csv('out.csv')"),
    "written with a name": ("PATH = 'out.csv'", "df.to_csv(PATH)", "df = pd.read_csv(PATH)", "print('out.csv')"),
    "a download": ("!wget https://a.b/x.zip", "df = pd.read_csv('x.csv')"),
    "an upload": ("from google.colab import files\nfiles.upload()", "df = pd.read_csv('x.csv')"),
    "a dataset of the hub": ("load_dataset('owner/name', data_files='x.json')",),
    "another mode": ("f = open('log.txt', 'w')",),
    "an absolute path": ("df = pd.read_csv('/kaggle/input/x.csv')",),
    "a condition": ("if os.path.exists('x.csv'):\n    df = pd.read_csv('x.csv')",),
    "a handler": ("try:\n    df = pd.read_csv('x.csv')\nexcept OSError:\n    df = None",),
    "a pattern": ("df = pd.read_csv(f'{name}.csv')",),
}


@each_case("name", [*PRESENT])
def test_files_that_can_be_there(name: str, tmp_path: Path) -> None:
    assert not _findings(tmp_path, *PRESENT[name], name="RUN257")


def test_a_file_that_the_text_names(tmp_path: Path) -> None:
    assert _findings(tmp_path, "df = pd.read_csv('x.csv')", name="RUN257")
    write_files(tmp_path, {"README.md": "# Demo\nDownload x.csv from our page.\n"})
    text = (tmp_path / "demo.ipynb").read_text()
    found = audit_text(text, str(tmp_path / "demo.ipynb"), None, NoSolver()).result.findings
    assert "RUN257" not in {each.id for each in found}


@each_case("readme, status", [
    ("# Demo\nRun the notebook `demo.ipynb`.\n", True), ("# Demo\nSee `my_demo.ipynb`.\n", False),
])  # fmt: skip
def test_a_notebook_that_a_guide_names_is_a_step(readme: str, status: bool, tmp_path: Path) -> None:
    text = _notebook("import torch\nx = np.ones(1)", "import numpy as np")
    files = {"README.md": readme, "requirements.txt": "torch==2.6.0\n", "demo.ipynb": text, "net.py": "\n"}
    write_files(tmp_path, {**files, ".git/HEAD": "\n"})
    found = audit_directory(str(tmp_path), None, NoSolver())
    messages = [each.message for audit in found.audits for each in audit.findings if each.id == "RUN256"]
    assert [each.startswith("code cell 1 uses np") for each in messages] == ([True] if status else [])
