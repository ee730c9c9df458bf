"""What the probes and the benchmark showed is kept with an environment, and told by check, envs and before a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import ROOT, envdoctor, envelope
from fakenvml.fixture import FakeNvml, machine_ini

from envdoctor.core.errors import BadInput
from envdoctor.core.records import ProbeResult, Verification
from envdoctor.environment.managed import MARKER, InstallRecord
from envdoctor.verify import status as verify_status
from envdoctor.verify import stored_results as kept
from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult
from envdoctor.verify.status import VerificationStatus

DRIVER, GPUS, LOCK = "580.159.04", ("NVIDIA H200",), "037b3a57dfe3ad63"
INSTALLED = InstallRecord(
    profile="mine", lock=LOCK, torch_build="12.8", torch_source="PyPI", packages=1, size=1,
    created="2026-11-20T10:00:00+00:00", required=("sdpa",), environment={}, envdoctor="0",
)  # fmt: skip
Told = Callable[..., str]


def verification(**fields: Any) -> Verification:
    told: dict[str, Any] = {
        "schema": kept.VERIFICATION_SCHEMA, "python": "python", "when": "2026-11-21T10:00:00+00:00", "driver": DRIVER,
        "gpus": GPUS, "lock": LOCK, "required": ("sdpa",), "results": (ProbeResult("sdpa", "passed", "", 1.0),),
        "attention": ("flash_attention_3", "sdpa", "eager"), "attention_with_sinks": ("eager",),
    }  # fmt: skip
    return Verification(**told | fields)


def bench(*results: BenchmarkResult, **fields: Any) -> BenchmarkReport:
    told: dict[str, Any] = {
        "schema": kept.BENCH_SCHEMA, "python": "python", "when": "2026-11-21T10:05:00+00:00", "driver": DRIVER,
        "gpus": GPUS, "lock": LOCK, "results": results, "runs": (), "seconds": 40.0,
    }  # fmt: skip
    return BenchmarkReport(**told | fields)


def measured(measure: Any, value: float | None, grade: Any) -> BenchmarkResult:
    return BenchmarkResult(measure, 0, "NVIDIA H200", value, "TFLOP/s" if measure == "gemm" else "GB/s", grade)


GOOD, SLOW = measured("gemm", 770.0, "healthy"), measured("memory", 3300.4, "slow")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment as envdoctor leaves it, as far as it is looked at here, in the usual place."""
    venv = tmp_path / ".local/share/envdoctor/envs/mine"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib/python3.12/site-packages").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.12.4\n")
    (venv / MARKER).write_bytes(msgspec.json.encode(INSTALLED))
    return venv


