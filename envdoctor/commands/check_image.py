"""`envdoctor check --image`: whether a container image runs on a machine, before it is pulled."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from envdoctor.core.errors import exit_code
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine
from envdoctor.core.results import CommandResult
from envdoctor.manifests.images import Image, judge_image, read_image
from envdoctor.manifests.images.compatibility import Support, driver_compatibility
from envdoctor.manifests.images.records import ImageContext

Verdict = Literal["runs", "limited", "no", "unknown"]


class ImageCheck(Record, frozen=True, kw_only=True):
    """An image, the machine that is to run it, and the verdict."""

    image: Image
    machine: Machine
    verdict: Verdict
    compatibility: Support  # of the driver with the image's CUDA
    findings: tuple[Finding, ...]


def check_image(image: str, machine: Machine, options: tuple[str, ...] = ()) -> CommandResult:
    """Judge an image, given as `read_image` takes it, on a machine; `options` of the command name the machine."""
    read = read_image(image, machine, f"{datetime.now(UTC):%Y-%m-%d}")
    context = ImageContext(read.image, read.stack, machine, options)
    findings = judge_image(context)
    verdict = _verdict(context, findings)
    result = ImageCheck(
        image=read.image,
        machine=machine,
        verdict=verdict,
        compatibility=driver_compatibility(context).kind,
        findings=findings,
    )
    return CommandResult(result, exit_code(failed=verdict == "no", undecided=verdict == "unknown"))


def _verdict(context: ImageContext, findings: tuple[Finding, ...]) -> Verdict:
    statuses = {finding.status for finding in findings}
    if statuses & {"error", "crashed"}:
        return "no"
    machine = context.machine
    is_machine_known = bool(machine.gpus.value) and bool(machine.driver.version.value)
    if "unknown" in statuses or (context.image.uses_gpu and not is_machine_known):
        return "unknown"
    compatibility = driver_compatibility(context).kind
    if context.image.uses_gpu and compatibility == "unknown":
        return "unknown"
    return "limited" if "warning" in statuses or compatibility == "minor" else "runs"
