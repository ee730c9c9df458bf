"""The hub, asked without its client: with a deadline, and with a reason when it does not answer.

huggingface_hub waits for some answers without an end (its client's default is timeout=None, 0.35 to 1.33) and asks
six times, a minute each, for the header of a file that it has not cached. So the first question is asked here, with
the standard library alone, and what the client asks after that gets a limit, too.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from settings import expand_user

HUB = "https://huggingface.co"
SECONDS = 15.0
PATIENCE = {"GET": 60.0, "HEAD": 60.0}  # of the client, without a byte; a commit of many files takes longer
LONGEST = 300.0
MOST_BYTES = 8 << 20
AGAIN = (429, 500, 502, 503, 504)
TRUE = ("1", "ON", "YES", "TRUE")
WAIT = "run it again later"
ASK_FOR_ACCESS = "ask for access on its page of the hub, then export HF_TOKEN=..."
LONGER = "run it again later, or export HF_HUB_ETAG_TIMEOUT=60"
LOOK = "look at the network, HTTPS_PROXY and HF_ENDPOINT"


class HubError(Exception):
    """Why the hub did not give what was asked for. `away`: no answer of the hub's own; what is cached may do."""

    def __init__(self, reason: str, hint: str, *, away: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.hint, self.away = reason, hint, away


def read_repository(kind: str, name: str, revision: str = "") -> dict[str, Any]:
    """What the hub tells of a repository: its commit is `sha`. `kind` is models or datasets."""
    tail = f"/revision/{quote(revision, safe='')}" if revision else ""
    content = ask(f"/api/{kind}/{quote(name)}{tail}", revision)
    try:
        record = json.loads(content)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("sha"), str):
        raise HubError(f"{endpoint()} does not answer as a hub does", "look at HF_ENDPOINT: echo $HF_ENDPOINT")
    return record


def read_model_file(name: str, file: str, revision: str = "", most: float = LONGEST) -> bytes:
    """A small file of a model repository, within `most` seconds."""
    return ask(f"/{quote(name)}/resolve/{quote(revision or 'main', safe='')}/{quote(file)}", revision, most=most)


def check_token(token: str) -> None:
    """Refuse a token that the hub does not know."""
    ask("/api/whoami-v2", token=token)


def ask(path: str, revision: str = "", token: str | None = None, most: float = LONGEST) -> bytes:
    """What stands at this path, within `most` seconds; asked again, twice, after an error of the server's own."""
    token = find_token() if token is None else token
    seconds = min(patience(), most)
    ends, pauses = time.monotonic() + seconds, [2.0, 4.0]
    while True:
        try:
            return _read(path, token, ends)
        except urllib.error.HTTPError as error:
            error.close()
            after = str(error.headers.get("Retry-After") or "")
            pause = max(pauses.pop(0), float(after) if after.isdigit() else 0) if pauses else LONGEST
            if error.code not in AGAIN or time.monotonic() + pause >= ends:
                file = path.rpartition("/")[2]
                raise explain_status(error.code, error.headers, file, revision, has_token=bool(token)) from None
            time.sleep(pause)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise HubError(f"{endpoint()} did not answer within {seconds:g} s", LONGER, away=True) from None
            said = getattr(reason, "strerror", "") or str(reason) or type(reason).__name__
            raise HubError(f"the hub cannot be reached at {endpoint()}: {said}", LOOK, away=True) from None


def patience() -> float:
    """Seconds for one question, repeats included: the client's own variable, or its default and a half."""
    given = os.environ.get("HF_HUB_ETAG_TIMEOUT", "")
    return float(given) if given.isdigit() and int(given) else SECONDS


def _read(path: str, token: str, ends: float) -> bytes:
    request = urllib.request.Request(endpoint() + path, headers={"User-Agent": "envdoctor"})  # noqa: S310
    if token:
        # Not one of the headers that follow a redirection: the storage is another host's.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(_SameHost)
    content = b""
    with opener.open(request, timeout=max(0.1, ends - time.monotonic())) as response:
        while piece := response.read1(1 << 16):
            content += piece
            if len(content) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES >> 20} MiB where a small file was expected")
            if time.monotonic() > ends:
                raise TimeoutError
    return content


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Redirections, with the token on those alone that stay at the host: a private file's small parts are there."""

    def redirect_request(self, req: Any, *place: Any) -> Any:
        """The request after this one; the new address is the last of `place`."""
        followed = super().redirect_request(req, *place)
        if followed is not None and urlsplit(followed.full_url)[:2] == urlsplit(req.full_url)[:2]:
            followed.unredirected_hdrs.update(req.unredirected_hdrs)
        return followed


