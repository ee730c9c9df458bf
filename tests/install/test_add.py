"""Packages are added next to an existing torch with real uv, in an environment and in the Python of a notebook."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.command import envdoctor, envelope
from support.local_packages import PYTHON
from support.notebook_python import COLAB, TORCH, Notebook, data_of
from support.sample_environments import add_distribution

from envdoctor.commands.add import AddResult
from envdoctor.install.add_packages import PackageChange, read_changes
from envdoctor.locking.notebook_image import image_versions
from envdoctor.locking.uv import find_uv
from envdoctor.output.add import render_add
from envdoctor.output.layout import plain_text
from envdoctor.profiles import read_profile


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path)


def test_packages_are_added_and_torch_stays(notebook: Notebook) -> None:
    before = notebook.versions()
    planned = data_of(notebook.run("add", "trl", "--dry-run", "--format", "json", **COLAB))
    assert notebook.versions() == before
    done = data_of(notebook.run("add", "trl", "--format", "json", **COLAB))
    assert planned["changes"] == done["changes"]
    assert notebook.versions() == before | {"trl": "1.16.0", "numpy": "2.2.0"}
    assert done["kept"] == ["nvidia-nccl-cu12==2.28.9", f"torch=={TORCH}"]
    assert done["service"] == "Google Colab"
    assert done["restart"] == "Runtime > Restart session"
    assert done["python"] == str(notebook.python)
    assert data_of(notebook.run("add", "trl", "--format", "json", **COLAB))["restart"] == ""


def test_a_package_for_another_torch_is_refused(notebook: Notebook) -> None:
    before = notebook.versions()
    done = notebook.run("add", "newer", "--python", str(notebook.python))
    assert done.returncode == 1
    assert f"newer: no solution that keeps torch=={TORCH}" in done.stderr
    assert notebook.versions() == before


def test_a_notebook_service_has_no_profile_environment(notebook: Notebook) -> None:
    kaggle = {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"} | COLAB  # its image is built from Colab's
    refused = notebook.run("install", "cpu", **kaggle)
    assert refused.returncode == 1
    assert "Kaggle: the notebook would not use" in refused.stderr
    assert refused.stderr.endswith("envdoctor install\n")
    environment = envelope(notebook.run("check", "--format", "json", **kaggle))["data"]["environment"]
    assert (environment["path"], environment["reason"]) == (str(notebook.home / "usr"), "the Python of Kaggle")


def test_a_notebook_without_torch_gets_the_command_that_installs_it(notebook: Notebook) -> None:
    notebook.uv("pip", "uninstall", "-q", "--python", str(notebook.python), "torch")
    refused = notebook.run("add", "trl", **COLAB)
    command = f"uv pip install --python {notebook.python} torch --torch-backend=auto"
    assert f"hint: {command}" in refused.stderr
    command = f"uv pip install --python {notebook.home / 'usr'} torch --torch-backend=auto"
    assert command in notebook.run("check", **COLAB).stdout


def test_usage_errors(notebook: Notebook) -> None:
    assert "PACKAGE is missing" in notebook.run("add", **COLAB).stderr
    assert "expected: names of packages" in notebook.run("add", "--", "--reinstall", **COLAB).stderr


def test_changes_of_uv() -> None:
    text = "Resolved 3 packages\n - numpy==2.1.3\n + numpy==2.2.0\n + trl==1.16.0\n ~ mine==1.0\n"
    assert read_changes(text) == (
        PackageChange("mine", "1.0", "1.0"),
        PackageChange("numpy", "2.1.3", "2.2.0"),
        PackageChange("trl", "", "1.16.0"),
    )


def test_the_screen_names_the_restart() -> None:
    result = AddResult(
        python="/usr/bin/python3", service="Google Colab", kept=(f"torch=={TORCH}",),
        changes=(PackageChange("numpy", "2.1.3", "2.2.0"),), installed=True, restart="Runtime > Restart session",
        next_command="envdoctor check --python /usr/bin/python3",
    )  # fmt: skip
    text = plain_text(render_add(result))
    assert "restart the Python of the notebook if it has imported numpy: Runtime > Restart session" in text


def colab(folder: Path) -> Path:
    """A Python with the METADATA of the packages of Google Colab."""
    python = folder / "usr/bin/python3"
    subprocess.run([find_uv(), "venv", "-q", "--python", PYTHON, folder / "usr"], check=True)
    site = next(folder.glob("usr/lib/python*/site-packages"))
    image = read_profile("colab").notebook
    for name, version in image_versions(image).items():
        needs_older_hub = name == "transformers"  # the METADATA of 5.15.0
        headers = "Requires-Dist: huggingface-hub<2.0,>=1.5.0\n" if needs_older_hub else ""
        add_distribution(site, name, version, headers=headers)
    return python


@pytest.mark.network
def test_trl_in_the_packages_of_colab(tmp_path: Path) -> None:
    """Solved from the package index; the preinstalled packages are METADATA only, so nothing is installed."""
    python = colab(tmp_path)
    words = ("add", "trl", "peft", "bitsandbytes", "--dry-run", "--python", str(python), "--format", "json")
    data = data_of(envdoctor(*words, home=tmp_path, **COLAB))
    assert f"torch=={TORCH}" in data["kept"]
    changes = {change["name"]: (change["before"], change["after"]) for change in data["changes"]}
    assert {"trl", "bitsandbytes"} <= set(changes)
    assert not {line.partition("==")[0] for line in data["kept"]} & set(changes)


@pytest.mark.network
def test_vllm_for_another_cuda_is_not_installed(tmp_path: Path) -> None:
    """vLLM 0.24.0 on the package index is for torch 2.11 and CUDA 13; the torch of Colab is for CUDA 12.8."""
    python = colab(tmp_path)
    done = envdoctor("add", "vllm==0.24.0", "--python", str(python), "--format", "json", home=tmp_path, **COLAB)
    data = envelope(done)["data"]
    assert (done.returncode, data["installed"]) == (1, False)
    assert [finding["id"] for finding in data["findings"]] == ["VLLM003"]
    assert not list(python.parents[1].glob("lib/python*/site-packages/vllm-*"))
