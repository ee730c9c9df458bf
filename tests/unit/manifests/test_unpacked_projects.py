"""Which directories without `.git` are projects of which all files are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.manifests.working_directory import is_unpacked_project, repository_of


@each_case(
    ("names", "is_project"),
    [
        (["README.md", "train.py"], True),
        (["README.rst", "src/train.py"], True),
        (["readme.md", "src/project/train.py"], True),
        (["README.md", "data/project/train.py"], False),
        (["Readme.txt", "demo.ipynb"], True),
        (["README.md", "requirements.txt", "Dockerfile"], False),  # copied without the code
        (["SETUP.md", "train.py"], False),
        (["README.md", ".cache/train.py"], False),
        ([], False),
    ],
)
def test_a_readme_and_code_make_a_project(names: list[str], is_project: bool, tmp_path: Path) -> None:
    top = tmp_path / "-".join(["project", *(name.replace("/", "-") for name in names)])
    top.mkdir()
    for name in names:
        (top / name).parent.mkdir(exist_ok=True, parents=True)
        (top / name).touch()
    assert is_unpacked_project(top) == is_project


def test_a_home_directory_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("README.md", "train.py"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not is_unpacked_project(tmp_path)
    assert not is_unpacked_project(tmp_path / "absent")


def test_a_directory_that_all_users_share_is_no_project(tmp_path: Path) -> None:
    for name in ("README.md", "train.py"):
        (tmp_path / name).touch()
    inner = tmp_path / "guide"
    inner.mkdir()
    assert repository_of(inner) == tmp_path
    tmp_path.chmod(0o1777)
    assert repository_of(inner) == inner


def test_a_clone_comes_before_an_unpacked_project(tmp_path: Path) -> None:
    inner = tmp_path / "a/docs"
    inner.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "a"):
        (folder / "README.md").touch()
        (folder / "train.py").touch()
    assert repository_of(inner) == tmp_path / "a"  # next to other projects
    (tmp_path / "LICENSE").touch()
    assert repository_of(inner) == tmp_path
    (tmp_path / "a/.git").mkdir()
    assert repository_of(inner) == tmp_path / "a"
