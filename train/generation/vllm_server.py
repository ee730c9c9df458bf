"""Checks the vLLM server before the model is loaded: it answers, and accepts weights.

TRL connects after the model is loaded, waits up to 240 s without output, and raises ConnectionError or RuntimeError
(trl/generation/vllm_client.py of 1.16, trl/extras/vllm_client.py before).
"""

from __future__ import annotations

import http.client
import json
import shlex
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checks.engines import sampling_engine
from settings import BadInput

PAUSE, REQUEST_TIMEOUT = 2.0, 10.0
MAX_BYTES = 8 << 20


def wait_for_server(settings: dict[str, Any], note: Callable[[str], None], timeout: float | None = None) -> int:
    """Wait for the server, and return its max_model_len; 0: unknown, or no server is used.

    BadInput where no server answers within `timeout` seconds (vllm_server_timeout), or it does not accept weights.
    """
    if sampling_engine(settings) != "vllm-server":
        return 0
    address, command = server_address(settings), server_command(settings)
    base = settings["vllm_server_base_url"].rstrip("/") or f"http://{address}"
    _wait_until_ready(base, command, note, settings["vllm_server_timeout"] if timeout is None else timeout)
    if not isinstance(_value_at(_get_json(f"{base}/get_world_size"), "world_size"), int):
        raise BadInput(
            f"the server at {address} does not accept weights: it has no /get_world_size",
            expected="a server with VLLM_SERVER_DEV_MODE=1 in its environment, which that command sets",
            hint=command,
        )
    # The server of TRL up to 1.10 has no /server_info.
    config = _value_at(_get_json(f"{base}/server_info?config_format=json"), "vllm_config")
    if isinstance(config, dict) and not config.get("weight_transfer_config", True):
        raise BadInput(
            f"the server at {address} does not accept weights: its weight_transfer_config is empty",
            expected="""--weight-transfer-config '{"backend": "nccl"}', which that command sets""",
            hint=command,
        )
    first = _value_at(_get_json(f"{base}/v1/models"), "data", 0)
    length = _value_at(first, "max_model_len")
    model = str(_value_at(first, "root") or _value_at(first, "id") or "")
    if model and not _same_model(model, settings["model"]):
        note(
            f"the server at {address} serves {model}, but {settings['model']} is trained: the weight sync needs "
            "the same names and shapes"
        )
    return length if isinstance(length, int) else 0


def check_length(length: int, needed: int, settings: dict[str, Any]) -> None:
    """Refuse a server whose max_model_len is shorter than a prompt and its completion."""
    if 0 < length < needed:
        raise BadInput(
            f"the server at {server_address(settings)} has max_model_len {length}, "
            f"a prompt and completion need {needed}",
            expected=f"--max-model-len of at least {needed}",
            hint=f"{server_command(settings)} --max_model_len {needed}",
        )


def server_address(settings: dict[str, Any]) -> str:
    """HOST:PORT of the server, or its address without the scheme."""
    if base := settings["vllm_server_base_url"]:
        return str(base).partition("://")[2] or str(base)
    return f"{settings['vllm_server_host']}:{settings['vllm_server_port']}"


def server_command(settings: dict[str, Any]) -> str:
    """The command that starts the server on the second GPU, with TRL 0.15 or later."""
    port = str(settings["vllm_server_port"])
    start = [sys.executable, "-m", "trl.scripts.vllm_serve", "--model", settings["model"], "--port", port]
    return f"CUDA_VISIBLE_DEVICES=1 {shlex.join(start)}"


def _same_model(served: str, trained: str) -> bool:
    if served == trained:
        return True
    paths = Path(served), Path(trained)
    return all(path.exists() for path in paths) and paths[0].resolve() == paths[1].resolve()


def _wait_until_ready(base: str, command: str, note: Callable[[str], None], timeout: float) -> None:
    """Wait until the server answers; note once that the run waits."""
    deadline, noted = time.monotonic() + timeout, False
    while (reason := _unready_reason(base)) is not None:
        if time.monotonic() + PAUSE > deadline:
            raise BadInput(
                f"no vLLM server answers at {base} within {timeout:g} s: {reason}",
                expected="a server of the model, on GPUs that the trainer does not use",
                hint=command,
            )
        if not noted:
            note(
                f"no vLLM server responds at {base} yet ({reason}); waiting up to {timeout:g} s. "
                f"To start it: {command}"
            )
            noted = True
        time.sleep(PAUSE)


def _unready_reason(base: str) -> str | None:
    """Why the server is not ready; None if it is."""
    try:
        with urllib.request.urlopen(f"{base}/health", timeout=REQUEST_TIMEOUT):  # noqa: S310  (http alone)
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return f"/health answers {error.code}"
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)


def _get_json(address: str) -> Any:
    """The JSON at an address; None where the server has none."""
    try:
        with urllib.request.urlopen(address, timeout=REQUEST_TIMEOUT) as response:  # noqa: S310  (http alone)
            return json.loads(response.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError, http.client.HTTPException):
        pass
    return None


def _value_at(found: Any, *path: str | int) -> Any:
    """The value at a path of untrusted JSON; None where it is missing."""
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return None
    return found
