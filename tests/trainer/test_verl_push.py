"""Upload of a merged verl model to a local hub server; no file contains the token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.hub_runs import variables
from support.hub_server import serve_hub
from support.verl_formats import needs_verl
from support.verl_on_cpu import SETTINGS, make_model, train_on_cpu, write_rows


@pytest.mark.stack
@needs_verl
def test_the_merged_model_is_pushed_and_no_file_contains_the_token(tmp_path: Path) -> None:
    base, run, home = make_model(tmp_path / "base"), tmp_path / "run", tmp_path / "home"
    home.mkdir()
    settings = SETTINGS | {
        "model": str(base), "data": str(write_rows(tmp_path / "rows.jsonl", range(10, 50))), "max_steps": 2,
        "num_train_epochs": 1,
        "save_steps": 2, "hub_model_id": "me/sums",
    }  # fmt: skip
    with serve_hub() as hub:
        output = train_on_cpu(run, settings, **variables(hub, home, HF_TOKEN="hf_right"))
    result = json.loads((run / "result.json").read_text())
    assert result["pushed"] == f"{hub.address}/me/sums"
    repository = hub.repositories["models", "me/sums"]
    assert repository.private
    assert repository.files["model.safetensors"] == (run / "model/model.safetensors").read_bytes()
    assert b"verl" in repository.files["README.md"]
    run_files = [path.read_bytes() for path in run.rglob("*") if path.is_file()]
    assert "hf_right" not in output
    assert not any(b"hf_right" in content for content in [*run_files, *repository.files.values()])
