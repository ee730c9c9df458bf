"""`envdoctor profiles` and `profiles show` on a terminal, in a pipe and as JSON."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.command import envdoctor, envelope
from support.local_packages import write_profile
from support.sample_environments import add_distribution, make_venv
from support.user_profiles import BUILD, FALLBACKS, SHA, WHEEL, built

from envdoctor.profiles import profile_names, read_profile

FOLDER = "config/envdoctor/profiles"
DELTA = 'extends = "x86-cu128-vllm"\nrequirements = [{ spec = "wandb" }]\n'


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return envdoctor(*arguments, home=home, XDG_CONFIG_HOME=str(home / "config"))


def write(home: Path, name: str, text: str) -> Path:
    path = home / FOLDER / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def join_lines(text: str) -> str:
    """The text with all white space replaced by single spaces."""
    return " ".join(text.split())


def test_user_profiles_are_listed_with_origin_and_problems(tmp_path: Path) -> None:
    mine, broken = write(tmp_path, "mine", DELTA), write(tmp_path, "broken", "id = ")
    replacement = write(tmp_path, "cpu", 'extends = "cpu"')
    partial_locks = write(tmp_path, "part", DELTA).with_suffix(".locks")
    partial_locks.mkdir()
    partial_locks.joinpath("x86_64-3.12.txt").write_text("# profile: part\n# without: torch\nsix==1.17.0\n")
    done = run(tmp_path, "profiles")
    assert done.returncode == 0
    assert f"✓ mine  from {mine}, extends x86-cu128-vllm" in done.stdout
    assert f"✗ broken  {broken}: " in done.stdout
    assert "broken.toml is not TOML" in done.stdout
    assert f"- cpu  bundled: replaced by {replacement}" in done.stdout
    data = envelope(run(tmp_path, "profiles", "--format", "json"))["data"]["profiles"]
    assert {*profile_names(), "mine", "part", "broken"} == {entry["id"] for entry in data}
    (entry,) = [entry for entry in data if entry["id"] == "mine"]
    assert (entry["origin"], entry["extends"]) == (str(mine), ["x86-cu128-vllm"])
    assert (entry["locks"], entry["targets"]) == (0, 2)
    assert entry["profile"]["requirements"][-1]["spec"] == "wandb"
    complete, partial = (next(entry for entry in data if entry["id"] == name) for name in ("gh200", "part"))
    assert (complete["locks"], complete["partial"]) == (2, 0)
    assert (partial["locks"], partial["partial"]) == (1, 1)


@pytest.mark.parametrize("name", profile_names())
def test_all_content_of_a_bundled_profile_is_shown(name: str, tmp_path: Path) -> None:
    profile, text = read_profile(name), join_lines(run(tmp_path, "profiles", "show", name).stdout)
    when = profile.when
    for pin in (*profile.requirements, *profile.constraints):
        assert all(part in text for part in (pin.spec, pin.why, pin.url))
    for message in (
        profile.title, profile.summary, *when.architectures, when.glibc, f"{when.disk_gb:g} GiB", when.driver,
        when.driver_why, when.driver_url, *profile.python.versions, *profile.verify.required, profile.train.recipe,
        profile.exclude_newer, *profile.system, *(f"{name}={value}" for name, value in profile.environment.items()),
        *(wheel.file for wheel in profile.wheels), *(wheel.url for wheel in profile.wheels),
        *(part for shown in profile.evidence for part in (shown.what, shown.where, shown.date, shown.detail)),
    ):  # fmt: skip
        assert join_lines(message) in text, message
    assert text.count("-manylinux_2_") == len(when.architectures) * len(profile.python.versions)


def test_wheels_fallbacks_and_builds_are_shown(tmp_path: Path) -> None:
    write(tmp_path, "mine", built("mine") + WHEEL.rstrip() + '\npython = "3.12"\nabi = "TRUE"\n' + BUILD + FALLBACKS)
    done = run(tmp_path, "profiles", "show", "mine")
    assert done.returncode == 0, done.stderr
    text = join_lines(done.stdout)
    assert f"sha256 {SHA[:12]}..." in text
    assert "for Python 3.12, C++11 ABI TRUE" in text
    assert "if no wheel of flash-attn is compatible: attention implementation sdpa" in text
    assert "flash-attn, against the torch of the environment" in text
    assert "5 GiB of memory for each compiler, duration not measured" in text
    assert "NVCC_THREADS=2" in text
    assert "nvcc" in text
    assert "conda: cuda-nvcc" in text


def test_a_profile_by_path_shows_its_base_and_missing_locks(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(DELTA)
    done = run(tmp_path, "profiles", "show", "./mine.toml")
    assert done.returncode == 0
    assert "mine.toml, extends x86-cu128-vllm" in join_lines(done.stdout)
    assert "✗ none for x86_64, Python 3.12" in done.stdout
    assert "$ envdoctor lock mine.toml" in join_lines(done.stdout)
    data = envelope(run(tmp_path, "profiles", "show", "./mine.toml", "--format", "json"))["data"]
    assert data["missing_locks"] == ["x86_64, Python 3.12", "x86_64, Python 3.11"]
    assert data["profile"]["id"] == "mine"


def test_outdated_locks_are_reported(tmp_path: Path) -> None:
    write_profile(tmp_path / "mine.toml", "alpha>=2", pythons=["3.12"])
    folder = tmp_path / "mine.locks"
    folder.mkdir()
    heads = "# profile: mine\n# platform: x86_64-manylinux_2_17\n# python: 3.12\n# torch: cpu\n# made: 2026-11-21\n"
    (folder / "x86_64-3.12.txt").write_text(f"{heads}alpha==1.0 --hash=sha256:{'0' * 64}\n")
    (folder / "aarch64-3.12.txt").write_text("nonsense\n")
    done = run(tmp_path, "profiles", "show", "mine.toml")
    assert "alpha>=2, but the lock has 1.0" in join_lines(done.stdout)
    assert "aarch64-3.12.txt, line 1: not a package" in join_lines(done.stdout)
    assert done.returncode == 0


def test_profile_of_a_hidden_environment_has_no_leading_dot(tmp_path: Path) -> None:
    """Most environments are in .venv."""
    site = make_venv(tmp_path / ".venv")
    add_distribution(site, "numpy", "2.1.0")
    done = envdoctor("profiles", "new", ".venv", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'id = "venv"' in done.stdout