@pytest.fixture
def told(fake_nvml: FakeNvml, tmp_path: Path) -> Told:
    """What a command says on a machine with an H200; `lines` change what its NVML answers."""

    def run(*arguments: str | Path, lines: tuple[str, ...] = ()) -> str:
        nvml = fake_nvml(machine_ini("h200", *lines))
        seen = {name: nvml[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
        return envdoctor(*arguments, home=tmp_path, COLUMNS="200", XDG_DATA_HOME="", **seen).stdout

    return run


def keep(venv: Path, *records: Verification | BenchmarkReport) -> None:
    for record in records:
        path = kept.verification_path if isinstance(record, Verification) else kept.bench_path
        kept.write_record(path(venv / "bin/python"), record)


def test_check_and_envs_tell_both(venv: Path, told: Told) -> None:
    keep(venv, verification(), bench(GOOD, SLOW))
    proven = (
        "verified 2026-11-21 on driver 580.159.04, NVIDIA H200: 1 probe passed; "
        "attention by flash_attention_3, sdpa, eager, with sinks by eager"
    )
    speed = "speed slow: memory of GPU 0 3300 GB/s, slow, measured 2026-11-21 on driver 580.159.04, NVIDIA H200"
    for arguments in (("check", "--venv", venv), ("envs",)):
        lines = [line.strip() for line in told(*arguments).splitlines()]
        assert proven in lines
        assert speed in lines


def test_programs_get_them_as_records(venv: Path, told: Told) -> None:
    keep(venv, verification(), bench(GOOD))
    checked = msgspec.json.decode(told("check", "--venv", venv, "--format", "json"))["data"]
    listed = msgspec.json.decode(told("envs", "--format", "json"))["data"]["environments"][0]
    assert checked["made"]["verified"] == listed["verified"] == "passed"
    for found in (checked, listed):
        assert found["verification"]["attention"][0] == "flash_attention_3"
        assert (found["verification"]["driver"], found["benchmark"]["state"]) == (DRIVER, "healthy")


@pytest.mark.parametrize(
    ("lines", "changed"),
    [
        (("[system]", "driver_version = 570.26"), "driver: 580.159.04 then, 570.26 now"),
        (("[gpu]", "name = NVIDIA H100 PCIe"), "GPUs: NVIDIA H200 then, NVIDIA H100 PCIe now"),
    ],
)
def test_another_driver_or_gpu_makes_both_stale(venv: Path, told: Told, lines: tuple[str, ...], changed: str) -> None:
    keep(venv, verification(), bench(GOOD))
    said = told("check", "--venv", venv, lines=lines)
    assert f"verified 2026-11-21, which no longer holds ({changed}): envdoctor verify" in said
    assert f"speed measured 2026-11-21, which no longer holds ({changed}): envdoctor verify --bench" in said


def test_another_lock_makes_both_stale(venv: Path) -> None:
    keep(venv, verification(lock="old"), bench(GOOD, lock="old"))
    proven = verify_status.read_verification_status(venv / "bin/python", DRIVER, GPUS)
    speed = verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS)
    assert proven is not None
    assert speed is not None
    assert (proven.state, proven.changed) == ("stale", f"lock: old then, {LOCK} now")
    assert (speed.state, speed.changed) == (proven.state, proven.changed)


def test_nothing_is_told_of_a_recorded_machine(venv: Path, told: Told) -> None:
    keep(venv, verification(), bench(GOOD))
    said = told("check", "--venv", venv, "--machine", "h100x8")
    assert "made by envdoctor" not in said
    assert "verified 2026" not in said
    assert "Findings" in said


def test_an_environment_of_somebody_else_is_told_where_it_was_verified(
    venv: Path, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (venv / MARKER).unlink()
    assert "verif" not in told("check", "--venv", venv).partition("Findings")[0]
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kept.verification_path(venv / "bin/python3") == kept.verification_path(venv / "bin/python")
    keep(venv, verification(lock=""))
    assert "verified 2026-11-21 on driver 580.159.04" in told("check", "--venv", venv)


def test_what_did_not_pass_is_named(venv: Path) -> None:
    results = (ProbeResult("sdpa", "unavailable", "", 1.0), ProbeResult("triton_jit", "crashed", "", 1.0))
    keep(venv, verification(results=results, required=("sdpa", "trl_grpo")))
    proven = verify_status.read_verification_status(venv / "bin/python", DRIVER, GPUS)
    assert proven is not None
    assert proven.failed == ("sdpa unavailable", "trl_grpo not run", "triton_jit crashed")
    said = verify_status.describe_verification(proven)
    assert said.endswith("NVIDIA H200: sdpa unavailable, trl_grpo not run, triton_jit crashed")
    assert said.startswith("not verified 2026-11-21")


def test_a_benchmark_is_as_good_as_its_worst_grade(venv: Path) -> None:
    def state(*results: BenchmarkResult) -> str:
        keep(venv, bench(*results))
        speed = verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS)
        assert speed is not None
        return speed.state

    unknown, failing = measured("gemm", 5.0, "unknown"), measured("gemm", 300.0, "failing")
    assert [state(GOOD), state(GOOD, SLOW), state(GOOD, SLOW, failing), state(unknown)] == [
        "healthy", "slow", "failing", "unknown",
    ]  # fmt: skip
    assert state(GOOD, measured("d2h", None, "not-measured")) == "healthy"  # a script that could not run blames none


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 99}', b'{"schema": 1}', b"\xff\xfe"])
def test_a_damaged_file_is_as_none(venv: Path, content: bytes) -> None:
    for path in (kept.verification_path(venv / "bin/python"), kept.bench_path(venv / "bin/python")):
        path.write_bytes(content)
    assert verify_status.read_verification_status(venv / "bin/python", DRIVER, GPUS) is None
    assert verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS) is None
    with pytest.raises(BadInput):
        kept.read_bench(kept.bench_path(venv / "bin/python"))


def test_a_benchmark_of_before_locks_were_kept_is_stale(venv: Path) -> None:
    told: dict[str, Any] = msgspec.to_builtins(bench(GOOD))
    del told["lock"]
    kept.bench_path(venv / "bin/python").write_bytes(msgspec.json.encode(told))
    speed = verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS)
    assert speed is not None
    assert speed.changed == f"lock: none then, {LOCK} now"


def test_the_line_before_a_run(venv: Path, fake_nvml: FakeNvml) -> None:
    """As `train` prints it: proven on what, by which attention, how fast."""
    code = "import sys; from pathlib import Path; from envdoctor.verify.status import status_line\n"
    code += "print(status_line(Path(sys.argv[1])))"

    def line() -> str:
        seen = fake_nvml(machine_ini("h200", "[system]", "count = 2")) | {"PYTHONPATH": str(ROOT)}
        arguments = [sys.executable, "-c", code, str(venv / "bin/python")]
        return subprocess.run(arguments, env=seen, capture_output=True, text=True, check=True).stdout.strip()

    assert line() == "not verified: envdoctor verify"
    two = (GPUS[0], GPUS[0])
    keep(venv, verification(gpus=two), bench(GOOD, gpus=two))
    assert line() == (
        "verified 2026-11-21 on driver 580.159.04, 2 x NVIDIA H200: 1 probe passed; attention by "
        "flash_attention_3, sdpa, eager, with sinks by eager; "
        "speed healthy, measured 2026-11-21 on driver 580.159.04, 2 x NVIDIA H200"
    )


def test_without_a_gpu_there_is_no_driver_to_name() -> None:
    line = verify_status.describe_verification(
        VerificationStatus(
            state="passed", when="2026-11-21", driver="", gpus=(), lock="", passed=6, attention=("sdpa",)
        )
    )
    assert line == "verified 2026-11-21 on a machine without a GPU: 6 probes passed; attention by sdpa"


def test_the_envelope_of_check_has_both(tmp_path: Path) -> None:
    data = envelope(envdoctor("check", "--machine", "h200", "--format", "json", home=tmp_path))["data"]
    assert data["verification"] is None
    assert data["benchmark"] is None
