"""Modules that the programs of a checkout import, and that no step installs or the installed release lacks."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests.program_launches import Program, started_program
from envdoctor.manifests.shell_records import Command
from envdoctor.resolution.index_facts import IndexedRelease

RELEASES = tuple(IndexedRelease(name, "1.0", "2026-10-01") for name in ("chain", "plots", "tables"))
PROGRAMS: dict[str, Program | None] = {
    "python train.py --lr 1": Program(script="train.py"),
    "python3 -u -W ignore tools/train.py": Program(script="tools/train.py"),
    "python -m project.train": Program(module="project.train"),
    "python -m torch.distributed.run --nproc_per_node=8 train.py": Program(
        script="train.py", launcher="torch.distributed.run"
    ),
    "torchrun --nproc_per_node 8 train.py --data x.py": Program(script="train.py", launcher="torchrun"),
    "torchrun -m project.train": Program(module="project.train", launcher="torchrun"),
    "accelerate launch --config_file a.yaml train.py": Program(script="train.py", launcher="accelerate"),
    "deepspeed --master_port=1 train.py": Program(script="train.py", launcher="deepspeed"),
    "uv run python train.py": Program(script="train.py"),
    "python -c 1": None,
    "pip install train.py": None,
    "python $SCRIPT": None,
    "sudo ../tools/train.py": Program(script="../tools/train.py"),
}


@each_case("command", [*PROGRAMS])
def test_the_program_of_a_command(command: str) -> None:
    program = started_program(Command(1, tuple(command.split())))
    assert (program and program._replace(arguments=())) == PROGRAMS[command]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a program that loads two modules of its own."""
    files = {
        "train.py": "import torch\nfrom project import data\n",
        "project/__init__.py": "",
        "project/data.py": "from . import figures\n",
        "project/figures.py": "import os\nimport plots.lines as lines\n",
        "lonely.py": "import tables\n",
    }
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def _audit(path: Path, text: str, **versions: str) -> list[Finding]:
    index = FixedIndex(*RELEASES)
    index.requirements = {"chain 1.0": ("plots",)}
    solver = FixedSolver(index, {"torch": "2.8.0", **versions})
    path.write_text(text)
    found = audit_text(text, str(path), None, solver, python="3.12").result.findings
    return [each for each in found if each.id in ("RUN078", "RUN181")]


def test_a_program_imports_what_no_step_installs(checkout: Path) -> None:
    text = sh("pip install torch==2.8.0", "python train.py")
    found = _audit(checkout / "README.md", text)
    assert [(each.line, each.status, each.message) for each in found] == [
        (4, "error", "project/figures.py:2 imports plots, and no step installs it")
    ]
    assert "train.py -> project/data.py -> project/figures.py" in str(found[0].evidence)
    assert not _audit(checkout / "README.md", text.replace("2.8.0", "2.8.0 plots"), plots="1.0")


COMPLETE: dict[str, tuple[str, str]] = {  # a file of the checkout, and its text
    "a handler": ("project/figures.py", "try:\n    import plots\nexcept ImportError:\n    plots = None\n"),
    "a function": ("project/figures.py", "def draw():\n    import plots\n"),
    "a condition": ("project/figures.py", "import sys\nif sys.platform == 'win32':\n    import plots\n"),
    "only as a script": ("project/figures.py", "if __name__ == '__main__':\n    import plots\n"),
    "the standard library": ("project/figures.py", "import json, email.message\n"),
    "a module of the checkout": ("tools/plots.py", ""),
    "a compiled module": ("setup.py", "setup(ext_modules=[CUDAExtension('plots', ['a.cu'])])\n"),
    "a submodule": (".gitmodules", '[submodule "plots"]\n\tpath = third_party/plots\n\turl = https://a.b/c/plots.git\n'),
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
    assert not _audit(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))


