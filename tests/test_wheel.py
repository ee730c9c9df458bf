"""A wheel built from the repository and installed into an empty environment does what the checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from command import ROOT


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an empty environment that got the wheel; its dependencies come from this interpreter's."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
                   check=True, capture_output=True)  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    (site,) = (folder / "env/lib").glob("python*/site-packages")
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--offline",
                    "--python", str(python), str(wheel)], check=True)  # fmt: skip
    own = next(path for path in map(Path, sys.path) if (path / "msgspec").is_dir())
    (site / "dependencies.pth").write_text(f"{own}\n")  # after the wheel's own packages
    return folder / "env/bin/envdoctor"


def run(command: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(cwd)}
    return subprocess.run([command, *arguments], capture_output=True, text=True, cwd=cwd, env=environ, check=False)


def test_it_carries_profiles_machines_recipes_and_probes(installed: Path, tmp_path: Path) -> None:
    from envdoctor.machine.recorded import machine_names
    from envdoctor.profiles import profile_names
    from envdoctor.training.recipes import recipe_names

    listed = json.loads(run(installed, "profiles", "--format", "json", cwd=tmp_path).stdout)
    assert sorted(profile["id"] for profile in listed["data"]["profiles"]) == profile_names()
    recipes = json.loads(run(installed, "train", "--list", "--format", "json", cwd=tmp_path).stdout)
    assert sorted(recipe["name"] for recipe in recipes["data"]["recipes"]) == recipe_names()
    for name in machine_names():
        assert run(installed, "check", "--machine", name, cwd=tmp_path).returncode == 0


def test_it_checks_settings_by_its_own_trainer(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "train", "sort", "--dry-run", "--format", "json", cwd=tmp_path)
    command = json.loads(done.stdout)["data"]["run"]["command"]
    assert str(ROOT) not in " ".join(command)
    assert Path(command[1]).is_file()


def test_its_probes_run(installed: Path, tmp_path: Path) -> None:
    """Without torch the answer is no, probe by probe, and no traceback."""
    done = run(installed, "verify", "--python", sys.executable, "--only", "torch_matmul", cwd=tmp_path)
    assert done.returncode == 1
    assert "torch_matmul" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_it_puts_nothing_else_into_site_packages(installed: Path) -> None:
    (site,) = (installed.parent.parent / "lib").glob("python*/site-packages")
    names = {path.name for path in site.iterdir()}
    assert {name for name in names if not name.endswith((".dist-info", ".pth", ".py", "__pycache__"))} == {
        "envdoctor"
    }


def test_the_wheel_holds_no_tests_and_is_typed(installed: Path) -> None:
    (wheel,) = installed.parent.parent.parent.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "envdoctor/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith("tests/") or "__pycache__" in name]
