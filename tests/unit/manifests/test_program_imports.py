"""Modules that the programs of a checkout import, and that no step installs or the installed release lacks."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh
from support.program_imports import RELEASES, audit_imports
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import IndexedRelease
from envdoctor.resolution.step import StepProblem, StepSolution


def test_a_program_imports_what_no_step_installs(checkout: Path) -> None:
    text = sh("pip install torch==2.8.0", "python train.py")
    found = audit_imports(checkout / "README.md", text)
    assert [(each.line, each.status, each.message) for each in found] == [
        (4, "error", "project/figures.py:2 imports plots, and no step installs it")
    ]
    assert "train.py -> project/data.py -> project/figures.py" in str(found[0].evidence)
    assert not audit_imports(checkout / "README.md", text.replace("2.8.0", "2.8.0 plots"), plots="1.0")


@each_case(("code", "is_found"), [("def other(): ...\n", True), ("def load_dataset(): ...\n", False)])
def test_another_folder_has_a_module_with_the_name_of_a_package(code: str, is_found: bool, checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("from datasets import load_dataset\n")
    (checkout / "tools").mkdir(exist_ok=True)
    (checkout / "tools/datasets.py").write_text(code)
    found = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))
    assert bool(found) is is_found


COMPLETE: dict[str, tuple[str, str]] = {  # a file of the checkout, and its text
    "a handler": ("project/figures.py", "try:\n    import plots\nexcept ImportError:\n    plots = None\n"),
    "a lazy import": ("project/figures.py", "with lazy_imports.try_import() as check:\n    import plots\n"),
    "a function": ("project/figures.py", "def draw():\n    import plots\n"),
    "a condition": ("project/figures.py", "import sys\nif sys.platform == 'win32':\n    import plots\n"),
    "only as a script": ("project/figures.py", "if __name__ == '__main__':\n    import plots\n"),
    "the standard library": ("project/figures.py", "import json, email.message\n"),
    "a module of the checkout": ("tools/plots.py", ""),
    "a compiled module": ("setup.py", "setup(ext_modules=[CUDAExtension('plots', ['a.cu'])])\n"),
    "a submodule": (
        ".gitmodules",
        '[submodule "plots"]\n\tpath = third_party/plots\n\turl = https://a.b/c/plots.git\n',
    ),
    "another guide": ("INSTALL.md", "# Installation\nWe also use plots.\n"),
    "a path of its own": ("project/figures.py", "import sys\nsys.path.append('/opt')\nimport plots\n"),
    "a module with a usual name": ("project/figures.py", "import utils\n"),
    "an unknown module": ("project/figures.py", "import nowhere\n"),
}


@each_case("name", [*COMPLETE])
def test_a_program_that_lacks_nothing(name: str, checkout: Path) -> None:
    file, text = COMPLETE[name]
    (checkout / file).parent.mkdir(exist_ok=True)
    (checkout / file).write_text(text)
    assert not audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))


FOUND: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {  # commands, and files of the checkout
    "a script after steps in another directory": (
        ("cd project", "sh ./run.sh"),
        {"run.sh": "python scripts/draw.py\n", "scripts/draw.py": "import torch, plots\n"},
    ),
    "a directory that the steps enter twice": (
        ("cd project", "cd project", "python figures.py"), {"project/figures.py": "import torch, plots\n"},
    ),
    "a program whose directory the guide leaves out": (
        ("python paint.py",), {"tools/paint.py": "import torch, plots\n"},
    ),
    "a directory of the project after another one of it": (
        ("git clone https://a.b/c/plot-project.git", "cd plot-project", "cd scripts", "cd project",
         "python figures.py"),
        {"project/figures.py": "import torch, plots\n", "scripts/a.txt": "",
         "pyproject.toml": "[project]\nname = 'plot-project'\n"},
    ),
    "a directory of the checkout in sys.path": (
        ("python draw.py",),
        {"draw.py": "import sys, os\nROOT = os.path.dirname(os.path.abspath(__file__))\nsys.path.insert(0, ROOT)\n"
                    "sys.path.append(os.path.join(ROOT, 'project'))\nimport torch, figures\n"},
    ),
    "a directory of sys.path that is relative to the one of the command": (
        ("cd project", "python tools/draw.py"),
        {"project/tools/draw.py": "import sys\nsys.path.append('../project')\nimport torch, figures, plots\n",
         "project/figures.py": "import os\n"},
    ),
    "a module of a package with the same name": (
        ("python draw.py",), {"draw.py": "import torch, plots\n", "project/backends/__init__.py": "",
                              "project/backends/plots.py": ""},
    ),
    "a module that several packages share": (
        ("python draw.py",), {"draw.py": "import torch\nfrom google import genai\n"},
    ),
}  # fmt: skip


@each_case("name", [*FOUND])
def test_programs_that_are_started_in_other_ways(name: str, checkout: Path) -> None:
    commands, files = FOUND[name]
    write_files(checkout, files)
    (found,) = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", *commands))
    assert "imports google.genai" in found.message if "share" in name else "imports plots" in found.message


def test_a_module_with_a_usual_name_that_one_package_has(checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("import evaluate\n")
    text = sh("pip install torch==2.8.0", "python train.py")
    (found,) = audit_imports(checkout / "README.md", text)
    assert found.remedies[0].commands[0].endswith("evaluate")
    (checkout / "project/evaluate.py").touch()
    assert not audit_imports(checkout / "README.md", text)


SEARCH_PATHS = {  # what a file adds to sys.path, and whether its modules are all known
    "os.path.dirname(os.path.dirname(os.path.abspath(__file__)))": True,
    "str(Path(__file__).resolve().parents[1] / 'project')": True,
    "'..'": True,
    "os.getcwd()": True,
    "os.path.join(os.path.dirname(__file__), '..', '..', 'other')": False,
    "os.environ['ROOT']": False,
    "'third_party/other'": False,
    "'~/code'": False,
}


@each_case("added", [*SEARCH_PATHS])
def test_directories_of_sys_path(added: str, checkout: Path) -> None:
    (checkout / "third_party/other").mkdir(parents=True, exist_ok=True)  # a submodule that is not there
    (checkout / "project/figures.py").write_text(
        f"import os, sys\nfrom pathlib import Path\nsys.path.append({added})\nimport torch, plots\n"
    )
    found = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python -m project.figures"))
    assert bool(found) is SEARCH_PATHS[added]


@each_case("block, is_found", [("```\n```sh\n", True), ("", False)])
def test_a_later_block_runs_a_script_after_one_in_another_clone(block: str, is_found: bool, checkout: Path) -> None:
    (checkout / "scripts").mkdir(exist_ok=True)
    (checkout / "scripts/run.sh").write_text("cd project\npython figures.py\n")
    (checkout / "project/figures.py").write_text("import torch, plots\n")
    steps = ("git clone https://a.b/c/other.git", "cd other", "make", f"{block}bash scripts/run.sh")
    assert bool(audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", *steps))) is is_found


PATHS = {  # values of PYTHONPATH, and whether their modules are all known
    ".": True,
    "$PWD:$PYTHONPATH": True,
    "./project:${PYTHONPATH}": True,
    "$(pwd)/project": True,
    "./Other:$PYTHONPATH": False,
    "$HOME/code/other": False,
    "/path/to/plot-project": True,
    "third_party/other": False,
}


@each_case("value", [*PATHS])
def test_directories_of_pythonpath(value: str, checkout: Path) -> None:
    (checkout / "third_party/other").mkdir(parents=True, exist_ok=True)  # a submodule that is not there
    (checkout / "pyproject.toml").write_text("[project]\nname = 'plot-project'\n")
    install, start = "pip install torch==2.8.0", "python train.py"
    for commands in ((install, f'PYTHONPATH="{value}" {start}'), (f"export PYTHONPATH={value}", install, start)):
        found = audit_imports(checkout / "README.md", sh(*commands))
        assert bool(found) is PATHS[value], commands


@each_case(("value", "is_found"), [('"$(cd "$(dirname "$0")" && pwd)"', True), ("/opt/code", False), ("", False)])
def test_pythonpath_with_a_variable(value: str, is_found: bool, checkout: Path) -> None:
    text = sh("pip install torch==2.8.0", f"ROOT={value}", "export PYTHONPATH=$ROOT:$PYTHONPATH", "python train.py")
    assert bool(audit_imports(checkout / "README.md", text.replace("ROOT=\n", ""))) is is_found


@each_case(("value", "is_found"), [("..", True), ("$PYTHONPATH:../", True), ("../other", False), ("../..", False)])
def test_pythonpath_relative_to_the_directory_of_a_block(value: str, is_found: bool, checkout: Path) -> None:
    text = sh("pip install torch==2.8.0", "python train.py", "cd project", f"PYTHONPATH={value} pytest")
    assert bool(audit_imports(checkout / "README.md", text)) is is_found


@each_case(("text", "program"), [
    ("- See [figures](figures) for details.\n", "figures/README.md"),
    ("1. Draw the figures with `python figures/draw.py`. This takes an hour.\n", ""),
])  # fmt: skip
def test_programs_that_the_guide_of_a_manifest_names(text: str, program: str, checkout: Path) -> None:
    (checkout / "figures").mkdir(exist_ok=True)
    (checkout / "figures/README.md").unlink(missing_ok=True)
    (checkout / "figures/draw.py").write_text("import torch, plots\n")
    (checkout / "README.md").write_text(f"# Project\n{text}")
    if program:
        (checkout / program).write_text(sh("python draw.py"))
    (found,) = audit_imports(checkout / "requirements.txt", "torch==2.8.0\n")
    assert found.message == "figures/draw.py:1 imports plots, and no step installs it"


@each_case("file", [
    "figures/requirements.txt", "figures/env_setup.sh", "figures/parts/README.md", "figures/parts/install.md",
])  # fmt: skip
def test_programs_of_a_guide_with_an_environment_of_its_own(file: str, checkout: Path) -> None:
    shutil.rmtree(checkout / "figures", ignore_errors=True)
    (checkout / "figures/parts/lines").mkdir(parents=True)
    (checkout / "figures/parts/lines/draw.py").write_text("import torch, plots\n")
    (checkout / "README.md").write_text("See [figures](figures/parts/lines).\n")
    (checkout / "figures/parts/lines/README.md").write_text(sh("python draw.py"))
    assert audit_imports(checkout / "requirements.txt", "torch==2.8.0\n")
    (checkout / file).write_text("pip install other\n")
    assert not audit_imports(checkout / "requirements.txt", "torch==2.8.0\n")


@each_case("command, expected", [("python draw.py", 1), ("uv run draw.py", 0), ("uv run --no-project draw.py", 0)])
def test_a_program_with_requirements_of_its_own(command: str, expected: int, checkout: Path) -> None:
    (checkout / "draw.py").write_text('# /// script\n# dependencies = ["plots"]\n# ///\nimport torch, plots\n')
    found = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", command))
    assert len(found) == expected
    (checkout / "README.md").write_text(sh(command))
    assert len(audit_imports(checkout / "requirements.txt", "torch==2.8.0\n")) == expected
    (checkout / "README.md").write_text("# Project\n")
    with (checkout / "draw.py").open("a") as file:
        file.write("if __name__ == '__main__':\n    plots.show()\n")
    assert not audit_imports(checkout / "requirements.txt", "torch==2.8.0\n")


PARTLY_KNOWN: dict[str, tuple[tuple[str, ...], str]] = {  # commands, and the part that is not read with its line
    "an environment with torch": (("pip install tables", "python train.py"), "what contains torch, which no step"),
    "environment modules": (
        ("module load pytorch", "pip install torch==2.8.0", "python train.py"), "the module pytorch (line 3)",
    ),
    "conda packages": (
        ("conda install numba", "pip install torch==2.8.0", "python train.py"), "the conda package numba (line 3)",
    ),
    "a repository": (
        ("pip install torch==2.8.0 git+https://github.com/a/other.git", "python train.py"),
        "git+https://github.com/a/other.git (line 3)",
    ),
    "extras of a fork": (
        ("pip install torch==2.8.0", "pip install 'peft[dev] @ git+https://github.com/a/peft'", "python train.py"),
        "git+https://github.com/a/peft (line 4)",
    ),
    "a namesake of another project": (
        ("pip install torch==2.8.0", "pip install 'clip @ git+https://github.com/a/CLIP'", "python train.py"),
        "git+https://github.com/a/CLIP (line 4)",
    ),
    "an image": (
        ("docker run -it nvcr.io/nvidia/pytorch:24.05-py3", "pip install torch==2.8.0", "python train.py"),
        "the image nvcr.io/nvidia/pytorch:24.05-py3 (line 3)",
    ),
    "a file that is not there": (
        ("pip install torch==2.8.0", "pip install -r absent.txt", "python train.py"),
        "`pip install -r absent.txt` (line 4)",
    ),
}  # fmt: skip


@each_case("name", [*PARTLY_KNOWN])
def test_a_part_of_the_environment_is_not_read(name: str, checkout: Path) -> None:
    commands, part = PARTLY_KNOWN[name]
    (found,) = audit_imports(checkout / "README.md", sh(*commands), tables="1.0")
    assert found.status == "unknown"
    assert f"not read: {part}" in found.message
    assert found.remedies[0].commands == ("python -c 'import plots'",)


@each_case("absent, status", [("nothing", "error"), ("ftfy", "unknown")])
def test_a_repository_with_known_requirements(absent: str, status: str, checkout: Path) -> None:
    text = sh("pip install torch==2.8.0", "pip install git+https://github.com/openai/CLIP.git", "python train.py")
    (checkout / "README.md").write_text(text)
    index = FixedIndex(*RELEASES)
    index.unread = {absent}
    solver = FixedSolver(index, {"torch": "2.8.0"})
    found = audit_text(text, str(checkout / "README.md"), None, solver, python="3.12").result.findings
    assert [each.status for each in found if each.id == "RUN181"] == [status]


@each_case("repository, modules", [("detectron2", []), ("other", ["fvcore"])])
def test_a_repository_of_another_guide_brings_a_module(repository: str, modules: list[str], checkout: Path) -> None:
    (checkout / "INSTALL.md").write_text(f"pip install git+https://github.com/facebookresearch/{repository}.git\n")
    (checkout / "project/figures.py").write_text("import fvcore\n")
    text = sh("pip install torch==2.8.0", "python train.py")
    (checkout / "README.md").write_text(text)
    index = FixedIndex(*RELEASES, IndexedRelease("fvcore", "1.0", "2026-10-01"))
    solver = FixedSolver(index, {"torch": "2.8.0"})
    found = audit_text(text, str(checkout / "README.md"), None, solver, python="3.12").result.findings
    assert [each.message.split()[2].rstrip(",") for each in found if each.id == "RUN181"] == modules


@each_case("repository, count", [("fast-attention", 0), ("fast-operators", 1)])
def test_the_guide_builds_a_repository_that_spells_out_the_module(
    repository: str, count: int, checkout: Path
) -> None:
    (checkout / "INSTALL.md").write_text(f"To train, install https://github.com/example/{repository}.git\n")
    (checkout / "project/figures.py").write_text("import fast_attn\n")
    text = sh("pip install torch==2.8.0", "python train.py")
    (checkout / "README.md").write_text(text)
    solver = FixedSolver(FixedIndex(*RELEASES, IndexedRelease("fast_attn", "2.8", "2026-10-01")), {"torch": "2.8.0"})
    found = audit_text(text, str(checkout / "README.md"), None, solver, python="3.12").result.findings
    assert len([each for each in found if each.id == "RUN181"]) == count


def test_what_is_not_read_can_be_a_manifest_of_the_checkout(checkout: Path) -> None:
    (checkout / "other-requirements.txt").write_text("plots\n")
    text = sh("pip install torch==2.8.0", "pip install -r absent.txt", "python train.py")
    assert not audit_imports(checkout / "README.md", text)
    (checkout / "other-requirements.txt").unlink()
    assert audit_imports(checkout / "README.md", text)


@each_case("repository, is_found", [("gradual-plots-lr", False), ("gradual-lines-lr", True)])
def test_a_repository_whose_name_has_a_word_of_the_module(repository: str, is_found: bool, checkout: Path) -> None:
    steps = ("pip install torch==2.8.0", f"pip install git+https://github.com/a/{repository}.git", "python train.py")
    assert bool(audit_imports(checkout / "README.md", sh(*steps))) is is_found


@each_case("named, is_found", [("`python figures/app.py`", True), ("`figures/app.py`", False)])
def test_the_text_starts_a_program_next_to_a_repository_that_is_not_read(
    named: str, is_found: bool, checkout: Path
) -> None:
    write_files(checkout, {"figures/app.py": "import torch, chain\n", "train.py": "import torch\n"})
    steps = sh("pip install torch==2.8.0 git+https://github.com/a/other.git", "python train.py")
    found = audit_imports(checkout / "README.md", f"{steps}\nStart the demo with {named}.\n", chain="1.0")
    assert [each.status for each in found] == (["unknown"] if is_found else [])


def test_most_modules_are_those_of_another_environment(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("chain\nplots\n")
    (checkout / "train.py").write_text("import torch, chain, tables\nfrom project import data\n")
    text = sh("pip install torch==2.8.0", "pip install git+https://github.com/a/other.git", "python train.py")
    assert not audit_imports(checkout / "README.md", text)


def test_the_steps_lack_most_modules_of_the_programs(checkout: Path) -> None:
    (checkout / "train.py").write_text("import torch, tables, chain\nfrom project import data\n")
    text = sh("pip install torch==2.8.0", "python train.py")
    (found,) = audit_imports(checkout / "README.md", text)
    assert (found.status, found.message) == (
        "warning",
        "train.py:1 imports tables, and no step installs it nor chain (train.py:1) and plots (project/figures.py:2)",
    )
    assert found.remedies[0].commands == ("uv pip install tables chain plots",)
    (checkout / "other-requirements.txt").write_text("plots\nchain\ntables\n")
    assert not audit_imports(checkout / "README.md", text)


def test_the_only_module_of_a_program_is_missing(checkout: Path) -> None:
    (checkout / "train.py").write_text("import tables\n")
    (checkout / "requirements.txt").write_text("torch==2.8.0\n")
    (found,) = audit_imports(checkout / "README.md", sh("pip install -r requirements.txt", "python train.py"))
    assert (found.status, found.message) == ("warning", "train.py:1 imports tables, and no step installs it")
    assert not audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))


def test_one_question_names_all_modules(checkout: Path) -> None:
    (checkout / "train.py").write_text("import torch, tables, chain.parts, a, b, c\nfrom project import data\n")
    for name in ("a", "b", "c"):
        (checkout / f"{name}.py").touch()
    text = sh("conda install numba", "pip install torch==2.8.0 chain", "python train.py")
    (found,) = audit_imports(checkout / "README.md", text, chain="1.0")
    assert "imports tables (train.py:1) and plots (project/figures.py:2)" in found.message


COMPLETE_ENVIRONMENTS: dict[str, tuple[str, ...]] = {  # what is not read cannot bring the module
    "conda's torch": ("conda install pytorch -c pytorch", "pip install torch==2.8.0"),
    "modules of a toolchain": ("module load cuda/12.1 gcc", "pip install torch==2.8.0"),
    "a fork of a package of the tables": (
        "pip install torch==2.8.0", "pip install 'peft @ git+https://github.com/a/peft.git@dev'",
    ),
    "the image of PyTorch": ("docker run -it pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel", "pip install chain"),
}  # fmt: skip
GIVEN: dict[str, tuple[str, ...]] = {
    "conda": ("conda install plots", "pip install torch==2.8.0"),
    "conda's torch": ("conda install pytorch torchvision -c pytorch", "pip install torch==2.8.0"),
    "a requirement of conda": ("conda install chain", "pip install torch==2.8.0"),
    "the system": ("apt-get install -y python3-plots", "pip install torch==2.8.0"),
    "another repository": ("pip install torch==2.8.0", "git clone https://github.com/a/other", "cd other"),
}


@each_case("name", [*COMPLETE_ENVIRONMENTS])
def test_what_is_not_read_cannot_bring_the_module(name: str, checkout: Path) -> None:
    text = sh(*COMPLETE_ENVIRONMENTS[name], "python train.py")
    assert [each.status for each in audit_imports(checkout / "README.md", text, chain="1.0")] == ["error"]


@each_case("name", [*GIVEN])
def test_a_step_brings_the_module(name: str, checkout: Path) -> None:
    module = "PIL" if name == "conda's torch" else "plots"
    (checkout / "project/figures.py").write_text(f"import {module}\n")
    assert not audit_imports(checkout / "README.md", sh(*GIVEN[name], "python train.py"), tables="1.0")


def test_a_module_of_torch_that_needs_another_package(checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("from torch.utils.tensorboard import SummaryWriter\n")
    text = sh("pip install torch==2.8.0", "python train.py")
    assert "needs tensorboard" in audit_imports(checkout / "README.md", text)[0].message
    assert not audit_imports(checkout / "README.md", sh("pip install torch==2.8.0 tensorboard", "python train.py"))


@each_case(("requires", "limit"), [("torch>=2.9", True), ("torch>=2.1", False), ("torch>=9; extra == 'gpu'", False)])
def test_a_further_package_keeps_the_pinned_torch(requires: str, limit: bool, checkout: Path) -> None:
    index = FixedIndex(*RELEASES)
    index.requirements = {"plots 1.0": (requires,)}
    solver = FixedSolver(index, {"torch": "2.8.0"})
    text = sh("pip install torch==2.8.0", "python train.py")
    found = audit_text(text, str(checkout / "README.md"), None, solver, python="3.12").result.findings
    (command,) = next(each for each in found if each.id == "RUN181").remedies[0].commands
    assert command == f"uv pip install plots{' torch==2.8.0' if limit else ''}"


def test_no_command_installs_a_release_that_lacks_what_programs_import(checkout: Path) -> None:
    """FixedIndex has a release without the names that contain `old`."""
    (checkout / "project/figures.py").write_text("from plots import old_axes\n")
    (finding,) = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))
    assert finding.fix.endswith(" The newest release does not have plots.old_axes.")
    assert not finding.remedies


@each_case(("extra", "package"), [("plots==1.0", "plots==1.0"), ("plots==0.9", "plots"), ("my-plots==1.0", "plots")])
def test_a_missing_package_is_the_release_that_an_extra_of_the_checkout_pins(
    extra: str, package: str, checkout: Path
) -> None:
    """The index of the test has plots 1.0."""
    (checkout / "pyproject.toml").write_text(
        f'[project]\nname = "project"\nversion = "1"\n[project.optional-dependencies]\nall = ["{extra}"]\n'
    )
    (finding,) = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))
    assert finding.remedies[0].commands == (f"uv pip install {package}",)


class OlderTorch(FixedSolver):
    """A solver for which no release of a package fits a torch."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        """A conflict where both are named."""
        names = {each.name for each in problem.requirements}
        return StepSolution(conflict="plots") if names >= {"plots", "torch"} else super().__call__(problem)


def test_no_release_of_a_further_package_fits_the_pinned_torch(checkout: Path) -> None:
    index = FixedIndex(*RELEASES)
    index.requirements = {"plots 1.0": ("torch>=2.9",)}
    text = sh("pip install torch==2.8.0", "python train.py")
    solver = OlderTorch(index, {"torch": "2.8.0"})
    found = audit_text(text, str(checkout / "README.md"), None, solver, python="3.12").result.findings
    (finding,) = [each for each in found if each.id == "RUN181"]
    assert finding.fix.startswith("No release of plots fits torch 2.8.0: ")
    assert not finding.remedies


@each_case(("torch", "limit"), [("2.2.0", True), ("2.8.0", False)])
def test_a_further_package_keeps_the_numpy_of_torch(torch: str, limit: bool, checkout: Path) -> None:
    text = sh(f"pip install torch=={torch}", "python train.py")
    (command,) = audit_imports(checkout / "README.md", text, torch=torch)[0].remedies[0].commands
    assert ("'numpy<2'" in command) is limit


def test_a_condition_of_any_depth_is_read(checkout: Path) -> None:
    conditions = ("-" * 20_000 + "a", "a" + "+a" * 400, "not " * 300 + "a")
    files = [f"if {each}:\n    import plots\n" for each in conditions]
    for text in files:
        (checkout / "project/figures.py").write_text(text)
        found = audit_imports(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))
        assert found == []


def test_a_program_imports_what_the_release_lacks(checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("from chain import old_parts, parts\n")
    text = sh("pip install torch==2.8.0 chain", "python train.py")
    found = audit_imports(checkout / "README.md", text, chain="1.0")
    assert [(each.id, each.line, each.message) for each in found] == [
        ("RUN078", 4, "project/figures.py:1 imports chain.old_parts, which chain 1.0 of 2026-10-01 does not have")
    ]


def test_the_text_names_a_program_that_imports_what_the_release_lacks(checkout: Path) -> None:
    (checkout / "tools").mkdir()
    (checkout / "tools/own.py").write_text("from chain import old_parts\n__main__ = old_parts\n")
    (checkout / "lonely.py").write_text("from chain import parts\nimport tables\n")  # no program
    steps = sh("pip install torch==2.8.0 chain plots", "python train.py")
    readme, versions = checkout / "README.md", {"chain": "1.0", "plots": "1.0"}

    def found(text: str) -> list[tuple[str, int, str]]:
        return [(each.id, each.line, each.status) for each in audit_imports(readme, f"{steps}\n{text}\n", **versions)]

    line = steps.count("\n") + 2
    for text in ("* GLUE: `tools/own.py`", "See [the tool](./tools/own.py)."):
        assert found(text) == [("RUN078", line, "warning")]
    for text in ("`lonely.py`", "`own.py`", "Do not use `tools/own.py`.", "```bash\n# `tools/own.py`\n```"):
        assert not found(text)
    (checkout / "tools/env.yml").write_text("name: own\n")
    assert not found("* GLUE: `tools/own.py`")


def test_the_tables_show_what_the_release_lacks(checkout: Path) -> None:
    (checkout / "README.md").write_text("```bash\npython train.py\n```\n")
    (checkout / "project/harness.py").write_text("from lm_eval.base import LM\n__main__ = LM\n")
    versions = {"lm-eval": "0.4.13", "plots": "1.0"}
    found = audit_imports(checkout / "requirements.txt", "torch==2.8.0\nplots\nlm-eval\n", **versions)
    assert [(each.line, each.status, each.message, each.fix) for each in found] == [
        (3, "warning", "project/harness.py:1 imports lm_eval.base, which lm-eval 0.4.13 does not have",
         "Use lm-eval==0.3.0, which has it.")
    ]  # fmt: skip
    versions |= {"lm-eval": "0.3.0", "evaluate": "0.4.6"}
    (checkout / "project/scores.py").write_text("from evaluate import load\n__main__ = load\n")  # once a module
    assert not audit_imports(checkout / "requirements.txt", "torch==2.8.0\nplots\nlm-eval\nevaluate\n", **versions)


@each_case("program, expected", [
    ("models/run.py", 1), ("old/run.py", 0), ("old/parts/run.py", 0), ("paper/run.py", 0), ("train/run.py", 1),
])  # fmt: skip
def test_programs_below_another_environment_are_not_those_of_a_manifest(
    program: str, expected: int, checkout: Path
) -> None:
    for name in ("models", "old/parts", "paper", "train"):
        shutil.rmtree(checkout / name, ignore_errors=True)
        (checkout / name).mkdir(parents=True)
    (checkout / "old/requirements.txt").write_text("chain==0.1\n")
    (checkout / program).write_text("from chain import old_parts\n__main__ = old_parts\n")
    text = "torch==2.8.0\nchain\nplots\n"
    found = audit_imports(checkout / "train/requirements.txt", text, chain="1.0", plots="1.0")
    assert [each.id for each in found] == ["RUN078"] * expected


@each_case(
    "create, expected",
    [("uv venv --python 3.11", "error"), ("uv venv --python 3.12", "error"), ("python3.11 -m venv e", "unknown")],
)
def test_a_program_imports_a_module_that_setuptools_removed(create: str, expected: str, checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("import pkg_resources\n")
    pip = "uv pip" if create.startswith("uv") else "pip"
    text = sh(create, f"{pip} install torch==2.8.0 plots setuptools", "python train.py")
    versions = {"setuptools": "84.2.1", "plots": "1.0"}
    found = audit_imports(checkout / "README.md", text, **versions)
    assert [(each.id, each.status) for each in found] == [("RUN078", expected)]
    assert found[0].message.startswith("project/figures.py:1 imports pkg_resources, which setuptools 84.2.1 does not")
    assert "Use setuptools==81.0.0" in found[0].fix
    assert not audit_imports(checkout / "README.md", text, **{**versions, "setuptools": "81.0.0"})


BY_OPTION = """
import argparse
import chain, torch, torchvision
def main():
    args = parser.parse_args()
    if args.figures:
        from project.figures import lines
    else:
        import tables
parser = argparse.ArgumentParser()
parser.add_argument("--figures", action="store_true")
main()
"""


@each_case(("commands", "modules"), [
    (("python train.py --figures",), ["plots"]), (("python train.py",), ["tables"]),
    (("python train.py", "python train.py --figures"), ["tables", "plots"]), (("python train.py $OPTIONS",), []),
])  # fmt: skip
def test_an_import_that_an_option_selects(commands: tuple[str, ...], modules: list[str], checkout: Path) -> None:
    (checkout / "train.py").write_text(BY_OPTION)
    versions = {"chain": "0.9", "torchvision": "0.23.0"}
    found = audit_imports(
        checkout / "README.md", sh("pip install torch==2.8.0 chain torchvision", *commands), **versions
    )
    assert [each.message.split()[2].rstrip(",") for each in found] == modules
