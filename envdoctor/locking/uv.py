"""Run uv from a neutral directory and parse its error messages."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.processes import CompletedProcess, run
from envdoctor.redact.output import without_secrets
from envdoctor.redact.variables import redact_variable

# uv's messages for a source that is unreachable or denies access, unlike a failed resolution.
UNREACHABLE = lazy_pattern(
    r"Failed to fetch|error sending request|dns error|Connection refused|connection closed|operation timed out"
    r"|request or response body error|Could not connect|tls handshake|client error \(Connect\)"
    r"|due to network timeout",
    re.IGNORECASE,
)
ACCESS_DENIED = lazy_pattern(r"An index(?: URL)? \((\S+)\).*?\b(40[13] \w+)")
CANNOT_WRITE = lazy_pattern(
    r"Failed to initialize cache|No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
)
SUMMARY_LENGTH = 500
# For `uv pip compile` without builds, which needs no interpreter of the version to solve for. Without the option, uv
# starts each interpreter on PATH in search of one: pyenv's shims take seconds.
OWN_PYTHON = ("--python", sys.executable) if sys.executable else ()
# How long uv uses what it has read from PyPI. PyPI itself sends these headers; proxies and mirrors of it drop them,
# and uv then requests each page and the metadata of each wheel again in each run: 12 s instead of 1.5 s for 11
# packages (uv 0.13.9, 2026-11-29). `explicit`: it adds no package source. uv merges it with the user's settings.
CACHE_SETTINGS = """\
[[index]]
name = "envdoctor-cache-of-pypi"
url = "https://pypi.org/simple"
explicit = true
cache-control = { api = "max-age=600", files = "max-age=365000000, immutable" }
"""


@cache
def find_uv() -> str:
    """The uv of envdoctor's own environment, otherwise the one on PATH."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if not found:
        raise EnvdoctorError(
            "uv was found neither in envdoctor's environment nor on PATH",
            expected="the package uv, which envdoctor depends on",
            hint="python -m pip install uv",
        )
    return found


def lookup_environment() -> dict[str, str]:
    """Variables for a uv command that only queries package sources: by default, report a failing source quickly."""
    return {"UV_HTTP_RETRIES": os.environ.get("UV_HTTP_RETRIES") or "1", "UV_PYTHON_DOWNLOADS": "never"}


def run_uv(
    arguments: Sequence[str | Path],
    *,
    environment: Mapping[str, str],
    timeout: float,
    log: Path | None = None,
    on_output: Callable[[str], None] | None = None,
    pass_fds: Sequence[int] = (),
    launcher: Sequence[str | Path] = (),
) -> CompletedProcess:
    """Run uv in a directory of its own, so that no pyproject.toml of the user changes its behaviour.

    `launcher` is a program with arguments that starts uv.
    """
    fixed = {"UV_NO_COLOR": "1", "NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as neutral:
        Path(neutral, "uv.toml").write_text(CACHE_SETTINGS, encoding="utf-8")
        finished = run(
            [*launcher, find_uv(), *arguments],
            env=fixed | dict(environment),
            cwd=Path(neutral),
            timeout=timeout,
            log=log,
            on_output=on_output,
            pass_fds=pass_fds,
            redact=without_secrets if log else None,
        )
    if not finished.ok and log is None:  # a caller with a log file reports the error itself
        check_cache_writable(finished.output)
    return finished


def check_cache_writable(output: str) -> None:
    """Raise EnvdoctorError if uv failed because it could not write its cache."""
    messages = parse_messages(output)
    errors = [*messages["error"], *messages["cause"]]
    if any(CANNOT_WRITE.search(message) for message in errors):
        raise EnvdoctorError(
            f"uv cannot write its cache: {errors[-1]}",
            expected="a writable directory with free space: uv unpacks downloads there",
            hint="export UV_CACHE_DIR=/path/to/a/writable/directory, then run the command again",
        )


def is_unreachable(output: str) -> bool:
    """Whether uv failed because a source was unreachable or denied access."""
    return UNREACHABLE.search(output) is not None or _access_denied(output) is not None


def _access_denied(output: str) -> re.Match[str] | None:
    """A response 401 or 403, after which a package was missing. uv reports it only in a hint."""
    hints = " ".join(parse_messages(output)["hint"])
    missing = "was not found in the package registry" in " ".join(output.split())
    return ACCESS_DENIED.search(hints) if missing else None


def describe_unreachable(output: str) -> str:
    """The URL that failed, without credentials, with the HTTP status or the deepest cause that uv reports."""
    if denied := _access_denied(output):
        return f"{redact_variable('', denied[1])} returned {denied[2]}: check its user name and password"
    found = re.search(r"(?:Failed to fetch|for url)[:\s]*[(`]?(https?://[^\s`)]+)", output)
    package = re.search(r"Failed to download `([^`]+)`", output)
    url = redact_variable("", found[1]) if found else f"the source of {package[1]}" if package else "a source"
    if status := re.search(r"HTTP status \w+ error \((\d{3} [^)]+)\)", output):
        return f"{url} returned {status[1]}"
    causes = parse_messages(output)["cause"]
    return f"{url} is unreachable" + (f" ({redact_variable('', causes[-1])})" if causes else "")


def summarize_error(output: str) -> str:
    """uv's error on one line: the error (unless it is generic), the first cause and the first hint."""
    messages = parse_messages(redact_variable("", output))
    errors = [line for line in messages["error"] if not line.startswith("No solution found")]
    summary = ": ".join([*errors[:1], *messages["cause"][:1]])
    if not summary:
        lines = [line.strip() for line in redact_variable("", output).splitlines() if line.strip()]
        summary = (messages["error"] or lines[-1:] or ["uv gave no reason"])[0]
    if len(summary) > SUMMARY_LENGTH:
        summary = summary[:SUMMARY_LENGTH].rpartition(" ")[0] + " ..."
    return " ".join([summary, *(f"({hint})" for hint in messages["hint"][:1])])


def parse_messages(output: str) -> dict[str, list[str]]:
    """uv's errors, causes, hints and warnings, each joined to one line.

    error: No solution found when resolving dependencies
      cause: Because only a==1 is available and you require a>=3, we can conclude that your requirements
             are unsatisfiable.

    hint: `a` was filtered by `exclude-newer`

    uv 0.8 wraps lines at 80 columns, prints a cross for `error:`, and `╰─▶` or `Caused by:` for `cause:`.
    """
    messages: dict[str, list[str]] = {"error": [], "cause": [], "hint": [], "warning": []}
    current: list[str] | None = None
    for line in output.splitlines():
        plain = re.sub(r"^\s*(?:[├╰]─▶|Caused by:)", "cause:", re.sub(r"^\s*\u00d7", "error:", line))
        if head := re.match(r"\s*(error|cause|hint|warning): *(.*)", plain):
            current = messages[head[1]]
            current.append(head[2].strip())
        elif current and line[:1].isspace():
            current[-1] = f"{current[-1]} {line.strip(' │')}".strip()
        elif line.strip():
            current = None
    return messages
