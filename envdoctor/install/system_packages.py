"""System packages that a stack needs: find missing ones, and install them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError, Refused
from envdoctor.core.processes import run
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.system_packages import Indicator, system_packages

INSTALL_SECONDS = 1800.0
# The install command of each package manager. The first one whose program is on PATH is used.
MANAGERS = {
    "apt": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "apk": ("apk", "add"),
    "conda": ("conda", "install", "-y", "-c", "conda-forge"),
}
LIBRARY_FOLDERS = ("/usr/local/lib", "/usr/lib", "/lib", "/usr/lib64", "/lib64", "/usr/lib/{machine}-linux-gnu")


class MissingNeed(Record, frozen=True):
    """A missing need, why it is needed, and the packages that provide it (empty if unknown)."""

    name: str
    why: str
    packages: tuple[str, ...]


def missing_needs(
    names: Iterable[str], python: str, interpreter: Path | None, manager: str, environ: Mapping[str, str] = os.environ
) -> Iterator[MissingNeed]:
    """The needs of a profile that this system does not meet, for a Python version such as 3.12.

    `interpreter` is the Python of the environment; None if uv will download one, which includes its headers.
    """
    for name in names:
        need = system_packages()[name]
        if not any(_is_provided(sign, python, interpreter, environ) for sign in need.provides):
            yield MissingNeed(name, need.why, need.packages(manager, python))


def _is_provided(sign: Indicator, python: str, interpreter: Path | None, environ: Mapping[str, str]) -> bool:
    if sign.program:
        return shutil.which(sign.program, path=environ.get("PATH")) is not None
    if sign.header:
        return interpreter is None or any(
            (folder / sign.header).exists() for folder in _header_folders(interpreter, python)
        )
    folders = (folder.format(machine=os.uname().machine) for folder in LIBRARY_FOLDERS)
    candidates = [*environ.get("LD_LIBRARY_PATH", "").split(":"), *folders]
    return any(Path(folder, sign.library).exists() for folder in candidates if folder)


def _header_folders(interpreter: Path, python: str) -> Iterator[Path]:
    """The directories of an interpreter's headers, below its prefix and below /usr."""
    prefix = interpreter.resolve().parent.parent
    yield prefix / "include" / f"python{python}"
    yield Path("/usr/include") / f"python{python}"


def package_manager(environ: Mapping[str, str] = os.environ) -> str:
    """The package manager of this system; empty if there is no known one."""
    if environ.get("CONDA_PREFIX") and shutil.which("conda", path=environ.get("PATH")) and os.geteuid() != 0:
        return "conda"  # needs no root
    found = (name for name, command in MANAGERS.items() if shutil.which(command[0], path=environ.get("PATH")))
    return next(found, "")


def install_command(needs: Sequence[MissingNeed], manager: str) -> tuple[str, ...]:
    """The command that installs the missing packages; empty if no package is known."""
    packages = tuple(dict.fromkeys(package for need in needs for package in need.packages))
    return (*MANAGERS[manager], *packages) if manager and packages else ()


def describe_needs(needs: Sequence[MissingNeed], manager: str) -> str:
    """The missing needs and the command to install them, as a message."""
    missing = "; ".join(f"{need.name} is missing ({need.why})" for need in needs)
    command = install_command(needs, manager)
    sudo = "" if manager == "conda" or os.geteuid() == 0 else "sudo "
    return f"{missing}: {sudo}{' '.join(command)}" if command else f"{missing}: no package is known for this system"


def install_needs(needs: Sequence[MissingNeed], manager: str, log: Path) -> None:
    """Install the missing packages. Only called if the user requested it with --system."""
    command = install_command(needs, manager)
    if not command:
        raise Refused(
            describe_needs(needs, manager),
            expected="apt, dnf, apk or conda with these packages",
            hint="install them manually",
        )
    if os.geteuid() != 0 and manager != "conda":
        raise Refused(
            f"--system as user {os.geteuid()}: {describe_needs(needs, manager)}",
            expected="root, which is required for system packages",
            hint=shell_command("sudo {}", command) + ", then the same command without --system",
        )
    environment = {"DEBIAN_FRONTEND": "noninteractive"} if manager == "apt" else {}
    if manager == "apt":  # a new container has no package lists
        run(("apt-get", "update"), timeout=INSTALL_SECONDS, env=environment, log=log)
    finished = run(command, timeout=INSTALL_SECONDS, env=environment, log=log)
    if not finished.ok:
        last = next((line for line in reversed(finished.output.splitlines()) if line.strip()), "it printed nothing")
        raise EnvdoctorError(
            f"{' '.join(command)} {finished.ending}: {last.strip()}",
            expected="exit code 0",
            hint=f"read the log {log}",
        )
