"""`grpo.py --check` as the tool calls it: a process of a light interpreter, JSON in and out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from settings import BadInput, Recipe, read_recipe, resolve_settings
from support.command import check_environment, check_interpreter
from support.paths import TRAIN
from support.tes_files import HEADER, Q, make_rows, write_rows, write_weeks

GRPO = TRAIN / "grpo.py"


def check(recipe: str, cwd: Path, **settings: Any) -> tuple[int, dict[str, Any]]:
    return check_bytes(json.dumps({"recipe": recipe, "settings": settings}).encode(), cwd)


def check_bytes(request: bytes, cwd: Path, *start: str) -> tuple[int, dict[str, Any]]:
    """Check in a fork, or in an interpreter that is started by the given words."""
    before = sorted(cwd.rglob("*"))
    argv = [*(start or [check_interpreter()]), "-B", "-c", _RUN_WITHOUT_SITE_PACKAGES, str(GRPO), "--check"]
    done = subprocess.run(
        argv, input=request, capture_output=True, cwd=cwd, timeout=120, check=False, env=check_environment(cwd)
    )
    assert done.stderr == b""
    assert sorted(cwd.rglob("*")) == before  # a check writes nothing
    return done.returncode, json.loads(done.stdout)


# The same start as `python grpo.py`, in a process where the training libraries cannot be imported.
_RUN_WITHOUT_SITE_PACKAGES = """
import runpy, sys, warnings
warnings.simplefilter("error")
for name in ("torch", "transformers", "trl", "datasets", "numpy", "matplotlib"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def error_of(result: tuple[int, dict[str, Any]]) -> dict[str, str]:
    status, record = result
    assert status == 2
    assert record["ok"] is False
    assert set(record["error"]) == {"message", "expected", "hint"}
    assert all(record["error"].values())
    return record["error"]


def test_sort_defaults_are_valid(tmp_path: Path) -> None:
    status, record = check_bytes(b'{"recipe": "sort", "settings": {}}', tmp_path, sys.executable, "-I")
    assert (status, record["ok"]) == (0, True)
    assert check("sort", tmp_path) == (status, record)
    assert record["settings"]["max_steps"] == 200
    assert record["summary"] == {"train_multisets": 615, "held_out_multisets": 100}


def test_integers_are_accepted_as_floats(tmp_path: Path) -> None:
    _, record = check("sort", tmp_path, temperature=1)
    assert record["settings"]["temperature"] == 1.0


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({"stepz": 3}, "unknown setting 'stepz' (did you mean 'max_steps'?)"),
        ({"max_steps": "many"}, "max_steps = 'many' (str)"),
        ({"max_steps": 1.5}, "max_steps = 1.5 (float)"),
        ({"max_steps": True}, "max_steps = True (bool)"),
        ({"max_steps": -2}, "max_steps = -2"),
        ({"augment": 4}, "augment = 4, which belongs to task tes"),
        ({"per_device_train_batch_size": 7}, "per_device_train_batch_size = 7 for 256 completions per step"),
        ({"report_to": ["wandbb"]}, "did you mean 'wandb'?"),
        ({"num_generations": 1}, "num_generations = 1"),
        ({"learning_rate": -1.0}, "learning_rate = -1.0"),
        ({"use_cpu": "yes"}, "use_cpu = 'yes'"),
        ({"hub_model_id": "a/b/c"}, "hub_model_id = 'a/b/c'"),
        ({"hub_model_id": "me/my model"}, "hub_model_id = 'me/my model'"),
        ({"hub_model_id": "https://example.org/me/x"}, "hub_model_id = 'https://example.org/me/x'"),
        ({"heads": 5}, "hidden_size = 64 with heads = 5"),
        ({"held_out_multisets": 715}, "held_out_multisets = 715"),
        ({"max_completion_length": 4}, "max_completion_length = 4 for 4 digits"),
        ({"digits": 2, "held_out_multisets": 53}, "(of 2 multisets of 2 digits), prompts_per_step = 32"),
    ],
)
def test_invalid_settings_are_reported(tmp_path: Path, settings: dict[str, Any], seen: str) -> None:
    assert seen in error_of(check("sort", tmp_path, **settings))["message"]


@pytest.mark.parametrize("request_bytes", [b"", b"{", b"[]", b'{"settings": {}}', b"\xff", b"[" * 100_000])
def test_an_invalid_request_is_refused(tmp_path: Path, request_bytes: bytes) -> None:
    assert "standard input" in error_of(check_bytes(request_bytes, tmp_path))["message"]


def test_a_nan_learning_rate_is_refused(tmp_path: Path) -> None:
    request = b'{"recipe": "sort", "settings": {"learning_rate": NaN}}'
    assert "learning_rate = nan" in error_of(check_bytes(request, tmp_path))["message"]


