"""Guides without install commands: packages and manifests that their text names."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.text_files import uv_lock, write_files

from envdoctor.commands.audit_file import AuditResult, audit_text
from envdoctor.manifests.actions import Install
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.manifests.own_names import own_names
from envdoctor.manifests.stated_packages import stated_install
from envdoctor.output.audit import coverage_text
from envdoctor.resolution.index_facts import IndexedRelease

LISTS: dict[str, tuple[str, str]] = {  # a text, and the requirements that it states
    "a list": (
        "## Requirements\n1. *torch* 2.2.0\n2. [transformers](https://a.b) 4.37\n- numpy>=1.26 (arrays)\n- wandb\n",
        "torch==2.2.0 transformers==4.37.* numpy>=1.26 wandb",
    ),
    "several in an item": (
        "## Installation\n- Python 3.8, PyTorch 1.12.1+cu113 and torchvision 0.13.1\n- CUDA 11.3\n- tqdm, einops\n",
        "torch==1.12.1 torchvision==0.13.1 tqdm einops",
    ),
    "a table": (
        "# Dependencies\n| package | version |\n|---|---|\n| PyTorch | 2.1.0 |\n| timm | 0.9.2 |\n",
        "torch==2.1.0 timm==0.9.2",
    ),
    "lower bounds": (
        "Requirements\n===\n* PyTorch >= 1.9\n* torchvision 0.10+\n* scikit-learn 1.0 or newer\n",
        "torch>=1.9 torchvision>=0.10 scikit-learn>=1.0",
    ),
    "lines": ("**Prerequisites**\n\nPython 3.8\nPyTorch 1.7.1\nTimm 0.4.12\n", "torch==1.7.1 timm==0.4.12"),
    "a sentence before a list": ("The following packages are needed:\n- torch 2.0.1\n", "torch==2.0.1"),
    "the latest": (
        (
            "## Setup\nPlease install the latest versions of PyTorch (`torch`) and Transformers.\n"
            "Tested on `torch==2.1.0.dev20230514` and `transformers==4.28.1`, but should work with older ones.\n"
        ),
        "torch transformers",
    ),
    "a tested version": (
        "## Requirements\n- PyTorch\n- transformers (tested with 4.31.0)\n\nThe code is tested with PyTorch 2.0.1.\n",
        "torch==2.0.1 transformers==4.31.0",
    ),
    "steps in a list": ("## Get Started\n1. Install Python 3.6, PyTorch 1.9.0.\n* Install [timm](https://a.b)\n",
                        "torch==1.9.0 timm"),
    "a tested version in any list": ("## News\n* The code is based on [`timm==0.3.2`](https://a.b)\n", "timm==0.3.2"),
    "code outside of a section": ("It runs with `torch==2.1.1` and `peft==0.6.0`.\n", "torch==2.1.1 peft==0.6.0"),
}  # fmt: skip
NOT_STATED: dict[str, str] = {
    "news": "# Project\n- We train with PyTorch 2.0!\n- transformers 4.31 is supported now\n",
    "another section": "## Results\n- PyTorch 2.0.1\n- transformers 4.31.0\n",
    "a section on data": "## Data preparation\n- datasets\n- pandas 1.5.0\n",
    "contents": "## Getting Started\n- [Datasets](#datasets)\n- [Accelerate](#accelerate)\n",
    "sentences in a list": "## Installation\n- torch is needed for training\n- If you use wandb, log in first\n",
    "several versions": "## Requirements\n- PyTorch 1.8, 1.9\n- torchvision 0.9 - 0.12\n",
    "two environments": "## Requirements\n- torch 1.8.0\n- timm 0.4\n\n## Setup\n- torch 2.0.0\n",
    "a condition": "## Installation\nIf you see an error, install `transformers==4.28.1`.\n",
    "an option": "## Requirements\n- flash-attn 2.5.0 (optional)\n",
    "ordinary words": "## Environment\n- click\n- requests\n",
    "other programs": "## Requirements\n- Linux\n- gcc 9.4\n- CUDA 11.7\n- Python 3.9\n",
    "a range": "## Requirements\nThe code needs PyTorch 1.8 to 1.12.\n",
}


@each_case("name", [*LISTS])
def test_the_packages_that_a_text_states(name: str) -> None:
    text, expected = LISTS[name]
    install = stated_install(text.split("\n"), ())
    assert install
    assert " ".join(f"{each.name}{each.specifier}" for each in install.requirements) == expected


@each_case("name", [*NOT_STATED])
def test_a_text_that_states_no_packages(name: str) -> None:
    assert stated_install(NOT_STATED[name].split("\n"), ()) is None


def test_code_and_known_packages_are_no_statement() -> None:
    lines = ["## Requirements", "- torch 2.0.1", "- timm 0.9.2"]
    assert stated_install(lines, {2, 3}) is None
    install = stated_install(lines, (), {"torch"})
    assert install
    assert [each.name for each in install.requirements] == ["timm"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("import torch\nimport plots\n")
    return tmp_path


def _audit(folder: Path, text: str, name: str = "README.md") -> AuditResult:
    solver = FixedSolver(FixedIndex(IndexedRelease("plots", "1.0", "2026-10-01")), {"torch": "2.8.0"})
    return audit_text(text, str(folder / name), None, solver, python="3.12").result


STATED = "# Project\n## Requirements\n- torch 2.8.0\n\n## Usage\n```\npython train.py\n```\n"


def test_a_checkout_is_compared_with_what_its_text_states(checkout: Path) -> None:
    result = _audit(checkout, STATED)
    assert [(each.id, each.status, each.line) for each in result.findings] == [("RUN181", "warning", 7)]
    assert "1 of them stated in the text of line 3, no command installs them" in coverage_text(result)


@each_case("name", ["README.txt", "README", "README.rst"])
def test_other_forms_of_a_guide(name: str, checkout: Path) -> None:
    text = (
        STATED if name != "README.rst" else "Requirements\n============\n- torch 2.8.0\n\n::\n\n    python train.py\n"
    )
    assert [each.id for each in _audit(checkout, text, name).findings] == ["RUN181"]


def test_a_command_in_a_quotation(checkout: Path) -> None:
    text = "## Requirements\n- torch 2.8.0\n\nRun\n> python3 train.py --lr 1\n"
    assert [(each.id, each.line) for each in _audit(checkout, text).findings] == [("RUN181", 5)]


SENTENCES: dict[str, str] = {  # to the step that it stands for
    "Install the packages in `requirements.txt`.": "pip install -r requirements.txt",
    "See requirements.txt for the dependencies.": "pip install -r requirements.txt",
    "Please install the dependencies first.": "pip install -r requirements.txt",
    "Run `pip install -r requirements.txt` first.": "pip install -r requirements.txt",
}


@each_case("sentence", [*SENTENCES])
def test_a_manifest_that_the_text_names_is_a_step(sentence: str, checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("torch==2.8.0\n")
    result = _audit(checkout, f"# Project\n{sentence}\n```\npython train.py\n```\n")
    assert [(each.id, each.status) for each in result.findings] == [("RUN181", "error")]
    assert f"line 2 read as the step `{SENTENCES[sentence]}`" in coverage_text(result)


def test_a_manifest_next_to_stated_packages_is_a_step(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("plots\n")
    assert "line 3 read as the step `pip install -r requirements.txt`" in coverage_text(_audit(checkout, STATED))
    assert "RUN181" not in {each.id for each in _audit(checkout, STATED).findings}
    mentioned = STATED.replace("## Usage", "Run `pip install tables`.\n")
    assert "`pip install tables`; line 3 read as" in coverage_text(_audit(checkout, mentioned))


def test_an_environment_file_that_the_text_leaves_open(checkout: Path) -> None:
    (checkout / "environment.yml").write_text("dependencies:\n- pip:\n  - torch==2.8.0\n")
    result = _audit(checkout, "# Project\nInstall the required packages.\n")
    assert "conda env create -f environment.yml" in coverage_text(result)


@each_case("text", [
    "# Project\nIt trains models.\n",
    "# Project\nNot all files of requirements.txt are needed.\n",
    "# Project\nSee [INSTALL.md](INSTALL.md) for the installation of dependencies.\n",
    "# Project\nInstall the dependencies with `make install`.\n```\nmake install\n```\n",
])  # fmt: skip
def test_a_text_that_names_no_packages(text: str, checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("torch==2.8.0\n")
    (checkout / "INSTALL.md").write_text("# Installation\n")
    with pytest.raises(NothingToAudit):
        _audit(checkout, text)


UV_LOCK = uv_lock({"torch": "2.8.0"}, ">=3.11", source="virtual")
POETRY_LOCK = """[[package]]
name = "torch"
version = "2.8.0"
python-versions = ">=3.9"
[metadata]
content-hash = "x"
python-versions = "^3.10"
"""
PROJECT = '[project]\nname = "mine"\nversion = "0.1"\ndependencies = ["torch==2.8.0"]\n'
LOCKS: dict[str, tuple[str, str, str]] = {  # a guide, a file next to it, and its text
    "uv sync": ("```\nuv sync\nuv run python train.py\n```\n", "uv.lock", UV_LOCK),
    "poetry install": ("Install with `poetry install`.\n```\npython train.py\n```\n", "poetry.lock", POETRY_LOCK),
    "pdm install": ("```\npdm install\npython train.py\n```\n", "pyproject.toml", PROJECT),
}


@each_case("name", [*LOCKS])
def test_the_lock_next_to_a_guide_is_its_step(name: str, tmp_path: Path) -> None:
    text, file, content = LOCKS[name]
    folder = tmp_path / name
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "train.py").write_text("import torch\nimport plots\n")
    (folder / file).write_text(content)
    result = _audit(folder, f"# Project\n{text}")
    assert [(each.id, each.status) for each in result.findings] == [("RUN181", "error")]
    assert f"those of {file}, which the command of line" in coverage_text(result)
    (folder / "train.py").write_text("import torch\n")
    assert not _audit(folder, f"# Project\n{text}").findings


@each_case("case", [("uv sync", ["uv add plots"]), ("uv sync\nuv pip install numpy", ["uv pip install plots"])])
def test_a_guide_with_uv_sync_alone_adds_packages_to_the_project(case: tuple[str, list[str]], tmp_path: Path) -> None:
    command, expected = case
    folder = tmp_path / str(len(command))
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "train.py").write_text("import torch\nimport plots\n")
    (folder / "uv.lock").write_text(UV_LOCK)
    result = _audit(folder, f"# Project\n```\n{command}\npython train.py\n```\n")
    assert [line for each in result.findings for remedy in each.remedies for line in remedy.commands] == expected


@each_case("case", [
    ("uv sync && uv pip install numpy", ["uv sync (sync with uv.lock)", "uv pip install numpy"]),
    ("uv venv\nuv sync --frozen\nuv pip install .", ["uv sync --frozen (sync with uv.lock)", "uv pip install ."]),
    ("uv pip install numpy\nuv sync", ["uv pip install numpy", "uv sync (sync with uv.lock)"]),
    ("uv sync --project other\nuv pip install numpy", ["uv pip install numpy"]),
    ("cd other\nuv sync\ncd ..\nuv pip install numpy", ["uv pip install numpy"]),
])  # fmt: skip
def test_the_lock_is_a_step_before_those_that_follow(case: tuple[str, list[str]], tmp_path: Path) -> None:
    commands, expected = case
    (tmp_path / "uv.lock").write_text(UV_LOCK)
    (tmp_path / "other").mkdir(exist_ok=True)
    (tmp_path / ".git").mkdir(exist_ok=True)
    document = read_input(f"# Project\n```\n{commands}\n```\n", "README.md", Files(tmp_path, "x86_64"))
    assert [each.command for each in document.paths[0].actions if isinstance(each, Install)] == expected


@each_case("specifier", ["==3.11.6", "<3.11.9,>=3.11", ">=3.12"])
def test_a_lock_for_one_patch_release_of_python(specifier: str, checkout: Path) -> None:
    (checkout / "train.py").write_text("import torch\n")
    (checkout / "uv.lock").write_text(UV_LOCK.replace(">=3.11", specifier))
    (checkout / "pyproject.toml").write_text(PROJECT.replace("==2.8.0", ""))
    result = _audit(checkout, "# Project\n```\nuv sync\npython train.py\n```\n")
    assert "those of uv.lock" in coverage_text(result)


def test_a_repository_of_a_lock_is_not_read(checkout: Path) -> None:
    lock = UV_LOCK.replace("[{", '[{ name = "other" }, {')
    lock += '[[package]]\nname = "other"\nversion = "0.1"\nsource = { git = "https://a.b/c" }\n'
    (checkout / "uv.lock").write_text(lock)
    result = _audit(checkout, "# Project\n```\nuv sync\npython train.py\n```\n")
    assert result.coverage.unread == ("`other` (line 3): its release is on no index",)
    assert [each.status for each in result.findings if each.id == "RUN181"] == ["unknown"]


def test_torch_of_a_text_comes_with_torchvision(checkout: Path) -> None:
    (checkout / "train.py").write_text("import torch\nimport torchvision, PIL, numpy\n")
    assert not [each for each in _audit(checkout, STATED).findings if each.id == "RUN181"]


def test_a_list_of_changes_states_no_environment(checkout: Path) -> None:
    with pytest.raises(NothingToAudit):
        _audit(checkout, "# 1.2\n- Pin `torch==2.8.0`\n", "CHANGELOG.md")


def test_an_open_version_is_no_error(checkout: Path) -> None:
    text = "## Requirements\n- torch 2.0.1\n- numpy\n"
    solver = FixedSolver(FixedIndex(), {"torch": "2.0.1", "numpy": "2.2.6"})
    findings = audit_text(text, str(checkout / "README.md"), None, solver, python="3.11").result.findings
    assert findings
    assert "error" not in {each.status for each in findings}


SYNCS: dict[str, tuple[str, dict[str, str], list[int]]] = {  # commands, files, and the lines of further steps
    "two commands": ("pip install numpy\nuv sync\nuv sync --extra train", {}, [4, 5]),
    "no other step": ("uv sync", {}, []),  # it is the step of the guide
    "a lock": ("pip install numpy\nuv sync", {"uv.lock": UV_LOCK}, []),
    "a project without requirements": ("pip install numpy\nuv sync", {"pyproject.toml": "[tool.ruff]\n"}, []),
    "another project": ("pip install numpy\ngit clone https://a.b/c/other\ncd other\nuv sync", {}, []),
    "the repository of its development": (
        "git clone https://a.b/c/mine-dev\ncd mine-dev\nuv sync\npip install .",
        {},
        [5],
    ),
    "another repository of its name": (
        "git clone https://a.b/c/mine-data\ncd mine-data\nuv sync\npip install numpy",
        {},
        [],
    ),
    "a folder of the project": ("pip install numpy\nuv sync --project tools", {}, []),
}


@each_case("name", [*SYNCS])
def test_uv_sync_without_a_lock_next_to_other_steps(name: str, tmp_path: Path) -> None:
    commands, files, lines = SYNCS[name]
    folder = tmp_path / name.replace(" ", "-")
    write_files(folder, {".git/config": "", "pyproject.toml": PROJECT} | files)
    text = f"# Mine\n```\n{commands}\n```\n"
    own = Files(folder, "x86_64").of_repository(folder, own_names(folder, text), is_readme=True)
    document = read_input(text, "README.md", own)
    assert [action.line for path in document.paths[1:] for action in path.actions] == lines
