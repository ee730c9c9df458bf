"""Do to installs what rented machines do, and print what was lost: nothing, or the cell says what.

    python tests/campaigns/install_faults.py [--only TEXT] [--jobs 2] [--json]

Real processes, real uv, small wheels, temporary homes. For each fault: the current environment still works (its own
interpreter imports its packages at their versions), nothing half-made is current, the next install completes and is
true to its lock, and the message names the cause. Exit code 1 where any cell is a no.
"""

# ruff: noqa: E402  the modules of the tests lie in the folder above

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

from disk_faults import disk_faults
from fault_ground import KILL, Field, Row, at_sync, children, end, lock_this, wait_until
from local_packages import write_wheel
from more_faults import place_faults
from server_faults import servers

Fault = Callable[[Field], Row]

INSTALL = "import os, envdoctor.install.install as i\n"
# Killed at one point of the swap: before it, between the two renames where there is no atomic one, after it.
SWAP = {
    "before the exchange": f"{INSTALL}i.swap_in = lambda *a: os.kill(os.getpid(), 9)",
    "after the exchange": f"{INSTALL}i.retain_previous = lambda *a: os.kill(os.getpid(), 9)",
    "between two renames": (
        "import os, pathlib, envdoctor.install.swap as s\ns.exchange = lambda *a: False\n"
        "rename = pathlib.Path.rename\n"
        "def die(self, to): rename(self, to); str(to).endswith('outgoing') and os.kill(os.getpid(), 9)\n"
        "pathlib.Path.rename = die"
    ),
}


def records(field: Field) -> list[tuple[str, str]]:
    """Step and event of each record that an install writes, counted on one that nothing happens to."""
    ground = field.ground(over=False)
    done = ground.complete()
    assert done.code == 0, done.said
    lines = map(json.loads, ground.paths.journal.read_text().splitlines())
    return [(line["step"], line["event"]) for line in lines]


def kills(field: Field) -> Iterator[tuple[str, Fault]]:
    """SIGKILL after each record of the journal, for a first install and for one over an environment."""
    for number, (step, event) in enumerate(records(field), start=1):
        for over in (False, True):
            name = f"SIGKILL after the {event} of {step}, {'over an environment' if over else 'first install'}"
            yield name, _kill(name, number, step, event, over=over)
    for when, code in SWAP.items():
        name = f"SIGKILL in the swap, {when}"
        yield name, _kill_in_swap(name, when, code)


def _kill(name: str, number: int, step: str, event: str, *, over: bool) -> Fault:
    def fault(field: Field) -> Row:
        ground = field.ground(over=over)
        killed = ground.complete(KILL.format(number=number))
        if killed.code != -signal.SIGKILL:
            return Row(name, message=f"it was not killed: {killed}")
        whole = step == "install" and event == "end"
        told = "unchanged" if whole else f"did not complete: its last record is the {event} of '{step}'"
        row = ground.fault(None, name, told)
        again = ground.complete()
        if "did not complete" in again.said:
            row.message = f"it is told again and again: {again.said[-300:]}"
        return row

    return fault


def _kill_in_swap(name: str, when: str, code: str) -> Fault:
    def fault(field: Field) -> Row:
        ground = field.ground()
        killed = ground.complete(code)
        if killed.code != -signal.SIGKILL:
            return Row(name, message=f"it was not killed: {killed}")
        # Without an atomic exchange there is a moment with no environment: the next install gives it back.
        ground.had = when != "between two renames"
        return ground.fault(None, name, "ended without a word after the start of 'swap'")

    return fault


def power_fails(field: Field) -> Row:
    """Everything dies at once, in the middle of a download."""
    ground = field.ground(cold=True)
    with at_sync(ground) as (process, _):
        for each in (process.pid, *children(process.pid)):
            os.kill(each, signal.SIGKILL)
        process.wait()
    return ground.fault(None, "power failure in the download", "without a word after the start of 'sync'")


