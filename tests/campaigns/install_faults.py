"""Inject faults into installs and print which checks pass afterwards.

    python tests/campaigns/install_faults.py [--only TEXT] [--jobs 2] [--json]

Each fault uses real processes, uv, small wheels and a temporary home. The checks: the current environment still works
(its own interpreter imports its packages at their versions); it is complete and matches its lock; the next install
completes; the message names the cause. The exit code is 1 if a check fails.
"""

# ruff: noqa: E402  the imported modules are in the parent folder

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from campaigns.disk_faults import disk_faults
from campaigns.fault_injection import (
    KILL_AFTER_RECORD,
    Campaign,
    FaultResult,
    descendants,
    install_during_download,
    set_locked_hash,
    wait_for_exit,
    wait_until,
)
from campaigns.local_faults import local_faults
from campaigns.server_faults import server_faults
from support.local_packages import write_wheel

Fault = Callable[[Campaign], FaultResult]

INSTALL = "import os, envdoctor.install.install as i, envdoctor.install.swap as s\n"
# Code that kills the install during the swap. The last case simulates a system without an atomic exchange.
KILL_IN_SWAP = {
    "before the exchange": f"{INSTALL}s.swap_in = lambda *a: os.kill(os.getpid(), 9)",
    "after the exchange": f"{INSTALL}s.retain_previous = lambda *a: os.kill(os.getpid(), 9)",
    "between two renames": (
        "import os, pathlib, envdoctor.install.swap as s\ns.exchange = lambda *a: False\n"
        "rename = pathlib.Path.rename\n"
        "def kill(self, to): rename(self, to); str(to).endswith('outgoing') and os.kill(os.getpid(), 9)\n"
        "pathlib.Path.rename = kill"
    ),
}


def journal_records(campaign: Campaign) -> list[tuple[str, str]]:
    """The step and event of each record that an install without faults writes."""
    home = campaign.create_home(with_environment=False)
    result = home.run_install()
    assert result.exit_code == 0, result.output
    entries = map(json.loads, home.paths.journal.read_text().splitlines())
    return [(entry["step"], entry["event"]) for entry in entries]


def kills(campaign: Campaign) -> Iterator[tuple[str, Fault]]:
    """SIGKILL after each record of the journal, with and without an environment, and during the swap."""
    for number, (step, event) in enumerate(journal_records(campaign), start=1):
        for with_environment in (False, True):
            kind = "over an environment" if with_environment else "first install"
            name = f"SIGKILL after the {event} of {step}, {kind}"
            yield name, _kill(name, number, step, event, with_environment=with_environment)
    for moment, code in KILL_IN_SWAP.items():
        name = f"SIGKILL in the swap, {moment}"
        # Without an atomic exchange there is no environment between the renames; the next install restores it.
        yield name, _kill_in_swap(name, code, environment_exists=moment != "between two renames")


def _kill(name: str, number: int, step: str, event: str, *, with_environment: bool) -> Fault:
    def fault(campaign: Campaign) -> FaultResult:
        home = campaign.create_home(with_environment=with_environment)
        killed = home.run_install(KILL_AFTER_RECORD.format(number=number))
        if killed.exit_code != -signal.SIGKILL:
            return FaultResult(name, message=f"the install was not killed: {killed}")
        completed = step == "install" and event == "end"
        result = home.check(None, name, "unchanged" if completed else _last_record(step, event))
        repeated = home.run_install()
        if "did not complete" in repeated.output:
            result.message = f"the message is repeated: {repeated.output[-300:]}"
        return result

    return fault


def _kill_in_swap(name: str, code: str, *, environment_exists: bool) -> Fault:
    def fault(campaign: Campaign) -> FaultResult:
        home = campaign.create_home()
        killed = home.run_install(code)
        if killed.exit_code != -signal.SIGKILL:
            return FaultResult(name, message=f"the install was not killed: {killed}")
        home.had_environment = environment_exists
        return home.check(None, name, _last_record("swap", "start"))

    return fault


def _last_record(step: str, event: str) -> str:
    return f"did not complete: its last record is the {event} of '{step}'"