def test_a_number_too_large_is_refused_with_the_maximum(tmp_path: Path) -> None:
    assert error_of(check("sort", tmp_path, seed=-1))["expected"] == "seed is at least 0"
    assert error_of(check("sort", tmp_path, seed=2**40))["expected"] == "seed is from 0 to 4294967295"


def test_an_unknown_recipe_suggests_the_nearest(tmp_path: Path) -> None:
    error = error_of(check("sorte", tmp_path))
    assert "did you mean 'sort'?" in error["message"]
    assert "tes" in error["expected"]


def test_tes_holds_out_the_last_week_and_ignores_its_twin(tmp_path: Path) -> None:
    write_weeks(tmp_path)
    status, record = check("tes", tmp_path, data=".")
    assert status == 0
    assert record["settings"]["data"] == str(tmp_path)  # relative to the current directory, absolute from then on
    summary = record["summary"]
    assert summary["held_out"] == "week_05-05_q_dataset.csv"
    assert summary["ignored_twins"] == ["week_05-05_q_dataset_harmony.csv"]
    assert (summary["train_rows"], summary["held_out_rows"], summary["dropped_shared_rows"]) == (20, 10, 0)


def test_a_renamed_twin_of_the_held_out_week_does_not_leak(tmp_path: Path) -> None:
    write_weeks(tmp_path, harmony_of_last=False)
    write_rows(tmp_path / "a_copy_q_dataset.csv", make_rows("2025-05-05", 2))
    _, record = check("tes", tmp_path, data=".")
    assert (record["summary"]["train_rows"], record["summary"]["dropped_shared_rows"]) == (20, 10)


def test_fewer_prompts_than_a_step_needs_are_refused(tmp_path: Path) -> None:
    write_weeks(tmp_path)
    _, record = check("tes", tmp_path, data=".")
    rows = record["summary"]["train_rows"]
    error = error_of(check("tes", tmp_path, data=".", augment=2, prompts_per_step=2 * rows + 1))
    assert error["message"] == (
        f"{2 * rows} training prompts ({rows} rows, augment = 2), prompts_per_step = {2 * rows + 1}"
    )
    assert check("tes", tmp_path, data=".", augment=2, prompts_per_step=2 * rows)[0] == 0


def test_only_harmony_files_are_used(tmp_path: Path) -> None:
    for date in ("2025-05-05", "2025-05-12"):
        write_rows(tmp_path / f"w{date}_q_dataset_harmony.csv", make_rows(date))
    _, record = check("tes", tmp_path, data=str(tmp_path))
    assert record["summary"]["held_out"] == "w2025-05-12_q_dataset_harmony.csv"


def test_a_single_file_holds_out_its_last_day(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "w_q_dataset.csv", make_rows("2025-05-05") + make_rows("2025-05-06", 1))
    _, record = check("tes", tmp_path, data=str(file))
    assert (record["summary"]["held_out"], record["summary"]["train_rows"]) == ("2025-05-06", 10)


def test_a_single_day_leaves_nothing_to_train_on(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "w_q_dataset.csv", make_rows("2025-05-05"))
    assert "no training rows are left" in error_of(check("tes", tmp_path, data=str(file)))["message"]


def test_a_suboptimal_optimal_action_is_a_remark(tmp_path: Path) -> None:
    write_weeks(tmp_path)
    rows = make_rows("2025-05-12", 3)
    rows[4]["optimal_action"] = (rows[4]["optimal_action"] + 1) % 4
    write_rows(tmp_path / "week_05-12_q_dataset.csv", rows)
    _, record = check("tes", tmp_path, data=".")
    assert record["summary"]["optimal_action_not_best_q"] == ["week_05-12_q_dataset.csv row 5"]


@pytest.mark.parametrize(("held_out", "seen"), [("06-30", "matches no file"), ("week", "matches more than one file")])
def test_held_out_must_match_one_file(tmp_path: Path, held_out: str, seen: str) -> None:
    write_weeks(tmp_path)
    error = error_of(check("tes", tmp_path, data=".", held_out=held_out))
    assert seen in error["message"]
    assert "week_04-14_q_dataset.csv" in error["expected"]


def test_data_must_be_given_and_exist(tmp_path: Path) -> None:
    assert "data is not set" in error_of(check("tes", tmp_path))["message"]
    assert "no such file or directory" in error_of(check("tes", tmp_path, data="nowhere"))["message"]
    (tmp_path / "rows.jsonl").touch()
    for missing in ("rows.json", "row.jsonl"):  # not taken for names of the Hub
        error = error_of(check("dataset", tmp_path, model="m", data=missing))
        assert "no such file or directory" in error["message"]
        assert error["hint"] == "--set data=rows.jsonl"
    assert "File name too long" in error_of(check("tes", tmp_path, data="x" * 300))["message"]


