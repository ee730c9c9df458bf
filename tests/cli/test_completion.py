"""Completion: the candidates for each part of a command line, the scripts in real shells, and what is imported."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor, environment

from envdoctor.commands.registry import child_names
from envdoctor.completion import complete, split
from envdoctor.completion.scripts import SCRIPTS

NO_HOME = {"HOME": "/nonexistent"}


def values(line: str) -> list[str]:
    return list(complete(line, NO_HOME))


@each_case(
    ("line", "expected"),
    [
        ("envdoctor expla", ["explain"]),
        ("envdoctor profiles ", ["new", "show"]),
        ("envdoctor fleet coll", ["collective"]),
        ("envdoctor check --mach", ["--machine"]),
        ("envdoctor check --gpu rtx50", ["rtx5060ti-16gb", "rtx5070", "rtx5070ti", "rtx5080", "rtx5090"]),
        ("envdoctor check --machine=h1", ["--machine=h100"]),
        ("envdoctor check --format ", ["human", "json", "github", "sarif"]),
        ("envdoctor check --select drv001", ["DRV001"]),
        ("envdoctor check --machine t4 --ignore DRV001 --ignore GPU00", [f"GPU00{n}" for n in range(1, 10)]),
        ("envdoctor explain DRV002", ["DRV002"]),
        ("envdoctor install gh200-", ["gh200-cu130"]),
        ("envdoctor export cp", ["cpu"]),
        ("envdoctor export cpu --as docker", ["dockerfile"]),
        ("envdoctor profiles show x86-trl", ["x86-trl027-vllm"]),
        ("envdoctor lock cpu x86-cu124", ["x86-cu124-hf"]),
        ("envdoctor train so", ["sort", "sort-dpo", "sort-sft"]),
        ("envdoctor train sort --set learning", ["learning_rate="]),
        ("envdoctor train sort --set lr=1 --set attention_imp", []),
        ("envdoctor train gsm8k --set dtype=b", ["dtype=bfloat16"]),
        ("envdoctor train gsm8k --set hidden_si", []),  # a setting of the tiny model
        ("envdoctor train sort --set hidden_si", ["hidden_size="]),
        ("envdoctor verify --only sd", ["sdpa"]),
        ("envdoctor completion z", ["zsh"]),
        ("envdoctor audit ./set", []),  # files, by the shell
        ("envdoctor check --venv ", []),
        ("envdoctor no-such-command ", []),
        ("envdoctor check 'open quot", []),
    ],
)
def test_candidates(line: str, expected: list[str]) -> None:
    assert values(line) == expected


def test_all_commands_and_no_more() -> None:
    assert sorted(values("envdoctor ")) == sorted(child_names(""))


def test_the_users_profiles(tmp_path: Path) -> None:
    folder = tmp_path / "envdoctor/profiles"
    folder.mkdir(parents=True)
    (folder / "mine.toml").touch()
    assert complete("envdoctor install mi", {"XDG_CONFIG_HOME": str(tmp_path)}) == {"mine": "your profile"}


def test_words_of_a_line() -> None:
    assert split("envdoctor explain 'two words' ") == ["envdoctor", "explain", "two words", ""]
    assert split("envdoctor explain 'two wo") == ["envdoctor", "explain", "two wo"]
    assert split("") == [""]


def test_no_module_of_a_command_is_imported(tmp_path: Path) -> None:
    code = "import sys; from envdoctor.__main__ import main; main(); print(*sys.modules)"
    variables = environment(tmp_path, _ENVDOCTOR_COMPLETE="bash", _ENVDOCTOR_LINE="envdoctor train sort --set ")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not {"msgspec", "pathlib", "envdoctor.cli", "envdoctor.core.records"} & loaded


def test_scripts_are_printed_and_installed(tmp_path: Path) -> None:
    assert envdoctor("completion", "fish", home=tmp_path).stdout == SCRIPTS["fish"]
    assert envdoctor("completion", home=tmp_path, SHELL="/usr/bin/zsh").stdout == SCRIPTS["zsh"]
    files = {
        "bash": ".local/share/bash-completion/completions/envdoctor",
        "zsh": ".local/share/zsh/site-functions/_envdoctor",
        "fish": ".config/fish/completions/envdoctor.fish",
    }
    for shell, file in files.items():
        assert not (tmp_path / file).exists()
        for _ in range(2):  # a script of envdoctor is replaced
            done = envdoctor("completion", shell, "--install", home=tmp_path)
            assert done.returncode == 0
            assert str(tmp_path / file) in done.stdout
        assert (tmp_path / file).read_text() == SCRIPTS[shell]


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / ".config/fish/completions/envdoctor.fish"
    file.parent.mkdir(parents=True)
    file.write_text("mine\n")
    done = envdoctor("completion", "fish", "--install", home=tmp_path)
    assert done.returncode == 1
    assert "was not written by envdoctor" in done.stderr
    assert file.read_text() == "mine\n"


def test_an_unknown_shell_is_a_usage_error(tmp_path: Path) -> None:
    for arguments, shell in ((["completion", "tcsh"], "tcsh"), (["completion"], "SHELL is /bin/dash")):
        done = envdoctor(*arguments, home=tmp_path, SHELL="/bin/dash")
        assert done.returncode == 2
        assert shell in done.stderr


SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./script\n"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source ./script\n"),
    "fish": (["fish", "--no-config", "-i"], "source ./script\n"),
}


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(name, marks=pytest.mark.long) for name in ("zsh", "fish"))])
def test_tab_in_a_real_shell(shell: str, tmp_path: Path) -> None:
    arguments, load_script = SHELLS[shell]
    if not shutil.which(arguments[0]):
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "bin/envdoctor"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m envdoctor "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(SCRIPTS[shell])
    (tmp_path / "readings.csv").touch()
    path = f"{program.parent}:{os.environ['PATH']}"
    variables = environment(tmp_path, PATH=path, TERM="xterm", PS1="> ", ZDOTDIR=str(tmp_path))
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe(arguments[0], arguments, variables)
    try:
        os.write(terminal, load_script.encode() + b"echo rea''dy\n")
        read_until(terminal, b"ready\r")
        for typed, completed in (
            ("envdoctor expla", b"explain"),
            ("envdoctor check --gpu h100-n", b"h100-nvl"),
            ("envdoctor train sort --set learn", b"learning_rate="),
            ("envdoctor train gsm8k --set dtype=bfl", b"dtype=bfloat16"),
            ("envdoctor audit readi", b"readings.csv"),
        ):
            os.write(terminal, typed.encode() + b"\t")
            read_until(terminal, completed)
            os.write(terminal, b"\x15")  # Ctrl-U empties the line
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def read_until(terminal: int, expected: bytes) -> None:
    output, deadline = b"", time.monotonic() + 30
    while expected not in output:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], output
        output += os.read(terminal, 1 << 12)
