"""The vLLM server that samples for the trainer: is it there, does it take weights, and which command starts it.

TRL asks only once the model is loaded: it then waits up to 240 s without a word, and ends in a ConnectionError or a
RuntimeError (trl/generation/vllm_client.py of 1.16, trl/extras/vllm_client.py before). Here it is asked first.
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

from settings import BadInput

PATIENCE = 240.0  # seconds: TRL's vllm_server_timeout
PAUSE, ANSWER = 2.0, 10.0
MOST_BYTES = 8 << 20


def wait_for_server(settings: dict[str, Any], note: Callable[[str], None], patience: float = PATIENCE) -> int:
    """How many tokens the server takes at most, once it answers; 0: not told, or no server was asked for.

    Refused when none answers within `patience` seconds, or it cannot take weights.
    """
    if settings["generation"] != "vllm-server":
        return 0
    address, command = settings["vllm_server"], server_command(settings)
    base = f"http://{address}"
    _await(base, command, note, patience)
    if not isinstance(_at(_ask(f"{base}/get_world_size"), "world_size"), int):
        raise BadInput(
            f"the server at {address} takes no weights: it does not answer /get_world_size",
            expected="one with VLLM_SERVER_DEV_MODE=1 in its environment, which that command sets",
            hint=command,
        )
    known = _at(_ask(f"{base}/server_info?config_format=json"), "vllm_config")  # TRL's server, up to 1.10, has none
    if isinstance(known, dict) and not known.get("weight_transfer_config", True):
        raise BadInput(
            f"the server at {address} takes no weights: its weight_transfer_config is empty",
            expected="""one started with --weight-transfer-config '{"backend": "nccl"}', as that command does""",
            hint=command,
        )
    first = _at(_ask(f"{base}/v1/models"), "data", 0)
    most = _at(first, "max_model_len")
    model = str(_at(first, "root") or _at(first, "id") or "")
    if model and not _same_model(model, settings["model"]):
        note(
            f"the server at {address} serves {model}, and {settings['model']} is trained: its weights are "
            "handed over before the first answer, which works only if names and shapes are the same"
        )
    return most if isinstance(most, int) else 0


def check_length(most: int, needed: int, settings: dict[str, Any]) -> None:
    """Refuse a server whose longest text is shorter than a prompt and its answer."""
    if 0 < most < needed:
        raise BadInput(
            f"the server at {settings['vllm_server']} takes {most} tokens, a prompt and answer need {needed}",
            expected="a server whose --max-model-len is at least that",
            hint=f"{server_command(settings)} --max_model_len {needed}",
        )


def server_command(settings: dict[str, Any]) -> str:
    """The command that starts such a server on the second GPU; every TRL from 0.15 on has it."""
    port = settings["vllm_server"].rpartition(":")[2]
    start = [sys.executable, "-m", "trl.scripts.vllm_serve", "--model", settings["model"], "--port", port]
    return f"CUDA_VISIBLE_DEVICES=1 {shlex.join(start)}"


def _same_model(served: str, trained: str) -> bool:
    if served == trained:
        return True
    paths = Path(served), Path(trained)
    return all(path.exists() for path in paths) and paths[0].resolve() == paths[1].resolve()


def _await(base: str, command: str, note: Callable[[str], None], patience: float) -> None:
    """Until the server answers; what is waited for is told once."""
    ends, told = time.monotonic() + patience, False
    while (why := _not_ready(base)) is not None:
        if time.monotonic() + PAUSE > ends:
            raise BadInput(
                f"no vLLM server answers at {base} within {patience:g} s: {why}",
                expected="one that serves the model, on GPUs that the trainer does not use",
                hint=command,
            )
        if not told:
            note(
                f"no vLLM server answers at {base} yet ({why}); waiting up to {patience:g} s. To start it: {command}"
            )
            told = True
        time.sleep(PAUSE)


def _not_ready(base: str) -> str | None:
    """Why the server cannot be asked yet; None: it can."""
    try:
        with urllib.request.urlopen(f"{base}/health", timeout=ANSWER):  # noqa: S310  (http alone)
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return f"/health answers {error.code}"
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)


def _ask(address: str) -> Any:
    """What a server's JSON says; None where it has nothing of this name."""
    try:
        with urllib.request.urlopen(address, timeout=ANSWER) as answer:  # noqa: S310  (http alone)
            return json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError, http.client.HTTPException):
        pass
    return None


def _at(found: Any, *path: str | int) -> Any:
    """What lies there in JSON of a stranger; None where nothing does."""
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return None
    return found
