"""The URL of the package index: from the configuration of pip or uv, else uv's default."""

from __future__ import annotations

import re

from envdoctor.core.errors import EnvdoctorError
from envdoctor.download.sources import Sources, index_url
from envdoctor.locking.uv import run_uv

UV_SECONDS = 20.0


def index_address(sources: Sources, command: str = "envdoctor facts check") -> str:
    """Return the URL of the main index, with its credentials. Errors name the command to run again."""
    if sources.no_index:
        raise EnvdoctorError(
            f"no-index is set ({sources.origins.get('no-index', 'pip')}), so there is no index to read",
            expected="a package index",
            hint=f"PIP_NO_INDEX=0 {command}",
        )
    address = index_url(sources.index) if sources.index else _read_uv_default(command)
    if not re.match(r"https?://", address):
        raise EnvdoctorError(
            f"index-url {address} ({sources.origins.get('index-url', 'uv')}) is not an http or https URL",
            expected="an http:// or https:// index",
            hint=f"PIP_INDEX_URL=https://mirror.example/simple {command}",
        )
    return address


def _read_uv_default(command: str) -> str:
    """Return uv's default index. uv prints it for an empty requirements file, without network access."""
    done = run_uv(
        ["pip", "compile", "-", "--emit-index-url", "--no-header", "--offline", "--quiet"],
        environment={"UV_NO_CONFIG": "1"},
        timeout=UV_SECONDS,
    )
    if done.returncode or not (address := parse_index_url(done.output)):
        raise EnvdoctorError(
            f"uv does not print its default index (exit {done.returncode}): {done.output.strip()[-200:]}",
            expected="a line --index-url in the output of uv pip compile --emit-index-url",
            hint=f"PIP_INDEX_URL=https://mirror.example/simple {command}",
        )
    return address


def parse_index_url(output: str) -> str:
    """Return the URL of a line `--index-url https://mirror.example/simple`; empty where there is none."""
    match = re.search(r"^--index-url (\S+)$", output, re.MULTILINE)
    return match[1] if match else ""
