"""Imports of programs in an environment that a list of `conda env export` describes."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.program_imports import audit_imports

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests.certain_packages import is_conda_base
from envdoctor.resolution.step import NoSolver

BUILDS = ("_libgcc_mutex=0.1=main", "bzip2=1.0.8=h7b6447c_0", "tzdata=2022c=h04d1e81_0", "python=3.12.1=h12debd9_0")
EXPORTS: dict[str, tuple[tuple[str, ...], list[str]]] = {  # packages of conda, and the states of the findings
    "libraries of the system": (BUILDS, ["error"]),
    "without builds": (("bzip2=1.0.8", "ncurses", "libffi=3.3", "python=3.12"), ["error"]),
    "a complete list with Python packages": ((*BUILDS, "decorator=5.1.1=pyhd3eb1b0_0"), ["error"]),
    "a package without a build": ((*BUILDS, "decorator=5.1.1"), ["unknown"]),
    "a package of Python whose name starts with lib": ((*BUILDS[:1], "python=3.12", "librosa"), ["unknown"]),
    "the package": ((*BUILDS, "plots=1.0=py312_0"), []),
    "the package under another name": ((*BUILDS, "pyplots=1.0=py312_0"), []),
    "its core": ((*BUILDS, "plots-core=1.0=py312_0"), []),
}


@each_case("name", [*EXPORTS])
def test_what_conda_can_bring_to_an_environment(name: str, tmp_path: Path) -> None:
    packages, expected = EXPORTS[name]
    (tmp_path / "train.py").write_text("import torch\nimport plots\n")
    rows = "".join(f"  - {each}\n" for each in packages)
    text = f"name: a\ndependencies:\n{rows}  - pip:\n    - torch==2.8.0\n"
    (tmp_path / "environment.yml").write_text(text)
    guide = "```bash\nconda env create -f environment.yml\nconda activate a\npython train.py\n```\n"
    assert [each.status for each in audit_imports(tmp_path / "README.md", guide)] == expected


def test_libraries_of_the_system() -> None:
    assert all(map(is_conda_base, ("libgcc-ng", "libffi", "openh264", "xorg-libx11", "ld-impl-linux-64")))
    assert not any(map(is_conda_base, ("librosa", "libcst", "scipy", "pyqt", "libsvm", "yaml-tools")))


def test_versions_of_libraries_of_conda_are_one_line(tmp_path: Path) -> None:
    items = ("jpeg=9b=h024ee3a_2", "openssl=1.1.1k=h27cfd23_0", "numpy=1.19.2", "torchvision=0.9b")
    text = "dependencies:\n" + "".join(f"  - {each}\n" for each in items)
    unread = audit_text(text, str(tmp_path / "environment.yml"), None, NoSolver()).result.coverage.unread
    assert unread == (
        "`jpeg=9b=h024ee3a_2` (line 2) and 2 more packages of conda: a version that pip cannot compare",
    )


def test_a_list_of_conda_for_pip_is_one_line(tmp_path: Path) -> None:
    items = (
        "_libgcc_mutex=0.1=main",
        "absl-py=1.4.0=pypi_0",
        "trl=0.7.1=pypi_0",
        "peft=0.5.0=pypi_0",
        "torch=2.0.1=py310",
    )
    text = "".join(f"{each}\n" for each in items)
    unread = audit_text(text, str(tmp_path / "requirements.txt"), None, NoSolver()).result.coverage.unread
    assert unread == ("`absl-py=1.4.0=pypi_0` (line 2) and 3 more packages: their versions are not valid",)