def power_failure_in_download(campaign: Campaign) -> FaultResult:
    """All processes are killed at once during a download."""
    home = campaign.create_home(empty_cache=True)
    with install_during_download(home) as (process, _):
        for pid in (process.pid, *descendants(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    return home.check(None, "power failure during the download", _last_record("sync", "start"))


def power_failure_in_linking(campaign: Campaign) -> FaultResult:
    """All processes are killed at once while uv writes the files of a large wheel."""
    home = campaign.create_home()
    wheels = home.home / "wheels"
    shutil.copytree(home.wheels, wheels)
    files = {f"beta/part_{number}.py": b"" for number in range(6000)}
    set_locked_hash(home, "beta", write_wheel(wheels, "beta", "2.0", files=files))
    home.extra_variables = {
        "PIP_FIND_LINKS": str(wheels), "UV_LINK_MODE": "copy", "UV_CACHE_DIR": str(home.home / "c"),
    }  # fmt: skip
    process = home.start_install()
    library = home.paths.building / "lib"
    wait_until(lambda: sum(len(names) for _, _, names in os.walk(library)) > 500, 60)
    for pid in (process.pid, *descendants(process.pid)):
        os.kill(pid, signal.SIGKILL)
    wait_for_exit(process)
    return home.check(None, "power failure while files are written", _last_record("sync", "start"))


def out_of_memory(campaign: Campaign) -> FaultResult:
    """The OOM killer of the kernel kills uv only."""
    home = campaign.create_home(empty_cache=True)
    with install_during_download(home) as (process, index):
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        index.stalled = False
        failed = wait_for_exit(process)
    return home.check(failed, "uv is killed (out of memory)", "uv was killed by SIGKILL")


def faults(campaign: Campaign) -> Iterator[tuple[str, Fault]]:
    """All faults with their names."""
    yield from kills(campaign)
    yield "power failure during the download", power_failure_in_download
    yield "power failure while files are written", power_failure_in_linking
    yield "uv is killed (out of memory)", out_of_memory
    yield from disk_faults()
    yield from server_faults()
    yield from local_faults()


def run_fault(name: str, fault: Fault, campaign: Campaign) -> tuple[FaultResult, str]:
    """The result of one fault, and the reason if it cannot be injected. An exception counts as a failed check."""
    started = time.monotonic()
    try:
        result = fault(campaign)
    except PermissionError as error:
        return FaultResult(name), f"skipped: {error}"
    except Exception as error:
        return FaultResult(name, message=f"{type(error).__name__}: {error}"), ""
    print(
        f"{time.monotonic() - started:5.1f} s  {'yes' if result.passed else 'NO '}  {result.fault}", file=sys.stderr
    )
    return result, ""


def format_table(results: list[tuple[FaultResult, str]]) -> str:
    """One line per fault, then the reason of each failed check."""
    width = max(len(result.fault) for result, _ in results)
    lines = [
        f"{'fault':{width}}  environment works  complete, matches lock  next install completes  message names cause"
    ]
    for result, skipped in results:
        checks = (result.environment, result.integrity, result.next_install, result.message)
        cells = ["no" if reason else "yes" for reason in checks]
        columns = f"{cells[0]:17}  {cells[1]:22}  {cells[2]:22}  {cells[3]}"
        lines.append(f"{result.fault:{width}}  {skipped or columns}")
    for result, _ in results:
        reasons = {check: reason for check, reason in vars(result).items() if check != "fault" and reason}
        lines += [f"\n{result.fault}: {check}: {reason}" for check, reason in reasons.items()]
    skipped_count = sum(bool(skipped) for _, skipped in results)
    passed = sum(result.passed for result, skipped in results if not skipped)
    return "\n".join(
        [*lines, f"\n{passed} of {len(results) - skipped_count} faults passed all checks; {skipped_count} skipped"]
    )


def main() -> None:
    """Prepare the campaign, run the faults, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults whose name contains TEXT")
    parser.add_argument("--jobs", type=int, default=2, help="number of faults that run concurrently")
    output_format = parser.add_mutually_exclusive_group()
    output_format.add_argument("--table", action="store_true", help="print a table (the default)")
    output_format.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "XDG_"))]:
        del os.environ[name]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="envdoctor-faults-", ignore_cleanup_errors=True) as folder:
        campaign = Campaign(Path(folder))
        campaign.prepare()
        selected = [(name, fault) for name, fault in faults(campaign) if options.only in name]
        with ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(lambda item: run_fault(*item, campaign), selected))
    if options.json:
        print(json.dumps([vars(result) | {"skipped": skipped} for result, skipped in results], indent=1))
    else:
        print(format_table(results))
        print(f"{time.monotonic() - started:.0f} s, {options.jobs} concurrent faults")
    sys.exit(not all(result.passed for result, _ in results))


if __name__ == "__main__":
    main()
