"""Requests to the Hub without its client: responses, deadlines, tokens; and a memory plan of a Hub model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import hub as asking
import pytest
from memory.config_sources import read_shape
from settings import BadInput
from support.command import envdoctor
from support.hub_server import Hub, serve_hub

CONFIG = json.dumps({
    "model_type": "qwen2", "vocab_size": 32000, "hidden_size": 896, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "tie_word_embeddings": True,
})  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with an open, a gated and a private model, and a shell that has no token yet."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
                 "HF_HUB_CACHE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "2")
    with serve_hub() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        served.add("models", "o/open", {"config.json": CONFIG}, "v1")
        served.add("models", "o/gated", {"config.json": CONFIG}, gated=True)
        served.add("models", "o/private", {"config.json": CONFIG, "weights.bin": b"12"}, private=True)
        yield served


def refuse(name: str, file: str = "config.json", revision: str = "") -> asking.HubError:
    with pytest.raises(asking.HubError) as caught:
        asking.read_model_file(name, file, revision)
    assert caught.value.hint
    return caught.value


def test_a_file_and_a_repository(hub: Hub) -> None:
    assert asking.read_model_file("o/open", "config.json").decode() == CONFIG
    commit = hub.repositories["models", "o/open"].names["v1"]
    assert asking.read_repository("models", "o/open", "v1")["sha"] == commit


def test_the_token_goes_to_the_hub_and_not_to_the_storage(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert asking.read_model_file("o/private", "config.json").decode() == CONFIG
    assert [token for _, token in hub.requests] == ["hf_right", "hf_right"]  # its redirection stays at the host
    hub.requests.clear()
    assert asking.read_model_file("o/private", "weights.bin") == b"12"
    assert [token for _, token in hub.requests] == ["hf_right", ""]
    assert hub.matching_requests("/storage/")


def test_the_token_of_hf_auth_login(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text("hf_reader\n")
    assert asking.read_model_file("o/gated", "config.json").decode() == CONFIG


def test_refusals_of_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refuse("o/gated").reason == "it is gated, and HF_TOKEN is not set"
    assert refuse("o/none").reason == "it does not exist on the Hub, or it is private and HF_TOKEN is not set"
    assert refuse("o/open", revision="v9").reason == "it has no revision 'v9'"
    assert refuse("o/open", "other.json").reason == "its repository has no other.json"
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    assert refuse("o/gated").reason == "it is gated, and the owner of HF_TOKEN has no access"
    assert refuse("o/private").reason == "it does not exist on the Hub, or HF_TOKEN may not read it"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert refuse("o/open").reason == "the Hub rejects this HF_TOKEN"


def test_a_server_error_is_retried(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "10")
    hub.fail("open", 503, times=1)
    assert asking.read_model_file("o/open", "config.json")
    hub.fail("open", 429, headers={"Retry-After": "3600"})
    hub.requests.clear()
    trouble = refuse("o/open")
    assert (trouble.reason, trouble.away) == ("the Hub limits the request rate (HTTP 429)", True)
    assert len(hub.requests) == 1  # an hour is too long to wait


def test_a_hub_that_does_not_respond(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fail("open", "hang")
    began = time.monotonic()
    trouble = refuse("o/open")
    assert (trouble.reason, trouble.away) == (f"{hub.address} did not respond within 2 s", True)
    assert time.monotonic() - began < 60
    hub.fail("gated", "drop")
    assert "cannot be reached" in refuse("o/gated").reason
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refuse("o/open").reason == "the Hub cannot be reached at http://127.0.0.1:9: Connection refused"


def test_an_endpoint_that_is_not_a_hub(hub: Hub) -> None:
    hub.add("models", "o/odd", {"config.json": "[1"})
    hub.fail("/api/models", 200)
    with pytest.raises(asking.HubError, match="does not respond like a Hub"):
        asking.read_repository("models", "o/open")
    with pytest.raises(BadInput, match=r"config\.json is not JSON"):
        read_shape("o/odd")


def test_a_plan_reads_the_sizes_of_a_model_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    shape, source = read_shape("o/open", revision="v1")
    assert (shape.hidden, shape.layers, shape.tied) == (896, 24, True)
    assert source == f"{hub.address}/o/open, config.json at v1"
    done = envdoctor("plan", "--model", "o/open", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{hub.address}/o/open" in done.stdout
    assert hub.matching_requests(".") == hub.matching_requests("config.json")  # nothing else is fetched
    read_shape("Qwen/Qwen2.5-7B")  # its sizes are built in: no request is made
    assert not hub.matching_requests("Qwen2.5-7B")


@pytest.mark.parametrize(
    ("name", "extra", "seen"),
    [
        ("o/gated", {}, "it is gated, and HF_TOKEN is not set"),
        ("o/none", {}, "it does not exist on the Hub"),
        ("Qwen/Qwen2.5-7", {}, "did you mean 'Qwen/Qwen2.5-7B'?"),
        ("o/open", {"HF_TOKEN": "hf_wrong"}, "the Hub rejects this HF_TOKEN"),
        ("o/open", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE disables access to the Hub"),
        (
            "o/open",
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            "the Hub cannot be reached at http://127.0.0.1:9: Connection refused",
        ),
        ("o/slow", {}, "did not respond within 2 s"),
        ("o/ill", {}, "the Hub responded with HTTP 500"),
    ],
)
def test_a_plan_of_a_model_that_cannot_be_read(
    hub: Hub, tmp_path: Path, name: str, extra: dict[str, str], seen: str
) -> None:
    hub.fail("slow", "hang")
    hub.fail("/ill/", 500)
    done = envdoctor("plan", "--model", name, home=tmp_path, **extra)
    assert done.returncode == 2
    assert seen in done.stderr
    assert "expected: " in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "hf_" not in done.stdout + done.stderr
