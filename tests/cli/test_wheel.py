"""The wheel of the repository, installed into an empty environment.

ENVDOCTOR_WHEEL names a built wheel to test in place of a new one; the release workflow sets it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from support.paths import ROOT

from envdoctor import __version__
from envdoctor.core.program import DISTRIBUTION


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of ENVDOCTOR_WHEEL, or a new one."""
    if built := os.environ.get("ENVDOCTOR_WHEEL"):
        return Path(built)
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
                   check=True, capture_output=True)  # fmt: skip
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `envdoctor` command of an environment with the wheel. Dependencies come from the current interpreter."""
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    (site,) = (folder / "env/lib").glob("python*/site-packages")
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--offline",
                    "--python", str(python), str(wheel)], check=True)  # fmt: skip
    dependencies = next(path for path in map(Path, sys.path) if (path / "msgspec").is_dir())
    (site / "dependencies.pth").write_text(f"{dependencies}\n")  # after site-packages on sys.path
    return folder / "env/bin/envdoctor"


def run(command: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(cwd)}
    return subprocess.run([command, *arguments], capture_output=True, text=True, cwd=cwd, env=environ, check=False)


def test_wheel_contains_profiles_machines_and_recipes(installed: Path, tmp_path: Path) -> None:
    from envdoctor.machine.recorded import machine_names
    from envdoctor.profiles import profile_names
    from envdoctor.training.recipes import recipe_names

    listed = json.loads(run(installed, "profiles", "--format", "json", cwd=tmp_path).stdout)
    assert sorted(profile["id"] for profile in listed["data"]["profiles"]) == profile_names()
    recipes = json.loads(run(installed, "recipes", "--format", "json", cwd=tmp_path).stdout)
    assert sorted(recipe["name"] for recipe in recipes["data"]["recipes"]) == recipe_names()
    code = (
        "import sys; from envdoctor.cli.application import run\n"
        "for name in sys.argv[1:]: print('ENDED', name, run(['check', '--machine', name]))"
    )
    done = run(installed.with_name("python"), "-c", code, *machine_names(), cwd=tmp_path)
    ended = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ENDED")]
    assert ended == [[name, "0"] for name in machine_names()], done.stderr


def test_settings_are_checked_with_the_installed_trainer(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "train", "sort", "--dry-run", "--format", "json", cwd=tmp_path)
    command = json.loads(done.stdout)["data"]["run"]["command"]
    assert str(ROOT) not in " ".join(command)
    assert Path(command[1]).is_file()


def test_bundled_probes_run(installed: Path, tmp_path: Path) -> None:
    """Without torch, verify exits with 1 and prints no traceback."""
    done = run(installed, "verify", "--python", sys.executable, "--only", "torch_matmul", cwd=tmp_path)
    assert done.returncode == 1
    assert "torch_matmul" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_wheel_installs_one_package(installed: Path) -> None:
    (site,) = (installed.parent.parent / "lib").glob("python*/site-packages")
    names = {path.name for path in site.iterdir()}
    assert {name for name in names if not name.endswith((".dist-info", ".pth", ".py", "__pycache__"))} == {
        "envdoctor"
    }


# What the wheel may contain: no tests, results, logs or caches. Its sources are those of the next test.
CONTENT = re.compile(
    r"envdoctor/(py\.typed|completion/words\.json|pages/page\.(css|js))"
    r"|envdoctor/(?!bundled/)(\w+/)*[\w-]+\.(py|toml)"
    r"|envdoctor/bundled/docs/(tasks|reference)/[\w-]+\.md"
    r"|envdoctor/bundled/train/(\w+/)*[\w-]+\.(py|toml)"
    r"|envdoctor/bundled/profiles/[\w-]+\.toml"
    r"|envdoctor/bundled/profiles/locks/[\w-]+/(x86_64|aarch64)-3\.\d+\.txt"
    r"|envdoctor/bundled/profiles/machines/[\w-]+\.json"
    r"|envdoctor_gpu-[\d.]+\.dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/LICENSE)"
)


def test_wheel_contains_what_users_need_and_nothing_else(wheel: Path) -> None:
    """Every source file of the package, the trainer and the profiles is in the wheel; nothing else is."""
    names = [name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")]
    assert [name for name in names if not CONTENT.fullmatch(name)] == []
    data = ("profiles", "train", "docs/tasks", "docs/reference")
    folders = {"envdoctor": "envdoctor"} | {name: f"envdoctor/bundled/{name}" for name in data}
    sources = {
        f"{target}/{path.relative_to(ROOT / source)}"
        for source, target in folders.items()
        for path in (ROOT / source).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == sources


def test_links_of_the_readme_work_outside_of_the_repository(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = archive.read(name).decode()
    (address,) = re.findall(r"^Project-URL: Repository, (.*)$", metadata, re.MULTILINE)
    links = re.findall(r"\]\((?!#)([^)]*)\)", metadata.partition("\n\n")[2])
    assert f"{address}/blob/v{__version__}/docs/testing.md" in links
    assert [link for link in links if not link.startswith("https://")] == []


def test_each_command_name_starts_envdoctor(installed: Path, tmp_path: Path) -> None:
    for name in ("envdoctor", DISTRIBUTION):
        done = run(installed.with_name(name), "--version", cwd=tmp_path)
        assert done.stdout.startswith(f"envdoctor {__version__}"), done.stderr
