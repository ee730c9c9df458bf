"""The attacks of attacks.py: hostile inputs for each area of the command line."""

# ruff: noqa: E501  hostile texts

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from campaigns.attacks import PASSWORD, SECRET, Attack, Ground
from support.local_packages import PYTHON, write_profile
from support.sample_environments import (
    add_distribution,
    add_torch,
    compile_with_fatbin,
    fatbin_container,
    fatbin_entry,
    make_venv,
)

from envdoctor.machine.recorded import machine_json, read_recorded

ESCAPES = "\x1b]0;t\x07\x1b[2J\x9b31m\x85\u202e\u2066\x7f\x08"
PAYLOADS = {
    "substitution": "$(pwn)", "backticks": "`pwn`", "semicolon": ";pwn;", "quote": "';pwn;'", "pipe": "|pwn|",
    "newline": "\npwn\n", "escapes": ESCAPES, "token": f" {SECRET}", "password": f"https://me:{PASSWORD}@x.example/y",
    "signature": f"https://x.example/y?X-Amz-Signature={SECRET}", "long": "A" * 20_000, "null": "\0",
    "invisible": "$\u200b(\u2060p\u200dwn)\U000e0041\ufe0f\u2064", "hidden token": "\u200b".join(SECRET), "bearer": f"Authorization: Bearer {SECRET}", "format": "%s%n{0}{x}", "markup": "[bold]x[/bold]<script>",
}  # fmt: skip
ERRORS = (
    "ModuleNotFoundError: No module named '{}'", "ImportError: cannot import name '{}' from 'vllm'",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device {}",
    "ImportError: {}.so: undefined symbol: _ZN2at4_ops", "OSError: {} is not a local folder",
    "TypeError: {}.__init__() got an unexpected keyword argument '{}'",
    "ERROR: No matching distribution found for {}", "ImportError: {}>=1.0 is required for a normal functioning",
    "libcudart.so.{}: cannot open shared object file", "401 Client Error: Unauthorized for url: {}",
)  # fmt: skip
UNSUITABLE: dict[str, Callable[[Path], Any]] = {
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "20 GB without blocks": lambda path: os.truncate(_touch(path), 20 << 30),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "random bytes": lambda path: path.write_bytes(random.Random(1).randbytes(50_000)),
    "deep brackets": lambda path: path.write_text("[" * 100_000),
    "a number of 5,000 digits": lambda path: path.write_text('{"schema": ' + "9" * 5000 + "}"),
}  # fmt: skip
VARIABLES = (
    "HF_ENDPOINT", "OPENSSL_CONF", "OPENSSL_MODULES", "TRITON_PTXAS_PATH", "VLLM_NCCL_SO_PATH", "LD_PRELOAD",
    "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "WANDB_BASE_URL", "HF_MODULES_CACHE", "HF_HOME", "MAKEFLAGS",
    "CUDA_INJECTION64_PATH",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "PYTHONPATH", "PATH", "HTTPS_PROXY", "VLLM_PLUGINS", "TRITON_CACHE_DIR",
    "OMP_TOOL_LIBRARIES", "CUDA_HOME", "CC", "GIT_SSH_COMMAND", "RAY_ADDRESS", "MASTER_ADDR", "NCCL_DEBUG_FILE",
    "TORCHINDUCTOR_CACHE_DIR", "PYTHONINSPECT", "PYTHONBREAKPOINT", "BASH_ENV", "UV_INDEX_URL", "PIP_CONFIG_FILE",
)  # fmt: skip


def _touch(path: Path) -> Path:
    path.touch()
    return path


def all_attacks(generator: random.Random) -> Iterator[Attack]:
    """All attacks; the generator draws numbers for compiled files."""
    yield from _logs()
    yield from _machines()
    yield from _metadata()
    yield from _profiles()
    yield from _manifests()
    yield from _compiled(generator)
    yield from _runs()
    yield from _launchers()
    yield from _variables()


