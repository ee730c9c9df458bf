"""`fleet check --ray` on a Ray cluster of several raylets on this machine. ENVDOCTOR_RAY_PYTHON: its interpreter."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import envdoctor, envelope
from support.fleet_hosts import write_envdoctor, write_program

PYTHON = os.environ.get("ENVDOCTOR_RAY_PYTHON", "")
pytestmark = [pytest.mark.stack, pytest.mark.network]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def ray_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with Ray: the one of ENVDOCTOR_RAY_PYTHON, or of a new environment."""
    if PYTHON:
        return Path(PYTHON)
    folder = tmp_path_factory.mktemp("ray") / "venv"
    subprocess.run([sys.executable, "-m", "uv", "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(folder), "ray"], check=True)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def cluster(ray_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A head and two more raylets; the `envdoctor` of the last one hangs."""
    tools = write_envdoctor(tmp_path_factory.mktemp("tools"))
    hanging = write_program(tmp_path_factory.mktemp("hanging"), "envdoctor", "#!/bin/sh\nexec sleep 300\n").parent
    port = free_port()
    folder = tempfile.mkdtemp(prefix="rt", dir="/tmp")  # the paths of its sockets must be short
    usual = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    children = []
    try:
        for number in range(3):
            role = (
                ["--head", f"--port={port}", f"--temp-dir={folder}"]
                if not number
                else [f"--address=127.0.0.1:{port}"]
            )
            path = f"{hanging if number == 2 else tools}:{os.environ['PATH']}"
            argv = [
                str(ray_python.parent / "ray"), "start", *role, "--num-cpus=1", "--block", "--disable-usage-stats",
                "--include-dashboard=false", "--object-store-memory=80000000", "--node-ip-address=127.0.0.1",
            ]  # fmt: skip
            if number:
                argv.remove("--include-dashboard=false")
            children.append(
                subprocess.Popen(
                    argv,
                    env=usual | {"PATH": path},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
            _await_line(children[-1], b"Ray runtime started")
        yield f"127.0.0.1:{port}"
    finally:
        for child in reversed(children):
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
            assert child.stdout
            child.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _await_line(child: subprocess.Popen[bytes], text: bytes) -> None:
    output = b""
    assert child.stdout
    while text not in output:
        line = child.stdout.readline()
        assert line, output.decode()
        output += line


def test_hanging_raylet_is_reported(cluster: str, ray_python: Path, tmp_path: Path) -> None:
    done = envdoctor(
        "fleet", "check", "--ray", "--address", cluster, "--ray-python", ray_python, "--hub", "", "--deadline", "20",
        "--format", "json", home=tmp_path,
    )  # fmt: skip
    document = envelope(done)
    assert document["data"], document["error"]
    assert document["data"]["nodes"] == 3
    assert document["data"]["answered"] == 2
    failed = [finding for finding in document["data"]["findings"] if finding["status"] == "error"]
    assert [finding["id"] for finding in failed] == ["FLT001"], failed
    assert "did not end on the node within" in failed[0]["message"]
    assert document["data"]["common"]["/dev/shm"].endswith("GiB")


def test_missing_cluster_is_an_error(ray_python: Path, tmp_path: Path) -> None:
    done = envdoctor(
        "fleet", "check", "--ray", "--address", f"127.0.0.1:{free_port()}", "--ray-python", ray_python,
        "--deadline", "15", home=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr
