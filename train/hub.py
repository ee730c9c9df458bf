"""Requests to the Hugging Face hub with a deadline, and with the reason of a failure.

huggingface_hub waits for some responses without a deadline (timeout=None, 0.35 to 1.33), and requests the header of
an uncached file six times, a minute each. So the first request is made here, with the standard library alone, and the
later requests of the client get timeouts.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from settings import expand_user

HUB = "https://huggingface.co"
REQUEST_SECONDS = 15.0
CLIENT_TIMEOUTS = {"GET": 60.0, "HEAD": 60.0}  # seconds without data; a commit of many files takes longer
MAX_SECONDS = 300.0
MAX_BYTES = 8 << 20
RETRY_STATUSES = (429, 500, 502, 503, 504)
TRUE = ("1", "ON", "YES", "TRUE")
RETRY_HINT = "run it again later"
ACCESS_HINT = "request access on its page of the Hub, then export HF_TOKEN=..."
TIMEOUT_HINT = "run it again later, or export HF_HUB_ETAG_TIMEOUT=60"
NETWORK_HINT = "check the network, HTTPS_PROXY and HF_ENDPOINT"


class HubError(Exception):
    """The reason why a request failed. `away`: the Hub itself did not respond, and the cache may be used."""

    def __init__(self, reason: str, hint: str, *, away: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.hint, self.away = reason, hint, away


def read_repository(kind: str, name: str, revision: str = "") -> dict[str, Any]:
    """The Hub's record of a repository; its commit is `sha`. `kind` is models or datasets."""
    tail = f"/revision/{quote(revision, safe='')}" if revision else ""
    content = get(f"/api/{kind}/{quote(name)}{tail}", revision)
    try:
        record = json.loads(content)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("sha"), str):
        raise HubError(f"{endpoint()} does not respond like a Hub", "check HF_ENDPOINT: echo $HF_ENDPOINT")
    return record


def read_model_file(name: str, file: str, revision: str = "", most: float = MAX_SECONDS) -> bytes:
    """A small file of a model repository, within `most` seconds."""
    return get(f"/{quote(name)}/resolve/{quote(revision or 'main', safe='')}/{quote(file)}", revision, most=most)


def check_token(token: str) -> None:
    """Refuse an invalid token."""
    get("/api/whoami-v2", token=token)


def get(path: str, revision: str = "", token: str | None = None, most: float = MAX_SECONDS) -> bytes:
    """The content at a path, within `most` seconds; retried twice after a server error."""
    token = find_token() if token is None else token
    seconds = min(request_seconds(), most)
    deadline, pauses = time.monotonic() + seconds, [2.0, 4.0]
    while True:
        try:
            return _read(path, token, deadline)
        except urllib.error.HTTPError as error:
            error.close()
            after = str(error.headers.get("Retry-After") or "")
            pause = max(pauses.pop(0), float(after) if after.isdigit() else 0) if pauses else MAX_SECONDS
            if error.code not in RETRY_STATUSES or time.monotonic() + pause >= deadline:
                file = path.rpartition("/")[2]
                raise explain_status(error.code, error.headers, file, revision, has_token=bool(token)) from None
            time.sleep(pause)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise HubError(
                    f"{endpoint()} did not respond within {seconds:g} s", TIMEOUT_HINT, away=True
                ) from None
            text = getattr(reason, "strerror", "") or str(reason) or type(reason).__name__
            raise HubError(f"the Hub cannot be reached at {endpoint()}: {text}", NETWORK_HINT, away=True) from None


def request_seconds() -> float:
    """Seconds for a request with its retries: HF_HUB_ETAG_TIMEOUT, or 1.5 times the client's default."""
    given = os.environ.get("HF_HUB_ETAG_TIMEOUT", "")
    return float(given) if given.isdigit() and int(given) else REQUEST_SECONDS