def _paste(ground: Ground, stdout: str) -> None:
    """Paste what follows a `commands`, `fix`, `hint` or `check` key."""

    def walk(value: Any, key: str) -> Iterator[str]:
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from walk(inner, name)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner, key)
        elif isinstance(value, str) and key in ("commands", "fix", "hint", "check", "next"):
            yield value

    try:
        ground.paste(list(walk(json.loads(stdout), "")))
    except ValueError:
        if stdout.strip():
            ground.problems.append(f"no JSON: {stdout[:80]!r}")


def _logs() -> Iterator[Attack]:
    for kind, payload in PAYLOADS.items():
        for number, text in enumerate(ERRORS):

            def run(ground: Ground, text: str = text, payload: str = payload) -> None:
                log = text.replace("{}", payload).encode() + b"\n"
                _paste(ground, ground.run("explain", "-", "--format", "json", stdin=log).stdout)
                ground.run("explain", "-", stdin=log)

            yield Attack("explain", f"{kind} in error {number + 1}", run)
    for name, data in {
        "a line of 3 MB": b"cutlass_aaa_" * 250_000, "lines of a pattern": (b"aaaa aaaa requires aaaa" * 170 + b"\n") * 260,
        "all colours": b"\x1b[31mError\x1b[0m " * 50_000, "no text": bytes(range(256)) * 400, "many errors": "\n".join(
            text.replace("{}", str(number)) for number in range(3000) for text in ERRORS).encode(),
    }.items():  # fmt: skip
        yield Attack("explain", name, lambda ground, data=data: ground.run("explain", "-", stdin=data))


