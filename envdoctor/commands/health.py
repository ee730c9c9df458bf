"""`envdoctor health`: whether a scheduler may use this node: isolate, reset, monitor or healthy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from envdoctor.commands.health_metrics import metrics_text, write_metrics
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, EnvdoctorError
from envdoctor.core.options import FactOption, MachineOption, Option
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Fact, Machine, unreadable
from envdoctor.core.results import CommandResult
from envdoctor.knowledge.health import ACTIONS, UNKNOWN_MESSAGE, Action, finding_action, message_action, xid_action
from envdoctor.machine.kernel_log import Xid, read_xids
from envdoctor.machine.select import select_machine
from envdoctor.rules import evaluate

HOUR = 3600
MESSAGES_SHOWN = 5  # of those that are in no table
DRIVER = lazy_pattern(r"[0-9]{3}(?:\.[0-9]{1,3}){1,2}")
# Rules on how programs and builds find files, which say nothing about a node.
IGNORED = ("HOST004", "HOST005", "HOST006", "HOST009", "GPU007", "GPU013", "ENV", "PY")


class HealthRequest(Record, frozen=True, kw_only=True):
    """Exit code 1 means that the node should not run jobs: the severity is isolate or reset.

    `envdoctor export --as slurm-prolog` (slurm-health-check, nhc) prints scripts that call this command.

    Example: envdoctor health --gpus 8 --prometheus /var/lib/node_exporter/textfile_collector/envdoctor.prom
    """

    gpus: Annotated[int, Option("--gpus", "The number of GPUs that the node must have.", "N", minimum=0)] = 0
    driver: Annotated[str, Option("--driver", "The driver version that the node must have.", "VERSION")] = ""
    prometheus: Annotated[
        str, Option("--prometheus", "Write metrics for node_exporter's textfile collector.", "FILE")
    ] = ""
    kernel_log: Annotated[
        str, Option("--kernel-log", "Read Xid messages from this file, not from /dev/kmsg.", "FILE")
    ] = ""
    xid_hours: Annotated[int, Option("--xid-hours", "Ignore older Xid messages.", "N", minimum=1)] = 24
    machine: MachineOption = ""
    facts: FactOption = ()


class HealthItem(Record, frozen=True):
    """One observation and its action. `id` is a rule, XID, COUNT or DRIVER."""

    action: Action
    id: str
    message: str


class HealthReport(Record, frozen=True, kw_only=True):
    """The severity of a node: that of its worst item."""

    severity: Literal["isolate", "reset", "monitor", "healthy"]
    items: tuple[HealthItem, ...]  # worst first
    machine: Machine
    xids: Fact[tuple[Xid, ...]]
    expected_gpus: int
    written: str = ""  # the file with metrics


def run(request: HealthRequest) -> CommandResult:
    """Examine the node and write its metrics."""
    machine = select_machine(request.machine, request.facts)
    _require_complete_version(request.driver, machine)
    skip_log = request.machine and not request.kernel_log
    xids: Fact[tuple[Xid, ...]] = (
        unreadable("recorded machine", "has no kernel log") if skip_log else read_xids(request.kernel_log)
    )
    items = tuple(sorted(_items(request, machine, xids), key=lambda item: (ACTIONS.index(item.action), item.id)))
    if not items:
        _require_facts(machine)
    report = HealthReport(
        severity=items[0].action if items else "healthy",
        items=items,
        machine=machine,
        xids=xids,
        expected_gpus=request.gpus,
        written=request.prometheus,
    )
    if request.prometheus:
        actions = tuple((item.id, item.action) for item in items)
        text = metrics_text(
            machine,
            report.severity,
            actions=actions,
            xids=_codes(request, xids),
            expected=request.gpus,
            now=time.time(),
        )
        write_metrics(Path(request.prometheus), text)
    return CommandResult(report, EXIT_NO if report.severity in ("isolate", "reset") else EXIT_OK)


def _require_complete_version(expected: str, machine: Machine) -> None:
    """Raise an error for a part of a version: it would isolate every node. `580.95` is one, and part of 580.95.05."""
    version = expected.strip()
    is_part = (machine.driver.version.value or "").startswith(f"{version}.")
    if expected and (is_part or not DRIVER.fullmatch(version)):
        raise BadInput(
            f"--driver {expected!a} is no complete version of a driver",
            expected="a version such as 580.159.04",
            hint="nvidia-smi --query-gpu=driver_version --format=csv,noheader",
        )


def _require_facts(machine: Machine) -> None:
    """Raise an error if nothing can be decided, because the driver or the GPUs could not be read."""
    for name, fact in (("driver", machine.driver.version), ("GPUs", machine.gpus)):
        if fact.state == "unreadable":
            raise EnvdoctorError(
                f"{name}: {fact.note} ({fact.source})", expected="facts that can be read", hint="envdoctor check"
            )


def _items(request: HealthRequest, machine: Machine, xids: Fact[tuple[Xid, ...]]) -> Iterator[HealthItem]:
    for finding in evaluate(machine):
        action = None if finding.id.startswith(IGNORED) else finding_action(finding)
        if action:
            yield HealthItem(action, finding.id, finding.message)
    yield from _expectations(request, machine)
    for code, number in sorted(_codes(request, xids).items()):
        action, title = xid_action(code)
        times = f" {number} times" if number > 1 else ""
        yield HealthItem(action, "XID", f"Xid {code}{times} in the kernel log: {title}")
    messages = Counter((xid.message, xid.text) for xid in _recent(request, xids) if xid.message)
    unknown = [key for key in messages if key[1]]
    for key in unknown[MESSAGES_SHOWN:]:
        del messages[key]
    if len(unknown) > MESSAGES_SHOWN:
        messages[UNKNOWN_MESSAGE, f"{len(unknown) - MESSAGES_SHOWN} others"] = 1
    for (message, text), number in messages.items():
        action, title = message_action(message)
        times = f" {number} times" if number > 1 else ""
        shown = f": {text}" if text else ""
        yield HealthItem(action, "KLOG", f"the kernel log reports{times}: {title}{shown}")


def _expectations(request: HealthRequest, machine: Machine) -> Iterator[HealthItem]:
    usable = [gpu for gpu in machine.gpus.value or () if gpu.name.state == "known"]
    if request.gpus and len(usable) != request.gpus:
        reason = f" ({machine.gpus.note})" if machine.gpus.note else ""
        yield HealthItem("isolate", "COUNT", f"{len(usable)} of {request.gpus} GPUs are usable{reason}")
    driver = machine.driver.version.value
    if driver and not usable and not request.gpus and machine.gpus.state == "known":
        yield HealthItem("isolate", "COUNT", f"no GPU is usable, although the driver {driver} is loaded")
    if request.driver and driver != request.driver.strip():
        yield HealthItem("isolate", "DRIVER", f"driver {driver or 'unknown'}, expected {request.driver.strip()}")


def _codes(request: HealthRequest, xids: Fact[tuple[Xid, ...]]) -> dict[int, int]:
    """The recent Xids and their numbers. A message without a time counts."""
    return dict(Counter(xid.code for xid in _recent(request, xids) if xid.code))


def _recent(request: HealthRequest, xids: Fact[tuple[Xid, ...]]) -> Iterator[Xid]:
    limit = request.xid_hours * HOUR
    return (xid for xid in xids.value or () if xid.age is None or xid.age <= limit)
