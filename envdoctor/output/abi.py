"""Human output of `envdoctor abi`."""

from __future__ import annotations

from collections import Counter

from envdoctor.commands.abi import AbiReport, LinkedFile, MissingDependency
from envdoctor.output.text import Part, Text, indent

MISSING_SHOWN = 4


def render_abi(data: AbiReport) -> list[Part]:
    """Each file with missing dependencies, then the counts."""
    parts: list[Part] = []
    for file in data.files:
        if file.outcome in ("missing", "unreadable"):
            parts += _file(file)
    counts = Counter(file.outcome for file in data.files)
    torch = f" with torch {data.torch}" if data.torch else ""
    summary = f"{counts['ok']} of {len(data.files)} compiled files find all their libraries and symbols{torch}"
    parts.append(Text.assemble(("✗ ", "error") if counts["missing"] else ("✓ ", "ok"), summary))
    reasons = Counter(file.reason for file in data.files if file.outcome == "skipped")
    parts += [Text(f"  {number} skipped: {reason}", style="dim") for reason, number in reasons.most_common()]
    parts.append(Text(f"  {data.seconds:.1f} s; to load the files as well, run: envdoctor load-test", style="dim"))
    return parts


def _file(file: LinkedFile) -> list[Part]:
    parts: list[Part] = [Text.assemble(("✗ ", "error"), (file.path, "title"), f"  of {file.distribution}")]
    if file.outcome == "unreadable":
        parts.append(indent(Text(f"cannot be read: {file.reason}")))
    parts += [indent(Text(describe_missing(missing))) for missing in file.missing[:MISSING_SHOWN]]
    if len(file.missing) > MISSING_SHOWN:
        parts.append(indent(Text(f"and {len(file.missing) - MISSING_SHOWN} more")))
    return parts


def describe_missing(missing: MissingDependency) -> str:
    """The missing library, version or symbol and the package that should provide it."""
    provider = f" (from {missing.package})" if missing.package else ""
    if missing.kind == "library":
        return f"needs {missing.name}{provider}, which was not found"
    if missing.kind == "version":
        return f"needs {missing.name} of {missing.library}, which {missing.library_path} does not define"
    return f"needs the symbol {missing.demangled}{provider}, which is not defined"
