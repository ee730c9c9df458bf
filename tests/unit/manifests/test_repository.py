"""Guides in a clone: the files and the project that their commands name there are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.remedies import commands_of
from support.text_files import write_files

from envdoctor.commands.audit_file import AuditResult, audit_file
from envdoctor.manifests.own_names import own_names
from envdoctor.resolution.step import NoSolver

FILES = {
    "requirements/train.txt": "torch==2.9.0\ntorchvision==0.23.0\n",
    "pyproject.toml": '[project]\nname = "mine"\ndependencies = ["trl==0.23.9"]\n[project.optional-dependencies]\n'
    'infer = ["vllm==0.10.2", "transformers==5.1.0"]\n',
    "scripts/install.sh": "set -e\npip install vllm==0.10.2 transformers==5.1.0\n",
    "loop.sh": "bash loop.sh\n",
    "old/setup.py": "from setuptools import setup\nsetup(name='old', install_requires=['trl==0.23.9'])\n",
    "build/setup.py": "from setuptools import setup\nsetup(name='b', install_requires=['trl==0.23.9'],\n"
    "dependency_links=['https://a.org'], setup_requires=[*tests()])\n",
    "computed/setup.py": "from setuptools import setup\nsetup(name='c', install_requires=read('x'))\n",
}
# Commands, and the findings of the files that they name.
COMMANDS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "requirements": (("pip install -r requirements/train.txt",), {"RUN002"}),
    "requirements of uv": (("uv pip install -r ./requirements/train.txt",), {"RUN002"}),
    "project": (("pip install -e .",), {"RUN001"}),
    "project with an extra": (("pip install -e '.[infer]'",), {"RUN001", "RUN004"}),
    "project of setup.py": (("pip install -e old",), {"RUN001"}),
    "arguments that install nothing": (("pip install ./build",), {"RUN001"}),
    "computed requirements": (("pip install ./computed",), set()),
    "script": (("bash scripts/install.sh",), {"RUN004"}),
    "script with a path": (("./scripts/install.sh --all",), {"RUN004"}),
    "sourced script": (("source scripts/install.sh",), {"RUN004"}),
    "script that runs itself": (("bash loop.sh",), set()),
    "absent files": (("pip install -r absent.txt", "bash absent.sh"), {"RUN207"}),
    "own clone": (("git clone https://github.com/me/mine && cd mine", "pip install -e ."), {"RUN001"}),
    "own clone, other name": (
        ("git clone https://github.com/me/mine here", "cd here", "pip install -e ."),
        {"RUN001"},
    ),
    "other clone": (("git clone https://github.com/other/x && cd x", "pip install -r requirements/train.txt"), set()),
    "directory": (("cd requirements", "pip install -r train.txt"), {"RUN002"}),
    "file of another directory": (("cd scripts", "pip install -r requirements/train.txt"), set()),
    "unknown directory": (("cd build", "pip install -r requirements/train.txt"), set()),
    "after the other clone": (
        ("git clone https://github.com/other/x && cd x", "make", "cd ..", "pip install -r requirements/train.txt"),
        {"RUN002"},
    ),
    "back to the directory before": (
        ("git clone https://github.com/other/x", "cd x", "cd -", "pip install -r requirements/train.txt"),
        {"RUN002"},
    ),
    "directory of another clone": (
        ("git clone https://github.com/other/x", "cd x/requirements && pip install -e .", "pip install -e .."),
        set(),
    ),
    "out of a directory of another clone": (
        ("git clone https://github.com/other/x", "cd x/sub", "cd ..", "pip install -e ."),
        set(),
    ),
    "clone below the own clone": (
        ("git clone https://github.com/me/mine", "cd mine", "git clone https://github.com/other/x", "cd x", "cd ..",
         "pip install -e '.[infer]'"),
        {"RUN001", "RUN004"},
    ),
    "own address": (("pip install git+https://github.com/me/mine.git",), {"RUN001"}),
    "tag of the own address": (("pip install git+https://github.com/me/mine.git@v1",), set()),
    "other address": (("pip install git+https://github.com/me/theirs.git",), set()),
}  # fmt: skip

OTHER = "git clone https://github.com/other/x\ncd x"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    write_files(folder, FILES)
    (folder / ".git").mkdir()
    (tmp_path / "absent.txt").write_text("trl==0.23.9\n")  # outside of the clone
    return folder


def audit(path: Path, *commands: str) -> AuditResult:
    path.parent.mkdir(exist_ok=True)
    path.write_text(sh("pip install numpy==1.26.4 accelerate", *commands))
    return audit_file(str(path), None, NoSolver()).result


@each_case("name", [*COMMANDS])
def test_the_files_of_a_clone_are_read(name: str, clone: Path) -> None:
    commands, expected = COMMANDS[name]
    for path in (clone / "README.md", clone / "docs/install.md"):
        result = audit(path, *commands)
        assert {each.id for each in result.findings if each.status == "error"} == expected, path


@each_case(
    ("blocks", "is_read"),
    [
        (("cd demos\npython run.py", "pip install -e '.[infer]'\ncd train"), True),
        (("cd demos\npip install -e '.[infer]'",), False),  # in the same block, the reader is in it
        (("cd demos", "cd ../other", "pip install -e '.[infer]'"), False),  # not on disk
        ((OTHER, "conda create -n two python=3.11\npip install -e '.[infer]'"), False),  # can be in the clone
        ((f"conda create -n one\n{OTHER}", "conda create -n two python=3.11\npip install -e '.[infer]'"), True),
    ],
)
def test_a_project_is_installed_in_the_root_after_a_block_in_another_directory(
    blocks: tuple[str, ...], is_read: bool, clone: Path
) -> None:
    """A guide leaves out `cd ..` between blocks: a directory without a project has nothing that pip installs."""
    write_files(clone, {"demos/run.py": "print()\n", "train/train.py": ""})
    (clone / "README.md").write_text(
        "\n".join(f"```bash\n{each}\n```\n" for each in ("pip install numpy==1.26.4", *blocks))
    )
    result = audit_file(str(clone / "README.md"), None, NoSolver()).result
    assert ("RUN001" in {each.id for each in result.findings}) == is_read, result.findings


def test_a_guide_outside_of_a_clone_reads_the_files_next_to_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.23.9\n")
    result = audit(tmp_path / "SETUP.md", "pip install -r requirements.txt")
    assert ("RUN001", 4) in [(each.id, each.line) for each in result.findings if each.status == "error"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = audit(tmp_path / "SETUP.md", "pip install -r requirements.txt trl==0.23.1")
    assert result.coverage.unread == ("requirements.txt (line 4): not found next to the manifest",)


# Files, the text above the commands, the commands, and whether the project of the folder is installed.
PIN = "trl==0.23.9\n"
PROJECTS: dict[str, tuple[dict[str, str], str, tuple[str, ...], bool]] = {
    "name in setup.py": (
        {"setup.py": "from setuptools import setup\nsetup(name='mine', install_requires=['trl==0.23.9'])\n"},
        "# X", ("git clone https://github.com/me/Mine", "cd Mine", "pip install -e ."), True,
    ),
    "address in setup.py": (
        {"setup.py": "from setuptools import setup\nsetup(name='m', url='https://github.com/me/mine',\n"
         "install_requires=['trl==0.23.9'])\n"},
        "# X", ("cd mine", "pip install ."), True,
    ),
    "title": ({"requirements.txt": PIN}, "# Mine: a model",
              ("git clone https://github.com/me/mine", "cd mine", "pip install -r requirements.txt"), True),
    "badge": ({"requirements.txt": PIN}, "![stars](https://img.shields.io/github/stars/me/mine?style=social)",
              ("git clone https://github.com/me/mine", "cd mine", "pip install -r requirements.txt"), True),
    "other separators": ({"requirements.txt": PIN}, "# MineAndYours: a model",
                         ("git clone https://github.com/me/mine-and_yours.git && cd mine-and_yours",
                          "pip install -r requirements.txt"), True),
    "other project with a part of the name": ({"requirements.txt": PIN}, "# MineAndYours: a model",
                         ("git clone https://github.com/me/mine-and.git && cd mine-and",
                          "pip install -r requirements.txt"), False),
    "link to another project": ({"requirements.txt": PIN}, "From [mine](https://github.com/me/mine/blob/main/x.py)",
                                ("cd mine", "pip install -r requirements.txt"), False),
    "first clone": ({"requirements.txt": PIN}, "Mine is a model.",
                    ("git clone https://github.com/me/mine", "cd mine", "pip install -r requirements.txt"), True),
    "first clone without that file": ({"setup.py": "", "requirements.txt": PIN}, "Mine is a model.",
        ("git clone https://github.com/me/mine", "cd mine", "pip install -r other.txt",
         "pip install -r requirements.txt"), False),
    "first clone with a program of it": ({"requirements.txt": PIN, "draw_all.py": ""}, "# A model",
        ("git clone https://github.com/<you>/mine-too.git", "cd mine-too", "pip install -r requirements.txt",
         "streamlit run draw_all.py"), True),
    "first clone with a script of it": ({"requirements.txt": PIN, "run.sh": ""}, "# A model",
        ("git clone https://github.com/me/mine-too.git && cd mine-too", "git clone https://github.com/you/other",
         "cd other", "conda env create -f environment.yaml", "cd ..", "pip install -r requirements.txt",
         "bash run.sh"), True),
    "first clone with a folder of programs": ({"requirements.txt": PIN, "demo/app.py": ""}, "# A model",
        ("git clone git@github.com:me/mine-too.git", "cd mine-too/", "pip install -r requirements.txt",
         "PYTHONPATH=. python demo/app.py"), True),
    "first clone with programs of another project": ({"requirements.txt": PIN, "draw_all.py": ""}, "# A model",
        ("git clone https://github.com/you/other", "cd other", "pip install -r requirements.txt",
         "python train.py", "python test.py"), False),
    "first clone with its requirements only": ({"requirements.txt": PIN}, "# A model",
        ("git clone https://github.com/you/other", "cd other", "pip install -r requirements.txt"), False),
    "first clone that no step enters": ({"requirements.txt": PIN, "draw_all.py": ""}, "# A model",
        ("git clone https://github.com/you/other", "cd elsewhere", "pip install -r requirements.txt",
         "python draw_all.py"), False),
    "first clone of a published project": ({"requirements.txt": PIN}, "It uses trl.",
        ("git clone https://github.com/huggingface/trl", "cd trl", "pip install -r requirements.txt"), False),
    "second clone": ({"requirements.txt": PIN}, "Mine and theirs.",
        ("git clone https://github.com/me/mine", "git clone https://github.com/me/theirs", "cd theirs",
         "pip install -r requirements.txt"), False),
    "plugin of hatch": (
        {"requirements.txt": PIN, "pyproject.toml": '[project]\nname = "mine"\ndynamic = ["dependencies"]\n'
         '[tool.hatch.metadata.hooks.requirements_txt]\nfiles = ["requirements.txt"]\n'},
        "# X", ("pip install -e .",), True,
    ),
}  # fmt: skip


@each_case("name", [*PROJECTS])
def test_the_project_next_to_a_readme_is_found_by_its_names(name: str, tmp_path: Path) -> None:
    files, title, commands, is_read = PROJECTS[name]
    folder = tmp_path / name.replace(" ", "-")
    folder.mkdir()
    write_files(folder, files)
    (folder / "README.md").write_text(sh("pip install numpy==1.26.4 accelerate", *commands, title=title))
    result = audit_file(str(folder / "README.md"), None, NoSolver()).result
    assert ("RUN001" in {each.id for each in result.findings}) is is_read


def test_a_readme_in_a_subdirectory_names_the_files_next_to_it(clone: Path) -> None:
    (clone / "examples").mkdir()
    (clone / "examples/requirements.txt").write_text("trl==0.23.9\n")
    (clone / "requirements.txt").write_text("torch==2.9.0\ntorchvision==0.23.0\n")
    expected = {"README.md": {"RUN001"}, "install.md": {"RUN002"}}
    for name, ids in expected.items():
        result = audit(clone / "examples" / name, "pip install -r requirements.txt")
        assert {"RUN001", "RUN002"} & {each.id for each in result.findings} == ids


HARNESS = "install lm-harness from the lm-harness repository"
CLONED = ("git clone https://github.com/other/lm-harness", "cd lm-harness", "pip install -e .")


@each_case(
    ("guide", "commands", "is_own"),
    [
        ("evaluate/README.md", CLONED, False),
        ("README.md", CLONED, True),
        ("docs/install.md", (*CLONED, "python train.py", "bash run.sh"), True),
    ],
)
def test_a_part_of_a_project_can_install_another_one(
    guide: str, commands: tuple[str, ...], is_own: bool, tmp_path: Path
) -> None:
    root = tmp_path / str(len(guide))
    (root / guide).parent.mkdir(parents=True)
    (root / "setup.py").write_text("from setuptools import setup\nsetup(install_requires=['trl==0.23.9'])\n")
    (root / "README.md").write_text("# Mine\n")
    for name in ("train.py", "run.sh", "model.py"):
        (root / name).write_text("")
    (root / guide).write_text(sh("pip install accelerate", *commands, title=HARNESS))
    result = audit_file(str(root / guide), None, NoSolver()).result
    assert ("RUN001" in {each.id for each in result.findings}) is is_own


@each_case(
    ("steps", "expected"),
    [
        (("RUN git clone https://github.com/other/x && cd x && pip install .",), set()),
        (("RUN git clone https://github.com/other/x", "WORKDIR /opt/src/x", "RUN pip install ."), set()),
        (("RUN git clone https://github.com/other/x && cd x && make", "RUN pip install ."), {"RUN001"}),
        (("RUN git clone https://github.com/me/mine", "RUN cd mine && pip install ."), {"RUN001"}),
        (("RUN git clone https://github.com/me/mine", "WORKDIR /opt/src/mine", "RUN pip install ."), {"RUN001"}),
    ],
)
def test_the_steps_of_a_dockerfile_run_in_its_working_directory(
    steps: tuple[str, ...], expected: set[str], clone: Path
) -> None:
    path = clone / "Dockerfile"
    path.write_text("\n".join(["FROM python:3.11", "WORKDIR /opt/src", "RUN pip install accelerate", *steps]))
    result = audit_file(str(path), None, NoSolver()).result
    assert {each.id for each in result.findings if each.status == "error"} == expected


@each_case(
    ("steps", "expected"),
    [
        (("RUN git clone https://github.com/other/x", "WORKDIR /x", "RUN pip install ."), set()),
        (("RUN git clone https://github.com/other/x y", "WORKDIR /y/sub", "RUN pip install ."), set()),
        (("RUN git clone https://github.com/other/x", "WORKDIR /app", "RUN pip install ."), {"RUN001"}),
        (
            ("AS b", "RUN git clone https://github.com/other/x", "WORKDIR /x", "FROM python:3.11",
             "COPY --from=b /x/requirements.txt /", "RUN pip install -r requirements.txt"),
            set(),
        ),
        (("COPY requirements.txt /", "RUN pip install -r requirements.txt"), {"RUN001"}),
        (
            ("AS b", "RUN git clone https://github.com/me/mine", "WORKDIR /mine", "FROM python:3.11",
             "COPY --from=b /mine/requirements.txt /", "RUN pip install -r requirements.txt"),
            {"RUN001"},
        ),
    ],
)  # fmt: skip
def test_a_clone_before_the_first_workdir_is_at_the_root(
    steps: tuple[str, ...], expected: set[str], clone: Path
) -> None:
    path = clone / "Dockerfile"
    (clone / "requirements.txt").write_text("trl==0.23.9\n")
    first = steps[0] if steps[0].startswith("AS") else ""
    rest = steps[1:] if first else steps
    path.write_text("\n".join([f"FROM python:3.11 {first}", "RUN pip install accelerate", *rest]))
    result = audit_file(str(path), None, NoSolver()).result
    assert {"RUN001"} & {each.id for each in result.findings} == expected


# setup.py, pyproject.toml, the command, and whether its isolated build fails.
SETUP = "from setuptools import setup\nsetup(name='mine', install_requires=['numpy'])\n"
BUILDS = [
    ("import torch\n" + SETUP, "", "pip install -e .", True),
    ("from torch.utils.cpp_extension import CUDAExtension\n" + SETUP, "", "pip install .", True),
    ("import pkg_resources\n" + SETUP, "", "uv pip install .", True),
    ("import pkg_resources\n" + SETUP, '[build-system]\nrequires = ["setuptools<81"]\n', "pip install .", False),
    ("import torch\n" + SETUP, '[build-system]\nrequires = ["setuptools", "torch"]\n', "pip install .", False),
    ("import torch\n" + SETUP, '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n',
     "pip install .", False),
    ("import torch\n" + SETUP, "", "pip install --no-build-isolation .", False),
    ("try:\n    import torch\nexcept ImportError:\n    torch = None\n" + SETUP, "", "pip install .", False),
    ("import torch\n" + SETUP, "", "python setup.py develop", False),
    (SETUP, "", "pip install .", False),
    ("import subprocess\nimport torch\nsubprocess.check_output(['nvcc', '-V'])\n" + SETUP, "", "pip install .", True),
    ("import subprocess\nsubprocess.run(['pip', 'install', 'torch'])\nimport torch\n" + SETUP, "", "pip install .",
     False),
    ("import torch\n" + SETUP + "NOTE = 'pip runs this'\n", "", "pip install .", True),
    ("# pip install .\nimport torch\n" + SETUP, "", "pip install .", True),
    ("import numpy\nfrom setuptools import setup\nsetup(name='a', setup_requires=['numpy'])\n", "", "pip install .",
     True),
]  # fmt: skip


@each_case(("setup", "pyproject", "command", "fails"), BUILDS)
def test_the_own_setup_py_is_built_in_isolation(
    setup: str, pyproject: str, command: str, fails: bool, tmp_path: Path
) -> None:
    (tmp_path / "setup.py").write_text(setup)
    (tmp_path / "pyproject.toml").write_text(pyproject)
    if not pyproject:
        (tmp_path / "pyproject.toml").unlink()
    result = audit(tmp_path / "README.md", "conda create -n a python=3.11", "conda activate a", command)
    found = [each for each in result.findings if each.id == "RUN178"]
    assert [each.status for each in found] == (["error"] if fails else [])


OWN_SETTINGS = """[project]
name = "mine"
dependencies = ["torch==2.8.0", "flash-attn==2.8.3"]
[tool.uv]
no-build-isolation-package = ["flash-attn"]
"""


@each_case(
    ("command", "fails"),
    [("uv pip install -e .", False), ("uv pip install '.[all]'", False), ("pip install -e .", True)],
)
def test_uv_reads_its_settings_of_the_own_project(command: str, fails: bool, tmp_path: Path) -> None:
    """uv builds the packages of no-build-isolation-package without isolation; pip does not read the list."""
    (tmp_path / "pyproject.toml").write_text(OWN_SETTINGS)
    found = {each.id for each in audit(tmp_path / "README.md", "uv venv -p 3.12 --seed", command).findings}
    assert ("RUN040" in found) is fails


def test_a_build_gets_the_torch_that_its_project_requires(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "import torch\nfrom setuptools import setup\nsetup(name='a', install_requires=['torch==2.8.0'])\n"
    )
    found = [each for each in audit(tmp_path / "README.md", "pip install .").findings if each.id == "RUN178"]
    assert list(commands_of(found[0])) == [
        "uv pip install torch==2.8.0 'setuptools>=70,<82' wheel",
        "uv pip install . --no-build-isolation",
    ]


def test_a_build_in_a_stage_keeps_its_torch(tmp_path: Path) -> None:
    """The command belongs to the first stage, which has torch, and not after the last installation of the file."""
    (tmp_path / "setup.py").write_text("import torch\nfrom setuptools import setup\nsetup(name='a')\n")
    lines = ("FROM nvidia/cuda:11.7.1-devel-ubuntu22.04 AS builder", "RUN pip install torch==2.0.0", "COPY . .",
             "RUN pip install .", "FROM nvidia/cuda:11.7.1-devel-ubuntu22.04", "RUN pip install gradio")  # fmt: skip
    path = tmp_path / "Dockerfile"
    path.write_text("".join(f"{line}\n" for line in lines))
    (found,) = [each for each in audit_file(str(path), None, NoSolver()).result.findings if each.id == "RUN178"]
    assert list(commands_of(found)) == [
        "uv pip install 'setuptools>=71,<82' wheel",
        "uv pip install . --no-build-isolation",
    ]


@each_case(("first", "reported"), [("pip install git+{}", ["RUN040"]), ("pip install termcolor", ["RUN178"])])
def test_two_ways_to_build_a_project_have_one_finding(first: str, reported: list[str], tmp_path: Path) -> None:
    """INSTALL.md of Detectron2 installs it by its address, or as a clone."""
    url = "https://github.com/facebookresearch/detectron2.git"
    (tmp_path / "setup.py").write_text("import torch\nfrom setuptools import setup\nsetup(name='detectron2')\n")
    guide = (first.format(url), "", "# Or, from a local clone:", f"git clone {url}", "pip install -e detectron2")
    found = audit(tmp_path / "INSTALL.md", "uv venv -p 3.12 --seed", *guide).findings
    assert [each.id for each in found if each.cause == "build-isolation-no-torch"] == reported


@each_case("text, is_own", [
    ("cd /path/to/parts\nbash setup.sh\npip install -r requirements.txt", True),
    ("cd /path/to/parts\nbash make.sh\npip install -r requirements.txt", False),
    ("git clone https://github.com/a/b\ncd /path/to/parts\nbash setup.sh\npip install -r requirements.txt", False),
])  # fmt: skip
def test_the_directory_of_a_reader_has_the_files_that_a_guide_names(text: str, is_own: bool, tmp_path: Path) -> None:
    for name in ("setup.sh", "requirements.txt"):
        (tmp_path / name).write_text("")
    assert ("parts" in own_names(tmp_path, text)) is is_own


@each_case("text, is_own", [
    ("Please follow them to install parts and its dependencies.", False),
    ("pip install parts...", False),
    ("pip install .", True),
    ("pip install --no-deps -e './[dev]'", True),
    ("pip install -U .[dev]", True),
])  # fmt: skip
def test_the_first_clone_is_the_project_that_a_guide_installs(text: str, is_own: bool, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    guide = f"git clone https://github.com/them/parts\ncd parts\n{text}\nThanks to parts.\n"
    assert ("parts" in own_names(tmp_path, guide)) is is_own


@each_case(("setting", "fails"), [("no-build-isolation-package", False), ("no-binary-package", True)])
def test_uv_sync_builds_the_packages_without_isolation_last(setting: str, fails: bool, tmp_path: Path) -> None:
    """Measured with uv 0.8.22 and 0.13.9 on a source package that imports another one: both install it."""
    (tmp_path / "pyproject.toml").write_text(OWN_SETTINGS.replace("no-build-isolation-package", setting))
    found = {each.id for each in audit(tmp_path / "README.md", "uv sync").findings}
    assert ("RUN041" in found) is fails
