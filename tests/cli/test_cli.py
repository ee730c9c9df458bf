"""The command line from end to end: exit codes, errors, envelope, width, pipes and signals."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.command import COMMAND, envdoctor, envelope, environment, snapshot

from envdoctor.commands.registry import COMMANDS, Command


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_with_an_example(command: Command, home: Path) -> None:
    done = envdoctor(*command.name.split(), "--help", home=home)
    assert done.returncode == 0
    assert f"Example: envdoctor {command.name.split()[0]}" in done.stdout


def test_the_envelope_has_these_keys(home: Path) -> None:
    data = envelope(envdoctor("check", "--machine", "cpu-2core", "--format", "json", home=home))
    assert list(data) == ["schema", "envdoctor", "tables", "command", "ok", "exit_code", "data", "error"]
    assert (data["schema"], data["command"], data["ok"], data["exit_code"], data["error"]) == (
        3,
        "check",
        True,
        0,
        None,
    )
    keys = [
        "machine",
        "stack",
        "findings",
        "rules",
        "choice",
        "report",
        "made",
        "verification",
        "benchmark",
        "environment",
        "evaluated",
        "rule_filter",
        "coverage",
        "next_command",
    ]
    assert list(data["data"]) == keys
    finding = data["data"]["findings"][0]
    assert {"id", "cause", "status", "message", "evidence", "fix", "remedies"} <= finding.keys()


def test_an_error_has_the_same_envelope(home: Path) -> None:
    done = envdoctor("check", "--machine", "nowhere", "--format", "json", home=home)
    data = envelope(done)
    assert done.returncode == data["exit_code"] == 2
    assert data["data"] is None
    assert list(data["error"]) == ["kind", "message", "expected", "hint", "causes"]


PROFILE = """
id = "mine"
title = "Mine"
summary = "A profile of my own"
preference = 1
requirements = [{ spec = "six" }]
sources = [{ kind = "configured" }]
[when]
architectures = ["x86_64"]
glibc = "2.17"
disk_gb = 0.1
[python]
versions = ["3.11"]
[verify]
required = []
[train]
recipe = "sort"
"""


def write_bad_files(folder: Path) -> None:
    files = {
        "text.json": "not json",
        "list.json": "[1]",
        "empty.json": "{}",
        "newer.json": '{"schema": 99}',
        "binary.json": "\udc80\udcfe",
        "unknown.toml": PROFILE + "[when2]\n",
        "misspelt.toml": PROFILE.replace("glibc =", "glibcc ="),
        "broken.toml": "id = ",
        "direct.toml": PROFILE.replace('"six"', '"six @ https://example.org/six.whl"'),
        "not-a-requirement.toml": PROFILE.replace('"six"', '"--index-url=x"'),
        "newer.toml": "schema = 9\n" + PROFILE,
    }
    for name, text in files.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    (folder / "file").write_text("mine")
    (folder / "pins.txt").write_text("torch==2.8.0")
    (folder / "foreign").mkdir()
    (folder / "foreign/pyvenv.cfg").write_text("home = /usr")
    (folder / "gone/bin").mkdir(parents=True)
    (folder / "gone/bin/python").symlink_to("/no/python3.9")
    (folder / "full").mkdir()
    (folder / "full/thesis.txt").write_text("mine")


# Arguments, and a part of the expected error message.
BAD_INPUTS: dict[str, tuple[list[str], str]] = {
    "unknown profile": (["install", "--profile", "gh20"], "'gh20'; did you mean 'gh200'?"),
    "unknown profile to show": (["profiles", "show", "cpus"], "did you mean 'cpu'?"),
    "unknown recipe": (["train", "srot"], "'srot'; did you mean 'sort'?"),
    "unknown machine": (["check", "--machine", "gh20"], "unknown machine or GPU 'gh20'"),
    "missing machine file": (["check", "--machine", "./none.json"], "cannot read none.json"),
    "not JSON": (["check", "--machine", "./text.json"], "is not JSON"),
    "JSON of another kind": (["check", "--machine", "./list.json"], "contains a JSON list"),
    "machine lacks fields": (["check", "--machine", "./empty.json"], "missing required field `system`"),
    "newer machine": (["check", "--machine", "./newer.json"], "schema 99"),
    "not text": (["check", "--machine", "./binary.json"], "is not UTF-8"),
    "unknown table": (["install", "--profile", "./unknown.toml"], "unknown field `when2`"),
    "unknown key": (["install", "--profile", "./misspelt.toml"], "'glibc'"),
    "not TOML": (["install", "--profile", "./broken.toml"], "is not TOML"),
    "address without hash": (["resolve", "--profile", "./direct.toml"], "is a URL without a hash"),
    "option in a requirement": (["resolve", "--profile", "./not-a-requirement.toml"], "--index-url=x"),
    "newer profile": (["resolve", "--profile", "./newer.toml"], "schema 9"),
    "unknown fact": (["check", "--machine", "cpu-2core", "--fact", "driver.versoin=1"], "'versoin'"),
    "fact of another type": (
        ["check", "--machine", "cpu-2core", "--fact", "system.cpu_count=many"],
        "cpu_count=many",
    ),
    "fact with a null value": (
        ["check", "--machine", "cpu-2core", "--fact", "driver.version=null"],
        "driver.version=null",
    ),
    "fact without a value": (["check", "--machine", "cpu-2core", "--fact", "driver.version"], "NAME=VALUE"),
    "venv is a file": (["install", "--profile", "cpu", "--venv", "file"], "is a file"),
    "foreign venv": (["install", "--profile", "cpu", "--venv", "foreign"], "did not create"),
    "foreign folder": (["install", "--profile", "cpu", "--venv", "full"], "did not create"),
    "no environment": (["verify", "--venv", "nowhere"], "no environment at"),
    "no interpreter": (["verify", "--python", "nowhere/python"], "nowhere/python"),
    "no interpreter for a dry run": (
        ["train", "sort", "--dry-run", "--python", "pyton3"],
        "pyton3",
    ),
    "no interpreter for a run": (["train", "sort", "--unverified", "--python", "pyton3"], "not on PATH"),
    "an environment whose Python is gone": (
        ["train", "sort", "--venv", "gone"],
        "bin/python is a link to /no/python3.9",
    ),
    "two interpreters": (["verify", "--venv", "a", "--python", "b"], "cannot be combined with"),
    "unknown probe": (["verify", "--python", sys.executable, "--only", "torch_matmull"], "'torch_matmul'"),
    "unknown setting": (["train", "sort", "--set", "stepz=3"], "did you mean 'max_steps'?"),
    "home of an unknown user": (["train", "~no-such-user/x.toml"], "no-such-user"),
    "archs below an unknown home": (["archs", "~no-such-user/x"], "~no-such-user/x"),
    "abi below an unknown home": (["abi", "~no-such-user"], "~no-such-user is not a directory"),
    "venv below an unknown home": (["check", "--venv", "~no-such-user/v"], "error: ~no-such-user/v: No such file"),
    "explain of a file that does not exist": (["explain", "/nowhere/of/a/run"], "/nowhere/of/a/run: No such file"),
    "Python below unknown home": (
        ["check", "--python", "~no-such-user/p"],
        "--python ~no-such-user/p: No such file",
    ),
    "data below an unknown home": (["train", "tes", "--set", "data=~no-such-user/x"], "no such file"),
    "setting of another type": (["train", "sort", "--set", "max_steps=many"], "steps=many"),
    "setting out of range": (["train", "sort", "--set", "max_steps=-3"], "steps = -3"),
    "setting without a value": (["train", "sort", "--set", "steps"], "KEY=VALUE"),
    "no data": (["train", "tes"], "data is not set"),
    "data nowhere": (["train", "tes", "--set", "data=nowhere"], "nowhere"),
    "a run's folder in use": (["train", "sort", "--run", "full", "--dry-run"], "full is not empty"),
    "a run's folder that is a file": (["train", "sort", "--run", "file", "--dry-run"], "/file: Not a directory"),
    "nothing to resume": (["train", "sort", "--resume", "latest"], "no run of sort"),
    "resume a folder that is no run": (["train", "sort", "--resume", "latest", "--run", "full"], "run.json"),
    "neither profile nor all": (["resolve"], "neither a profile nor --all"),
    "facts with all machines": (
        ["resolve", "--all", "--machine", "all", "--fact", "driver.version=1"],
        "--machine all cannot be combined with --fact",
    ),
    "a Python version with all machines": (
        ["resolve", "--all", "--machine", "all", "--python", "3.11"],
        "cannot be combined with --python",
    ),
    "a check with an upgrade": (["lock", "--check", "--upgrade"], "--check cannot be combined with --upgrade"),
    "a wheelhouse with an upgrade": (
        ["install", "--from", "full", "--upgrade"],
        "--from cannot be combined with --upgrade",
    ),
    "an invalid port": (["fleet", "collective", "--local", "--gpus", "2", "--port", "99999"], "--port 99999"),
    "an invalid size": (["fleet", "collective", "--local", "--gpus", "2", "--size", "0"], "--size 0"),
    "SLURM nodes without --slurm": (
        ["fleet", "collective", "--local", "--nodelist", "n1"],
        "--nodelist without --slurm",
    ),
    "Python outside the profile": (["resolve", "--profile", "cpu", "--python", "2.7"], "--python 2.7"),
    "save into nowhere": (["check", "--save", "nowhere/machine.json"], "cannot write"),
    "an empty value": (["uninstall", "--venv", ""], "--venv: it is empty"),
    "an empty value of several": (["check", "--select="], "--select: it is empty"),
    "an empty argument": (["audit", ""], "it is empty"),
    "a file instead of a wheelhouse": (["fetch", "--profile", "cpu", "--dest", "file"], "file is a file"),
    "an output folder without a parent": (["audit", "pins.txt", "--fix", "none/out"], "hint: mkdir -p none"),
    "unknown option": (["check", "--nonsense"], "--nonsense"),
    "unknown command": (["chekc"], "chekc"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_a_clear_error_and_changes_nothing(case: str, home: Path) -> None:
    arguments, named = BAD_INPUTS[case]
    write_bad_files(home)
    before = snapshot(home)
    done = envdoctor(*arguments, home=home, COLUMNS="400")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert named in done.stderr
    assert done.stdout == ""
    assert snapshot(home) == before


def test_an_error_finding_gives_exit_code_1(home: Path) -> None:
    done = envdoctor("check", "--machine", "cpu-2core", "--fact", "storage.places=" + json.dumps(
        {"home": {"path": "/home", "total": 100, "free": 1}}), home=home)  # fmt: skip
    assert done.returncode == 1
    assert "HOST003" in done.stdout


def test_a_profile_that_does_not_fit_is_refused(home: Path) -> None:
    done = envdoctor("install", "--profile", "gh200", home=home, COLUMNS="400")
    assert done.returncode == 1
    assert "architecture: x86_64, required aarch64" in done.stderr or "GPUs: none" in done.stderr
    assert not (home / ".local").exists()


def test_training_in_an_unverified_environment_is_refused(home: Path) -> None:
    done = envdoctor("train", "sort", "--python", sys.executable, home=home, COLUMNS="400")
    assert done.returncode == 1
    assert "has not been verified" in done.stderr
    assert "--unverified" in done.stderr
    assert not (home / "runs").exists()


def test_an_interpreter_is_found_on_path_by_its_name(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin/python3.99").symlink_to(sys.executable)
    path = f"{home / 'bin'}:/usr/bin:/bin"
    done = envdoctor("train", "sort", "--dry-run", "--python", "python3.99", home=home, PATH=path, COLUMNS="400")
    assert (done.returncode, f"$ {home}/bin/python3.99 " in done.stdout) == (1, True), done.stdout + done.stderr
    done = envdoctor("verify", "--python", "python3.99", "--only", "torch_matmul", home=home, PATH=path)
    assert done.returncode in (0, 1), done.stderr


def test_a_saved_machine_gives_the_same_results(home: Path) -> None:
    first = envelope(envdoctor("check", "--save", "here.json", "--format", "json", home=home))
    again = envelope(envdoctor("check", "--machine", "here.json", "--format", "json", home=home))
    assert again["data"]["findings"] == first["data"]["findings"]
    assert again["data"]["choice"]["profile"] == first["data"]["choice"]["profile"]
    assert str(home) not in (home / "here.json").read_text()


def test_a_dry_run_of_training_writes_nothing(home: Path) -> None:
    done = envdoctor("train", "sort", "--dry-run", "--set", "max_steps=7", home=home)
    assert done.returncode == 0
    assert "steps" in done.stdout
    assert snapshot(home) == {}


def test_a_pipe_receives_no_colour(home: Path) -> None:
    done = envdoctor("check", "--machine", "cpu-2core", home=home)
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("color", "variable", "is_coloured"), [("always", "NO_COLOR", True), ("never", "FORCE_COLOR", False)]
)
def test_color_overrides_the_variables(color: str, variable: str, is_coloured: bool, home: Path) -> None:
    done = envdoctor("check", "--machine", "cpu-2core", "--color", color, home=home, **{variable: "1"})
    assert ("\x1b[" in done.stdout) == is_coloured


def test_quiet_prints_no_progress(home: Path) -> None:
    """Without a network, fetch fails after its first progress."""
    words = ["fetch", "cpu", "--dest", "wheels", "--python", "3.11"]
    sources = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9", "PIP_CONFIG_FILE": ""}
    options: tuple[list[str], ...] = ([], ["--quiet"])
    with ThreadPoolExecutor() as pool:  # each waits for seconds before it requests a file again
        ended = list(pool.map(lambda quiet: envdoctor(*words, *quiet, home=home, **sources), options))
    for quiet, done in zip(options, ended, strict=True):
        assert done.returncode == 3
        assert ("Locating 68 packages" in done.stderr) == (not quiet)
        assert "error: " in done.stderr


def test_an_early_closed_pipe_causes_no_traceback(home: Path) -> None:
    command = [*COMMAND, "check", "--machine", "cpu-2core"]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(home)
    )
    assert child.stdout
    assert child.stderr
    child.stdout.close()
    child.wait(60)
    assert "Traceback" not in child.stderr.read()
    child.stderr.close()


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} was not written"
        time.sleep(0.02)


def test_ctrl_c_exits_with_130_and_stops_the_child(home: Path, tmp_path: Path) -> None:
    hanging = tmp_path / "python"
    began = tmp_path / "began"
    hanging.write_text(f"#!/bin/sh\ntouch {began}\nsleep 300\n")
    hanging.chmod(0o755)
    command = [*COMMAND, "verify", "--python", str(hanging)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(home)
    )
    wait_for(began)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in output


# Runs `check` in one fork that lists the modules it imports, and in forks that are interrupted as they import one.
INTERRUPT_IMPORTS = """
import os, signal, sys
from envdoctor.__main__ import main

