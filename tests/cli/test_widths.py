"""The screens of every command in terminals of several widths and in a pipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor
from support.sample_environments import add_torch, make_venv
from support.terminal import in_terminal

from envdoctor.commands.registry import COMMANDS, HELP_SECTIONS, child_names, summary_of

ERROR = "CUDA driver version is insufficient for CUDA runtime version"
GUIDE = "```bash\npip install torch==2.8.0 vllm==0.10.2 transformers==5.17.0 trl==0.23.1\n```\n"
SCREENS = (
    "check --machine gh200-480gb",
    "check --machine t4 --venv venv",
    "check --machine a100 --verbose",
    "check --venv missing",
    "gpus",
    "health --machine h200 --gpus 8",
    "check --image vllm/vllm-openai:v0.20.0 --gpu l4 --driver 525.60.13",
    "explain DRV001",
    f"explain {ERROR}",
    "explain nothing-known",
    "rules",
    "profiles",
    "profiles show gh200",
    "audit SETUP.md",
    "envs",
    "paths",
    "abi venv",
    "archs venv --cc 9.0",
    "resolve no-such-profile",
    "plan gsm8k --machine rtx4090",
    "plan vllm-colocate --machine rtx4090",
    "recipes",
    "train sort --dry-run --run run",
    "train sort --settings",
    "install gh200 --dry-run --venv venv",
    "watch",
    "recipes",
    "config",
    "help configuration",
    "chekc",
    "check --machine h300",
    "--help",
    "check --help",
    "train --help",
    "profiles --help",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment, whose torch has another CUDA than its packages, and a setup guide."""
    folder = tmp_path_factory.mktemp("folder")
    add_torch(make_venv(folder / "venv"))
    (folder / "SETUP.md").write_text(GUIDE)
    return folder


def arguments(screen: str) -> list[str]:
    command, _, text = screen.partition(" ")
    return [command, text] if command == "explain" else screen.split()


def piped(screen: str, folder: Path) -> str:
    done = envdoctor(*arguments(screen), home=folder)
    return done.stdout + done.stderr


def words(text: str) -> set[str]:
    """Names, paths and other words of a screen, without its numbers."""
    return set(re.findall(r"[A-Za-z/][\w./=@+-]{3,}", text))


def is_breakable(line: str, width: int) -> bool:
    """Whether a line could be shorter: it is wider than the terminal, and no command, file or single word."""
    words = re.sub(r"`[^`]*`", "x", re.sub(r"^ *(?:[✓✗•!?i-]|\d+\.) ", "", line)).split()
    if len(line) <= width or len(words) < 2 or re.match(r" *(\$ |hint: |#|export |ulimit )", line):
        return False
    return not re.search(r"\b(envdoctor|uv|pip|sudo|python|http) ", line)


def check_screen(screen: str, folder: Path, widths: tuple[int, ...]) -> None:
    plain = piped(screen, folder)
    commands = {line.strip() for line in plain.splitlines() if line.strip().startswith("$ ")}
    assert not [line for line in plain.splitlines() if line != line.rstrip()]
    assert "\x1b" not in plain
    for width in widths:
        shown = in_terminal(*arguments(screen), width=width, home=folder)
        lines = shown.splitlines()
        assert not [line for line in lines if line != line.rstrip()], width
        assert not [line for line in lines if is_breakable(line, width)], width
        assert {line.strip() for line in lines if line.strip().startswith("$ ")} == commands, width
        assert words(plain) <= words(shown), width


@each_case("screen", SCREENS)
def test_a_screen_in_a_pipe_and_in_a_narrow_terminal(screen: str, folder: Path) -> None:
    check_screen(screen, folder, (50,))


@pytest.mark.long
@each_case("screen", SCREENS)
def test_a_screen_at_every_width(screen: str, folder: Path) -> None:
    check_screen(screen, folder, (40, 50, 80, 120))


def test_help_lists_every_command_in_a_section_with_its_whole_summary(folder: Path) -> None:
    shown = in_terminal("--help", width=80, home=folder)
    titles = re.findall(r"^(\w+):\n", shown, flags=re.MULTILINE)
    assert titles == [*HELP_SECTIONS, "Options"]
    listed = re.findall(r"^  (\S+) +(.+)$", shown.partition("Start:")[2].partition("Options:")[0], re.MULTILINE)
    assert listed[0][0] == "quickstart"
    assert sorted(listed) == sorted((name, summary_of(name)) for name in child_names(""))


def test_a_pipe_is_not_wrapped_with_any_environment(folder: Path) -> None:
    wide = envdoctor("profiles", home=folder).stdout
    assert envdoctor("profiles", home=folder, COLUMNS="40").stdout == wide


def test_colours_are_for_terminals(folder: Path) -> None:
    assert "\x1b[1m" in in_terminal("profiles", width=80, home=folder, NO_COLOR="")
    assert "\x1b" not in in_terminal("profiles", width=80, home=folder, NO_COLOR="", TERM="dumb")
    assert "\x1b[1m" in envdoctor("profiles", home=folder, FORCE_COLOR="1").stdout


def test_columns_sets_the_width_of_a_terminal(folder: Path) -> None:
    narrow = in_terminal("profiles", width=120, home=folder, COLUMNS="50")
    assert narrow == in_terminal("profiles", width=50, home=folder)
    assert narrow != in_terminal("profiles", width=120, home=folder)


def test_every_command_has_a_screen() -> None:
    """Commands that install, start, ask a network or write files are tested where these are at hand."""
    elsewhere = {
        *("quickstart", "report", "schema", "profiles new", "facts check", "lock", "export", "fetch", "rollback"),
        *("clean", "uninstall", "verify", "bench", "load-test", "plot", "pack", "check-pack", "fleet check"),
        *("fleet collective", "mcp", "completion", "fix", "move", "update", "bisect", "forecast", "add"),
    }
    shown = {screen.split()[0] for screen in SCREENS}
    assert {command.name for command in COMMANDS} - elsewhere <= shown | {"profiles show"}