def _read(path: str, token: str, deadline: float) -> bytes:
    request = urllib.request.Request(endpoint() + path, headers={"User-Agent": "envdoctor"})  # noqa: S310
    if token:
        # A redirection must not carry the token: the storage is another host.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(_SameHost)
    content = b""
    with opener.open(request, timeout=max(0.1, deadline - time.monotonic())) as response:
        while piece := response.read1(1 << 16):
            content += piece
            if len(content) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES >> 20} MiB where a small file was expected")
            if time.monotonic() > deadline:
                raise TimeoutError
    return content


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Redirections that keep the token on the same host, which serves small private files."""

    def redirect_request(self, req: Any, *place: Any) -> Any:
        """The redirected request; the last of `place` is its address."""
        followed = super().redirect_request(req, *place)
        if followed is not None and urlsplit(followed.full_url)[:2] == urlsplit(req.full_url)[:2]:
            followed.unredirected_hdrs.update(req.unredirected_hdrs)
        return followed


def explain_status(status: int, headers: Any, file: str, revision: str, *, has_token: bool) -> HubError:
    """The meaning of an error response, by its X-Error-Code and X-Error-Message."""
    code, message = headers.get("X-Error-Code") or "", headers.get("X-Error-Message") or ""
    private = "HF_TOKEN may not read it" if has_token else "it is private and HF_TOKEN is not set"
    causes = (
        (code == "GatedRepo", gated(has_token=has_token), ACCESS_HINT),
        (code == "RevisionNotFound", f"it has no revision {revision or 'main'!r}",
         "name a branch, tag or commit that it has"),
        (code == "EntryNotFound", f"its repository has no {file}", "name another repository"),
        (status == 401 and "Invalid credentials" in message, "the Hub rejects this HF_TOKEN",
         "export HF_TOKEN=... with a valid one, or unset it"),
        (code == "RepoNotFound" or status in (401, 404), f"it does not exist on the Hub, or {private}",
         "check the spelling, or export HF_TOKEN=..."),
        (status == 429, "the Hub limits the request rate (HTTP 429)", RETRY_HINT),
    )  # fmt: skip
    for applies, reason, hint in causes:
        if applies:
            return HubError(reason, hint, away=status == 429)
    return HubError(
        f"the Hub responded with HTTP {status}{f': {message}' if message else ''}", RETRY_HINT, away=status >= 500
    )


def gated(*, has_token: bool) -> str:
    """Why a gated repository cannot be read."""
    return f"it is gated, and {'the owner of HF_TOKEN has no access' if has_token else 'HF_TOKEN is not set'}"


def endpoint() -> str:
    """The Hub's address."""
    return (os.environ.get("HF_ENDPOINT") or HUB).strip().rstrip("/")


def find_token() -> str:
    """HF_TOKEN, or the token of `hf auth login`; empty without one."""
    if token := (os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or "").strip():
        return token
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return expand_user(os.environ.get("HF_TOKEN_PATH") or f"{_home()}/token").read_text().strip()
    return ""


def cached(name: str) -> bool:
    """Whether the local cache has a snapshot of a model."""
    folder = expand_user(os.environ.get("HF_HUB_CACHE") or f"{_home()}/hub")
    return any((folder / f"models--{name.replace('/', '--')}" / "snapshots").glob("*/*"))


def _home() -> str:
    return os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")


def offline(
    environment: Mapping[str, str] = os.environ, names: Sequence[str] = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
) -> str:
    """The variable that disables access to the Hub; empty without one."""
    return next((name for name in names if environment.get(name, "").upper() in TRUE), "")


# --- The client


def stay_offline() -> None:
    """Switch the imported clients to the cache: they read the variable at import."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    flags = {"huggingface_hub.constants": "HF_HUB_OFFLINE", "datasets.config": "HF_HUB_OFFLINE",
            "transformers.utils.hub": "_is_offline_mode"}  # fmt: skip
    for module, name in flags.items():
        if hasattr(sys.modules.get(module), name):
            setattr(sys.modules[module], name, True)
    with contextlib.suppress(ImportError):  # below 1.0 a session is made for online or for offline
        from huggingface_hub.utils import reset_sessions

        reset_sessions()


def disable_safetensors_conversion() -> None:
    """Keep transformers from requesting a conversion of .bin weights: it would send the token to a third host."""
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "true")
    with contextlib.suppress(ImportError):  # 4.56 does not read the variable
        from transformers import safetensors_conversion

        safetensors_conversion.spawn_conversion = lambda *_: None


def limit_client_timeouts() -> None:
    """Give a timeout to every request of the client that has none."""
    from huggingface_hub.utils import _http as client  # 0.35 to 1.33 have these two names there, and nowhere else

    if hasattr(client, "set_client_factory"):
        client.set_client_factory(lambda: _limit_httpx(client.default_client_factory()))
    else:
        client.configure_http_backend(lambda: _limit_requests(client._default_backend_factory()))  # noqa: SLF001


def _limit_httpx(client: Any) -> Any:
    def limit(request: Any) -> None:
        given = request.extensions.get("timeout") or {}
        most = CLIENT_TIMEOUTS.get(request.method, MAX_SECONDS)
        parts = ("connect", "read", "write", "pool")
        request.extensions["timeout"] = {part: given.get(part) or most for part in parts}

    client.event_hooks = {**client.event_hooks, "request": [*client.event_hooks["request"], limit]}
    return client


def _limit_requests(session: Any) -> Any:
    send = session.send

    def limited(request: Any, **options: Any) -> Any:
        most = CLIENT_TIMEOUTS.get(request.method, MAX_SECONDS)
        return send(request, **options | {"timeout": options.get("timeout") or most})

    session.send = limited
    return session