class Finder:
    def __init__(self, interrupted):
        self.interrupted, self.imported = interrupted, []
    def find_spec(self, name, path=None, target=None):
        self.imported.append(name)
        if name == self.interrupted:
            signal.raise_signal(signal.SIGINT)

def run(interrupted):
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with open(reading) as pipe:
            return pipe.read().split(), os.waitstatus_to_exitcode(os.wait()[1])
    os.close(reading)
    sys.meta_path.insert(0, Finder(interrupted))
    try:
        main()
    finally:
        os.write(writing, " ".join(sys.meta_path[0].imported).encode())

sys.argv[1:] = ["check"]
names, status = run(None)
assert status == 0
for name in names[::len(names) // 8]:
    print("INTERRUPTED", name, run(name)[1], flush=True)
"""


def test_ctrl_c_during_start_up_causes_no_traceback(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT_IMPORTS], capture_output=True, text=True, env=environment(home), cwd=home,
        check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    endings = dict(re.findall(r"INTERRUPTED (\S+) (\S+)", done.stdout))
    assert len(endings) >= 8
    assert set(endings.values()) == {"130"}, endings


def test_every_bundled_machine_can_be_checked(home: Path) -> None:
    from envdoctor.machine.recorded import machine_names

    assert {"cpu-2core"} <= set(machine_names())
    for name in machine_names():
        done = envdoctor("check", "--machine", name, "--format", "json", home=home)
        assert done.returncode == 0, (name, done.stderr, done.stdout[-2000:])


def test_sigterm_stops_a_verification_like_ctrl_c(home: Path, tmp_path: Path) -> None:
    hanging, pids = tmp_path / "python", tmp_path / "pids"
    hanging.write_text(f"#!/bin/sh\necho $$ > {pids}.part; mv {pids}.part {pids}\nexec sleep 300\n")
    hanging.chmod(0o755)
    command = [*COMMAND, "verify", "--python", str(hanging)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(home)
    )
    wait_for(pids)
    child.terminate()
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130, output
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("words", [("--venv=~/made",), ("--venv", "~/made")])
def test_tilde_after_an_equals_sign_is_expanded(words: tuple[str, ...], tmp_path: Path) -> None:
    done = envdoctor("uninstall", *words, home=tmp_path)
    assert done.stderr.splitlines()[0] == f"error: there is no environment at {tmp_path}/made"
