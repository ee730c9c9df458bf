"""Stored verification and benchmark results in `check`, `envs` and before training."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.benchmark_results import DRIVER, GOOD, GPUS, LOCK, SLOW, bench, measured
from support.command import envdoctor, envelope
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.paths import ROOT

from envdoctor.core.errors import BadInput
from envdoctor.core.records import ProbeResult, Verification
from envdoctor.environment.managed import MARKER, InstallRecord
from envdoctor.verify import status as verify_status
from envdoctor.verify import stored_results
from envdoctor.verify.bench_records import BenchmarkReport, BenchmarkResult
from envdoctor.verify.status import VerificationStatus

INSTALLED = InstallRecord(
    profile="mine", lock=LOCK, torch_build="12.8", torch_source="PyPI", packages=1, size=1,
    created="2026-11-20T10:00:00+00:00", required=("sdpa",), environment={}, envdoctor="0",
)  # fmt: skip
RunCommand = Callable[..., str]


def verification(**fields: Any) -> Verification:
    defaults: dict[str, Any] = {
        "schema": stored_results.VERIFICATION_SCHEMA, "python": "python", "when": "2026-11-21T10:00:00+00:00",
        "driver": DRIVER, "gpus": GPUS, "lock": LOCK, "required": ("sdpa",),
        "results": (ProbeResult("sdpa", "passed", "", 1.0),),
        "attention": ("flash_attention_3", "sdpa", "eager"), "attention_with_sinks": ("eager",),
    }  # fmt: skip
    return Verification(**defaults | fields)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A minimal managed environment in the default location."""
    venv = tmp_path / ".local/share/envdoctor/envs/mine"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib/python3.12/site-packages").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.12.4\n")
    (venv / MARKER).write_bytes(msgspec.json.encode(INSTALLED))
    return venv


@pytest.fixture
def run_command(fake_nvml: FakeNvml, tmp_path: Path) -> RunCommand:
    """Run a command on a machine with a fake H200; `lines` change the fake NVML configuration."""

    def run(*arguments: str | Path, lines: tuple[str, ...] = ()) -> str:
        nvml = fake_nvml(machine_ini("h200", *lines))
        variables = {name: nvml[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
        return envdoctor(*arguments, home=tmp_path, COLUMNS="200", XDG_DATA_HOME="", **variables).stdout

    return run


def store(venv: Path, *records: Verification | BenchmarkReport) -> None:
    for record in records:
        path = stored_results.verification_path if isinstance(record, Verification) else stored_results.bench_path
        stored_results.write_record(path(venv / "bin/python"), record)


def test_check_and_envs_report_both(venv: Path, run_command: RunCommand) -> None:
    store(venv, verification(), bench(GOOD, SLOW))
    expected = (
        "2026-11-21 on driver 580.159.04, NVIDIA H200: 1 probe passed; "
        "attention implementations: flash_attention_3, sdpa, eager; with sinks: eager"
    )
    speed = "slow: memory of GPU 0 3300 GB/s, slow, measured 2026-11-21 on driver 580.159.04, NVIDIA H200"
    for arguments, before_date, before_grade in (
        (("check", "--venv", venv), "✓ verified     ", "! speed        "),
        (("envs",), "verified ", "speed "),
    ):
        lines = [line.strip() for line in run_command(*arguments).splitlines()]
        assert before_date + expected in lines
        assert before_grade + speed in lines


def test_json_contains_both(venv: Path, run_command: RunCommand) -> None:
    store(venv, verification(), bench(GOOD))
    checked = msgspec.json.decode(run_command("check", "--venv", venv, "--format", "json"))["data"]
    listed = msgspec.json.decode(run_command("envs", "--format", "json"))["data"]["environments"][0]
    assert checked["made"]["verified"] == listed["verified"] == "passed"
    for found in (checked, listed):
        assert found["verification"]["attention"][0] == "flash_attention_3"
        assert (found["verification"]["driver"], found["benchmark"]["state"]) == (DRIVER, "healthy")


@pytest.mark.parametrize(
    ("lines", "changed"),
    [
        (("[system]", "driver_version = 570.26"), "driver: was 580.159.04, is 570.26"),
        (("[gpu]", "name = NVIDIA H100 PCIe"), "GPUs: was NVIDIA H200, is NVIDIA H100 PCIe"),
    ],
)
def test_changed_driver_or_gpu_makes_both_stale(
    venv: Path, run_command: RunCommand, lines: tuple[str, ...], changed: str
) -> None:
    store(venv, verification(), bench(GOOD))
    output = run_command("check", "--venv", venv, lines=lines)
    assert f"! verified     2026-11-21, out of date ({changed})\n" in output
    assert f"benchmark of 2026-11-21 out of date ({changed})" in output


def test_changed_lock_makes_both_stale(venv: Path) -> None:
    store(venv, verification(lock="old"), bench(GOOD, lock="old"))
    status = verify_status.read_verification_status(venv / "bin/python", DRIVER, GPUS)
    speed = verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS)
    assert status is not None
    assert speed is not None
    assert (status.state, status.changed) == ("stale", f"lock: was old, is {LOCK}")
    assert (speed.state, speed.changed) == (status.state, status.changed)


def test_recorded_machine_has_no_stored_results(venv: Path, run_command: RunCommand) -> None:
    store(venv, verification(), bench(GOOD))
    output = run_command("check", "--venv", venv, "--machine", "h100x8")
    assert "created by envdoctor" not in output
    assert " verified " not in output
    assert re.search(r"no problems in \d{3} checks of h100-80gbx8 \(", output)


def test_unmanaged_environment_is_reported_only_if_verified(
    venv: Path, run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (venv / MARKER).unlink()
    assert " verified " not in run_command("check", "--venv", venv)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert stored_results.verification_path(venv / "bin/python3") == stored_results.verification_path(
        venv / "bin/python"
    )
    store(venv, verification(lock=""))
    assert "✓ verified     2026-11-21 on driver 580.159.04" in run_command("check", "--venv", venv)


def test_failed_probes_are_listed(venv: Path) -> None:
    results = (ProbeResult("sdpa", "unavailable", "", 1.0), ProbeResult("triton_jit", "crashed", "", 1.0))
    store(venv, verification(results=results, required=("sdpa", "trl_grpo")))
    status = verify_status.read_verification_status(venv / "bin/python", DRIVER, GPUS)
    assert status is not None
    assert status.failed == ("sdpa unavailable", "trl_grpo not run", "triton_jit crashed")
    text = verify_status.describe_verification(status)
    assert text.endswith("NVIDIA H200: sdpa unavailable, trl_grpo not run, triton_jit crashed")
    assert text.startswith("verification failed 2026-11-21")


def test_benchmark_state_is_the_worst_grade(venv: Path) -> None:
    def state(*results: BenchmarkResult) -> str:
        store(venv, bench(*results))
        speed = verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS)
        assert speed is not None
        return speed.state

    unknown, failing = measured("gemm", 5.0, "unknown"), measured("gemm", 300.0, "failing")
    assert [state(GOOD), state(GOOD, SLOW), state(GOOD, SLOW, failing), state(unknown)] == [
        "healthy", "slow", "failing", "unknown",
    ]  # fmt: skip
    assert state(GOOD, measured("d2h", None, "not-measured")) == "healthy"  # not a measured problem


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 99}', b'{"schema": 1}', b"\xff\xfe"])
def test_damaged_file_is_ignored(venv: Path, content: bytes) -> None:
    for path in (
        stored_results.verification_path(venv / "bin/python"),
        stored_results.bench_path(venv / "bin/python"),
    ):
        path.write_bytes(content)
    assert verify_status.read_verification_status(venv / "bin/python", DRIVER, GPUS) is None
    assert verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS) is None
    with pytest.raises(BadInput):
        stored_results.read_bench(stored_results.bench_path(venv / "bin/python"))


