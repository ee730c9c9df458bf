"""More attacks of attacks.py: all-clears, files of each command, secrets, written files, damaged runs, pipes."""

# ruff: noqa: E501  hostile texts

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from campaigns.attacks import PASSWORD, SECRET, Attack, Ground
from support.command import environment
from support.sample_environments import add_distribution, add_torch, make_venv

HEAD = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.11.0\n"
METADATA: dict[str, Callable[[Path], Any]] = {
    "brackets in a requirement": lambda path: path.write_text(HEAD + "Requires-Dist: torch(((\n"),
    "an empty requirement": lambda path: path.write_text(HEAD + "Requires-Dist:\n"),
    "a requirement without a comma": lambda path: path.write_text(HEAD + "Requires-Dist: torch>=2.9 <3\n"),
    "spaces of a requirement": lambda path: path.write_text(HEAD + f"Requires-Dist: torch{' ' * 4000}@\n"),
    "a control character in a requirement": lambda path: path.write_text(HEAD + "Requires-Dist: to\x00rch==2.9\n"),
    "no version": lambda path: path.write_text("Name: vllm\nRequires-Dist: torch==2.9\n"),
    "an invalid version": lambda path: path.write_text(HEAD.replace("0.11.0", "not a version")),
    "a version of 5,000 digits": lambda path: path.write_text(HEAD.replace("0.11.0", "9" * 5000)),
    "random bytes": lambda path: path.write_bytes(bytes(range(256)) * 99),
    "fields without an end": lambda path: path.write_text(HEAD + "X: y\n" * 400_000 + "Requires-Dist: torch==2.9\n"),
    "nothing": Path.unlink,
    "an empty file": lambda path: path.write_text(""),
}


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 << 30)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path) if len(str(path)) > 100 else str(path))