def _machines() -> Iterator[Attack]:
    def paths(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
        for key, value in items:
            yield from paths(value, (*at, key))
        if isinstance(data, str) and at[-1] not in ("state", "source"):
            yield at

    def run(ground: Ground, at: tuple[Any, ...], payload: str) -> None:
        data = json.loads(machine_json(read_recorded("h100")))
        target = data
        for key in at[:-1]:
            target = target[key]
        target[at[-1]] += payload
        (ground.folder / "m.json").write_text(json.dumps(data))
        _paste(ground, ground.run("check", "--machine", "./m.json", "--format", "json").stdout)
        ground.run("check", "--machine", "./m.json")

    found = sorted(paths(json.loads(machine_json(read_recorded("h100")))), key=str)
    for number, at in enumerate(found[:: max(1, len(found) // 36)]):
        kind, payload = list(PAYLOADS.items())[number % len(PAYLOADS)]
        yield Attack("machine files", f"{kind} in {'.'.join(map(str, at))}", partial(run, at=at, payload=payload))
    for name, make in UNSUITABLE.items():

        def unsuitable(ground: Ground, make: Callable[[Path], Any] = make) -> None:
            make(ground.folder / "m.json")
            ground.run("check", "--machine", "./m.json", accept="2")

        yield Attack("machine files", name, unsuitable)


def _metadata() -> Iterator[Attack]:
    fields = ("Name", "Version", "Requires-Dist", "Requires-Python", "Home-page", "Project-URL")

    def run(ground: Ground, name: str, payload: str) -> None:
        site = make_venv(ground.folder / "venv")
        add_torch(site)
        values = {"Name": "trl", "Version": "0.20.0", "Requires-Dist": "torch>=2"} | {name: f"torch{payload}"}
        text = "".join(f"{key}: {value}\n" for key, value in values.items())
        (add_distribution(site, "trl", "0.20.0") / "METADATA").write_text(f"Metadata-Version: 2.1\n{text}")
        _paste(ground, ground.run("check", "--venv", "venv", "--format", "json").stdout)
        for command in ("check", "profiles new", "audit"):
            ground.run(*command.split(), "venv")

    for kind, payload in PAYLOADS.items():
        for name in fields:
            yield Attack("environments", f"{kind} in {name}", partial(run, name=name, payload=payload))
    for file in ("METADATA", "RECORD", "INSTALLER", "direct_url.json", "pyvenv.cfg", "envdoctor.json", "x.so"):
        for name, make in UNSUITABLE.items():

            def unsuitable(ground: Ground, file: str = file, make: Callable[[Path], Any] = make) -> None:
                site = make_venv(ground.folder / "venv")
                info = add_distribution(site, "alpha", "1.0", files=("x.so",))
                folder = site if file == "x.so" else info if file[0] not in "pe" else ground.folder / "venv"
                (folder / file).unlink(missing_ok=True)
                make(folder / file)
                for command in ("check", "abi", "profiles new"):
                    ground.run(*command.split(), "venv", accept="0123")

            yield Attack("environments", f"{file} is {name}", unsuitable)


def _profiles() -> Iterator[Attack]:
    def run(ground: Ground, change: Callable[[str], str]) -> None:
        path = write_profile(ground.folder / "mine.toml", "six==1.17.0")
        path.write_text(change(path.read_text()))
        ground.run("install", "./mine.toml", "--dry-run", "--venv", "v", accept="123")
        ground.run("profiles", "show", "./mine.toml")
        if (ground.folder / "v").exists():
            ground.problems.append("installed")

    for name in VARIABLES:
        change = partial(_replace, old='OMP_NUM_THREADS = "1"', new=f'{name} = "./x"')
        yield Attack("profiles", f"the variable {name}", partial(run, change=change))
    for kind, payload in PAYLOADS.items():
        for field in ("title", "summary"):
            change = partial(_replace, old=f"{field} = ", new=f"{field} = {json.dumps(payload)} #")
            yield Attack("profiles", f"{kind} in {field}", partial(run, change=change))
    for name, make in UNSUITABLE.items():

        def unsuitable(ground: Ground, make: Callable[[Path], Any] = make) -> None:
            make(ground.folder / "mine.toml")
            ground.run("profiles", "show", "./mine.toml", accept="2")

        yield Attack("profiles", name, unsuitable)
        yield Attack("locks", name, partial(_lock, make=make))
    yield Attack("locks", "a link to a secret", partial(_lock, make=lambda path: path.symlink_to("../victim")))
    yield Attack("locks", "a link to a system file", partial(_lock, make=lambda path: path.symlink_to("/etc/passwd")))


def _replace(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def _lock(ground: Ground, make: Callable[[Path], Any]) -> None:
    profile = write_profile(ground.folder / "mine.toml", "six==1.17.0")
    for architecture in ("x86_64", "aarch64"):
        path = ground.folder / f"mine.locks/{architecture}-{PYTHON}.txt"
        path.parent.mkdir(exist_ok=True)
        make(path)
    for command in ("lock --check", "install --dry-run", "export", "profiles show"):
        done = ground.run(*command.split(), profile, GITHUB_ACTIONS="1")
        if "root:" in done.stdout + done.stderr:
            ground.problems.append(f"{command}: prints the file of the link")


def _manifests() -> Iterator[Attack]:
    texts = {
        "pyproject.toml": ("[tool." + ".".join("a" * 40_000) + "]", "a." * 40_000 + "a = 1", "x = " + "[" * 50_000,
                           "[project]\ndependencies = ['" + "a" * 500_000 + "']", "[project]\ndependencies = 5"),
        "requirements.txt": ("-r ../../../../etc/passwd", "-r victim", "-r requirements.txt", "-c /dev/zero", "\\\n" * 60_000,
                             "torch==" + "9" * 5000, f"--index-url https://me:{PASSWORD}@x/simple\ntorch==2.0",
                             f"torch @ https://x/y.whl?token={SECRET}", "a[" * 20_000, f"torch{ESCAPES}==2.0"),
        "environment.yml": ("a: &a [*a, *a]\n", "dependencies: " + "[" * 20_000, "? " * 20_000, "dependencies:\n- pip:\n" + "  - x\n" * 50_000),
        "Dockerfile": ("RUN <<A\n" * 3000, "FROM " + "x" * 200_000, "RUN pip install $(pwn)\n" * 2000, "RUN \\\n" * 50_000,
                       "ARG X=`pwn`\nRUN pip install $X torch==2.0"),
        "SETUP.md": ("`" * 200_000, "> " * 20_000 + "x", "```\n" * 20_000, "[a](" * 30_000, "```sh\n" + "( " * 20_000 + "\n```",
                     "```sh\npip install '$(pwn)' torch==2.0\n```", "```sh\n" + "for i in 1; do " * 3000 + "\n```"),
        "x.ipynb": ('{"cells": ' + "[" * 50_000, '{"cells": 5}', '{"cells": [{"cell_type": "code", "source": 5}]}'),
        "uv.lock": ("[[package]]\n" * 60_000, "version = " + "9" * 5000),
    }  # fmt: skip
    for file, contents in texts.items():
        for number, text in enumerate(contents):

            def run(ground: Ground, file: str = file, text: str = text) -> None:
                (ground.folder / file).write_text(text)
                done = ground.run("audit", file, "--format", "json")
                ground.run("explain", file)
                if "root:" in done.stdout:
                    ground.problems.append("prints a file outside of the folder")
                _paste(ground, done.stdout)

            yield Attack("manifests", f"{file} {number + 1}", run)
        for name, make in UNSUITABLE.items():

            def unsuitable(ground: Ground, file: str = file, make: Callable[[Path], Any] = make) -> None:
                make(ground.folder / file)
                ground.run("audit", file, accept="012")

            yield Attack("manifests", f"{file} is {name}", unsuitable)


def _compiled(generator: random.Random) -> Iterator[Attack]:
    numbers = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1, (1 << 64) - 64)
    for number in range(40):
        seed = generator.randrange(1 << 32)

        def run(ground: Ground, seed: int = seed) -> None:
            draw = random.Random(seed)
            site = make_venv(ground.folder / "venv")
            container = fatbin_container(fatbin_entry(2, 90), fatbin_entry(1, 80, isa=(8, 5)))
            path = compile_with_fatbin(site / "alpha/x.so", container)
            data = bytearray(path.read_bytes())
            table = struct.unpack_from("<Q", data, 40)[0]
            for first, last in ((16, 56), (64, 600), (table, len(data) - 8)):
                struct.pack_into("<Q", data, draw.randint(first, last), draw.choice(numbers))
            path.write_bytes(bytes(data))
            add_distribution(site, "alpha", "1.0", files=("alpha/x.so",))
            for command in ("check", "abi", "archs"):
                ground.run(command, "venv", accept="013" if command == "check" else "0123")  # 2: no readable file
            ground.run("archs", path, accept="0123")

        yield Attack("compiled files", f"random numbers {number + 1}", run)


def _runs() -> Iterator[Attack]:
    def run(ground: Ground, files: dict[str, str | None]) -> None:
        folder = ground.folder / "runs/x"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
        for name, text in files.items():
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_text(text) if text is not None else os.mkfifo(folder / name)
        for command in ("watch --once", "plot", "pack", "explain", "report"):
            words = command.split()
            ground.run(words[0], *([] if words[0] == "report" else [folder]), *words[1:])

    step = {"t": 1.0, "event": "step", "step": 1, "steps": 2, "metrics": {"reward": 0.5}}
    for kind, payload in PAYLOADS.items():
        events = [step, {"t": 2.0, "event": "error", "kind": "crash", "message": payload, "hint": payload},
                  {"t": 1.5, "event": "note", "message": payload}]  # fmt: skip
        lines = "".join(json.dumps(event) + "\n" for event in events)
        rows = msgspec.json.encode(payload).decode().replace('"', "")
        files = {"events.jsonl": lines, "train.log": payload + "\n", "metrics.csv": f"step,reward\n1,{rows}\n2,0.1\n"}
        yield Attack("runs", f"{kind} in events, log and metrics", partial(run, files=files))
    for name in ("run.json", "events.jsonl", "train.log", "metrics.csv", "result.json"):
        yield Attack("runs", f"{name} is a FIFO", partial(run, files={name: None}))
        yield Attack("runs", f"{name} is deep", partial(run, files={name: "[" * 200_000}))
        yield Attack(
            "runs", f"{name} has no numbers", partial(run, files={name: '{"t": NaN, "event": 1e999}\n"a,b\n'})
        )


def _launchers() -> Iterator[Attack]:
    slurm = (
        "train",
        "sort",
        "--dry-run",
        "--launcher",
        "slurm",
        "--nodes",
        "2",
        "--gpus",
        "1",
        "--python",
        "/usr/bin/python3",
    )

    def run(ground: Ground, arguments: tuple[str, ...]) -> None:
        done = ground.run(*slurm, *arguments)
        if any(line.startswith("pwn") for line in done.stdout.split("\n")):
            ground.problems.append("a line of the job file is the stranger's")

    for option in (
        "--run",
        "--partition",
        "--account",
        "--nodelist",
        "--time",
        "--container",
        "--module",
        "--slurm-option",
    ):
        for kind in ("substitution", "semicolon", "newline", "quote", "escapes"):
            yield Attack("launchers", f"{kind} in {option}", partial(run, arguments=(option, "x" + PAYLOADS[kind])))
    for host in (
        "-oProxyCommand=pwn",
        "$(pwn)",
        "a;pwn",
        "a\npwn",
        "`pwn`",
        "a,-oProxyCommand=pwn",
        ESCAPES,
        "a" * 5000,
    ):
        yield Attack("fleet", f"host {host[:24]!r}", lambda ground, host=host: ground.run(
            "fleet", "check", "--hosts", host, "--timeout", "3"))  # fmt: skip
    for kind, text in PAYLOADS.items():

        def recorded(ground: Ground, payload: str = text) -> None:
            (ground.folder / "nodes").mkdir()
            for name in ("a", "b"):
                text = machine_json(read_recorded("h100")).replace("580", "580" + json.dumps(payload)[1:-1])
                (ground.folder / f"nodes/{name}.json").write_text(text)
            ground.run("fleet", "check", "--from", "nodes")

        yield Attack("fleet", f"{kind} in a saved report", recorded)


def _variables() -> Iterator[Attack]:
    values = {
        "PIP_INDEX_URL": f"https://me:{PASSWORD}@127.0.0.1:9/simple", "HF_TOKEN": SECRET,
        "PIP_FIND_LINKS": f"https://127.0.0.1:9/x?sig={SECRET}", "HF_ENDPOINT": f"http://me:{PASSWORD}@127.0.0.1:9",
        "HTTPS_PROXY": f"http://me:{PASSWORD}@127.0.0.1:9", "UV_EXTRA_INDEX_URL": f"https://me:{PASSWORD}@127.0.0.1:9/s",
        "LD_LIBRARY_PATH": f"/a:{ESCAPES}:$(pwn)", "CUDA_HOME": "/x'$(pwn)", "CUDA_VISIBLE_DEVICES": f"0;pwn{ESCAPES}",
        "XDG_CACHE_HOME": "/dev/null/x", "TMPDIR": "/nonexistent", "COLUMNS": "9" * 30, "LC_ALL": "POSIX", "PATH": "",
    }  # fmt: skip
    for name, value in values.items():

        def run(ground: Ground, name: str = name, value: str = value) -> None:
            for command in ("check", "paths", "envs", "resolve cpu", "config", "train sort --dry-run"):
                ground.run(*command.split(), **{name: value, "PIP_NO_INDEX": "0"})

        yield Attack("variables", name, run)
