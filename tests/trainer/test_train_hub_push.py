"""The model and card of a finished run, pushed to a local hub by the real client; and failed pushes."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hub_runs import Done, add_sums, hub_forking, local_hub, train, variables
from support.hub_server import Hub

pytestmark = pytest.mark.stack
PUSHED = {"README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def hub(made: Path) -> Iterator[Hub]:
    """A hub with one of them, and with sums."""
    with local_hub() as served:
        served.add("models", "o/qwen2", made / "qwen2")
        add_sums(served)
        yield served


def push_again(python: Path, done: Done, hub: Hub, token: str) -> subprocess.CompletedProcess[str]:
    """Run the command that the note of a failed push ends with."""
    notes = [json.loads(line)["message"] for line in (done.run / "events.jsonl").read_text().splitlines()
             if '"not pushed' in line]  # fmt: skip
    interpreter, *arguments = shlex.split(notes[-1].rpartition("; then: ")[2])
    assert Path(interpreter) == python
    return subprocess.run([hub_forking(python), *arguments], capture_output=True, text=True, timeout=120, check=False,
                          env=variables(hub, done.run.parent, HF_TOKEN=token))  # fmt: skip


def test_the_adapter_and_the_merged_model_with_their_card(python: Path, hub: Hub, made: Path, tmp_path: Path) -> None:
    local = {"model": str(made / "qwen2"), "hub_model_id": "me/sums", "merge": True}
    done = train(python, hub, tmp_path / "a", local, HF_TOKEN="hf_right")
    assert done.status == 0, done.errors
    assert done.result["pushed"] == f"{hub.address}/me/sums"
    repository = hub.repositories["models", "me/sums"]
    assert repository.private  # unless it was there before
    assert set(repository.files) >= PUSHED | {"merged/model.safetensors", "merged/config.json"}
    for name in ("adapter_model.safetensors", "merged/model.safetensors"):
        assert repository.files[name] == (done.run / "model" / name).read_bytes()
    assert hub.matching_requests("PUT /storage/")
    card = repository.files["README.md"].decode()
    assert "library_name: peft" in card
    assert "sampled_exact_match" in card or "sampled_reward" in card
    for content in repository.files.values():
        assert str(tmp_path).encode() not in content
        assert str(made).encode() not in content
    assert hub.commit_messages == ["Trained by envdoctor"]
    assert not done.holds("hf_right")


def test_a_push_that_fails_halfway(python: Path, hub: Hub, tmp_path: Path) -> None:
    hub.fail("POST .*/commit/", 500)
    done = train(python, hub, tmp_path / "a", {"hub_model_id": "me/sums"}, HF_TOKEN="hf_right")
    assert done.status == 0, done.errors
    assert (done.result["status"], done.result["pushed"]) == ("done", None)
    assert "note: not pushed: hub_model_id = me/sums: the Hub responded with HTTP 500" in done.output
    assert "Traceback" not in done.output + done.errors
    assert not PUSHED & set(hub.repositories["models", "me/sums"].files)
    hub.faults.clear()
    again = push_again(python, done, hub, "hf_right")
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == done.result["pushed"] == f"{hub.address}/me/sums"
    assert set(hub.repositories["models", "me/sums"].files) >= PUSHED


def test_tokens_without_write_permission(python: Path, hub: Hub, tmp_path: Path) -> None:
    done = train(python, hub, tmp_path / "a", {"hub_model_id": "me/sums"}, HF_TOKEN="hf_reader")
    assert done.status == 0, done.errors
    assert (done.result["status"], done.result["pushed"]) == ("done", None)
    assert "the Hub refused it (HTTP 403)" in done.output
    assert not done.holds("hf_reader")
    wrong = push_again(python, done, hub, "hf_wrong")
    assert wrong.returncode == 2
    assert "error: hub_model_id = me/sums: the Hub rejects this HF_TOKEN" in wrong.stderr
    hub.fail("POST /api/repos/create", "drop")
    dropped = push_again(python, done, hub, "hf_right")
    assert dropped.returncode == 2
    assert "the Hub cannot be reached" in dropped.stderr
    hub.fail("whoami", "hang")
    silent = push_again(python, done, hub, "hf_right")
    assert "did not respond within 2 s" in silent.stderr
    for one in (wrong, dropped, silent):
        assert "hint: " in one.stderr
        assert "Traceback" not in one.stderr
    none = push_again(python, done, hub, "")
    assert "HF_TOKEN is not set" in none.stderr