def power_fails_in_linking(field: Field) -> Row:
    """Everything dies at once while uv writes the files of a large wheel."""
    name = "power failure while files are written"
    ground = field.ground()
    files = {f"beta/part_{number}.py": b"" for number in range(6000)}
    private = ground.home / "wheels"
    shutil.copytree(ground.wheels, private)
    beta = write_wheel(private, "beta", "2.0", files=files)
    lock_this(ground, "beta", beta)
    ground.extra = {"PIP_FIND_LINKS": str(private), "UV_LINK_MODE": "copy", "UV_CACHE_DIR": str(ground.home / "c")}
    process = ground.begin()
    written = ground.paths.building / "lib"
    wait_until(lambda: sum(len(names) for _, _, names in os.walk(written)) > 500, 60)
    for each in (process.pid, *children(process.pid)):
        os.kill(each, signal.SIGKILL)
    end(process)
    return ground.fault(None, name, "without a word after the start of 'sync'")


def out_of_memory(field: Field) -> Row:
    """The kernel takes uv alone."""
    ground = field.ground(cold=True)
    with at_sync(ground) as (process, web):
        for each in children(process.pid):
            os.kill(each, signal.SIGKILL)
        web.stalled = False
        said = end(process)
    return ground.fault(said, "uv is killed (out of memory)", "uv was killed by SIGKILL")


def faults(field: Field) -> Iterator[tuple[str, Fault]]:
    """Every fault with its name."""
    yield from kills(field)
    yield "power failure in the download", power_fails
    yield "power failure while files are written", power_fails_in_linking
    yield "uv is killed (out of memory)", out_of_memory
    yield from disk_faults()
    yield from servers()
    yield from place_faults()


def tried(name: str, fault: Fault, field: Field) -> tuple[Row, str]:
    """One fault, and why it could not be tried; a campaign that falls over has found something, too."""
    began = time.monotonic()
    try:
        row = fault(field)
    except PermissionError as error:
        return Row(name), f"not tried: {error}"
    except Exception as error:
        return Row(name, message=f"{type(error).__name__}: {error}"), ""
    print(f"{time.monotonic() - began:5.1f} s  {'yes' if row.good else 'NO '}  {row.fault}", file=sys.stderr)
    return row, ""


def table(rows: list[tuple[Row, str]]) -> str:
    """One line a fault, then what is behind each no."""
    width = max(len(row.fault) for row, _ in rows)
    lines = [f"{'fault':{width}}  current works  nothing half-made  next completes  message names the cause"]
    for row, skipped in rows:
        cells = ["no" if cell else "yes" for cell in (row.current, row.whole, row.next, row.message)]
        shown = skipped or f"{cells[0]:13}  {cells[1]:17}  {cells[2]:14}  {cells[3]}"
        lines.append(f"{row.fault:{width}}  {shown}")
    for row, _ in rows:
        columns = vars(row) if not row.good else ()
        lines += [
            f"\n{row.fault}: {name}: {getattr(row, name)}"
            for name in columns
            if name != "fault" and getattr(row, name)
        ]
    good = sum(row.good for row, skipped in rows if not skipped)
    skipped_rows = sum(bool(skipped) for _, skipped in rows)
    return "\n".join(
        [*lines, f"\n{good} of {len(rows) - skipped_rows} faults lost nothing; {skipped_rows} not tried"]
    )


def main() -> None:
    """Prepare once, try all of them, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose name holds this text")
    parser.add_argument("--jobs", type=int, default=2, help="faults at the same time")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--table", action="store_true", help="a table for people (the default)")
    form.add_argument("--json", action="store_true", help="rows as JSON")
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "XDG_"))]:
        del os.environ[name]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="envdoctor-faults-", ignore_cleanup_errors=True) as folder:
        field = Field(Path(folder))
        field.prepare()
        wanted = [(name, fault) for name, fault in faults(field) if options.only in name]
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(lambda each: tried(*each, field), wanted))
    if options.json:
        print(json.dumps([vars(row) | {"not_tried": skipped} for row, skipped in rows], indent=1))
    else:
        print(table(rows))
        print(f"{time.monotonic() - began:.0f} s, {options.jobs} at a time")
    sys.exit(not all(row.good for row, _ in rows))


if __name__ == "__main__":
    main()
