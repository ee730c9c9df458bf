"""Names that a program imports from modules of its checkout, and that these do not have."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.checkout_audits import findings_in_checkout
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

FILES = {
    "rows.py": "class RowLoader:\n    pass\nlimit = 3\n",
    "lib/__init__.py": "from .tables import Table\n",
    "lib/tables.py": "import os\nclass Table:\n    size = 1\n",
}


def _audit(folder: Path, files: dict[str, str], *commands: str) -> list[Finding]:
    return findings_in_checkout(folder, "RUN239", FILES | files, *(commands or ("python train.py",)))


ABSENT: dict[str, tuple[dict[str, str], str]] = {  # files, and a part of the message
    "another name": ({"train.py": "from rows import RowsLoader\n"}, "which rows.py does not have; it has RowLoader"),
    "a name of a package": ({"train.py": "from lib import build\n"}, "imports build, which lib/__init__.py does not"),
    "in a file that it loads": (
        {"train.py": "from lib.start import run\n", "lib/start.py": "from .tables import Rows\ndef run(): pass\n"},
        "lib/start.py:1 imports Rows, which lib/tables.py does not have",
    ),
    "in its main function": (
        {"train.py": "def main():\n    from rows import start\nif __name__ == '__main__':\n    main()\n"},
        "train.py:2 imports start, which rows.py does not have",
    ),
}  # fmt: skip


@each_case("name", [*ABSENT])
def test_a_module_does_not_have_a_name(name: str, tmp_path: Path) -> None:
    files, message = ABSENT[name]
    (found,) = _audit(tmp_path, files)
    assert (found.status, found.line, message in found.message) == ("error", 4, True)


PRESENT: dict[str, dict[str, str]] = {
    "names and modules": {"train.py": "from rows import RowLoader, limit\nfrom lib import tables, Table\n"},
    "an imported name": {"train.py": "from lib.tables import os\n"},
    "import *": {"train.py": "from rows import start\n", "rows.py": "from lib.tables import *\n"},
    "a function of the module": {"train.py": "from rows import start\n", "rows.py": "def __getattr__(name): ...\n"},
    "names that it makes": {"train.py": "from rows import start\n", "rows.py": "globals().update(a=1)\n"},
    "a name in a condition": {"train.py": "from rows import start\n", "rows.py": "if 1:\n    start = 1\n"},
    "a handler": {"train.py": "try:\n    from rows import start\nexcept ImportError:\n    pass\n"},
    "two modules of the name": {
        "tools/train.py": "from rows import start\n", "tools/rows.py": "x = 1\n", "train.py": "import tools\n",
    },
    "another search path": {"train.py": "import sys\nsys.path.append(input())\nfrom rows import start\n"},
    "an empty module": {"train.py": "from rows import start\n", "rows.py": ""},
    "an extension that setup.py builds": {
        "train.py": "from lib import _fused\n", "setup.py": "CUDAExtension(name='lib._fused', sources=['a.cu'])\n",
    },
    "a compiled module of the package": {"train.py": "from lib import fast\n", "lib/fast.pyx": ""},
}  # fmt: skip


@each_case("name", [*PRESENT])
def test_a_name_that_can_exist(name: str, tmp_path: Path) -> None:
    command = "python tools/train.py" if "tools/train.py" in PRESENT[name] else "python train.py"
    assert not _audit(tmp_path, PRESENT[name], command)


def test_an_installed_package_has_the_name(tmp_path: Path) -> None:
    files = {"tools/train.py": "from lib import start\n"}
    assert not _audit(tmp_path, files, "pip install lib", "python tools/train.py")
    assert len(_audit(tmp_path, files, "export PYTHONPATH=.", "python tools/train.py")) == 1


PROJECT = '[project]\nname = "tool"\nversion = "1"\ndependencies = ["tqdm"]\n[project.scripts]\ntool = "{}"\n'
PARTS = {
    "tool/__init__.py": "",
    "tool/cli.py": "def run(): ...\n",
    "src/lib/__init__.py": "",
    "src/lib/app.py": "x = 1\n",
}
ENTRY_POINTS: dict[str, tuple[str, str]] = {  # the reference, and a part of the message; empty: no finding
    "another function": ("tool.cli:main", "tool/cli.py has no main"),
    "another module": ("tool.command:run", "tool has no module command"),
    "in src": ("lib.app:run", "src/lib/app.py has no run"),
    "a module of its own": ("server:main", "the checkout has no module server"),
    "a module in another folder": ("x:main", ""),
    "a module of a requirement": ("tqdm:main", ""),
    "a function": ("tool.cli:run", ""),
    "a package of others": ("torch.distributed.run:main", ""),
    "a folder without __init__": ("plain.part:main", ""),
    "a compiled module": ("tool.fast:main", ""),
}


@each_case("name", [*ENTRY_POINTS])
def test_an_entry_point_is_not_in_the_checkout(name: str, tmp_path: Path) -> None:
    reference, message = ENTRY_POINTS[name]
    (tmp_path / ".git").mkdir(exist_ok=True)
    text = PROJECT.format(reference)
    write_files(tmp_path, {**PARTS, "plain/x.py": "x = 1\n", "tool/fast.pyx": "", "pyproject.toml": text})
    found = [each for each in audit_text(text, str(tmp_path / "pyproject.toml"), None, NoSolver()).result.findings
             if each.id == "RUN239"]  # fmt: skip
    assert [(each.status, each.line) for each in found] == ([("warning", 6)] if message else [])
    assert not message or message in found[0].message
