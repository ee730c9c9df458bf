"""`envdoctor pack`: packed and excluded files, secrets, errors, and the check of a zip."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.command import COMMAND, envdoctor, envelope, environment, interpreter
from support.json_schema import validate
from support.paths import ROOT

from envdoctor.commands.check_pack import CheckPackRequest
from envdoctor.commands.check_pack import run as check_pack
from envdoctor.core.errors import BadInput
from envdoctor.output.schema import schema_of

TOKEN = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4xY7z"
OTHER = "correct-horse-battery-staple"  # recognized only by its environment variable


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "sort-1"
    checkpoint = folder / "checkpoints" / "checkpoint-50"
    checkpoint.mkdir(parents=True)
    (folder / "model").mkdir()
    settings = {"max_steps": 50, "model": "", "learning_rate": 2e-4, "max_completion_length": 6}
    write(
        folder / "run.json",
        {"schema": 1, "recipe": "sort", "settings": settings, "created": "2026-11-21T10:00:00+00:00"},
    )
    write(
        folder / "result.json", {"before": {"reward": 0.25}, "after": {"reward": 0.75}, "versions": {"trl": "1.16.0"}}
    )
    events = [
        {"t": 1.0, "event": "step", "step": 50, "steps": 50, "metrics": {"reward": 0.75}},
        {"t": 2.0, "event": "done", "result": {}},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "metrics.csv").write_text("step,reward\n50,0.75\n")
    (folder / "generations.csv").write_text('step,prompt,completion\n50,"password: x, y","a ""b""\nc"\n')
    (folder / "train.log").write_text("step 50\n")
    (folder / ".lock").write_text("1")
    (folder / "result.json.part").write_text("half")
    (folder / "model" / "model.safetensors").write_bytes(random.Random(1).randbytes(100_000))
    (folder / "model" / "tokenizer.json").write_text('{"password": 7, "token": "secret-looking-1234"}')
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "trainer_state.json"):
        (checkpoint / name).write_bytes(name.encode())
    return folder


def write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n")


def pack(run: Path, *arguments: str, **extra: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    target = run.parent.parent / "packed.zip"
    done = envdoctor("pack", run, "--output", target, *arguments, home=run.parent.parent, **extra)
    return done, target


def packed(run: Path, *arguments: str, **extra: str) -> Path:
    done, target = pack(run, *arguments, **extra)
    assert done.returncode == 0, done.stderr
    return target


def names(target: Path) -> list[str]:
    with zipfile.ZipFile(target) as archive:
        return archive.namelist()


def manifest(target: Path) -> dict[str, Any]:
    with zipfile.ZipFile(target) as archive:
        content: dict[str, Any] = json.loads(archive.read("manifest.json"))
        return content


def check(target: Path) -> dict[str, Any]:
    done = envdoctor("check-pack", target, "--format", "json", home=target.parent)
    data = envelope(done)
    assert (done.returncode == 0) == (data["data"] is not None and data["data"]["faults"] == [])
    return data


def test_run_is_packed_with_checksums(run: Path) -> None:
    target = packed(run)
    assert names(target) == [
        "events.jsonl", "generations.csv", "metrics.csv", "model/model.safetensors", "model/tokenizer.json",
        "result.json", "run.json", "train.log", "manifest.json",
    ]  # fmt: skip
    content = manifest(target)
    assert (
        content["recipe"],
        content["run"],
        content["ending"],
        content["step"],
    ) == ("sort", "sort-1", "done", 50)
    assert (content["before"], content["after"], content["versions"]) == (
        {"reward": 0.25},
        {"reward": 0.75},
        {"trl": "1.16.0"},
    )
    assert content["left_out"] == {"checkpoints": 5, "unfinished or temporary": 1}
    with zipfile.ZipFile(target) as archive:
        for file in content["files"]:
            data = archive.read(file["path"])
            assert data == (run / file["path"]).read_bytes(), "files without secrets are unchanged"
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
    assert not list(target.parent.glob(".*.part"))
    data = check(target)["data"]
    assert (data["files"], data["faults"]) == (8, [])


def test_zip_is_reproducible(run: Path) -> None:
    first = packed(run).read_bytes()
    other = run.parent / "other" / "sort-1"
    shutil.copytree(run, other)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert packed(other).read_bytes() == first


@pytest.mark.parametrize(
    ("option", "added"),
    [
        ("--with-checkpoints", {"model.safetensors", "trainer_state.json"}),
        (
            "--with-optimizer",
            {"model.safetensors", "trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state_0.pth"},
        ),
    ],
)
def test_checkpoints_and_optimizer_state_are_optional(run: Path, option: str, added: set[str]) -> None:
    target = packed(run, option)
    assert {Path(name).name for name in names(target) if name.startswith("checkpoints/")} == added
    assert check(target)["data"]["faults"] == []


def test_secrets_are_removed_from_files_of_the_trainer(run: Path) -> None:
    write(
        run / "run.json",
        {"schema": 1, "recipe": "sort", "settings": {"hub_model_id": "me/x"}, "HF_TOKEN": "abc", "u": f"a {TOKEN}"},
    )
    with (run / "train.log").open("a") as file:
        file.write(
            f"login with {TOKEN}\nWANDB_API_KEY=0123456789abcdef\n"
            f"Authorization: Bearer {OTHER}\nvalue {OTHER} again\n"
        )
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": "note", "message": f"token={TOKEN}, and more"}) + "\n")
        file.write('{"event": "note", "message": "half ' + TOKEN)
    with (run / "generations.csv").open("a") as file:
        file.write(f'51,"use {TOKEN}","b"\n')
    target = packed(run, HF_TOKEN=OTHER)
    with zipfile.ZipFile(target) as archive:
        members = {name: archive.read(name).decode("utf-8", "replace") for name in archive.namelist()}
    for name, content in members.items():
        for secret in (TOKEN, OTHER, "0123456789abcdef", '"abc"'):
            assert secret not in content, f"{secret} in {name}"
    assert json.loads(members["run.json"]) == {
        "schema": 1, "recipe": "sort", "settings": {"hub_model_id": "me/x"}, "HF_TOKEN": "<secret>", "u": "a <secret>"
    }  # fmt: skip
    assert json.loads(members["events.jsonl"].splitlines()[2])["message"] == "token=<secret>, and more"
    assert members["generations.csv"].splitlines()[0] == "step,prompt,completion"
    assert '"password: x, y"' in members["generations.csv"], "completions are data"
    assert '51,"use <secret>","b"' in members["generations.csv"]
    removed = {file["path"]: file["secrets_removed"] for file in manifest(target)["files"] if file["secrets_removed"]}
    assert removed.keys() == {"run.json", "train.log", "events.jsonl", "generations.csv"}
    assert TOKEN in (run / "train.log").read_text(), "the run itself is unchanged"
    assert check(target)["data"]["faults"] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.log", "\x1b[32m{}\x1b[0m\n"),
        ("worker.out", "loaded\x1b[0m{}\n"),
        ("notes.txt", "hf_\x1b[1maB3dE6gH9jK2mN5pQ8sT1vW4xY7z\n"),
        ("settings.toml", '{{"a":"{}"}}\n'),
        ("recipe.toml", 'model="{}"\n'),
        ("recipe.yaml", "model: {}\n"),
        ("reward.py", 'TOKEN = "{}"\n'),
        ("notes.rst", "see {}\n"),
        ("generations.csv", 'step,text\n1,"\x1b[32m{}\x1b[0m"\n'),
        ("extra.jsonl", '{{"text": "\\u001b[32m{}\\u001b[0m"}}\n'),
        ("extra.json", '{{"text": "\\u001b[32m{}'),
    ],
)
def test_token_is_removed_from_each_kind_of_text(run: Path, name: str, content: str) -> None:
    (run / name).write_text(content.format(TOKEN))
    target = packed(run)
    with zipfile.ZipFile(target) as archive:
        text = archive.read(name).decode()
    assert TOKEN[3:] not in text
    assert "<secret>" in text
    assert {each["path"]: each["secrets_removed"] for each in manifest(target)["files"]}[name] == 1


def test_colours_stay_in_a_log_without_a_secret(run: Path) -> None:
    (run / "train.log").write_text("\x1b[32mstep 50\x1b[0m\n")
    with zipfile.ZipFile(packed(run)) as archive:
        assert archive.read("train.log") == b"\x1b[32mstep 50\x1b[0m\n"


@pytest.mark.parametrize("name", ["model/train.log", "model/logs/table.csv", "eval/x.tsv", "model/job.out"])
def test_logs_of_subdirectories_are_redacted(run: Path, name: str) -> None:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text(f"a,{TOKEN},b\n")
    envdoctor("pack", run, home=run.parent)
    with zipfile.ZipFile(run.with_name("sort-1.zip")) as archive:
        assert archive.read(name) == b"a,<secret>,b\n"


@pytest.mark.parametrize(
    "name",
    ["training_args.bin", "model/training_args.bin", "model/events.tfevents.1", "model/LICENSE", "model/x.yaml"],
)
def test_other_files_with_a_secret_are_rejected(run: Path, name: str) -> None:
    (run / name).write_bytes(b"\x80\x04\x95\0hub_token\0" + TOKEN.encode() + b"\0\xff")
    done = envdoctor("pack", run, home=run.parent)
    assert (done.returncode, f"{name} contains text in the format of a secret" in done.stderr) == (1, True), (
        done.stderr
    )


def test_model_with_a_secret_is_rejected(run: Path) -> None:
    path = run / "model" / "chat_template.jinja"
    path.write_text("x" * ((1 << 20) - 10) + f" {TOKEN}")  # across the border of two chunks
    done, target = pack(run)
    assert done.returncode == 1
    assert "model/chat_template.jinja contains text in the format of a secret" in done.stderr
    assert not target.exists()
    assert not list(target.parent.glob(".*.part"))


def test_tokenizer_is_packed_unchanged(run: Path) -> None:
    with zipfile.ZipFile(packed(run)) as archive:
        assert archive.read("model/tokenizer.json") == (run / "model/tokenizer.json").read_bytes()


def test_symlinks_are_followed_only_inside_the_run(run: Path, tmp_path: Path) -> None:
    (run / "latest.safetensors").symlink_to("model/model.safetensors")
    assert "latest.safetensors" in names(packed(run))
    for name, destination in (("shadow.txt", "/etc/passwd"), ("data", tmp_path), ("gone", "../../nowhere")):
        link = run / name
        link.symlink_to(destination)
        done, _ = pack(run)
        assert done.returncode == 1
        assert f"{name} is a symlink to {destination}" in done.stderr
        link.unlink()


def test_run_in_training_is_rejected(run: Path) -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from run.directory import RunDirectory; run = RunDirectory(Path(sys.argv[2])); run.lock()\n"
        "print('held', flush=True); time.sleep(600)"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT / "train"), str(run)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert trainer.stdout
        trainer.stdout.readline()
        done, target = pack(run)
        assert done.returncode == 1
        assert f"is being trained by process {trainer.pid}" in done.stderr
        assert "--force" in done.stderr
        assert not target.exists()
        assert names(packed(run, "--force"))
    finally:
        trainer.kill()
        trainer.communicate()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("content", "metrics.csv: its checksum differs"),
        ("missing", "metrics.csv: it is missing"),
        ("longer", "metrics.csv: it has more than 20 bytes"),
        ("added", "evil.sh: the manifest does not list it"),
        ("outside", "../evil.sh: it would be unpacked outside of its directory"),
    ],
)
def test_check_finds_changes(run: Path, change: str, fault: str) -> None:
    target = packed(run)
    with zipfile.ZipFile(target) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert members["metrics.csv"] == b"step,reward\n50,0.75\n"
    if change == "missing":
        del members["metrics.csv"]
    elif change in ("content", "longer"):
        members["metrics.csv"] = b"step,reward\n50,0.95\n" + b"51,1\n" * 1000 * (change == "longer")
    else:
        members["../evil.sh" if change == "outside" else "evil.sh"] = b"x"
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    faults = check(target)["data"]["faults"]
    assert any(item.startswith(fault) for item in faults), faults
    shown = envdoctor("check-pack", target, home=target.parent, COLUMNS="200").stdout
    assert "differs from its manifest" in shown


def test_check_finds_flipped_bits(run: Path) -> None:
    target = packed(run)
    data = target.read_bytes()
    for offset in range(0, len(data), len(data) // 40):
        target.write_bytes(data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :])
        try:
            faults = check_pack(CheckPackRequest(str(target))).data.faults
        except BadInput:
            continue
        assert faults or is_harmless(target), offset


def is_harmless(target: Path) -> bool:
    """Whether a bit in an unused field, such as a date, was flipped: all files have their checksums."""
    with zipfile.ZipFile(target) as archive:
        files = json.loads(archive.read("manifest.json"))["files"]
        return all(hashlib.sha256(archive.read(file["path"])).hexdigest() == file["sha256"] for file in files)


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip at all" * 100])
def test_other_files_are_bad_input(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(content)
    assert check(path)["error"]["kind"] == "bad-input"
    path.unlink()
    assert check(path)["error"]["kind"] == "bad-input"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    assert "manifest.json" in check(path)["error"]["message"]


def test_large_file_needs_little_memory_and_zip64(run: Path) -> None:
    """80 MiB in an address space of 75 MiB, with the zip64 threshold lowered to 40 MiB."""
    with (run / "model" / "large.dat").open("wb") as file:
        file.truncate(80 << 20)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (75 << 20, 75 << 20))\n"
        "from envdoctor.commands import pack; pack.ZIP64_FROM = 40 << 20\n"
        "from envdoctor.cli.application import run; sys.exit(run(sys.argv[1:]))"
    )
    target = run.parent.parent / "large.zip"
    done = subprocess.run(
        [sys.executable, "-c", code, "pack", str(run), "-o", str(target)], env=environment(run), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(target) as archive:
        info = archive.getinfo("model/large.dat")
    with target.open(
        "rb"
    ) as file:  # the local header: 30 bytes, the name, and the extra field of zip64 with the id 1
        file.seek(info.header_offset + 30 + len(info.filename))
        extra = int.from_bytes(file.read(2), "little")
    assert info.file_size == 80 << 20
    assert extra == 1, "zip64"


def test_failed_write_keeps_the_earlier_zip(run: Path) -> None:
    target = packed(run)
    before = target.read_bytes()
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "from envdoctor.cli.application import run; sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [interpreter(), "-c", code, "pack", str(run), "-o", str(target)], env=environment(run), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert target.read_bytes() == before
    assert not list(target.parent.glob(".*.part"))


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"two\nlines.txt"])
def test_unstorable_name_is_rejected(run: Path, name: bytes) -> None:
    (run / os.fsdecode(name)).write_text("x")
    done, _ = pack(run)
    assert done.returncode == 1
    assert "rename the file" in done.stderr


def test_zip_inside_the_run_is_rejected(run: Path) -> None:
    inside = envdoctor("pack", run, "--output", run / "x.zip", home=run)
    assert inside.returncode == 2
    assert "is inside the run" in inside.stderr


def test_default_zip_is_next_to_the_run(run: Path) -> None:
    done = envdoctor("pack", home=run.parent.parent)
    assert done.returncode == 0, done.stderr
    assert (run.parent / "sort-1.zip").is_file()


def test_output_matches_the_schema(run: Path) -> None:
    packed, checked = envelope(pack(run, "--format", "json")[0]), check(run.parent.parent / "packed.zip")
    for command, data in (("pack", packed), ("check-pack", checked)):
        schema = schema_of(command)
        assert validate(data, schema, schema) == []
        assert data["data"]["manifest"]["recipe"] == "sort"


@pytest.mark.parametrize(
    ("output", "message"),
    [("a" * 300 + ".zip", "File name too long"), ("file/x.zip", "file is not a directory"),
     ("nowhere/x.zip", "nowhere is not a directory"),
     ("file", "exists and is not a zip of a run"), ("pipe", "exists and is not a zip of a run"),
     ("runs", "is a directory"),
     ("gone", "exists and is not a zip of a run")],
)  # fmt: skip
def test_invalid_target_is_an_error(run: Path, tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    done = envdoctor("pack", run, "--output", output, home=tmp_path)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "message"),
    [("pipe", "not a regular file"), ("/dev/zero", "not a regular file"), ("a" * 300, "name too long")],
)
def test_special_files_are_not_read(tmp_path: Path, file: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = envdoctor("check-pack", file, home=tmp_path)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert "cannot read" in envdoctor("watch", "a" * 300, home=tmp_path).stderr


def test_earlier_zip_is_replaced_and_other_files_stay(run: Path) -> None:
    target = packed(run)
    (run / "metrics.csv").write_text("step,reward\n50,1\n")
    (target.parent / f"{target.name}.part").write_text("mine")
    assert packed(run).read_bytes() == target.read_bytes()
    assert check(target)["data"]["faults"] == []
    with zipfile.ZipFile(target) as archive:
        assert archive.read("metrics.csv").endswith(b"50,1\n")
    assert (target.parent / f"{target.name}.part").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize(
    ("mount", "code", "message"),
    [("mount -t tmpfs -o ro tmpfs", 2, "Read-only file system"),
     ("mount -t tmpfs -o size=40k tmpfs", 3, "No space left on device")],
)  # fmt: skip
def test_full_disk_leaves_no_files(run: Path, tmp_path: Path, mount: str, code: int, message: str) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    command = [*COMMAND, "pack", str(run), "--output", str(folder / "x.zip")]
    script = f'{mount} {folder} && "$@"; code=$?; ls -A {folder}; exit $code'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *command],
        env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr


def test_a_line_break_of_a_recipe_starts_no_line(run: Path) -> None:
    write(run / "run.json", {"schema": 1, "recipe": "a\n::error::x\x1b[2J", "settings": {}})
    done = envdoctor("pack", run, home=run.parent)
    assert not [line for line in done.stdout.splitlines() if line.startswith("::")]
