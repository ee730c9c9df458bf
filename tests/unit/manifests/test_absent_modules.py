"""Modules of a checkout that its programs import, and that it does not have."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.checkout_audits import findings_in_checkout

from envdoctor.core.records import Finding

FILES = {
    "lib/__init__.py": "",
    "lib/value_model.py": "",
    "lib/inner/__init__.py": "",
    "lib/inner/tables.py": "",
    "other/vision.py": "",
    "tools/clean.py": "",
}


def _audit(folder: Path, files: dict[str, str], *commands: str) -> list[Finding]:
    return findings_in_checkout(folder, "RUN237", FILES | files, *commands)


ABSENT: dict[str, tuple[dict[str, str], str]] = {  # files, and a part of the message
    "another letter": (
        {"train.py": "from lib.valeu_model import Model\n"}, "no lib/valeu_model.py; lib/value_model.py exists",
    ),
    "in a file that it loads": (
        {"train.py": "import lib.start\n", "lib/start.py": "from .inner import tables\nfrom .inner.lists import a\n"},
        "lib/start.py:2 imports .inner.lists",
    ),
    "in its main function": (
        {"train.py": "def main():\n    import lib.absent\nif __name__ == '__main__':\n    main()\n"},
        "train.py:2 imports lib.absent",
    ),
    "a name of an empty package": (
        {"train.py": "from lib.inner import table\n"}, "imports lib.inner.table, and",
    ),
    "another folder": ({"train.py": "from tools.vision import a\n"}, "no tools/vision.py; other/vision.py exists"),
}  # fmt: skip


@each_case("name", [*ABSENT])
def test_a_program_imports_a_module_that_does_not_exist(name: str, tmp_path: Path) -> None:
    files, message = ABSENT[name]
    (found,) = _audit(tmp_path, files, "python train.py")
    assert (found.status, found.line, message in found.message) == ("error", 4, True)


def test_a_program_starts_another_one(tmp_path: Path) -> None:
    files = {
        "train.py": "import subprocess\nsubprocess.run(['python', 'tools/value.py'])\n",
        "tools/value.py": "import lib.absent\nif __name__ == '__main__':\n    pass\n",
    }
    assert [each.status for each in _audit(tmp_path, files, "python train.py")] == ["warning"]
    assert not _audit(tmp_path, files | {"train.py": "# tools/value.py\n"}, "python train.py")


PRESENT: dict[str, dict[str, str]] = {
    "modules and packages": {
        "train.py": "import lib.inner.tables\nfrom lib import inner\nfrom lib.inner import tables\n"
    },
    "a handler": {"train.py": "try:\n    import lib.absent\nexcept ImportError:\n    pass\n"},
    "a name of a package with code": {
        "train.py": "from lib import absent\n",
        "lib/__init__.py": "from .value_model import *\n",
    },
    "a module next to the program": {"tools/run.py": "from lib import absent\n", "tools/lib.py": "absent = 1\n"},
    "a condition": {"train.py": "import sys\nif sys.argv:\n    import lib.absent\n"},
    "a function without a call": {"train.py": "def build():\n    import lib.absent\n"},
    "another search path": {"train.py": "import sys\nsys.path.append(input())\nimport lib.absent\n"},
    "the same path below another folder": {"train.py": "import lib.absent\n", "more/lib/absent.py": ""},
    "a build": {"train.py": "import lib.fast\n", "setup.py": "Extension('lib.fast', ['fast.pyx'])\n"},
    "a file that a build makes": {"train.py": "import lib.box_cuda\nimport lib._version\nimport lib.rows_pb2\n"},
    "an installed package": {"train.py": "import torch.absent\n", "torch/own.py": ""},
    "a package of another path": {"train.py": "import lib.absent\n", "lib/__init__.py": "__path__ = []\n"},
    "the credentials of the reader": {"train.py": "import lib.credentials\nimport lib.local_settings\n"},
}


@each_case("name", [*PRESENT])
def test_a_module_that_can_exist(name: str, tmp_path: Path) -> None:
    program = next(iter(PRESENT[name]))
    assert not _audit(tmp_path, PRESENT[name], f"python {program}")


def test_a_module_that_the_guide_makes(tmp_path: Path) -> None:
    files = {"train.py": "import lib.absent\n"}
    assert not _audit(tmp_path, files, "# Write your own lib/absent.py", "python train.py")
    assert not _audit(tmp_path, files, "wget -P lib https://a.b/absent.py", "python train.py")


def test_a_package_that_git_ignores_by_its_usual_template(tmp_path: Path) -> None:
    files = {"train.py": "from parts.model import Model\n", ".gitignore": "dist/\nparts/\n"}
    (found,) = _audit(tmp_path, files, "python train.py")
    assert "train.py:1 imports parts.model, and no commit has parts: .gitignore lists it" in found.message
    assert not _audit(tmp_path, files | {".gitignore": "dist/\n"}, "python train.py")
    assert not _audit(tmp_path, files | {"src/parts/model.py": ""}, "python train.py")
