"""Packages are added next to an existing torch with real uv, in an environment and in the Python of a notebook."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope
from support.local_packages import PYTHON, write_wheel
from support.paths import DATA
from support.sample_environments import add_distribution

from envdoctor.commands.add import AddResult
from envdoctor.install.add_packages import PackageChange, read_changes
from envdoctor.locking.uv import find_uv
from envdoctor.output.add import render_add
from envdoctor.output.layout import plain_text

TORCH = "2.11.0+cu128"


class Notebook:
    """A Python with torch on PATH, as in Google Colab, and a folder of wheels."""

    def __init__(self, folder: Path) -> None:
        self.home, self.wheels, self.python = folder, folder / "wheels", folder / "usr/bin/python3"
        write_wheel(self.wheels, "torch", TORCH, requires=["nvidia-nccl-cu12==2.28.9"])
        write_wheel(self.wheels, "nvidia-nccl-cu12", "2.28.9")
        write_wheel(self.wheels, "numpy", "2.1.3")
        self._uv("venv", "-q", "--python", PYTHON, str(folder / "usr"))
        places = ["--no-config", "--no-index", "--find-links", str(self.wheels), "--python", str(self.python)]
        self._uv("pip", "install", "-q", *places, "torch", "numpy")
        for name, version in (("torch", "2.13.0"), ("nvidia-nccl-cu12", "2.31.2"), ("numpy", "2.2.0")):
            write_wheel(self.wheels, name, version)
        write_wheel(self.wheels, "trl", "1.16.0", requires=["torch>=2.6", "numpy>=2.2"])
        write_wheel(self.wheels, "newer", "1.0", requires=["torch>=2.12"])

    def _uv(self, *words: str) -> None:
        subprocess.run([find_uv(), *words], check=True)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        places = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        path = f"{self.python.parent}:/usr/bin:/bin"
        return envdoctor(*words, home=self.home, **(places | {"PATH": path} | variables))

    def versions(self) -> dict[str, str]:
        site = next(self.home.glob("usr/lib/python*/site-packages"))
        return dict(path.name.removesuffix(".dist-info").split("-") for path in site.glob("*.dist-info"))


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    return Notebook(tmp_path)


def data_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr + done.stdout
    data: dict[str, Any] = envelope(done)["data"]
    return data


COLAB = {"COLAB_RELEASE_TAG": "release-colab-external_20260819-060047_RC00"}


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
    kaggle = {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}
    refused = notebook.run("install", "cpu", **kaggle)
    assert refused.returncode == 1
    assert "Kaggle: the notebook would not use" in refused.stderr
    assert " add trl peft bitsandbytes" in refused.stderr
    environment = envelope(notebook.run("check", "--format", "json", **kaggle))["data"]["environment"]
    assert (environment["path"], environment["reason"]) == (str(notebook.home / "usr"), "the Python of Kaggle")


def test_a_notebook_without_torch_gets_the_command_that_installs_it(notebook: Notebook) -> None:
    notebook._uv("pip", "uninstall", "-q", "--python", str(notebook.python), "torch")
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
    for line in (DATA / "colab_packages.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin, _, requirement = line.partition(" ")
            headers = f"Requires-Dist: {requirement}\n" if requirement else ""
            add_distribution(site, *pin.split("=="), headers=headers)
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
