"""`envdoctor health`: severities, expectations, Xids, and metrics that the reference parser of Prometheus reads."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import threading
import unicodedata
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.cases import each_case
from support.command import envdoctor
from support.health_scripts import XID

from envdoctor.commands.health import HealthReport, HealthRequest, run
from envdoctor.commands.health_metrics import metrics_text, write_metrics
from envdoctor.core.errors import BadInput
from envdoctor.machine.kernel_log import read_xids
from envdoctor.machine.recorded import read_recorded

GPU = "gpus.0."
RECOVERY = "NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action"
CASES = {
    "healthy": ([], "healthy", ""),
    "uncorrected ECC errors": ([f"{GPU}ecc_uncorrected=3"], "reset", "GPU002"),
    "remapping failed": (
        [f'{GPU}remapped_rows={{"correctable":0,"uncorrectable":9,"pending":false,"failed":true}}'],
        "isolate", "GPU003",
    ),
    "remapping pending": (
        [f'{GPU}remapped_rows={{"correctable":0,"uncorrectable":1,"pending":true,"failed":false}}'],
        "reset", "GPU003",
    ),
    "driver and library differ": (["driver.library=580.1.1"], "reset", "DRV001"),
    "compute mode": ([f"{GPU}compute_mode=prohibited"], "isolate", "GPU005"),
    "heat": ([f'{GPU}throttle_reasons=["hw-thermal"]'], "monitor", "GPU006"),
}  # fmt: skip


def health(*, facts: list[str] | None = None, **fields: object) -> tuple[HealthReport, int]:
    result = run(HealthRequest(machine="h200", facts=tuple(facts or ()), **fields))
    assert isinstance(result.data, HealthReport)
    return result.data, result.exit_code


@each_case("name", CASES)
def test_severity_of_a_finding(name: str) -> None:
    facts, severity, rule = CASES[name]
    report, exit_code = health(facts=facts)
    assert report.severity == severity
    assert not rule or rule in {item.id for item in report.items if item.action == severity}
    assert exit_code == (1 if severity in ("isolate", "reset") else 0)


def test_expected_gpus_and_driver() -> None:
    assert health(gpus=1, driver="580.159.04")[0].severity == "healthy"
    report, _ = health(gpus=8, driver="570.26")
    assert [item.id for item in report.items] == ["COUNT", "DRIVER"]


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("[Thu Nov 26 04:30:00 2026] NVRM: GPU 0000:04:00.0: GPU has fallen off the bus.", "isolate"),
        ("NVRM: GPU at 0000:04:00.0 has fallen off the bus.", "isolate"),
        ("NVRM: RmInitAdapter failed! (0x62:0x40:2477)", "isolate"),
        ("nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30", "isolate"),
        ("nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 20034, Non-fatal, Link 30", "monitor"),
        ("NVRM: Xid (PCI:0000:04:00):79", "isolate"), ("NVRM: Xid 79", "isolate"),
        ("NV\u200bRM: Xid (PCI:0000:04:00): 79", "isolate"), ("Xid (PCI:0000:04:00): 79, GPU is lost", "isolate"),
        ("NVRM: Xid (PCI:0000:04:00): 99999999999999999999999, x", "monitor"),
        (f"{RECOVERY} changed from 0x0 (None) to 0x2 (Node Reboot Required)", "reset"),
        (f"{RECOVERY} changed from 0x2 (Node Reboot Required) to 0x0 (None)", "monitor"),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module", "healthy"),
        ("NVRM: gpuClearFbhubPoisonIntrForBug2924523_GA100: FBHUB Interrupt detected. Clearing it.", "healthy"),
        ("NVRM: GPU Board Serial Number: 1234567890", "healthy"), ("nvidia: module license 'NVIDIA'", "healthy"),
        ("NVRM: a message of a later driver", "monitor"), ("NVRM: Xid (PCI:0000:04:00): none", "monitor"),
        ("nvrm: xid (pci:0000:04:00): 79", "isolate"), ("NVRM: Xid 0", "monitor"), ("SXid 12", "monitor"),
        ("pcieport 0000:04:00.0: device has fallen off the bus", "monitor"),
        ("NVRM: Xid (PCI:0000:04:00): 31, x; NVRM: Xid (PCI:0000:05:00): 79, y", "isolate"),
    ],
)  # fmt: skip
def test_other_messages_of_the_kernel_log(line: str, severity: str, tmp_path: Path) -> None:
    (tmp_path / "k.log").write_text(line + "\n")
    assert health(gpus=1, kernel_log=str(tmp_path / "k.log"))[0].severity == severity


def test_a_message_in_no_table_is_shown(tmp_path: Path) -> None:
    lines = [f"[   {second}.000000] NVRM: a message of a later driver {'x' * 200}" for second in (1, 2)]
    (tmp_path / "k.log").write_text("\n".join([*lines, "[ 3.0] NVRM: RmInitAdapter failed! (0x62)"]))
    report, _ = health(gpus=1, kernel_log=str(tmp_path / "k.log"), xid_hours=10**6)
    lost, unknown = (item.message for item in report.items)
    assert lost == "the kernel log reports: the driver did not initialise a GPU"
    start = "the kernel log reports 2 times: a message of the driver that is in no table: NVRM: a message of a later"
    assert unknown.startswith(start)
    assert len(unknown) < 200
    (tmp_path / "k.log").write_text("".join(f"NVRM: message {number}\n" for number in range(40)))
    items = health(gpus=1, kernel_log=str(tmp_path / "k.log"))[0].items
    assert [items[0].message[-15:], items[-1].message[-9:], len(items)] == ["NVRM: message 0", "35 others", 6]


@pytest.mark.parametrize("driver", ['x"; rm', "580", "580.x", "newest", "580.159", "\uff15\uff18\uff10.159.04"])
def test_an_expected_driver_is_a_complete_version(driver: str) -> None:
    with pytest.raises(BadInput, match="--driver"):
        health(driver=driver)
    assert health(driver="580.159.04\r\n")[0].severity == "healthy"


def write_log(path: Path, *codes: int) -> str:
    path.write_text("<6>[    0.000000] Linux version 6.8.0\n" + "".join(XID.format(code=code) for code in codes))
    return str(path)


@each_case(
    ("codes", "severity"),
    [((), "healthy"), ((13, 31, 43, 45, 63, 94), "monitor"), ((999,), "monitor"), ((31, 95), "reset"),
     ((48,), "reset"), ((119, 119), "reset"), ((95, 79), "isolate"), ((64,), "isolate")],
)  # fmt: skip
def test_severity_of_xids(codes: tuple[int, ...], severity: str, tmp_path: Path) -> None:
    report, _ = health(kernel_log=write_log(tmp_path / "log", *codes), xid_hours=10**6)
    assert report.severity == severity


def test_old_xids_are_ignored_and_forms_of_the_log(tmp_path: Path) -> None:
    now = 7300
    log = tmp_path / "log"
    lines = (
        f"6,1,{int((now - 10) * 1e6)},-;NVRM: Xid (PCI:0000:41:00): 79, pid=1, fell",
        f"<3>[{now - 7200:12.6f}] NVRM: Xid (0000:41:00): 48, DBE",
        "Nov 26 10:00:00 node kernel: NVRM: Xid (PCI:0000:41:00): 31, pid=1",
        "NVRM: GPU at PCI:0000:41:00: GPU-0e3c1b7a-2f61-4f0e-9d7c-0123456789ab",
    )
    log.write_text("\n".join(lines))
    ages = [(xid.code, None if xid.age is None else round(xid.age)) for xid in read_xids(str(log)).value or ()]
    assert [code for code, _ in ages] == [79, 48, 31]
    assert ages[2][1] is None
    assert [age for _, age in ages[:2]] == [0, 7190]
    assert {item.message.split()[1] for item in health(kernel_log=str(log), xid_hours=1)[0].items} == {"79", "31"}
    with pytest.raises(BadInput):
        read_xids(str(tmp_path / "missing"))


def metrics(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = list(text_string_to_metric_families(text))
    assert all(family.type == "gauge" and family.documentation for family in families)
    assert len({family.name for family in families}) == len(families)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_metrics_are_read_by_the_reference_parser(tmp_path: Path) -> None:
    path = tmp_path / "envdoctor.prom"
    log = write_log(tmp_path / "log", 79, 79, 31)
    report, _ = health(
        facts=[f"{GPU}ecc_uncorrected=3"], gpus=2, kernel_log=log, xid_hours=10**6, prometheus=str(path)
    )
    found = metrics(path.read_text())
    gpu = (("gpu", "0"), ("name", "NVIDIA H200"))
    assert found["envdoctor_health_severity", ()] == 3
    assert found["envdoctor_gpus_expected", ()] == 2
    assert found["envdoctor_gpu_ecc_uncorrected_errors", gpu] == 3
    assert found["envdoctor_gpu_memory_total_bytes", gpu] == report.machine.gpus.value[0].memory_total.value  # type: ignore[index]
    assert found["envdoctor_xid_messages", (("xid", "79"),)] == 2
    assert found["envdoctor_health_problem", (("action", "reset"), ("id", "GPU002"))] == 1
    assert oct(path.stat().st_mode & 0o777) == "0o644"
    assert {each.name for each in tmp_path.iterdir()} == {"log", "envdoctor.prom"}


def test_names_are_escaped() -> None:
    machine = read_recorded("h200")
    text = metrics_text(machine, "monitor", actions=[('a"\\\nb', "monitor")], xids={}, expected=0, now=1.5)
    assert ("envdoctor_health_problem", (("action", "monitor"), ("id", 'a"\\\nb'))) in metrics(text)


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path, ended = tmp_path / "e.prom", threading.Event()
    first = "# HELP envdoctor_a A.\n"
    write_metrics(path, first + "a 0\n" * 20_000)
    sizes = set()

    def read() -> None:
        while not ended.is_set():
            sizes.add(len(path.read_text()))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(100):
        write_metrics(path, first + "a 1\n" * 20_000)
    ended.set()
    reader.join()
    assert sizes == {80_000 + len(first)}
    assert [each.name for each in tmp_path.iterdir()] == ["e.prom"]


def test_metrics_of_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    done = envdoctor("health", "--machine", "h200", "--prometheus", tmp_path / "no/e.prom", home=tmp_path)
    assert (done.returncode, "hint: " in done.stderr) == (2, True)


def test_the_first_line_is_the_reason(tmp_path: Path) -> None:
    done = envdoctor("health", "--machine", "h200", "--gpus", "8", home=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "✗ isolate: COUNT 1 of 8 GPUs are usable")
    done = envdoctor("health", "--machine", "h200", "--format", "json", home=tmp_path)
    data = json.loads(done.stdout)["data"]
    assert (done.returncode, data["severity"], data["xids"]["state"]) == (0, "healthy", "unreadable")


def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    """The linter of Prometheus, where it is installed."""
    import shutil

    if not shutil.which("promtool"):
        pytest.skip("promtool not installed: apt-get install prometheus")
    text = metrics_text(read_recorded("h100x8"), "healthy", actions=[], xids={}, expected=8, now=1.0)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@each_case("content", ["echo precious\n", "# HELP node_x X.\n", "\x00\x01", "#"])
def test_metrics_replace_no_other_file(content: str, tmp_path: Path) -> None:
    path = tmp_path / "prolog.sh"
    path.write_text(content)
    with pytest.raises(BadInput, match="no file with metrics"):
        health(prometheus=str(path))
    assert path.read_text() == content


@each_case("kind", ["link", "broken link", "fifo", "device", "directory"])
def test_metrics_replace_a_regular_file_only(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / kind.replace(" ", "-")
    folder.mkdir()
    path, victim = folder / "e.prom", folder / "victim"
    victim.write_text("precious")
    if kind == "device":
        if os.geteuid():
            pytest.skip("only root can create a device")
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(victim if kind == "link" else folder / "missing")
    before = path.lstat()
    done = envdoctor("health", "--machine", "h200", "--prometheus", path, home=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "is not a regular file" in done.stderr
    assert "expected: " in done.stderr
    assert "hint: " in done.stderr
    assert (path.lstat().st_mode, path.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert victim.read_text() == "precious"
    assert {each.name for each in folder.iterdir()} == {"e.prom", "victim"}


def test_control_characters_are_not_in_the_metrics(tmp_path: Path) -> None:
    path = tmp_path / "e.prom"
    health(facts=[f'{GPU}name="NVIDIA\\u001b[31m H200\\r\\u0000\\u0085"'], prometheus=str(path))
    text = path.read_bytes().decode()
    assert not [character for character in text if unicodedata.category(character) == "Cc" and character != "\n"]
    assert ("envdoctor_gpu_usable", (("gpu", "0"), ("name", "NVIDIA[31m H200 "))) in metrics(text)


def test_a_kernel_log_that_is_no_text_is_not_judged(tmp_path: Path) -> None:
    log, text = tmp_path / "log", XID.format(code=79)
    for data in (text.encode("utf-16"), text.encode("utf-16-be"), gzip.compress(text.encode()), b"", b" \n"):
        log.write_bytes(data)
        done = envdoctor("health", "--machine", "h200", "--kernel-log", log, home=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), data
        assert "Xid messages were not read" in done.stderr
        assert "hint: " in done.stderr
    log.write_bytes(b"\0" * 512 + b"\xff\n" + text.encode())  # a log after a power failure
    done = envdoctor("health", "--machine", "h200", "--kernel-log", log, home=tmp_path)
    assert (done.returncode, done.stdout.split(":")[0]) == (1, "✗ isolate")


def test_the_age_of_a_message_in_a_file_is_that_at_its_end(tmp_path: Path) -> None:
    """The file can be of another machine: the start of this machine is no reference."""
    for last, words in ((6, "✗ isolate"), (200_000, "✓ healthy")):
        (tmp_path / "log").write_text(f"{XID.format(code=79)}6,1001,{last}000000,-;usb 1-1: new device\n")
        done = envdoctor("health", "--machine", "h200", "--kernel-log", tmp_path / "log", home=tmp_path)
        assert done.stdout.split(":")[0] == words, last


def test_a_driver_without_a_gpu_is_not_healthy() -> None:
    report, exit_code = health(facts=["gpus=[]"])
    assert (report.severity, exit_code) == ("isolate", 1)
