"""The files of a killed run, and of a resumed one."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from run.checkpoints import (
    archive_later_files,
    choose_checkpoint,
    delete_old_checkpoints,
    find_defect,
    list_checkpoints,
    mark_complete,
)
from run.directory import RunDirectory, Table, parse_rows
from settings import BadInput
from support.paths import TRAIN

HEADER = ["step", "reward", "reward_smooth"]


def test_rows_after_the_checkpoint_and_incomplete_rows_are_removed() -> None:
    lines = ["step,reward,reward_smooth\r\n", "1,0.5,0.5\r\n", "2,0.25,0.4\r\n", "3,0.7,0.5\r\n", "4,0."]
    assert list(parse_rows(lines, HEADER, 2)) == [["1", "0.5", "0.5"], ["2", "0.25", "0.4"]]
    assert list(parse_rows(lines, ["step", "other", "reward"], 1)) == [["1", "", "0.5"]]
    assert list(parse_rows([], HEADER, 2)) == []


def test_a_completion_of_a_megabyte_survives_a_resume(tmp_path: Path) -> None:
    table = Table(tmp_path / "generations.csv", ["step", "completion"])
    table.append([{"step": 1, "completion": "word\n" * 200_000}])
    (row,) = Table(tmp_path / "generations.csv", ["step", "completion"], keep_up_to=1).read()
    assert row["completion"] == "word\n" * 200_000


def test_a_table_continues_at_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    table = Table(path, HEADER)
    table.append([{"step": step, "reward": step / 10, "reward_smooth": step / 20} for step in range(1, 6)])
    with path.open("a") as file:
        file.write("6,0.")  # killed in the middle of a row
    resumed = Table(path, HEADER, keep_up_to=3)
    assert resumed.read()[-1] == {"step": "3", "reward": "0.3", "reward_smooth": "0.15"}
    resumed.append([{"step": 4, "reward": 1.0}])
    assert path.read_text().split() == ["step,reward,reward_smooth", "1,0.1,0.05", "2,0.2,0.1", "3,0.3,0.15", "4,1,"]


def test_a_kill_within_a_character_loses_that_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "generations.csv"
    header = ["step", "completion", "reward"]
    Table(path, header).append([{"step": step, "completion": "größer, 好", "reward": 0.5} for step in (1, 2)])
    whole = path.read_bytes()
    start = whole.rindex(b"\r\n", 0, -2) + 2  # of the last row
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        kept = Table(path, header, keep_up_to=1).read()
        assert kept == [{"step": "1", "completion": "größer, 好", "reward": "0.5"}]


def test_events_survive_a_cut_character_and_unicode_line_separators(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write_event("eval", when="before", metrics={"reward": 0.5}, text="a\u2028b\x85c")
    run.write_event("note", message="größer")
    file = tmp_path / "events.jsonl"
    whole = file.read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole)):
        file.write_bytes(whole[:end])
        again = RunDirectory(tmp_path)
        assert again.read_baseline_evaluation() == {"reward": 0.5}
        again.write_event("phase")
        assert [json.loads(line)["event"] for line in file.read_bytes().splitlines()] == ["eval", "phase"]


def test_changed_rows_are_noted(tmp_path: Path) -> None:
    row = {"reference": Fraction(1), "columns": {"at": date(2026, 1, 2)}}
    rows = [row | {"prompt": prompt} for prompt in ("a", "b")]
    RunDirectory(tmp_path).record_dataset(rows[:1], rows[1:])
    again = RunDirectory(tmp_path)
    again.record_dataset(rows[:1], rows[1:])
    assert again.read_events("note") == []
    again.record_dataset(rows, rows[1:])
    (note,) = again.read_events("note")
    assert "2 to train on and 1 held out, formerly 1 and 1" in note["message"]
    assert len(again.read_events("rows")) == 1


def test_evaluations_after_the_resumed_step_are_dropped(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for step, reward in ((0, 0.1), (50, 0.2), (100, 0.3), (50, 0.4), (60, 0.5)):
        run.write_event("eval", step=step, metrics={"greedy_reward": reward})
    run.write_event("eval", step=None, metrics={})
    assert [(found["step"], found["metrics"]["greedy_reward"]) for found in run.read_evaluations()] == [
        (0, 0.1), (50, 0.4), (60, 0.5),
    ]  # fmt: skip


def test_a_run_can_be_locked_on_a_full_disk(tmp_path: Path) -> None:
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from run.directory import RunDirectory\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "run = RunDirectory(Path(sys.argv[2])); run.lock(); RunDirectory(Path(sys.argv[2])).lock()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(TRAIN), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "is being trained by process unknown" in done.stderr


def test_a_new_table_drops_existing_rows(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,reward,reward_smooth\n1,0.5,0.5\n")
    assert Table(tmp_path / "metrics.csv", HEADER).read() == []
    assert (tmp_path / "metrics.csv").read_text().split() == ["step,reward,reward_smooth"]


def test_cells_with_commas_and_line_ends_survive(tmp_path: Path) -> None:
    path = tmp_path / "generations.csv"
    Table(path, ["step", "completion"]).append(
        [{"step": 1, "completion": 'a,"b"\nc'}, {"step": 2, "completion": "d"}]
    )
    kept = Table(path, ["step", "completion"], keep_up_to=1).read()
    assert kept == [{"step": "1", "completion": 'a,"b"\nc'}]


def make_checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"12345678")
    (path / "trainer_state.json").write_text("{}")
    mark_complete(path)
    return path


def test_the_newest_complete_checkpoint_is_chosen(tmp_path: Path) -> None:
    whole = [make_checkpoint(tmp_path, step) for step in (50, 100, 150, 1000)]
    (whole[3] / "complete.json").unlink()
    (whole[2] / "model.safetensors").write_bytes(b"1234")
    chosen, skipped = choose_checkpoint(tmp_path, "latest")
    assert chosen == whole[1]
    assert [(path.name, defect) for path, defect in skipped] == [
        ("checkpoint-1000", "complete.json is missing: the checkpoint is incomplete"),
        ("checkpoint-150", "model.safetensors has 4 bytes, not 8"),
    ]
    assert choose_checkpoint(tmp_path, str(whole[0])) == (whole[0], [])


def test_defects_of_a_checkpoint(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, 5)
    assert find_defect(path) == ""
    (path / "trainer_state.json").unlink()
    assert find_defect(path) == "trainer_state.json is missing"
    (path / "complete.json").write_text("{")
    assert find_defect(path) == "complete.json is damaged"


def test_one_flipped_bit_is_a_defect(tmp_path: Path) -> None:
    whole, damaged = make_checkpoint(tmp_path, 5), make_checkpoint(tmp_path, 10)
    content = bytearray((damaged / "model.safetensors").read_bytes())
    content[3] ^= 1
    (damaged / "model.safetensors").write_bytes(content)
    defect = "model.safetensors has changed since it was saved: its SHA-256 differs"
    assert find_defect(damaged) == defect
    assert choose_checkpoint(tmp_path, "latest") == (whole, [(damaged, defect)])
    with pytest.raises(BadInput, match="its SHA-256 differs"):
        choose_checkpoint(tmp_path, "checkpoint-10")


def test_a_checkpoint_of_an_earlier_version_has_sizes_alone(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, 5)
    sizes = {"model.safetensors": 8, "trainer_state.json": 2}
    (path / "complete.json").write_text(json.dumps({"files": sizes}))
    assert find_defect(path) == ""
    (path / "complete.json").write_text(json.dumps({"files": sizes | {"model.safetensors": 9}}))
    assert find_defect(path) == "model.safetensors has 8 bytes, not 9"


def test_old_checkpoints_are_deleted_only_with_enough_complete_newer_ones(tmp_path: Path) -> None:
    whole = [make_checkpoint(tmp_path, step) for step in (50, 100, 150)]
    (whole[2] / "complete.json").unlink()  # as if killed while it was written
    delete_old_checkpoints(tmp_path, keep=2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-50", "checkpoint-100", "checkpoint-150"]
    make_checkpoint(tmp_path, 200)
    delete_old_checkpoints(tmp_path, keep=1)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-200"]


def test_files_in_subfolders_belong_to_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-4"
    (path / "adapter").mkdir(parents=True)
    (path / "adapter" / "weights").write_bytes(b"1234")
    mark_complete(path)
    assert find_defect(path) == ""
    (path / "adapter" / "weights").unlink()
    assert find_defect(path) == "adapter/weights is missing"


def test_a_resume_deletes_incomplete_checkpoints(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    whole, half = make_checkpoint(run.checkpoints, 50), make_checkpoint(run.checkpoints, 100)
    (half / "complete.json").unlink()
    assert run.prepare_resume("latest") == whole
    assert not half.exists()
    (event,) = run.read_events("checkpoint_skipped")
    assert event["path"] == "checkpoints/checkpoint-100"


def test_later_files_are_archived(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    for step in (50, 100, 150):
        make_checkpoint(checkpoints, step)
    (tmp_path / "metrics.csv").write_text("step\r\n150\r\n")
    (tmp_path / "result.json").write_text("{}")
    place = archive_later_files(tmp_path, checkpoints, 50)
    assert place == checkpoints / "aside-1"
    assert {path.name for path in place.iterdir()} == {
        "checkpoint-100", "checkpoint-150", "metrics.csv", "result.json",
    }  # fmt: skip
    assert find_defect(place / "checkpoint-150") == ""
    assert [path.name for path in list_checkpoints(checkpoints)] == ["checkpoint-50"]
    assert choose_checkpoint(checkpoints, "latest")[0].name == "checkpoint-50"
    assert archive_later_files(tmp_path, checkpoints, 50) is None  # nothing came later
    make_checkpoint(checkpoints, 100)
    assert archive_later_files(tmp_path, checkpoints, 50) == checkpoints / "aside-2"
    delete_old_checkpoints(checkpoints, keep=1)
    assert find_defect(place / "checkpoint-100") == ""


def test_a_checkpoint_by_name_or_path_must_belong_to_the_run(tmp_path: Path) -> None:
    own, other = (make_checkpoint(tmp_path / name / "checkpoints", 50) for name in ("run", "other"))
    for wanted in ("checkpoint-50", str(own)):
        assert choose_checkpoint(own.parent, wanted) == (own, [])
    with pytest.raises(BadInput, match=f"--resume {other}: it is no checkpoint-STEP in {own.parent}"):
        choose_checkpoint(own.parent, str(other))


def test_a_resume_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no complete checkpoint in .*no checkpoint-STEP"):
        choose_checkpoint(tmp_path / "checkpoints", "latest")
    with pytest.raises(BadInput, match="there is no such directory"):
        choose_checkpoint(tmp_path, str(tmp_path / "checkpoint-7"))


def test_events_are_lines_of_json_even_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"t": 1, "event": "eval", "when": "before"}\n{"t": 2, "eve')
    run = RunDirectory(tmp_path)
    run.write_event("step", metrics={"loss": float("nan"), "reward": 0.5})
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["eval", "step"]
    assert events[1]["metrics"] == {"loss": None, "reward": 0.5}
    assert len(run.read_events("eval", when="before")) == 1


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[" * 200_000, "is not JSON"),
        ("[]", "contains list"),
        ('{"schema": 2, "recipe": "sort"}', "'schema': 2"),
        ('{"schema": 1}', "'recipe': None"),
    ],
)
def test_run_json_is_read_strictly(tmp_path: Path, content: str | None, seen: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(BadInput, match=r"run\.json") as caught:
        RunDirectory(tmp_path).read_run_json()
    assert seen in caught.value.message
