"""The check of the vLLM server: waiting for it, and refusing one that does not accept weights.

The servers here respond like those of vLLM 0.26 and TRL 1.9; tests/benchmarks/trainer_gpu.py runs a real one.
"""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from generation import vllm_server as served
from settings import BadInput, Recipe, resolve_settings
from support.loopback import Server, running_server
from support.stacks import defaults

MODEL = "org/model"
OWN = {  # of vLLM 0.26 in its development mode
    "/health": {},
    "/get_world_size": {"world_size": 2},
    "/server_info": {"vllm_config": {"weight_transfer_config": {"backend": "nccl"}}},
    "/v1/models": {"object": "list", "data": [{"id": "served", "root": MODEL, "max_model_len": 768}]},
}
TRLS = {"/health/": {"status": "ok"}, "/get_world_size/": {"world_size": 1}}  # of TRL 0.22.2 to 1.10


class Handler(http.server.BaseHTTPRequestHandler):
    """What stands in `served`; a path that lacks its last slash is sent there, as FastAPI does."""

    served: dict[str, Any] = {}
    busy: list[int] = []

    def do_GET(self) -> None:
        """Send one response."""
        path = self.path.partition("?")[0]
        if self.busy and path == "/health":
            return self.send_error(self.busy.pop())
        if path not in self.served and f"{path}/" in self.served:
            self.send_response(307)
            self.send_header("Location", f"{path}/")
            self.end_headers()
            return None
        if path not in self.served:
            return self.send_error(404)
        found = self.served[path]
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return None

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextmanager
def serving(paths: dict[str, Any], busy: list[int] | None = None) -> Iterator[dict[str, Any]]:
    server = Server(Handler, served=paths, busy=busy or [])
    with running_server(server):
        yield settings_for(server.port)


def settings_for(port: int) -> dict[str, Any]:
    return defaults(
        model=MODEL, use_vllm=True, vllm_mode="server", vllm_server_host="127.0.0.1", vllm_server_port=port
    )


def wait(settings: dict[str, Any], timeout: float = 30.0) -> tuple[int, list[str]]:
    notes: list[str] = []
    return served.wait_for_server(settings, notes.append, timeout), notes


def refused(settings: dict[str, Any], timeout: float = 0.0) -> BadInput:
    with pytest.raises(BadInput) as caught:
        wait(settings, timeout)
    return caught.value


def test_vllms_server_reports_its_model_and_length() -> None:
    with serving(OWN) as settings:
        length, notes = wait(settings)
    assert (length, notes) == (768, [])
    served.check_length(length, 768, settings)
    with pytest.raises(BadInput, match="has max_model_len 768, a prompt and completion need 769") as caught:
        served.check_length(length, 769, settings)
    assert caught.value.hint.endswith("--max_model_len 769")


def test_trls_own_server_reports_no_length() -> None:
    with serving(TRLS) as settings:
        length, notes = wait(settings)
    assert (length, notes) == (0, [])
    served.check_length(length, 10**6, settings)


def test_a_server_that_is_still_starting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "PAUSE", 0.02)
    with serving(OWN, busy=[503, 503]) as settings:
        length, notes = wait(settings)
    assert length == 768
    assert len(notes) == 1
    assert "yet (/health answers 503); waiting up to 30 s" in notes[0]
    assert f"-m trl.scripts.vllm_serve --model {MODEL} --port " in notes[0]


def test_a_server_that_starts_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "PAUSE", 0.02)
    server = Server(Handler, served=OWN, busy=[])
    settings, began = settings_for(server.port), threading.Event()
    server.socket.close()  # the port is known, and nothing listens there

    def come() -> None:
        began.wait()
        server.socket = socket.create_server(("127.0.0.1", server.port))
        server.serve_forever(0.02)

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    notes: list[str] = []

    def note(message: str) -> None:
        notes.append(message)
        began.set()

    assert served.wait_for_server(settings, note, 30.0) == 768
    server.shutdown()
    server.server_close()
    thread.join()
    assert "Connection refused" in notes[0]


def test_a_missing_server_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "PAUSE", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    error = refused(settings_for(port), 0.1)
    assert error.message == f"no vLLM server answers at http://127.0.0.1:{port} within 0.1 s: Connection refused"
    assert error.hint.startswith("CUDA_VISIBLE_DEVICES=1 ")
    assert error.hint.endswith(f" -m trl.scripts.vllm_serve --model {MODEL} --port {port}")


def test_a_silent_port_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REQUEST_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        error = refused(settings_for(mute.getsockname()[1]))
    assert "timed out" in error.message
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"/get_world_size": None}, "does not accept weights: it has no /get_world_size"),
        ({"/get_world_size": {"world_size": "two"}}, "does not accept weights: it has no /get_world_size"),
        ({"/get_world_size": b"<html>"}, "does not accept weights: it has no /get_world_size"),
        ({"/server_info": {"vllm_config": {"weight_transfer_config": None}}}, "weight_transfer_config is empty"),
    ],
)
def test_a_server_that_does_not_accept_weights_is_refused(changed: dict[str, Any], problem: str) -> None:
    with serving({path: found for path, found in (OWN | changed).items() if found is not None}) as settings:
        error = refused(settings)
    assert problem in error.message
    assert "that command" in error.expected


def test_another_served_model_is_noted() -> None:
    with serving(OWN) as settings:
        _, notes = wait(settings | {"model": "org/other"})
    assert len(notes) == 1
    assert "serves org/model, but org/other is trained" in notes[0]


@pytest.mark.parametrize("models", [{"data": []}, {"data": [{}]}, {"data": "x"}, {"data": ["x"]}, [], b"\xff", None])
def test_an_empty_model_list_is_accepted(models: Any) -> None:
    with serving(OWN | {"/v1/models": models}) as settings:
        length, notes = wait(settings)
    assert (length, notes) == (0, [])


def test_two_forms_of_a_path_are_the_same_model(tmp_path: Any) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    models = {"data": [{"id": "x", "root": str(tmp_path / "link")}]}
    with serving(OWN | {"/v1/models": models}) as settings:
        assert wait(settings | {"model": str(tmp_path / "model")})[1] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vllm_server_host": ""}, "vllm_server_host = ''"),
        ({"vllm_server_host": "node7/x"}, "vllm_server_host = 'node7/x'"),
        ({"vllm_server_port": 0}, "vllm_server_port = 0"),
        ({"vllm_server_port": 70000}, "vllm_server_port = 70000"),
    ],
)
def test_an_invalid_address_is_refused(given: dict[str, Any], message: str) -> None:
    server = {"model": MODEL, "data": "rows.jsonl", "use_vllm": True, "vllm_mode": "server"}
    with pytest.raises(BadInput) as caught:
        resolve_settings(Recipe("mine", "", {"task": "dataset"}), server | given)
    assert caught.value.message == f"settings: {message}"


def test_no_server_is_contacted_without_server_mode() -> None:
    assert served.wait_for_server(settings_for(9) | {"vllm_mode": "colocate"}, pytest.fail) == 0


def test_the_command_survives_a_path_with_spaces() -> None:
    assert "--model '/my models/a' --port 8000" in served.server_command(
        {"model": "/my models/a", "vllm_server_host": "localhost", "vllm_server_port": 8000}
    )
