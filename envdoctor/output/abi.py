"""What compiled files lack, for people."""

from __future__ import annotations

from collections import Counter

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from envdoctor.verify.abi import AbiChecked, Lack, LinkedFile

LACKS_SHOWN = 4


def abi_checked(data: AbiChecked) -> list[RenderableType]:
    """Each file that lacks something with what it lacks, then the counts."""
    parts: list[RenderableType] = []
    for file in data.files:
        if file.outcome in ("lacks", "unread"):
            parts += _file(file)
    counts = Counter(file.outcome for file in data.files)
    beside = f" beside torch {data.torch}" if data.torch else ""
    fits = f"{counts['fits']} of {len(data.files)} compiled files have all that they ask for{beside}"
    parts.append(Text.assemble(("✗ ", "error") if counts["lacks"] else ("✓ ", "ok"), fits))
    reasons = Counter(file.why for file in data.files if file.outcome == "left-out")
    parts += [Text(f"  {number} left out: {why}", style="dim") for why, number in reasons.most_common()]
    parts.append(Text(f"  {data.seconds:.1f} s; nothing was loaded: envdoctor verify --load does that", style="dim"))
    return parts


def _file(file: LinkedFile) -> list[RenderableType]:
    parts: list[RenderableType] = [Text.assemble(("✗ ", "error"), (file.path, "title"), f"  of {file.distribution}")]
    if file.outcome == "unread":
        parts.append(_indent(f"cannot be read: {file.why}"))
    parts += [_indent(lack_words(lack)) for lack in file.lacks[:LACKS_SHOWN]]
    if len(file.lacks) > LACKS_SHOWN:
        parts.append(_indent(f"and {len(file.lacks) - LACKS_SHOWN} more"))
    return parts


def lack_words(lack: Lack) -> str:
    """What is lacking, and where it should have come from."""
    source = f", which {lack.package} should have" if lack.package else ""
    if lack.kind == "library":
        return f"needs {lack.name}, which is nowhere" + (f"; it is in {lack.package}" if lack.package else "")
    if lack.kind == "version":
        return f"needs {lack.name} of {lack.library}; {lack.found} does not have it"
    return f"needs {lack.readable}{source}"


def _indent(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, 4), expand=False)
