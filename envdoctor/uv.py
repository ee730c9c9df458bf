"""uv, as this tool calls it: found beside this interpreter, run in a neutral folder, its complaints understood."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from envdoctor.errors import EnvdoctorError
from envdoctor.facts.environment import redact
from envdoctor.process import Finished, run

# What uv prints when a host cannot be reached, as against an answer that is no.
UNREACHABLE = re.compile(
    r"Failed to fetch|error sending request|dns error|Connection refused|connection closed|operation timed out"
    r"|request or response body error|Could not connect|tls handshake|client error \(Connect\)",
    re.IGNORECASE,
)


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


def run_uv(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    deadline: float,
    log: Path | None = None,
    poll: Callable[[str], None] | None = None,
) -> Finished:
    """Run uv where no project of the user's can bend it: its folder is empty, so no pyproject.toml is found."""
    fixed = {"UV_NO_COLOR": "1", "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as neutral:
        return run(
            [find_uv(), *arguments],
            env=fixed | dict(environment),
            cwd=Path(neutral),
            deadline=deadline,
            log=log,
            poll=poll,
        )


def is_unreachable(output: str) -> bool:
    """Whether uv failed because a source could not be reached."""
    return UNREACHABLE.search(output) is not None


def unreachable_url(output: str) -> str:
    """The address that could not be fetched, without credentials."""
    found = re.search(r"(?:Failed to fetch|for url)[:\s]*[(`]?(https?://[^\s`)]+)", output)
    return redact("", found[1]) if found else ""


def unreachable(output: str) -> str:
    """Which address does not answer, and the deepest cause that uv tells (DNS, refused, certificate)."""
    causes = re.findall(r"^\s*cause: (.*)$", output, re.MULTILINE)
    return f"{unreachable_url(output) or 'a source'} does not answer" + (f" ({causes[-1]})" if causes else "")


def reason(output: str) -> str:
    """uv's complaint on one line: what follows `error:` and the first cause that says more."""
    lines = [line.strip() for line in redact("", output).splitlines()]
    kept = [re.sub(r"^(error|cause)[:\s]*", "", line) for line in lines if re.match(r"(error|cause)", line)]
    useful = [line for line in kept if not line.startswith("No solution found")]
    return (useful or kept or lines[-1:] or ["uv gave no reason"])[0]