def test_a_directory_without_datasets_is_listed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    error = error_of(check("tes", tmp_path, data="."))
    assert "no *_q_dataset.csv in it (1 entries: notes.txt)" in error["message"]


def _with(column: str, value: str) -> list[dict[str, Any]]:
    rows = make_rows("2025-05-12", 3)
    rows[2][column] = value
    return rows


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("q_action_2", "NaN"),
        ("q_action_0", "high"),
        ("q_action_3", ""),
        ("q_action_1", "-inf"),
        ("optimal_action", "4"),
        ("optimal_action", "1.0"),
    ],
)
def test_invalid_cell_is_reported_with_row_column_and_value(tmp_path: Path, column: str, value: str) -> None:
    write_weeks(tmp_path)
    write_rows(tmp_path / "week_05-12_q_dataset.csv", _with(column, value))
    message = error_of(check("tes", tmp_path, data="."))["message"]
    assert "week_05-12_q_dataset.csv row 3 (ends at line " in message
    assert f"column {column}: {value!r}" in message


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("Current TES energy [kWh]", "Energy", "no current TES energy"),
        ("Current time [h]", "Time", "no current time"),
        ("co2_low5_avg=0.295", "co2_low5_avg=low", "no next-day co2_low5_avg"),
        ("TES capacity [kWh]: 300.0", "TES capacity [kWh]: 0", "must be positive"),
        ("←Now!!!", "", "Now marks no hour"),
        ("  - 12:00: load=", "  - 12:00: demand=", "the forecast hours are [10, 11, 13, 14, 15, 16, 17]"),
    ],
)
def test_prompt_with_a_missing_fact_is_reported(tmp_path: Path, old: str, new: str, seen: str) -> None:
    write_weeks(tmp_path)
    rows = make_rows("2025-05-12", 3)
    assert old in rows[2]["prompt"]
    rows[2]["prompt"] = rows[2]["prompt"].replace(old, new)
    write_rows(tmp_path / "week_05-12_q_dataset.csv", rows)
    message = error_of(check("tes", tmp_path, data="."))["message"]
    assert "row 3" in message
    assert seen in message


def test_missing_columns_are_reported_with_the_existing_ones(tmp_path: Path) -> None:
    write_rows(tmp_path / "w_q_dataset.csv", make_rows("2025-05-05"), [*HEADER, *Q[:2]])
    message = error_of(check("tes", tmp_path, data="."))["message"]
    assert "lacks the columns q_action_2, q_action_3; it has: timestep, timestamp, prompt" in message


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "is empty"),
        (",".join([*HEADER, *Q]).encode() + b"\n", "has a header and no rows"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not UTF-8 text: byte 0x89"),
        (b'{"q": 1}', "lacks the columns prompt, optimal_action"),
        (",".join([*HEADER, *Q]).encode() + b"\n1,2\n", "row 1 (ends at line 2) has 2 cells, the header has 8"),
        (",".join([*HEADER, *Q]).encode() + b'\n8,t,"no end', "is not a CSV file: line 2"),
    ],
)
def test_a_file_that_is_not_a_dataset_is_refused(tmp_path: Path, content: bytes, seen: str) -> None:
    (tmp_path / "w_q_dataset.csv").write_bytes(content)
    assert seen in error_of(check("tes", tmp_path, data="."))["message"]


def test_a_byte_order_mark_does_not_hide_the_first_column(tmp_path: Path) -> None:
    file = write_rows(
        tmp_path / "w_q_dataset.csv",
        make_rows("2025-05-05") + make_rows("2025-05-06"),
        ["prompt", "optimal_action", *Q],
    )
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert check("tes", tmp_path, data=".")[0] == 0


def test_settings_of_a_deselected_alternative_are_reset() -> None:
    """gsm8k sets a share and a length for vLLM, which are reset with use_vllm = false."""
    recipe = read_recipe("gsm8k")
    settled = resolve_settings(recipe, {"use_vllm": False})
    assert (settled["vllm_gpu_memory_utilization"], settled["vllm_max_model_length"]) == (0.0, 0)
    assert resolve_settings(recipe, {})["vllm_gpu_memory_utilization"] == 0.3
    with pytest.raises(BadInput, match=r"vllm_gpu_memory_utilization = 0\.2 does nothing with use_vllm = false"):
        resolve_settings(recipe, {"use_vllm": False, "vllm_gpu_memory_utilization": 0.2})
    with pytest.raises(BadInput, match="does nothing with"):  # a recipe that contradicts itself
        resolve_settings(
            Recipe("mine", "", {"task": "dataset", "model": "a/b", "vllm_gpu_memory_utilization": 0.3}), {}
        )