def test_benchmark_without_a_lock_is_stale(venv: Path) -> None:
    data: dict[str, Any] = msgspec.to_builtins(bench(GOOD))
    del data["lock"]
    stored_results.bench_path(venv / "bin/python").write_bytes(msgspec.json.encode(data))
    speed = verify_status.read_benchmark_status(venv / "bin/python", DRIVER, GPUS)
    assert speed is not None
    assert speed.changed == f"lock: was none, is {LOCK}"


def test_status_line_before_training(venv: Path, fake_nvml: FakeNvml) -> None:
    """`train` prints this line."""
    code = "import sys; from pathlib import Path; from envdoctor.verify.status import status_line\n"
    code += "print(status_line(Path(sys.argv[1])))"

    def line() -> str:
        variables = fake_nvml(machine_ini("h200", "[system]", "count = 2")) | {"PYTHONPATH": str(ROOT)}
        arguments = [sys.executable, "-c", code, str(venv / "bin/python")]
        return subprocess.run(arguments, env=variables, capture_output=True, text=True, check=True).stdout.strip()

    assert line() == "not verified"
    two = (GPUS[0], GPUS[0])
    store(venv, verification(gpus=two), bench(GOOD, gpus=two))
    assert line() == (
        "verified 2026-11-21 on driver 580.159.04, 2 x NVIDIA H200: 1 probe passed; attention implementations: "
        "flash_attention_3, sdpa, eager; with sinks: eager; "
        "speed healthy, measured 2026-11-21 on driver 580.159.04, 2 x NVIDIA H200"
    )


def test_describe_verification_without_a_gpu() -> None:
    line = verify_status.describe_verification(
        VerificationStatus(
            state="passed", when="2026-11-21", driver="", gpus=(), lock="", passed=6, attention=("sdpa",)
        )
    )
    assert line == "verified 2026-11-21 on a machine without a GPU: 6 probes passed; attention implementations: sdpa"


def test_check_of_a_recorded_machine_has_null_results(tmp_path: Path) -> None:
    data = envelope(envdoctor("check", "--machine", "h200", "--format", "json", home=tmp_path))["data"]
    assert data["verification"] is None
    assert data["benchmark"] is None


def test_an_inaccessible_state_directory_has_no_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("x" * 300)))  # no system permits this name
    assert verify_status.read_benchmark_status(tmp_path / "bin/python", "", ()) is None
