"""Renderer of `envdoctor check --image`: the verdict, what is known of the image, and the findings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.commands.check_image import ImageCheck
from envdoctor.manifests.images import Image
from envdoctor.output.check_status import STYLES
from envdoctor.output.display import display
from envdoctor.output.findings import finding_lines
from envdoctor.output.text import Column, Part, Rows, Text

VERDICTS = {
    "runs": ("✓", "runs on"),
    "limited": ("!", "runs with limits on"),
    "no": ("✗", "does not run on"),
    "unknown": ("?", "is not judged for"),
}
DRIVERS = {
    "full": "supports CUDA {cuda} of the image",
    "minor": "runs native code of CUDA {cuda} (minor-version compatibility)",
    "forward": "with cuda-compat of the image for CUDA {cuda} (forward compatibility)",
    "none": "does not support CUDA {cuda} of the image",
    "unknown": "the CUDA version of the image, or its driver, is unknown",
}
MARKS = {"error": "✗", "crashed": "✗", "warning": "!", "unknown": "?"}
PARTS = {"IMG001": "platform", "IMG002": "start", "IMG003": "driver", "IMG004": "driver", "TORCH005": "driver",
         "IMG006": "image", "IMG007": "image", "IMG008": "driver"}  # fmt: skip
SHOWN_PACKAGES = ("torch", "vllm", "sglang", "transformers", "trl")


def render_image_check(data: ImageCheck) -> list[Part]:
    """The verdict first, then one line for each part, then the problems."""
    mark, words = VERDICTS[data.verdict]
    place = data.machine.name or "this machine"
    driver = data.machine.driver.version.value
    with_driver = f" with driver {driver}" if driver else ""
    parts: list[Part] = [
        Text.assemble((f"{mark} ", STYLES[mark]), (data.image.reference, "title"), f" {words} {place}{with_driver}")
    ]
    rows = Rows(Column(""), Column(""), header=False)
    for name, fallback, text in _lines(data):
        shown = _mark(data, name) or fallback
        rows.add_row(Text.assemble((shown, STYLES[shown]), f" {name}"), Text(text))
    parts.append(rows)
    problems = [finding for finding in data.findings if finding.status != "info" or finding.fix]
    notes = [finding for finding in data.findings if finding not in problems]
    shown_findings = [*problems, *notes]
    parts += [Text()] if shown_findings else []
    return [*parts, *(line for each in shown_findings for line in finding_lines(each, details=display().verbose))]


def _mark(data: ImageCheck, part: str) -> str:
    """The mark of the worst finding about a part; empty if there is none."""
    found = [each.status for each in data.findings if PARTS.get(each.id, "GPU") == part]
    return next((MARKS[status] for status in ("error", "crashed", "warning", "unknown") if status in found), "")


def _lines(data: ImageCheck) -> Iterator[tuple[str, str, str]]:
    """Name, mark without a finding, and text of each part."""
    image, machine = data.image, data.machine
    yield "image", "✓" if image.is_known else "?", _contents(image)
    yield "platform", "✓" if image.architectures else "-", ", ".join(image.architectures) or "not known"
    if not image.uses_gpu:
        return
    yield "start", "✓" if image.has_requirement is not None else "-", _requirement(image)
    driver = machine.driver.version.value
    cuda = f", CUDA {machine.driver.cuda.value}" if machine.driver.cuda.value else ""
    support = DRIVERS[data.compatibility].format(cuda=image.cuda)
    mark = "✓" if data.compatibility in ("full", "forward") else "!" if driver and image.cuda else "?"
    yield "driver", mark, f"{driver}{cuda}: {support}" if driver else "unknown: --driver VERSION"
    gpus = machine.gpus.value or ()
    names = [f"{gpu.name.value}, compute capability {gpu.compute_capability.value}" for gpu in gpus]
    counted = "; ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    yield "GPU", "✓" if names and image.cuda else "?", counted or "unknown: `--gpu NAME`, one of `envdoctor gpus`"


def _contents(image: Image) -> str:
    packages = [f"{name} {image.packages[name]}" for name in SHOWN_PACKAGES if name in image.packages]
    has_python = image.python and (packages or not image.uses_gpu)
    parts = [*packages, f"CUDA {image.cuda}" if image.cuda else "", f"Python {image.python}" if has_python else ""]
    shown = ", ".join(part for part in (*parts, image.system) if part)
    if not image.uses_gpu:
        shown = f"{shown}, without a known package that uses a GPU".removeprefix(", ")
    return f"{shown or 'unknown contents'} (from {image.source})"


def _requirement(image: Image) -> str:
    """NVIDIA_REQUIRE_CUDA in short: the CUDA version and the driver branches, without the brands."""
    if not image.require:
        return "no requirement" if image.has_requirement is False else "NVIDIA_REQUIRE_CUDA not known"
    first, *others = image.require.split()
    branches = sorted(set(re.findall(r"driver>=(\d+)", " ".join(others))))
    brands = "; GeForce too" if "brand=geforce," in image.require else ""
    return first + (f", or driver branch {', '.join(branches)} on GPUs of certain brands{brands}" if branches else "")
