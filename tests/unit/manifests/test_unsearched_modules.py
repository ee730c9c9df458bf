"""Modules of a checkout in directories that Python does not search."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.checkout_audits import findings_in_checkout

from envdoctor.core.records import Finding

FILES = {"voice/__init__.py": "", "voice/models.py": "", "LICENSE": "", "tools/helpers.py": ""}
PROGRAM = "import torch\nfrom voice import models\n"


def _audit(folder: Path, files: dict[str, str], *commands: str) -> list[Finding]:
    return findings_in_checkout(folder, "RUN238", FILES | files, *commands)


UNSEARCHED: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {  # files, commands, and the remedy
    "a script of another folder": ({"tools/train.py": PROGRAM}, ("python tools/train.py",), "export PYTHONPATH=."),
    "torchrun": (
        {"tools/train.py": PROGRAM}, ("torchrun --nproc_per_node 2 tools/train.py",), "export PYTHONPATH=.",
    ),
    "below its own package": (
        {"voice/export.py": "import voice.models\n"}, ("python voice/export.py",), "export PYTHONPATH=.",
    ),
    "a file of weights": (
        {"tools/train.py": PROGRAM, "README.md": "Load best_model.pth.\n"},
        ("python tools/train.py --model best_model.pth",), "export PYTHONPATH=.",
    ),
    "a link to a file of weights": (
        {"tools/train.py": PROGRAM, "README.md": '<td><a href="https://dl.example.org/model.pth">checkpoint</a></td>\n'},
        ("python tools/train.py",), "export PYTHONPATH=.",
    ),
    "after cd": ({"tools/train.py": PROGRAM}, ("cd tools", "python train.py"), "export PYTHONPATH=.."),
    "a module that it loads": (
        {"tools/train.py": "import helpers\n", "tools/helpers.py": PROGRAM}, ("python tools/train.py",),
        "export PYTHONPATH=.",
    ),
    "the folder src": (
        {"scripts/run.py": "import bark.core\n", "src/bark/core.py": "", "src/bark/__init__.py": ""},
        ("python scripts/run.py",), "export PYTHONPATH=src",
    ),
}  # fmt: skip


@each_case("name", [*UNSEARCHED])
def test_a_script_imports_from_a_directory_that_is_not_searched(name: str, tmp_path: Path) -> None:
    files, commands, remedy = UNSEARCHED[name]
    (found,) = _audit(tmp_path, files, *commands)
    assert (found.status, found.line) == ("error", 3 + len(commands))
    assert found.remedies[0].commands == (remedy,)


EMPTY = "from setuptools import setup, find_packages\nsetup(name='own', packages=find_packages())\n"
OWN = {"own/core.py": "", "own/scripts/train.py": "from own.core import a\n", "voice/__init__.py": ""}


@each_case(("files", "commands", "status"), [
    ({"pyproject.toml": "[project]\nname = 'x'\n"}, ("python tools/train.py",), "warning"),
    ({"pyproject.toml": "[project]\nname = 'x'\n", "INSTALL.md": "uv sync\n"}, ("python tools/train.py",), ""),
    ({"pyproject.toml": "[project]\n", "setup.sh": "pip install numpy\n"},
     ("bash setup.sh", "python tools/train.py"), "warning"),
    ({"pyproject.toml": "[project]\n", "setup.sh": "pip install -e .\n"},
     ("bash setup.sh", "python tools/train.py"), ""),
    ({"pyproject.toml": "[project]\n"}, ("bash setup.sh", "python tools/train.py"), ""),
    ({"pyproject.toml": "[project]\n", "gpu.sh": "# bash gpu.sh\nuv sync\n"}, ("python tools/train.py",), "warning"),
    ({"pyproject.toml": "[project]\n", "gpu.sh": "export PYTHONPATH=.\n"}, ("python tools/train.py",), ""),
    ({"pyproject.toml": "[project]\n", "gpu.sh": "uv sync\n", "INSTALL.md": "Run gpu.sh.\n"},
     ("python tools/train.py",), ""),
    ({"pyproject.toml": "[project]\n", "gpu.sh": "uv sync\n"}, ("# or gpu.sh", "python tools/train.py"), ""),
    ({"setup.py": EMPTY}, ("pip install git+https://github.com/a/voice2", "python tools/train.py"), ""),
    ({"setup.py": EMPTY}, ("pip install -e .", "python own/scripts/train.py"), ""),
    ({"setup.py": EMPTY, "voice": ""}, ("pip install -e .", "accelerate launch own/scripts/train.py"), "error"),
    ({"setup.py": EMPTY, "voice": ""}, ("python setup.py develop", "python own/scripts/train.py"), ""),
    ({"setup.py": EMPTY.replace("find_packages()", "find_packages('src')"), "voice": ""},
     ("pip install -e .", "python own/scripts/train.py"), ""),
])  # fmt: skip
def test_a_project_that_is_not_installed_or_has_no_package(
    files: dict[str, str], commands: tuple[str, ...], status: str, tmp_path: Path
) -> None:
    folder = tmp_path / str(abs(hash((*files.values(), commands))))
    folder.mkdir()
    given = {"tools/train.py": PROGRAM, **OWN, **files}
    has_package = given.pop("voice", None) is None
    given = {each: text for each, text in given.items() if has_package or not each.startswith(("voice", "tools"))}
    found = findings_in_checkout(folder, "RUN238", given, *commands)
    assert [each.status for each in found] == ([status] if status else [])


def test_a_package_imports_its_own_module_without_its_name(tmp_path: Path) -> None:
    """An installation has the package, and not the folders in it, as a top-level module."""
    setup = "setup(package_dir={'': 'src'}, entry_points={'console_scripts': ['bark=bark.main:main']})\n"
    files = {
        "src/bark/__init__.py": "", "src/bark/main.py": "from jobs.rows import run\ndef main():\n    run()\n",
        "src/bark/jobs/__init__.py": "", "src/bark/jobs/rows.py": "", "setup.py": setup,
    }  # fmt: skip
    (found,) = _audit(tmp_path, files, "pip install .", "bark --help")
    assert found.message.startswith("src/bark/main.py:1 imports jobs.rows of src/bark, and Python searches")
    assert not _audit(tmp_path, files | {"src/bark/main.py": "from bark.jobs import rows\n"}, "bark --help")
    (found,) = _audit(tmp_path, files, "cd src", "python -m bark.main")
    assert not _audit(tmp_path, files, "cd src/bark", "python -m main")


@each_case(("text", "commands", "is_found"), [
    ("", ("python -m detect.train --data data.yaml",), True),
    ("", ("python -m detect.train", "python -m detect.test"), True),
    ("Own code.", ("cd Project", "python -m detect.train"), True),
    ("", ("cd app", "python -m detect.train"), False),
    ("All commands run in the folder `app`.", ("python -m detect.train",), False),
    ("", ("export PYTHONPATH=app", "python -m detect.train"), False),
    ("", ("pip install -e app", "python -m detect.train"), False),
    ("", ("pip install detect", "python -m detect.train"), False),
    ("", ("python -m pytest",), False),
])  # fmt: skip
def test_a_package_of_a_folder_that_the_guide_does_not_enter(
    text: str, commands: tuple[str, ...], is_found: bool, tmp_path: Path
) -> None:
    folder = tmp_path / f"{abs(hash((text, commands)))}/Project"
    folder.mkdir(parents=True)
    (tmp_path / "other").mkdir(exist_ok=True)
    files = {"app/detect/__init__.py": "", "app/detect/train.py": "", "app/detect/test.py": "", "NOTES.md": text}
    found = _audit(folder, files, *commands)
    assert [each.remedies[0].commands for each in found] == ([("export PYTHONPATH=app",)] if is_found else [])
    other = {"detect/__init__.py": "", "detect/train.py": ""}
    assert not _audit(tmp_path / "other", {**files, **other}, *commands)


SEARCHED: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "the root": ({"train.py": PROGRAM}, ("python train.py",)),
    "python -m": ({"tools/train.py": PROGRAM}, ("python -m tools.train",)),
    "PYTHONPATH of the command": ({"tools/train.py": PROGRAM}, ("PYTHONPATH=. python tools/train.py",)),
    "PYTHONPATH of a script": (
        {"tools/train.py": PROGRAM, "run.sh": "export PYTHONPATH=$PWD\n"}, ("python tools/train.py",),
    ),
    "a path file": (
        {"tools/train.py": PROGRAM, "INSTALL.md": "echo $PWD > $SITE/own.pth\n"}, ("python tools/train.py",),
    ),
    "sys.path": ({"tools/train.py": f"import sys\nsys.path.append('.')\n{PROGRAM}"}, ("python tools/train.py",)),
    "sys.path of a module that it loads": (
        {"tools/train.py": f"import paths\n{PROGRAM}", "tools/paths.py": "import sys\nsys.path.insert(0, '..')\n"},
        ("python tools/train.py",),
    ),
    "an installation": (
        {"tools/train.py": PROGRAM, "setup.py": "setup(name='voice')\n"},
        ("pip install -e .", "python tools/train.py"),
    ),
    "an installation of a folder": (
        {"tools/train.py": PROGRAM, "voice/setup.py": ""}, ("pip install -e voice", "python tools/train.py"),
    ),
    "an installed package": (
        {"tools/train.py": PROGRAM}, ("pip install voice", "python tools/train.py"),
    ),
    "a package of a usual name": (
        {"tools/train.py": "import datasets\n", "datasets/__init__.py": ""}, ("python tools/train.py",),
    ),
    "a module next to it": (
        {"tools/train.py": "import voice.models\n", "tools/voice/models.py": ""}, ("python tools/train.py",),
    ),
    "a handler": (
        {"tools/train.py": "try:\n    import voice.models\nexcept ImportError:\n    pass\n"},
        ("python tools/train.py",),
    ),
    "another launcher": ({"tools/train.py": PROGRAM}, ("deepspeed tools/train.py",)),
    "a file that does not exist": ({"tools/train.py": "import voice.absent\n"}, ("python tools/train.py",)),
}  # fmt: skip


@each_case("name", [*SEARCHED])
def test_a_module_that_python_finds(name: str, tmp_path: Path) -> None:
    files, commands = SEARCHED[name]
    assert not _audit(tmp_path, files, *commands)