SPECIAL: dict[str, Callable[[Path], Any]] = {
    "a FIFO": os.mkfifo,
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "20 GB without blocks": _sparse,
    "a directory": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a socket": _socket,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}
READING = (
    "explain @", "check --from-report @", "check --machine @", "check --python @", "check --venv @", "audit @",
    "report --venv @", "profiles show @", "lock @ --check", "export @", "resolve @", "archs @", "abi @", "pack @",
    "watch @", "plot @", "check-pack @", "fleet check --hosts-file @", "plan dataset --set model=@",
    "train @ --dry-run", "train dataset --set data=@ --set model=x --dry-run",
    "train dataset --set data=@.jsonl --set model=x --dry-run", "train dataset --set data=@.csv --set model=x --dry-run",
    "train dataset --set rewards=@.py:f --set data=rows.jsonl --set model=x --dry-run", "load-test @", "verify @",
)  # fmt: skip
SECRETS = (
    f"password={PASSWORD}", f"DB_PASSWORD='{PASSWORD}'", f'"api_key": "{PASSWORD}"', f"api-key = {PASSWORD}",
    f"Authorization: Bearer {PASSWORD}", f"authorization: Basic {PASSWORD}", f"Cookie: session={PASSWORD}",
    f"aws_secret_access_key = {PASSWORD}", f"https://me:{PASSWORD}@host.example/x", f"me:{PASSWORD}@host.example:8080",
    f"tool --token {PASSWORD}", f"tool --password={PASSWORD}", f"curl -u me:{PASSWORD} http://x", f"token {SECRET}",
    f"https://x.example/y?X-Amz-Signature={PASSWORD}", f"WANDB_API_KEY={PASSWORD}", f"{{'secret': '{PASSWORD}'}}",
)  # fmt: skip
WRITING = {
    "report.md": "report --output report.md", "report.html": "report --output report.html",
    "report.json": "report --output report.json", "Dockerfile": "export cpu --as dockerfile --output Dockerfile",
    "mine.toml": "profiles new venv --output mine.toml", "m.json": "check --machine h200 --save m.json",
    "SETUP.md.patch": "audit SETUP.md --fix .", "SETUP.requirements.txt": "audit SETUP.md --fix .",
}  # fmt: skip


def all_clears() -> Iterator[Attack]:
    """Environments whose vLLM needs another torch, and says so in a way that cannot be read."""

    def run(ground: Ground, make: Callable[[Path], Any]) -> None:
        site = make_venv(ground.folder / "venv")
        add_torch(site)
        make(add_distribution(site, "vllm", "0.11.0") / "METADATA")
        for command in (
            "check venv --machine h200",
            "audit venv --machine h200",
            "fix venv --machine h200 --dry-run",
        ):
            done = ground.run(*command.split(), accept="13")
            if any(text in done.stdout for text in ("✓ packages", "✓ no problems", "✓ nothing to fix")):
                ground.problems.append(f"{command}: an all-clear")
        if "No problems found." in ground.run("report", "venv").stdout:
            ground.problems.append("report: an all-clear")

    for name, make in METADATA.items():
        yield Attack("all-clears", name, partial(run, make=make))


def damaged_libraries() -> Iterator[Attack]:
    """Environments with a library that no process can load."""

    def run(ground: Ground, make: Callable[[Path], Any]) -> None:
        site = make_venv(ground.folder / "venv")
        add_torch(site)
        library = site / "torch/lib/libc10.so"
        library.unlink()
        make(library)
        done = ground.run("check", "venv", "--machine", "h200", accept="1")
        if any(text in done.stdout for text in ("✓ packages", "✓ no problems")) or "libc10.so" not in done.stdout:
            ground.problems.append("check: an all-clear")
        for command in ("abi", "archs"):
            ground.run(command, "venv", accept="23")

    for name, make in SPECIAL.items():
        if name != "a link to nothing":
            yield Attack("all-clears", f"a library is {name}", partial(run, make=make))
    for name, data in {
        "empty": b"", "zeros": bytes(4096), "a header": b"\x7fELF\x02\x01" + bytes(200), "text": b"version https://git-lfs\n",
    }.items():  # fmt: skip
        yield Attack(
            "all-clears", f"a library: {name}", partial(run, make=lambda path, data=data: path.write_bytes(data))
        )


def includes() -> Iterator[Attack]:
    """Requirements whose include is not read as pip reads it."""

    def run(ground: Ground, option: str, make: Callable[[Path], Any]) -> None:
        (ground.folder / "requirements.txt").write_text(f"numpy==1.26.4\n-r {option}\n")
        make(ground.folder / "more.txt")
        done = ground.run("audit", "requirements.txt", accept="01")
        if done.exit_code == 0 and "✓ no problems" in done.stdout:
            ground.problems.append("audit: an all-clear")

    conflict = "vllm==0.11.0\ntransformers==4.10.0\n"
    made: dict[str, Callable[[Path], Any]] = {
        "UTF-16": lambda path: path.write_bytes(conflict.encode("utf-16")),
        "no text": lambda path: path.write_bytes(b"\xff\xfe\xfdvllm==0.11.0"),
        "a link out": lambda path: path.symlink_to("/etc/passwd"), "itself": lambda path: path.write_text("-r more.txt\n"),
        **SPECIAL,
    }  # fmt: skip
    for kind, make in made.items():
        yield Attack("includes", kind, partial(run, option="more.txt", make=make))
    for option in (
        '"more.txt"',
        "'more.txt'",
        "./more.txt",
        "${PWD}/more.txt",
        "../../etc/passwd",
        "more.txt --x",
        '"more.txt',
    ):
        yield Attack("includes", option, partial(run, option=option, make=lambda path: path.write_text(conflict)))


def packages_of_tables() -> Iterator[Attack]:
    """Signed packages that would block later ones, and other files."""
    from support.knowledge_packages import LATER, OTHER_KEY, package, with_entries

    def run(ground: Ground, data: bytes) -> None:
        (ground.folder / "p.zip").write_bytes(data)
        ground.run("update", "--accept-test-key", "--from", "p.zip", accept="123")
        if list((ground.folder / ".local/share/envdoctor/knowledge").glob("2*")):
            ground.problems.append("installed the package")

    makers: dict[str, Callable[[], bytes]] = {
        "version 9999": lambda: package("9999.12.31"), "no date": lambda: package("2026.13.45"),
        "a row of 9999": lambda: package(fleet=b'[[x]]\ndate = "9999-01-01"\n'), "another key": lambda: package(key=OTHER_KEY),
        "names by case": lambda: with_entries(package(LATER), {"tables/Fleet.TOML": b"x = 1\n"}),
        "a file too many": lambda: with_entries(package(LATER), {"tables/more.toml": b""}), "half": lambda: package()[:5000],
        "older": lambda: package("2001.01.01"), "tables without sense": lambda: package(causes=b"[[cause]]\nslug = 1\n"),
    }  # fmt: skip
    for name, make in makers.items():
        yield Attack("update", name, lambda ground, make=make: run(ground, make()))


def reading() -> Iterator[Attack]:
    """Every command that opens a file of the user, with files that are none."""

    def run(ground: Ground, command: str, make: Callable[[Path], Any]) -> None:
        (ground.folder / "rows.jsonl").write_text('{"prompt": "a"}\n' * 9)
        for suffix in ("", ".jsonl", ".csv", ".py"):
            make(ground.folder / f"bad{suffix}")
        ground.run(*command.replace("@", "./bad").split(), accept="123")

    for command in READING:
        for name, make in SPECIAL.items():
            yield Attack("files of commands", f"{command}: {name}", partial(run, command=command, make=make))


def secrets() -> Iterator[Attack]:
    """Logs with secrets: printed by explain, report and watch, and packed."""

    def run(ground: Ground, text: str) -> None:
        folder = ground.folder / "runs/x"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
        line = f"torch.OutOfMemoryError: CUDA out of memory: {text}"
        (folder / "train.log").write_text(f"\x1b]0;{text}\x07\n{line}\n")
        event = {"t": 1.0, "event": "error", "kind": "crash", "message": line, "hint": text}
        (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
        for form in ("human", "json", "github", "sarif"):
            ground.run("explain", folder, "--format", form)
        for command in ("watch", "report", "pack"):
            ground.run(command, *([] if command == "report" else [folder]))
        with zipfile.ZipFile(ground.folder / "runs/x.zip") as archive:
            for name in archive.namelist():
                if any(secret.encode() in archive.read(name) for secret in (PASSWORD, SECRET)):
                    ground.problems.append(f"pack: a secret in {name}")

    for text in SECRETS:
        yield Attack("secrets of logs", text.replace(PASSWORD, "...").replace(SECRET, "..."), partial(run, text=text))


def writing() -> Iterator[Attack]:
    """Outputs in place of existing files and through links."""

    def run(ground: Ground, name: str, command: str, kind: str) -> None:
        add_torch(make_venv(ground.folder / "venv"))
        (ground.folder / "SETUP.md").write_text("```sh\npip install 'transformers>=4.57.1' trl==0.23.1\n```\n")
        target = ground.folder / name
        target.symlink_to(ground.victim if kind == "link" else "new") if kind != "file" else target.write_text("mine")
        ground.run(
            *command.split(), accept="12" if "--fix" in command else "2"
        )  # 1: without an index, uv solves nothing
        if kind == "file" and target.read_text() != "mine":
            ground.problems.append("replaced the file")
        ground.run(*command.split(), "--force", accept="01")
        if (ground.folder / "new").exists():
            ground.problems.append("wrote through a link")

    for name, command in WRITING.items():
        for kind in ("file", "link", "link to nothing"):
            yield Attack("written files", f"{command}: {kind}", partial(run, name=name, command=command, kind=kind))


def damaged_runs() -> Iterator[Attack]:
    """Runs that `watch` must not wait for, and that `pack` must not pack in part."""

    def run(ground: Ground, name: str, make: Callable[[Path], Any]) -> None:
        folder = ground.folder / "runs/x"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
        (folder / "events.jsonl").write_text('{"t": 1.0, "event": "step", "step": 1, "steps": 2, "metrics": {}}\n')
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        ground.run("watch", folder, accept="123")
        ground.run("pack", folder, accept="0123" if name == "train.log" else "123")
        if name == "events.jsonl" and list(folder.parent.glob("*.zip")):
            ground.problems.append("packed a run without its events")

    for name in ("run.json", "events.jsonl", "train.log"):
        for kind, make in SPECIAL.items():
            if kind not in ("20 GB without blocks", "a link to nothing") or name == "run.json":
                yield Attack("damaged runs", f"{name} is {kind}", partial(run, name=name, make=make))


def pipes() -> Iterator[Attack]:
    """Standard output that is closed early, and endless input."""

    def closed(ground: Ground, command: str) -> None:
        words = [sys.executable, "-m", "envdoctor", *command.split()]
        line = f"set -o pipefail; {shlex.join(words)} | exec true"
        done = subprocess.run(
            ["bash", "-c", line], env=environment(ground.folder), capture_output=True, timeout=40, check=False
        )
        if done.returncode != 141 or done.stderr:
            ground.problems.append(f"{command}: exit code {done.returncode}: {done.stderr[-200:]!r}")

    def endless(ground: Ground, source: str) -> None:
        line = f"{source} | {shlex.join([sys.executable, '-m', 'envdoctor', 'explain', '-'])}"
        started = subprocess.run(
            ["timeout", "90", "bash", "-c", line], env=environment(ground.folder), capture_output=True, check=False
        )
        if started.returncode == 124 or b"Traceback" in started.stderr:
            ground.problems.append(f"{source}: not finished, or a traceback")

    for command in ("check --machine h200", "check --machine h200 --format json", "rules", "--help", "gpus"):
        yield Attack("pipes", f"closed: {command}", partial(closed, command=command))
    for source in ("yes", "cat /dev/zero", "yes 'CUDA out of memory'"):
        yield Attack("pipes", f"endless: {source}", partial(endless, source=source))


def numbers() -> Iterator[Attack]:
    """Numbers and versions without end."""

    def run(ground: Ground, name: str, value: str) -> None:
        done = ground.run("check", "--machine", "h100", "--fact", f"{name}={value}", accept="012")
        if "rule failed" in done.stdout:
            ground.problems.append("a rule failed")

    for name in ("driver.version", "driver.cuda", "cuda.nvcc_version", "system.glibc", "system.kernel", "system.os"):
        for kind, value in {"digits": "9" * 5000, "dots": "1." * 3000, "letters": "v" * 5000}.items():
            yield Attack("numbers", f"5,000 {kind} in {name}", partial(run, name=name, value=value))


def more_attacks() -> Iterator[Attack]:
    """All attacks of this module."""
    for area in (
        all_clears,
        damaged_libraries,
        includes,
        packages_of_tables,
        reading,
        secrets,
        writing,
        damaged_runs,
        pipes,
        numbers,
    ):
        yield from area()
