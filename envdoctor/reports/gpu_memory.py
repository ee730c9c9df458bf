"""Parser for statements on the memory of a GPU: `7,916 of 8,188 MiB in use`, `24564MiB total, 23988MiB used`."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.section import Line, Section, parse_size

AMOUNT = r"(\d[\d,]{0,8}(?:\.\d{1,2})?)"
UNIT = r"\s?([MG])i?B\b"
# Used and total: `7,916 / 8,188 MiB`, `23.1 of 24 GB`, `11890 MiB of 12282 MiB`.
OF_TOTAL = lazy_pattern(rf"(?<![\w.]){AMOUNT}(?:{UNIT})?\s?(?:/|\bof|\bout of)\s?{AMOUNT}{UNIT}")
TOTAL_AND_USED = lazy_pattern(
    rf"(?<![\w.]){AMOUNT}{UNIT}\s(?:in\s)?total\b[^.\n]{{1,20}}?(?<![\w.]){AMOUNT}{UNIT}\s(?:is\s|are\s)?(?:in\s)?use"
)
USED_AND_FREE = lazy_pattern(
    rf"(?i)\b(?:in\suse|used)\W{{1,3}}~?{AMOUNT}{UNIT}[^.\n]{{0,20}}?\bfree\W{{1,3}}~?{AMOUNT}{UNIT}"
)
SHARE = lazy_pattern(rf"(?i)\b(?:in\suse|used)\W{{1,3}}~?{AMOUNT}{UNIT}\s?\(~?(\d{{1,3}})\s?%")
# Memory of something else, or memory that is free.
OTHER_MEMORY = lazy_pattern(
    r"(?i)(?<!v)\bram\b|\bdisk\b|\bswap\b|\bshm\b|\bhost\b|download|\bfree memory\b|\bsaved\b"
)
GPU_MEMORY = lazy_pattern(r"(?i)\bvram\b|\bgpu\b|\bmemory\b|\bin use\b|\bused\b|\bcard\b|\bMiB\b|\|")
SMALLEST, LARGEST = 1 << 30, 1 << 38  # bytes of a GPU


def parse_gpu_memory(lines: list[Line]) -> Section | None:
    """Parse statements on the memory of the first GPU. The lines stay for the other parsers."""
    section = Section("notes")
    for line in lines:
        if len(line.text) > 400 or OTHER_MEMORY.search(line.text) or not GPU_MEMORY.search(line.text):
            continue
        used, total = _memory(line.text)
        if SMALLEST <= total <= LARGEST and 0 < used <= total:
            section.set_gpu_fact(0, "memory_used", used)
            section.set_gpu_fact(0, "memory_total", total)
            return section
    return None


def _memory(text: str) -> tuple[int, int]:
    """Used and total bytes; zeros if a line does not state both."""
    if match := OF_TOTAL.search(text):
        return _bytes(match[1], match[2] or match[4]), _bytes(match[3], match[4])
    if match := TOTAL_AND_USED.search(text):
        return _bytes(match[3], match[4]), _bytes(match[1], match[2])
    if match := USED_AND_FREE.search(text):
        used = _bytes(match[1], match[2])
        return used, used + _bytes(match[3], match[4])
    if match := SHARE.search(text):
        used = _bytes(match[1], match[2])
        return used, used * 100 // max(int(match[3]), 1)
    return 0, 0


def _bytes(number: str, unit: str) -> int:
    return parse_size(number.replace(",", ""), unit) or 0
