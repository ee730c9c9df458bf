"""`envdoctor install` in a notebook, with real uv: the lock of a profile next to the torch of the image."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.local_packages import write_profile, write_wheel
from support.notebook_python import COLAB, TORCH, Notebook, data_of

from envdoctor.commands.export import ExportRequest
from envdoctor.commands.export import run as export
from envdoctor.core.errors import Refused

# The last two are required by torch 2.10 and 2.11, according to the built-in tables.
IMAGE = (f"torch=={TORCH}", "nvidia-nccl-cu12==2.28.9", "numpy==2.1.3", "fsspec==2025.3.0", "setuptools==75.2.0")


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path)


def write_notebook_profile(notebook: Notebook, *packages: str) -> str:
    """A profile for an image with these packages, that keeps numpy, and its lock."""
    extra = 'constraints = [{ spec = "numpy==2.1.3" }]\n'
    extra += f'[notebook]\nservice = "colab"\ndate = "2026-08-19"\nurl = ""\npackages = {list(packages)}\n'
    path = write_profile(notebook.home / "mine.toml", "trainer==1.15.0", "numpy>=2", cuda="12.8", extra=extra)
    write_wheel(notebook.wheels, "trainer", "1.15.0", requires=["torch>=2.6", "numpy>=2.1"])
    write_wheel(notebook.wheels, "fsspec", "2025.3.0")
    write_wheel(notebook.wheels, "setuptools", "75.2.0")
    made = data_of(notebook.run("lock", str(path), "--format", "json"))["results"]
    assert {(each["outcome"], each["packages"]) for each in made} == {("made", 1)}
    return str(path)


def test_the_lock_is_installed_on_top_of_the_image(notebook: Notebook) -> None:
    before = notebook.versions()
    profile = write_notebook_profile(notebook, *IMAGE)
    lock = next((notebook.home / "mine.locks").iterdir())
    text = lock.read_text()
    assert f"# preinstalled: {' '.join(IMAGE)}\n" in text
    assert [line.split()[0] for line in text.splitlines() if line[0] != "#"] == ["trainer==1.15.0"]
    refused = notebook.run("install", profile, **COLAB)
    assert "profile 'mine' does not fit this machine: driver: none" in refused.stderr
    done = data_of(notebook.run("install", profile, "--force", "--format", "json", **COLAB))
    assert notebook.versions() == before | {"trainer": "1.15.0"}
    assert done["origin"].startswith("lock ")
    assert done["origin"].endswith(" for the image of 2026-08-19")
    assert set(done["kept"]) == set(IMAGE[:3])
    audited = notebook.run("audit", str(lock))
    assert "6 packages read" in audited.stdout


def test_a_wheel_with_another_hash_changes_nothing(notebook: Notebook) -> None:
    before = notebook.versions()
    profile = write_notebook_profile(notebook, *IMAGE)
    for lock in (notebook.home / "mine.locks").iterdir():
        lock.write_text(re.sub("sha256:.{64}", f"sha256:{'ab' * 32}", lock.read_text()))
    done = notebook.run("install", profile, "--force", **COLAB)
    assert done.returncode == 3
    assert "error: the installation failed: " in done.stderr
    assert "Hash mismatch for `trainer==1.15.0`" in done.stderr
    assert notebook.versions() == before


def test_the_versions_of_the_profile_are_solved_for_another_python(notebook: Notebook) -> None:
    profile = write_notebook_profile(notebook, *IMAGE)
    for lock in (notebook.home / "mine.locks").iterdir():
        lock.unlink()
    write_wheel(notebook.wheels, "trainer", "1.16.0", requires=["torch>=2.6"])
    done = data_of(notebook.run("install", profile, "--force", "--dry-run", "--format", "json", **COLAB))
    assert done["origin"].startswith("solved now: mine, for the image of 2026-08-19, has no lock for Python 3")
    assert [(each["name"], each["after"]) for each in done["changes"]] == [("trainer", "1.15.0")]


def test_another_image_is_solved_now(notebook: Notebook) -> None:
    before = notebook.versions()
    profile = write_notebook_profile(notebook, "torch==2.10.0+cu128", *IMAGE[1:])
    done = data_of(notebook.run("install", profile, "--force", "--dry-run", "--format", "json", **COLAB))
    assert done["origin"] == (
        f"solved now: the lock is for the image of 2026-08-19; this one has torch {TORCH}, that one 2.10.0+cu128"
    )
    assert [(each["name"], each["before"], each["after"]) for each in done["changes"]] == [("trainer", "", "1.15.0")]
    assert done["next_command"].endswith(f"install {profile}")
    assert notebook.versions() == before


def test_the_bundled_profile_needs_a_gpu(notebook: Notebook) -> None:
    refused = notebook.run("install", **COLAB)
    assert "profile 'colab' does not fit this machine: GPUs: none, required >= 1" in refused.stderr
    assert "add trl peft bitsandbytes" in refused.stderr
    assert "cannot be combined with --adopt" in notebook.run("install", "--adopt", **COLAB).stderr


def test_a_profile_for_a_notebook_has_no_environment(notebook: Notebook) -> None:
    outside = notebook.run("install", "colab", "--force")
    assert "profile 'colab' adds packages to those of Google Colab and has no torch of its own" in outside.stderr
    assert outside.returncode == 1
    with pytest.raises(Refused, match="has no torch of its own"):
        export(ExportRequest(profile="kaggle", form="dockerfile"))
    assert "has no torch of its own" in notebook.run("fetch", "colab", "--dest", "x").stderr
    quickstart = notebook.run("quickstart", **COLAB)
    assert "quickstart installs, verifies and trains in an environment of its own" in quickstart.stderr
