"""Extensions of torch that are compiled with an older C++ standard than the headers of torch require: RUN290."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh
from support.remedies import commands_of

from envdoctor.commands.audit_file import audit_text
from envdoctor.knowledge.cxx_standards import NamedStandard, rejecting_headers, standard_of_setup
from envdoctor.resolution.index_facts import BuildFiles, IndexedRelease
from envdoctor.resolution.step import NoSolver

IMPORT = "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n"
FLAGS = f"{IMPORT}FLAGS = ['-O3', '-std=c++17']\n"
VENV = "uv venv --python 3.12"
KEPT = "pip install --no-build-isolation"
P3D = "git+https://github.com/facebookresearch/pytorch3d"
MAMBA = "git+https://github.com/state-spaces/mamba"
SETUPS = {
    "flags": (FLAGS, NamedStandard(17, 2)),
    "no flag": (f"{IMPORT}FLAGS = ['-O3']", None),
    "no extension of torch": ("FLAGS = ['-std=c++17']", None),
    "the newer of two": (f"{IMPORT}A = '-std=c++14' if OLD else '-std=c++20'", NamedStandard(20, 2)),
    "another system": (f"{IMPORT}if sys.platform == 'darwin':\n    A = ['-std=c++17']", None),
    "any other system": (f"{IMPORT}if not os.name == 'nt':\n    A = ['-std=c++17']", NamedStandard(17, 3)),
    "not ROCm": (
        f"{IMPORT}if not IS_ROCM:\n    A = ['-std=c++17']\nelse:\n    A = '-std=c++20'",
        NamedStandard(17, 3),
    ),
    "a function that returns without a request": (
        f"{IMPORT}def get():\n    if getenv('OPS', '0') == '0':\n        return []\n    return ['-std=c++17']",
        None,
    ),
    "a function that returns on request": (
        f"{IMPORT}def get():\n    if os.getenv('NO_OPS', '0') == '1':\n        return []\n    return ['-std=c++17']",
        NamedStandard(17, 5),
    ),
    "on request": (f"{IMPORT}if os.getenv('BUILD_EXT', '0') == '1':\n    A = ['-std=c++17']", None),
    "computed": (f"{IMPORT}A = [f'-std=c++{{standard}}']", None),
    "the stable ABI": (f"{FLAGS}B = ['-DTORCH_TARGET_VERSION=0x0209000000000000']", None),
    "Python 2": (f"{FLAGS}print 1", None),
}


@each_case("name", [*SETUPS])
def test_the_standard_of_a_setup(name: str) -> None:
    text, expected = SETUPS[name]
    assert standard_of_setup(text) == expected


@each_case(
    "standard, torch, is_rejected",
    [
        (17, "2.14.0", True),
        (17, "2.13.0+cu130", False),
        (20, "2.15.0", False),
        (14, "2.5.1", True),
        (14, "2.0.1", False),
    ],
)
def test_the_headers_that_reject_a_standard(standard: int, torch: str, is_rejected: bool) -> None:
    assert (rejecting_headers(standard, torch) is not None) == is_rejected


def rejected(*steps: str) -> list[str]:
    result = audit_text(sh(VENV, *steps), "SETUP.md", None, None).result
    return [each.message for each in result.findings if each.id == "RUN290" and each.status == "error"]


@each_case(
    "steps, is_reported",
    [
        (("uv pip install torch==2.14.0", "uv pip install flash-attn --no-build-isolation"), True),
        (("uv pip install torch==2.14.0", "pip install flash-attn==2.5.8"), True),
        (("uv pip install torch==2.13.0", "uv pip install flash-attn --no-build-isolation"), False),
        (("uv pip install torch==2.8.0", "uv pip install flash-attn==2.8.3 --no-build-isolation"), False),  # a wheel
        (("uv pip install torch==2.14.0", "pip install git+https://github.com/Dao-AILab/flash-attention.git"), True),
        (("uv pip install torch==2.14.0", f"{KEPT} {P3D}"), True),
        (("uv pip install torch==2.7.0", f"{KEPT} {P3D}"), False),
        (("uv pip install torch==2.7.0", f"pip install {MAMBA}"), True),  # isolated
        (("uv pip install torch==2.7.0", f"{KEPT} {MAMBA}"), False),
    ],
)  # fmt: skip
def test_packages_of_the_tables(steps: tuple[str, ...], is_reported: bool) -> None:
    assert bool(rejected(*steps)) == is_reported


RELEASE = IndexedRelease("ops", "0.1.6", "2024-08-30", has_wheel=False)
ARCHIVES = {
    "isolated, the newest torch": ("2.5.1", ("torch>=2.4", "setuptools"), "", True),
    "isolated, an older torch": ("2.5.1", ("torch>=2.4,<2.14", "setuptools"), "", False),
    "isolated without torch": ("2.15.0", ("setuptools",), "", False),
    "with the installed one": ("2.15.0", ("setuptools",), " --no-build-isolation", True),
    "with an older installed one": ("2.5.1", ("torch", "setuptools"), " --no-build-isolation", False),
}


@each_case("name", [*ARCHIVES])
def test_a_source_archive(name: str) -> None:
    torch, requires, option, is_reported = ARCHIVES[name]
    index = FixedIndex(RELEASE)
    index.files = {"ops 0.1.6": BuildFiles("ops-0.1.6.tar.gz", FLAGS, requires)}
    solver = FixedSolver(index, {"ops": "0.1.6", "torch": torch}, ["ops"])
    steps = sh(VENV, f"uv pip install torch=={torch}", f"uv pip install ops==0.1.6{option}")
    found = findings(steps, solver, "RUN290")
    assert [each.line for each in found] == ([5] if is_reported else [])
    for each in found:
        first = (
            "uv pip install 'setuptools>=70,<82' wheel packaging ninja"
            if not option
            else "uv pip install 'torch<2.14'"
        )
        assert commands_of(each) == (first, "uv pip install ops==0.1.6 --no-build-isolation")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Needs `torch>=2.3.0`.", "warning"),
        ("Needs torch 2.4.", ""),
        ("```sh\nuv pip install torch==2.14.1\n```", "error"),
    ],
)
def test_a_project_on_disk(tmp_path: Path, text: str, status: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "setup.py").write_text(f"from setuptools import setup\n{FLAGS}setup(name='ops')\n")
    guide = tmp_path / "README.md"
    guide.write_text(f"# Ops\n\n{text}\n\n{sh('pip install numpy', 'python setup.py install')}")
    found = audit_text(guide.read_text(), str(guide), None, NoSolver()).result.findings
    assert [each.status for each in found if each.id == "RUN290"] == ([status] if status else [])


@each_case("code, is_reported", [("try:\n    {}except ImportError:\n    pass\n", False), ("{}", True)])
def test_an_isolated_build_that_does_not_need_torch(tmp_path: Path, code: str, is_reported: bool) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    setup = f"from setuptools import setup\n{code.format(IMPORT)}FLAGS = ['-std=c++17']\nsetup(name='ops')\n"
    (tmp_path / "setup.py").write_text(setup)
    guide = tmp_path / "README.md"
    guide.write_text(sh(VENV, "uv pip install torch==2.14.1", "uv pip install ."))
    found = audit_text(guide.read_text(), str(guide), None, NoSolver()).result.findings
    assert any(each.id == "RUN290" for each in found) == is_reported


def test_an_old_release_is_built_with_the_torch_of_its_time() -> None:
    text = sh(VENV, "uv pip install torch==2.14.0", "uv pip install flash-attn==1.0.4 --no-build-isolation")
    result = audit_text(text, "SETUP.md", None, NoSolver()).result
    (found,) = [each for each in result.findings if each.id == "RUN290"]
    assert found.fix.startswith("Install torch 2.0.0 of the time of flash-attn 1.0.4 first")
    assert found.fix.endswith("torch 2.0.0 has no wheel for 3.12.")
    assert not commands_of(found)


@each_case("steps, is_reported", [((), True), (("cd other", "uv pip install -e ."), False)])
def test_a_project_that_is_not_read_can_bring_an_older_torch(steps: tuple[str, ...], is_reported: bool) -> None:
    solver = FixedSolver(FixedIndex(), {"flash-attn": "2.4.1", "torch": "2.14.0"}, ["flash-attn"])
    text = sh(VENV, *steps, "uv pip install torch flash-attn==2.4.1 --no-build-isolation")
    assert bool(findings(text, solver, "RUN290")) == is_reported


@each_case(
    ("later", "torch"),
    [("torch==2.5.1", "torch==2.5.1"), ("torch==2.15.0", "'torch<2.14'"), ("numpy", "'torch<2.14'")],
)
def test_a_build_is_for_the_torch_that_a_later_step_installs(later: str, torch: str) -> None:
    text = sh(VENV, "uv pip install torch==2.14.0", "uv pip install flash-attn==2.8.3 --no-build-isolation",
              f"uv pip install {later}")  # fmt: skip
    result = audit_text(text, "SETUP.md", None, None).result
    (found,) = [each for each in result.findings if each.id == "RUN290"]
    assert commands_of(found)[0] == f"uv pip install {torch}"
    assert ("torch 2.5.1, which a later step installs, first" in found.fix) is (later == "torch==2.5.1")
