"""uv, as this tool calls it: found beside this interpreter, run in a neutral folder, its complaints understood."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import Finished, run
from envdoctor.redact.variables import redact_variable

# What uv prints when a source cannot be reached or does not let us in, as against an answer that is no.
UNREACHABLE = re.compile(
    r"Failed to fetch|error sending request|dns error|Connection refused|connection closed|operation timed out"
    r"|request or response body error|Could not connect|tls handshake|client error \(Connect\)"
    r"|due to network timeout",
    re.IGNORECASE,
)
LOCKED_OUT = re.compile(r"An index(?: URL)? \((\S+)\).*?\b(40[13] \w+)")
CANNOT_WRITE = re.compile(
    r"Failed to initialize cache|No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
)
REASON_LENGTH = 500


@cache
def find_uv() -> str:
    """The uv of this tool's own environment, else the one on PATH."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if not found:
        raise EnvdoctorError(
            "uv was found neither beside this Python nor on PATH",
            expected="the package uv, which envdoctor depends on",
            hint="python -m pip install uv",
        )
    return found


def looks_up() -> dict[str, str]:
    """For a uv that only looks up: unless the user says otherwise, a source that fails twice is named at once."""
    return {"UV_HTTP_RETRIES": os.environ.get("UV_HTTP_RETRIES") or "1", "UV_PYTHON_DOWNLOADS": "never"}


def run_uv(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    deadline: float,
    log: Path | None = None,
    poll: Callable[[str], None] | None = None,
    keep_open: Sequence[int] = (),
) -> Finished:
    """Run uv where no project of the user's can bend it: its folder is empty, so no pyproject.toml is found."""
    fixed = {"UV_NO_COLOR": "1", "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as neutral:
        done = run(
            [find_uv(), *arguments],
            env=fixed | dict(environment),
            cwd=Path(neutral),
            deadline=deadline,
            log=log,
            poll=poll,
            keep_open=keep_open,
        )
    if not done.ok and log is None:  # who keeps a log says there what went wrong
        refuse_a_broken_cache(done.output)
    return done


def refuse_a_broken_cache(output: str) -> None:
    """EnvdoctorError where uv could not write: that is no answer to what it was asked."""
    complaint = parse_complaint(output)
    told = [*complaint["error"], *complaint["cause"]]
    if any(CANNOT_WRITE.search(each) for each in told):
        raise EnvdoctorError(
            f"uv cannot write its cache: {told[-1]}",
            expected="a folder of yours, with room: uv unpacks what it downloads there",
            hint="export UV_CACHE_DIR=/a/folder/of/yours, then run this again",
        )


def is_unreachable(output: str) -> bool:
    """Whether uv failed because a source could not be reached, or did not let us in."""
    return UNREACHABLE.search(output) is not None or _locked_out(output) is not None


def _locked_out(output: str) -> re.Match[str] | None:
    """A 401 or 403 after which a package was missing; uv tells of it in a hint only."""
    hints = " ".join(parse_complaint(output)["hint"])
    return LOCKED_OUT.search(hints) if "was not found in the package registry" in " ".join(output.split()) else None


def unreachable(output: str) -> str:
    """Which address does not answer or how, without credentials, and the deepest cause that uv tells."""
    if locked_out := _locked_out(output):
        return f"{redact_variable('', locked_out[1])} answers {locked_out[2]}: check its user name and password"
    found = re.search(r"(?:Failed to fetch|for url)[:\s]*[(`]?(https?://[^\s`)]+)", output)
    package = re.search(r"Failed to download `([^`]+)`", output)
    url = redact_variable("", found[1]) if found else f"the source of {package[1]}" if package else "a source"
    if status := re.search(r"HTTP status \w+ error \((\d{3} [^)]+)\)", output):
        return f"{url} answers {status[1]}"
    causes = parse_complaint(output)["cause"]
    return f"{url} does not answer" + (f" ({redact_variable('', causes[-1])})" if causes else "")


def reason(output: str) -> str:
    """uv's complaint on one line: the error (unless it is the general one), the first cause, the first hint."""
    complaint = parse_complaint(redact_variable("", output))
    error = [line for line in complaint["error"] if not line.startswith("No solution found")]
    told = ": ".join([*error[:1], *complaint["cause"][:1]])
    if not told:
        last = [line.strip() for line in redact_variable("", output).splitlines() if line.strip()]
        told = (complaint["error"] or last[-1:] or ["uv gave no reason"])[0]
    told = told if len(told) <= REASON_LENGTH else told[:REASON_LENGTH].rpartition(" ")[0] + " ..."
    return " ".join([told, *(f"({hint})" for hint in complaint["hint"][:1])])


def parse_complaint(output: str) -> dict[str, list[str]]:
    """uv's errors, causes and hints, each on one line.

    error: No solution found when resolving dependencies
      cause: Because only a==1 is available and you require a>=3, we can conclude that your requirements
             are unsatisfiable.

    hint: `a` was filtered by `exclude-newer`

    uv 0.8 wraps them at 80 columns and draws a cross for `error:`, `╰─▶` and `Caused by:` for `cause:`.
    """
    found: dict[str, list[str]] = {"error": [], "cause": [], "hint": [], "warning": []}
    current: list[str] | None = None
    for line in output.splitlines():
        plain = re.sub(r"^\s*(?:[├╰]─▶|Caused by:)", "cause:", re.sub(r"^\s*\u00d7", "error:", line))
        if head := re.match(r"\s*(error|cause|hint|warning): *(.*)", plain):
            current = found[head[1]]
            current.append(head[2].strip())
        elif current and line[:1].isspace():
            current[-1] = f"{current[-1]} {line.strip(' │')}".strip()
        elif line.strip():
            current = None
    return found