FOUND: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {  # commands, and files of the checkout
    "a script after steps in another directory": (
        ("cd project", "sh ./run.sh"),
        {"run.sh": "python scripts/draw.py\n", "scripts/draw.py": "import torch, plots\n"},
    ),
    "a directory that the steps enter twice": (
        ("cd project", "cd project", "python figures.py"), {"project/figures.py": "import torch, plots\n"},
    ),
    "a directory of the checkout in sys.path": (
        ("python draw.py",),
        {"draw.py": "import sys, os\nROOT = os.path.dirname(os.path.abspath(__file__))\nsys.path.insert(0, ROOT)\n"
                    "sys.path.append(os.path.join(ROOT, 'project'))\nimport torch, figures\n"},
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
    for file, text in files.items():
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        (checkout / file).write_text(text)
    (found,) = _audit(checkout / "README.md", sh("pip install torch==2.8.0", *commands))
    assert "imports google.genai" in found.message if "share" in name else "imports plots" in found.message


def test_a_module_with_a_usual_name_that_one_package_has(checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("import evaluate\n")
    text = sh("pip install torch==2.8.0", "python train.py")
    (found,) = _audit(checkout / "README.md", text)
    assert found.remedies[0].commands[0].endswith("evaluate")
    (checkout / "project/evaluate.py").touch()
    assert not _audit(checkout / "README.md", text)


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
    found = _audit(checkout / "README.md", sh("pip install torch==2.8.0", "python -m project.figures"))
    assert bool(found) is SEARCH_PATHS[added]


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
    (found,) = _audit(checkout / "requirements.txt", "torch==2.8.0\n")
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
    assert _audit(checkout / "requirements.txt", "torch==2.8.0\n")
    (checkout / file).write_text("pip install other\n")
    assert not _audit(checkout / "requirements.txt", "torch==2.8.0\n")


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
    (found,) = _audit(checkout / "README.md", sh(*commands), tables="1.0")
    assert found.status == "unknown"
    assert f"not read: {part}" in found.message
    assert found.remedies[0].commands == ("python -c 'import plots'",)


def test_what_is_not_read_can_be_a_manifest_of_the_checkout(checkout: Path) -> None:
    (checkout / "other-requirements.txt").write_text("plots\n")
    text = sh("pip install torch==2.8.0", "pip install -r absent.txt", "python train.py")
    assert not _audit(checkout / "README.md", text)
    (checkout / "other-requirements.txt").unlink()
    assert _audit(checkout / "README.md", text)


def test_most_modules_are_those_of_another_environment(checkout: Path) -> None:
    (checkout / "requirements.txt").write_text("chain\nplots\n")
    (checkout / "train.py").write_text("import torch, chain, tables\nfrom project import data\n")
    text = sh("pip install torch==2.8.0", "pip install git+https://github.com/a/other.git", "python train.py")
    assert not _audit(checkout / "README.md", text)


def test_one_question_names_all_modules(checkout: Path) -> None:
    (checkout / "train.py").write_text("import torch, tables, chain.parts, a, b, c\nfrom project import data\n")
    for name in ("a", "b", "c"):
        (checkout / f"{name}.py").touch()
    text = sh("conda install numba", "pip install torch==2.8.0 chain", "python train.py")
    (found,) = _audit(checkout / "README.md", text, chain="1.0")
    assert "imports tables (train.py:1) and plots (project/figures.py:2)" in found.message


COMPLETE_ENVIRONMENTS: dict[str, tuple[str, ...]] = {  # what is not read cannot bring the module
    "conda's torch": ("conda install pytorch -c pytorch", "pip install torch==2.8.0"),
    "modules of a toolchain": ("module load cuda/12.1 gcc", "pip install torch==2.8.0"),
    "the image of PyTorch": ("docker run -it pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel", "pip install chain"),
}
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
    assert [each.status for each in _audit(checkout / "README.md", text, chain="1.0")] == ["error"]


@each_case("name", [*GIVEN])
def test_a_step_brings_the_module(name: str, checkout: Path) -> None:
    module = "PIL" if name == "conda's torch" else "plots"
    (checkout / "project/figures.py").write_text(f"import {module}\n")
    assert not _audit(checkout / "README.md", sh(*GIVEN[name], "python train.py"), tables="1.0")


def test_a_module_of_torch_that_needs_another_package(checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("from torch.utils.tensorboard import SummaryWriter\n")
    text = sh("pip install torch==2.8.0", "python train.py")
    assert "needs tensorboard" in _audit(checkout / "README.md", text)[0].message
    assert not _audit(checkout / "README.md", sh("pip install torch==2.8.0 tensorboard", "python train.py"))


@each_case(("torch", "limit"), [("2.2.0", True), ("2.8.0", False)])
def test_a_further_package_keeps_the_numpy_of_torch(torch: str, limit: bool, checkout: Path) -> None:
    text = sh(f"pip install torch=={torch}", "python train.py")
    (command,) = _audit(checkout / "README.md", text, torch=torch)[0].remedies[0].commands
    assert ("'numpy<2'" in command) is limit


def test_a_condition_of_any_depth_is_read(checkout: Path) -> None:
    conditions = ("-" * 20_000 + "a", "a" + "+a" * 400, "not " * 300 + "a")
    files = [f"if {each}:\n    import plots\n" for each in conditions]
    for text in files:
        (checkout / "project/figures.py").write_text(text)
        found = _audit(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))
        assert found == []


def test_the_programs_of_a_manifest(checkout: Path) -> None:
    requirements = checkout / "requirements.txt"
    assert not _audit(requirements, "torch==2.8.0\n")  # no program
    (checkout / "main.py").write_text("import torch\nimport project.data\nif __name__ == '__main__':\n    print()\n")
    assert [each.status for each in _audit(requirements, "torch==2.8.0\n")] == ["warning"]
    (checkout / "main.py").unlink()
    (checkout / "README.md").write_text("```bash\npython train.py\n```\n")
    assert "README.md:2" in str(_audit(requirements, "torch==2.8.0\n")[0].evidence)
    (checkout / "requirements-figures.txt").write_text("plots\n")
    assert not _audit(requirements, "torch==2.8.0\n")


def test_the_program_of_a_readme_is_next_to_the_manifest(checkout: Path) -> None:
    (checkout / "README.md").write_text("```bash\npython main.py\n```\n")
    (checkout / "demo").mkdir()
    (checkout / "demo/main.py").write_text("import torch\nimport plots\n")
    (found,) = _audit(checkout / "demo/requirements.txt", "torch==2.8.0\n")
    assert found.message.startswith("demo/main.py:2 imports plots")


STARTS: dict[str, bool] = {  # the end of a program, and whether it runs the import of `main`
    "main()\n": True,
    "if __name__ == '__main__':\n    sys.exit(main())\n": True,
    "def run():\n    main()\n\nfire.Fire(run)\n": True,
    "if len(sys.argv) > 1:\n    main()\n": False,
    "def run():\n    if sys.argv:\n        return\n    main()\n\nrun()\n": False,
    "def run():\n    yield main()\n\nrun()\n": False,
    "start(main)\n": False,
}


@each_case(("end", "is_run"), [*STARTS.items()])
def test_a_function_that_the_program_calls_at_its_start(end: str, is_run: bool, checkout: Path) -> None:
    (checkout / "train.py").write_text(f"import torch\nimport sys\n\ndef main():\n    import plots\n\n{end}")
    assert bool(_audit(checkout / "README.md", sh("pip install torch==2.8.0", "python train.py"))) is is_run


GUIDES: dict[str, tuple[str, str]] = {  # a guide of the checkout, and how it starts the program
    "another guide": ("EVAL_README.md", "```bash\npython train.py\n```\n"),
    "a guide to which it links": ("README.md", "See [the evaluation](scripts/EVAL_README.md).\n"),
    "a script that it names": ("README.md", "Training is in [train.sh](scripts/train.sh).\n"),
    "a script with absolute paths": ("README.md", "```bash\nbash scripts/absolute.sh\n```\n"),
}


@each_case("name", [*GUIDES])
def test_the_programs_of_the_guides_of_a_checkout(name: str, checkout: Path) -> None:
    guide, text = GUIDES[name]
    (checkout / "pyproject.toml").write_text("[project]\nname = 'my-project'\n")
    (checkout / "scripts").mkdir(exist_ok=True)
    for other, _ in GUIDES.values():
        (checkout / other).write_text("")
    (checkout / "scripts/EVAL_README.md").write_text("```bash\npython train.py\n```\n")
    (checkout / "scripts/train.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    (checkout / "scripts/absolute.sh").write_text("ROOT=/home/me/my-project\npython ${ROOT}/train.py\n")
    (checkout / guide).write_text(text)
    assert [each.status for each in _audit(checkout / "requirements.txt", "torch==2.8.0\n")] == ["warning"]
    (found,) = _audit(checkout / "INSTALL.md", sh("pip install torch==2.8.0"))
    assert (found.status, guide in str(found.evidence)) == ("warning", True), name


@each_case(("directory", "is_found"), [("path_to_checkpoints", True), ("other-project", False)])
def test_a_program_after_a_block_in_a_directory_of_the_reader(
    directory: str, is_found: bool, checkout: Path
) -> None:
    text = sh("pip install torch==2.8.0", f"cd {directory} && python convert.py")
    assert not _audit(checkout / "README.md", text.replace("convert.py", "train.py"))  # a program of that directory
    found = _audit(checkout / "README.md", f"{text}\n```bash\npython train.py\n```\n")
    assert bool(found) is is_found
    assert not _audit(checkout / "README.md", f"{text}\n```bash\npython absent.py\n```\n")


OWN_STEPS: dict[str, tuple[str, str, bool]] = {  # a file next to a guide, a step of it, and whether it has more
    "a script that it starts": ("scripts/env_setup.sh", "bash env_setup.sh", True),
    "a command": ("scripts/notes.txt", "pip install figures-kit", True),
    "requirements next to it": ("scripts/requirements.txt", "", True),
    "the packages of the manifest": ("scripts/notes.txt", "pip install torch", False),
}


@each_case("name", [*OWN_STEPS])
def test_a_guide_of_another_folder_with_an_environment_of_its_own(name: str, checkout: Path) -> None:
    file, step, has_more = OWN_STEPS[name]
    (checkout / "scripts").mkdir(exist_ok=True)
    (checkout / file).write_text("pip install figures-kit\n")
    (checkout / "README.md").write_text("See [the training](scripts/README.md).\n")
    (checkout / "scripts/README.md").write_text(f"```bash\n{step}\npython train.py\n```\n")
    (checkout / "scripts/train.py").write_text("import torch\nimport plots\n")
    assert bool(_audit(checkout / "requirements.txt", "torch==2.8.0\n")) is not has_more
    (checkout / file).unlink()


def test_the_program_of_an_image_in_a_folder_that_it_copies(checkout: Path) -> None:
    (checkout / "server").mkdir()
    (checkout / "server/serve.py").write_text("import torch\nimport plots\n")
    image = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install torch==2.8.0\nWORKDIR /app\n"
    starts = 'CMD ["python3", "serve.py"]\n'
    assert [each.line for each in _audit(checkout / "Dockerfile", f"{image}COPY server/ /app/\n{starts}")] == [5]
    assert not _audit(checkout / "Dockerfile", f"{image}COPY --from=other server/ /app/\n{starts}")


CONSOLE_SCRIPTS = {
    "pyproject.toml": '[project]\nname = "project"\n[project.scripts]\ndraw = "project.data:main"\n',
    "setup.py": "setup(name='project', entry_points={'console_scripts': ['draw=project.data:main']})\n",
}


@each_case("name", [*CONSOLE_SCRIPTS])
def test_a_program_that_the_project_installs(name: str, checkout: Path) -> None:
    (checkout / name).write_text(CONSOLE_SCRIPTS[name])
    (checkout / "project/data.py").write_text("import torch\nfrom . import figures\n")
    found = _audit(checkout / "README.md", sh("pip install torch==2.8.0", "draw --size 3"))
    assert [(each.line, each.message.partition(" ")[0]) for each in found] == [(4, "project/figures.py:2")]
    (checkout / name).unlink()


def test_a_program_imports_what_the_release_lacks(checkout: Path) -> None:
    (checkout / "project/figures.py").write_text("from chain import old_parts, parts\n")
    text = sh("pip install torch==2.8.0 chain", "python train.py")
    found = _audit(checkout / "README.md", text, chain="1.0")
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
        return [(each.id, each.line, each.status) for each in _audit(readme, f"{steps}\n{text}\n", **versions)]

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
    found = _audit(checkout / "requirements.txt", "torch==2.8.0\nplots\nlm-eval\n", **versions)
    assert [(each.line, each.status, each.message, each.fix) for each in found] == [
        (3, "warning", "project/harness.py:1 imports lm_eval.base, which lm-eval 0.4.13 does not have",
         "Use lm-eval==0.3.0, which has it.")
    ]  # fmt: skip
    versions |= {"lm-eval": "0.3.0", "evaluate": "0.4.6"}
    (checkout / "project/scores.py").write_text("from evaluate import load\n__main__ = load\n")  # once a module
    assert not _audit(checkout / "requirements.txt", "torch==2.8.0\nplots\nlm-eval\nevaluate\n", **versions)


ABSENT: dict[str, tuple[str, tuple[int, str]]] = {  # a command, and the line and the nearest file of the finding
    "another name": ("bash scripts/run_zeroscrolls.sh", (4, "scripts/run_zs.sh")),
    "no file is alike": ("python scripts/unlike.py", (4, "Name a script of this commit")),
    "another folder": ("python measure_memory.py", (4, "Enter the directory scripts")),
    "a part of the name": ("python lonely_tables.py", (4, "Start lonely.py")),
    "another letter": ("python lonley.py", (4, "Start lonely.py")),
    "a folder of almost the same name": ("bash script/run_zs.sh", (4, "Start scripts/run_zs.sh")),
    "a wrong inner folder": ("python deep/draw/draw_lines.py", (4, "Start deep/lines/draw_lines.py")),
}
PRESENT: dict[str, tuple[str, ...]] = {
    "a file": ("python scripts/measure_memory.py",),
    "after cd": ("cd scripts", "bash run_zs.sh"),
    "without cd, a folder of another name": ("python lib/draw_lines.py",),
    "without cd": ("python lines/draw_lines.py",),
    "the program of a reader": ("accelerate launch my_training.py",),
    "a placeholder": ("python scripts/your_script.py",),
    "an output": ("echo 'import torch' > scripts/made.py", "python scripts/made.py"),
    "prose": ("# Create the file scripts/written.py", "python scripts/written.py"),
    "a download": ("wget -O scripts/fetched.py https://a.b/fetched.py", "python scripts/fetched.py"),
    "another repository": ("git clone https://github.com/a/other", "python other/start.py"),
    "a variable": ("python scripts/$NAME.py",),
    "an absolute path": ("python /opt/scripts/start.py",),
    "a program of its own directory": ("cd deep", "../scripts/measure_memory.py"),
    "a name that no file has": ("python unlike.py",),
    "a directory that a script enters": ("bash scripts/run_zs.sh", "python scripts/measure_memory.py"),
}


def _scripts(checkout: Path, *commands: str) -> list[Finding]:
    for name in ("scripts/run_zs.sh", "scripts/measure_memory.py", "deep/lines/draw_lines.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("cd deep\n" if name.endswith(".sh") else "\n")
    text = sh(*commands, "python train.py", "python lonely.py")
    (checkout / "README.md").write_text(text)
    found = audit_text(text, str(checkout / "README.md"), None, FixedSolver(FixedIndex(), {}), python="3.12")
    return [each for each in found.result.findings if each.id == "RUN182"]


@each_case("name", [*ABSENT])
def test_a_command_starts_a_script_that_does_not_exist(name: str, checkout: Path) -> None:
    command, (line, fix) = ABSENT[name]
    found = _scripts(checkout, "pip install torch==2.8.0", command)
    assert [(each.line, fix in each.fix) for each in found] == [(line, True)]


def test_a_script_in_a_folder_that_only_commands_name(checkout: Path) -> None:
    commands = ("pip install torch==2.8.0", "bash scripts/run_zs.sh", "python sets/a.py", "python sets/b.py")
    assert [each.line for each in _scripts(checkout, *commands)] == [5, 6]
    assert not _scripts(checkout, "unzip a.zip  # has sets/", *commands)
    assert [each.line for each in _scripts(checkout, *commands[:2], "bash fetch_sets.sh a")] == [5]
    assert not _scripts(checkout, "unzip a.zip  # has fetch_sets.sh", *commands[:2], "bash fetch_sets.sh a")
    assert not _scripts(checkout, *commands[:2], "python run.py")
    assert not _scripts(checkout, "git clone https://github.com/a/other", *commands)


def test_the_words_of_a_name_are_joined_in_another_order(checkout: Path) -> None:
    for name in ("fit_tables.py", "fit_all_tables.py"):
        (checkout / name).write_text("\n")
    starts = {"tablesfit": "fit_tables.py", "tablesallfit": "fit_all_tables.py", "tablesall": ""}
    for name, fix in starts.items():
        found = _scripts(checkout, "pip install torch==2.8.0", f"python {name}.py", f"# {name}.py")
        assert [each.fix for each in found] == ([f"Start {fix}, if it is the script that is meant."] if fix else [])


def test_a_directory_is_named_below_an_unknown_one(checkout: Path) -> None:
    install, start = "pip install torch==2.8.0", "bash ./run_zeros.sh"
    for folder, lines in ((f"{checkout.name}/scripts", [5]), (f"{checkout.name}/absent", []), ("scripts", [])):
        found = _scripts(checkout, install, f"cd <your_path>/{folder}", start, "bash run_zs.sh")
        assert [each.line for each in found] == lines


def test_a_folder_can_be_a_part_of_a_checkout(checkout: Path) -> None:
    (checkout / ".git").rmdir()
    assert not _scripts(checkout, "pip install torch==2.8.0", "bash scripts/run_zeroscrolls.sh")


def test_a_long_line_with_the_name_of_a_script_is_read_in_bounded_time(checkout: Path) -> None:
    start_time = time.process_time()
    long = "# run_zeroscrolls.sh " + "> " * 30_000
    assert _scripts(checkout, long, "pip install torch==2.8.0", "bash scripts/run_zeroscrolls.sh")
    assert time.process_time() - start_time < 5


@each_case("name", [*PRESENT])
def test_a_script_that_exists_or_is_made(name: str, checkout: Path) -> None:
    assert not _scripts(checkout, "pip install torch==2.8.0", *PRESENT[name])


@each_case("step, expected", [("conda install plots", 1), ("conda install plots=0.9", 0)])
def test_conda_selects_about_the_newest_release_of_an_imported_package(
    step: str, expected: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("from plots import old\n")
    text = sh(step, "conda install scipy", "python train.py")
    solver = FixedSolver(FixedIndex(*RELEASES), {})
    result = audit_text(text, str(tmp_path / "README.md"), None, solver).result
    found = [each for each in result.findings if each.id == "RUN078"]
    assert [each.status for each in found] == ["warning"] * expected
    assert all("if conda selects this newest release" in each.message for each in found)


def test_conda_does_not_select_a_release_that_another_package_excludes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from plots import old\n")
    text = sh("conda install scipy=1.10.1", "conda install plots", "python train.py")
    index = FixedIndex(*RELEASES)
    index.requirements["plots 1.0"] = ["scipy>=1.12"]
    result = audit_text(text, str(tmp_path / "README.md"), None, FixedSolver(index, {})).result
    assert not [each for each in result.findings if each.id == "RUN078"]