def explain_status(status: int, headers: Any, file: str, revision: str, *, has_token: bool) -> HubError:
    """What an answer that is an error means. The hub says which in X-Error-Code, and in X-Error-Message."""
    code, message = headers.get("X-Error-Code") or "", headers.get("X-Error-Message") or ""
    private = "HF_TOKEN may not read it" if has_token else "it is private and HF_TOKEN is not set"
    causes = (
        (code == "GatedRepo", gated(has_token=has_token), ASK_FOR_ACCESS),
        (code == "RevisionNotFound", f"it has no revision {revision or 'main'!r}",
         "name a branch, tag or commit that it has"),
        (code == "EntryNotFound", f"its repository has no {file}", "name another repository"),
        (status == 401 and "Invalid credentials" in message, "the hub does not take this HF_TOKEN",
         "export HF_TOKEN=... with a valid one, or unset it"),
        (code == "RepoNotFound" or status in (401, 404), f"the hub does not know it, or {private}",
         "look at the spelling, or export HF_TOKEN=..."),
        (status == 429, "the hub asks for fewer requests (HTTP 429)", WAIT),
    )  # fmt: skip
    for applies, reason, hint in causes:
        if applies:
            return HubError(reason, hint, away=status == 429)
    return HubError(f"the hub answered HTTP {status}{f': {message}' if message else ''}", WAIT, away=status >= 500)


def gated(*, has_token: bool) -> str:
    """Why a gated repository is not given out."""
    return f"it is gated, and {'the owner of HF_TOKEN has no access' if has_token else 'HF_TOKEN is not set'}"


def endpoint() -> str:
    """Where the hub is."""
    return (os.environ.get("HF_ENDPOINT") or HUB).strip().rstrip("/")


def find_token() -> str:
    """HF_TOKEN, or what `hf auth login` wrote down; empty without one."""
    if token := (os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or "").strip():
        return token
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return expand_user(os.environ.get("HF_TOKEN_PATH") or f"{_home()}/token").read_text().strip()
    return ""


def cached(name: str) -> bool:
    """Whether anything of a model is in the hub's cache here."""
    folder = expand_user(os.environ.get("HF_HUB_CACHE") or f"{_home()}/hub")
    return any((folder / f"models--{name.replace('/', '--')}" / "snapshots").glob("*/*"))


def _home() -> str:
    return os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")


def offline(environment: Mapping[str, str] = os.environ) -> str:
    """The variable that keeps every client from the hub; empty where none does."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return next((name for name in names if environment.get(name, "").upper() in TRUE), "")


# --- The client


def stay_offline() -> None:
    """Let the clients take what is cached, from now on: they read the variable when they were imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    held = {"huggingface_hub.constants": "HF_HUB_OFFLINE", "datasets.config": "HF_HUB_OFFLINE",
            "transformers.utils.hub": "_is_offline_mode"}  # fmt: skip
    for module, name in held.items():
        if hasattr(sys.modules.get(module), name):
            setattr(sys.modules[module], name, True)
    with contextlib.suppress(ImportError):  # below 1.0 a session is made for online or for offline
        from huggingface_hub.utils import reset_sessions

        reset_sessions()


def disable_safetensors_conversion() -> None:
    """Keep transformers from asking a third host to convert .bin weights: a private model's token would go there."""
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "true")
    with contextlib.suppress(ImportError):  # 4.56 does not read the variable
        from transformers import safetensors_conversion

        safetensors_conversion.spawn_conversion = lambda *_: None


def limit_client_timeouts() -> None:
    """Give every request of the client that has no deadline one."""
    from huggingface_hub.utils import _http as client  # 0.35 to 1.33 have these two names there, and nowhere else

    if hasattr(client, "set_client_factory"):
        client.set_client_factory(lambda: _limit_httpx(client.default_client_factory()))
    else:
        client.configure_http_backend(lambda: _limit_requests(client._default_backend_factory()))  # noqa: SLF001


def _limit_httpx(made: Any) -> Any:
    def limit(request: Any) -> None:
        given = request.extensions.get("timeout") or {}
        most = PATIENCE.get(request.method, LONGEST)
        parts = ("connect", "read", "write", "pool")
        request.extensions["timeout"] = {part: given.get(part) or most for part in parts}

    made.event_hooks = {**made.event_hooks, "request": [*made.event_hooks["request"], limit]}
    return made


def _limit_requests(made: Any) -> Any:
    send = made.send

    def limited(request: Any, **options: Any) -> Any:
        most = PATIENCE.get(request.method, LONGEST)
        return send(request, **options | {"timeout": options.get("timeout") or most})

    made.send = limited
    return made
