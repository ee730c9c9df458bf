"""Where the wheels of a lock lie: uv asks the configured sources, the lock's hash says which file is meant."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from envdoctor.errors import EnvdoctorError, Refused
from envdoctor.resolve import Lock
from envdoctor.sources import Sources, uv_arguments, uv_environment
from envdoctor.uv import is_unreachable, reason, run_uv, unreachable

LOCATE_SECONDS = 300.0


class Located(NamedTuple):
    """One file: its name, its address (without credentials), its hash, and its length where the source tells it."""

    name: str
    url: str
    sha256: str
    size: int | None = None


def locate(lock: Lock, sources: Sources) -> list[Located]:
    """The file of each package of a lock, by its hash."""
    document = _ask_uv(lock, sources)
    wheels = [wheel for package in document.get("packages", ()) for wheel in package.get("wheels", ())]
    by_hash: dict[str, list[dict[str, Any]]] = {}
    for wheel in wheels:
        by_hash.setdefault(wheel.get("hashes", {}).get("sha256", ""), []).append(wheel)
    found = []
    for package in lock.packages:
        if package.sha256 not in by_hash:
            others = [wheel for each in document["packages"] if each["name"] == package.name
                      for wheel in each.get("wheels", ())]  # fmt: skip
            raise _other_files(package.name, package.version, package.sha256, others, sources)
        found.append(_located(by_hash[package.sha256]))
    return found


def _ask_uv(lock: Lock, sources: Sources) -> dict[str, Any]:
    """The pylock.toml (PEP 751) of the locked versions: every file of theirs, with address and hashes."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-locate-") as folder:
        wanted, out = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        wanted.write_text(lock.text)
        command: list[str | Path] = [
            "pip", "compile", wanted, "--no-deps", "--output-file", out, "--format", "pylock.toml",
            "--python-version", lock.python, "--python-platform", lock.platform, "--only-binary", ":all:",
            "--no-header", *uv_arguments(sources),
            *(["--torch-backend", lock.backend] if lock.backend else []),
        ]  # fmt: skip
        environment = {"UV_PYTHON_DOWNLOADS": "never"} | uv_environment(sources)
        result = run_uv(command, environment=environment, deadline=LOCATE_SECONDS)
        if result.ok:
            return tomllib.loads(out.read_text())
    if result.timed_out or is_unreachable(result.output):
        why = f"no answer within {LOCATE_SECONDS:.0f} s" if result.timed_out else unreachable(result.output)
        raise EnvdoctorError(
            f"the wheels of {lock.profile} cannot be looked up: {why}",
            expected="sources that answer; asked were " + ", ".join(sources.names()),
            hint="check the network or name a mirror (export PIP_INDEX_URL=ADDRESS), then run the same command again",
        )
    raise Refused(
        f"the sources do not have every wheel of {lock.profile}'s lock: {reason(result.output)}",
        expected="all of them; asked were " + ", ".join(sources.names()),
        hint=f"envdoctor resolve --profile {lock.profile}",
    )


def _located(wheels: list[dict[str, Any]]) -> Located:
    """The nearest of several places of one file: this machine's before the web's."""
    wheel = min(wheels, key=lambda each: not _address(each).startswith(("/", "file:")))
    url = _address(wheel)
    return Located(unquote(Path(urlsplit(url).path).name), url, wheel["hashes"]["sha256"], wheel.get("size"))


def _address(wheel: dict[str, Any]) -> str:
    return str(wheel.get("url") or wheel.get("path"))


def _other_files(name: str, version: str, sha256: str, others: list[dict[str, Any]], sources: Sources) -> Refused:
    """The error for a release whose files are others than the locked one."""
    there = [
        f"{_address(wheel).rpartition('/')[2]} with sha256 {wheel.get('hashes', {}).get('sha256', 'untold')}"
        for wheel in others
    ]
    return Refused(
        f"no source has the locked file of {name} {version}; there is {'; '.join(there[:3]) or 'no wheel of it'}",
        expected=f"a wheel with sha256 {sha256}; asked were " + ", ".join(sources.names()),
        hint=f"pip download --no-deps --only-binary :all: {name}=={version}",
    )
