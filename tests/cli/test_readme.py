"""README and docs/: generated parts are current, commands exist, shown output is what is printed, the site builds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.command import envdoctor
from support.paths import ROOT
from support.terminal import in_terminal

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOG = (
    "INFO start\n(EngineCore_DP0 pid=1959996) ERROR 11-07 09:12:44 [core.py:710] torch.AcceleratorError: "
    "CUDA error: the provided PTX was compiled with an unsupported toolchain.\n"
)
REQUIREMENTS = "torch==2.8.0\nvllm==0.10.2\ntransformers>=4.57.1\ntriton>=3.0.0\n"


def load_generator() -> ModuleType:
    """docs/generate.py, which is a script and not part of a package."""
    sys.path.insert(0, str(ROOT / "docs"))  # as Python does for a script
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_documentation_is_current() -> None:
    outdated = [str(path) for path, text in load_generator().generated_files().items() if path.read_text() != text]
    assert outdated == [], "run: python docs/generate.py"


def test_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)[1].strip()
    assert command == ".venv/bin/python -m pytest"
    assert command in (ROOT / ".ci/run").read_text().splitlines()


def test_first_command_of_the_readme_installs_what_the_second_needs() -> None:
    first = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)[0]
    assert "envdoctor quickstart" in first
    assert "pip install" in first


def commands_shown() -> list[str]:
    """Every `envdoctor` command line of the documentation, without comments."""
    lines = (line for page in PAGES for line in re.findall(r"^\$ envdoctor (.*)$", page.read_text(), re.MULTILINE))
    return sorted({line.partition(" #")[0].strip() for line in lines})


def test_shown_commands_and_options_exist() -> None:
    groups = {"profiles": ("show", "new"), "facts": ("check",), "fleet": ("check", "collective")}
    helps: dict[tuple[str, ...], str] = {}
    missing = []
    for line in commands_shown():
        words = line.split()
        command = tuple(words[:2] if words[1:] and words[1] in groups.get(words[0], ()) else words[:1])
        if command not in helps:
            done = envdoctor(*(() if command == ("--help",) else command), "--help", home=ROOT)
            assert done.returncode == 0, line
            helps[command] = done.stdout
        options = re.findall(r"(?<!\S)--[a-z-]+", line)
        missing += [f"{option} of: {line}" for option in options if option not in helps[command]]
    assert helps
    assert missing == []


# Commands that print the same on every machine, and the width of the terminal that the documentation shows.
SHOWN = {
    "check --machine h200 --fact driver.library=580.173.02": 100,
    "resolve --all --machine all": 220,
    "plan vllm-colocate --machine h200": 120,
    "explain train.log": 100,
    "audit requirements.txt": 100,
}


@pytest.mark.parametrize("command", SHOWN)
def test_shown_output_is_what_is_printed(command: str, tmp_path: Path) -> None:
    """Line by line, except what `...` leaves out."""
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    printed = in_terminal(*command.split(), home=tmp_path, width=SHOWN[command])
    lines = {line.rstrip() for line in printed.splitlines()}
    shown = f"$ envdoctor {command}\n"
    samples = [page.read_text().rpartition(shown)[2] for page in PAGES if shown in page.read_text()]
    samples = [re.split(r"^(?:\$ |```)", sample, maxsplit=1, flags=re.MULTILINE)[0] for sample in samples]
    assert samples
    for line in "".join(samples).splitlines():
        assert line == "  ..." or line in lines, line


def test_every_link_between_pages_leads_to_a_file() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_site_builds_without_warnings(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/rules/index.html").exists()
