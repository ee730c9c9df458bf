"""What a stack needs of the system beside wheels: what is missing, the command that brings it, and running that."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError, Refused
from envdoctor.core.processes import run
from envdoctor.core.records import Record
from envdoctor.knowledge.system_packages import Indicator, system_packages

INSTALL_SECONDS = 1800.0
# The command of each package manager, by the program that shows that it is there; the first one found is taken.
MANAGERS = {
    "apt": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "apk": ("apk", "add"),
    "conda": ("conda", "install", "-y", "-c", "conda-forge"),
}
FOLDERS = ("/usr/local/lib", "/usr/lib", "/lib", "/usr/lib64", "/lib64", "/usr/lib/{machine}-linux-gnu")


class MissingNeed(Record, frozen=True):
    """Something that is not there, why it matters, and the packages that bring it (none known: empty)."""

    name: str
    why: str
    packages: tuple[str, ...]


def missing_needs(
    names: Iterable[str], python: str, interpreter: Path | None, manager: str, environ: Mapping[str, str] = os.environ
) -> Iterator[MissingNeed]:
    """The needs of a profile that this system does not meet, for a Python version such as 3.12.

    `interpreter` is the Python that the environment is made from, None where uv will download one: those of uv bring
    their headers.
    """
    for name in names:
        need = system_packages()[name]
        if not any(_is_there(sign, python, interpreter, environ) for sign in need.provides):
            yield MissingNeed(name, need.why, need.packages(manager, python))


def _is_there(sign: Indicator, python: str, interpreter: Path | None, environ: Mapping[str, str]) -> bool:
    if sign.program:
        return shutil.which(sign.program, path=environ.get("PATH")) is not None
    if sign.header:
        return interpreter is None or any(
            (folder / sign.header).exists() for folder in _includes(interpreter, python)
        )
    folders = (folder.format(machine=os.uname().machine) for folder in FOLDERS)
    searched = [*environ.get("LD_LIBRARY_PATH", "").split(":"), *folders]
    return any(Path(folder, sign.library).exists() for folder in searched if folder)


def _includes(interpreter: Path, python: str) -> Iterator[Path]:
    """Where an interpreter's headers lie: below its own prefix, as every build of CPython has them."""
    prefix = interpreter.resolve().parent.parent
    yield prefix / "include" / f"python{python}"
    yield Path("/usr/include") / f"python{python}"


def package_manager(environ: Mapping[str, str] = os.environ) -> str:
    """The package manager of this system; empty where none that is known is there."""
    if environ.get("CONDA_PREFIX") and shutil.which("conda", path=environ.get("PATH")) and os.geteuid() != 0:
        return "conda"  # what a user without rights on the machine can use
    found = (name for name, command in MANAGERS.items() if shutil.which(command[0], path=environ.get("PATH")))
    return next(found, "")


def command_for(needs: Sequence[MissingNeed], manager: str) -> tuple[str, ...]:
    """The command that brings what is missing; empty where no packages are known."""
    packages = tuple(dict.fromkeys(package for need in needs for package in need.packages))
    return (*MANAGERS[manager], *packages) if manager and packages else ()


def note(needs: Sequence[MissingNeed], manager: str) -> str:
    """What is missing and how to get it, for people."""
    told = "; ".join(f"{need.name} is missing ({need.why})" for need in needs)
    command = command_for(needs, manager)
    sudo = "" if manager == "conda" or os.geteuid() == 0 else "sudo "
    return f"{told}: {sudo}{' '.join(command)}" if command else f"{told}: no package is known for this system"


def install_needs(needs: Sequence[MissingNeed], manager: str, log: Path) -> None:
    """Install what is missing; only ever called when it was asked for."""
    command = command_for(needs, manager)
    if not command:
        raise Refused(
            note(needs, manager), expected="apt, dnf, apk or conda with these packages", hint="install them by hand"
        )
    if os.geteuid() != 0 and manager != "conda":
        raise Refused(
            f"--system as user {os.geteuid()}: {note(needs, manager)}",
            expected="root, which system packages need",
            hint=f"sudo {' '.join(command)}, then the same command without --system",
        )
    environment = {"DEBIAN_FRONTEND": "noninteractive"} if manager == "apt" else {}
    if manager == "apt":  # a fresh container has no lists yet
        run(("apt-get", "update"), deadline=INSTALL_SECONDS, env=environment, log=log)
    done = run(command, deadline=INSTALL_SECONDS, env=environment, log=log)
    if not done.ok:
        last = next((line for line in reversed(done.output.splitlines()) if line.strip()), "it printed nothing")
        raise EnvdoctorError(
            f"{' '.join(command)} {done.ending}: {last.strip()}", expected="exit code 0", hint=f"read the log {log}"
        )
