"""`envdoctor export`: convert a profile's lock for use without envdoctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from envdoctor.commands.install import chosen_profile
from envdoctor.core.command_line import command_line
from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput, Refused, unknown_name
from envdoctor.core.options import AcceptVariablesOption, Option, OutputOption, ProfileArgument, PythonVersionOption
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult, WrittenFile
from envdoctor.download.sources import read_sources
from envdoctor.export import FORMS, export
from envdoctor.locking import lock_files as locks
from envdoctor.locking.lock import Target
from envdoctor.locking.resolve import check_supported
from envdoctor.locking.wheel_urls import locate_files
from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles import Profile, choose, read_candidates, read_profile
from envdoctor.profiles.variables import require_consent


class ExportRequest(Record, frozen=True, kw_only=True):
    """The exported file can be used without envdoctor.

    Example: envdoctor export x86-cu124-hf --as dockerfile --output Dockerfile

    Example: envdoctor export --machine h100 --as dockerfile --output Dockerfile
    """

    profile: ProfileArgument = ""
    machine: Annotated[
        str,
        Option("--machine", "Export the profile that fits a recorded machine or a GPU best.", "FILE|NAME", "--gpu"),
    ] = ""
    form: Annotated[
        str,
        Option("--as", "requirements, pylock, dockerfile, apptainer, conda, script or uv-project.", "KIND"),
    ] = "requirements"
    python: PythonVersionOption = ""
    architecture: Annotated[
        str, Option("--arch", "x86_64 or aarch64; default: the first one of the profile.", "NAME")
    ] = ""
    accept_variables: AcceptVariablesOption = ""
    output: OutputOption = ""


def run(request: ExportRequest) -> CommandResult:
    """Print the exported text, or write it to `output`."""
    if request.form not in FORMS:
        hint = "envdoctor export cpu --as requirements"
        raise unknown_name("format", request.form, list(FORMS), hint=hint)
    profile, architecture = _profile(request)
    require_consent(profile, request.profile or profile.id, request.accept_variables, "export")
    check_supported(profile, python=request.python, architecture=architecture)
    target = Target(
        architecture or profile.when.architectures[0],
        profile.when.glibc,
        (request.python or profile.python.versions[0],),
    )
    file = locks.find_lock(request.profile or profile.id, target, target.pythons[0])
    if file is None:
        raise Refused(
            f"{profile.id} has no lock for {target.platform} and Python {target.pythons[0]}",
            expected="a profile with a lock for this platform and Python",
            hint=command_line("envdoctor", "lock", request.profile or profile.id),
        )
    # A lock contains no URLs: the formats that need them request them from the configured sources.
    found = locate_files(file, read_sources()) if request.form == "pylock" and not file.without else ()
    exported = export(profile, file, request.form, tuple(found))
    if request.output:
        write_file(Path(request.output), exported.text, hint="envdoctor export --help")
        return CommandResult(WrittenFile(request.output, "; ".join(exported.notes)))
    return CommandResult(exported)


def _profile(request: ExportRequest) -> tuple[Profile, str]:
    """The named profile, or the one that fits the machine best, and the requested or the machine's architecture."""
    if bool(request.profile) == bool(request.machine):
        raise BadInput(
            "both PROFILE and --machine are given" if request.profile else "PROFILE is missing",
            expected="PROFILE, or --machine NAME for the profile that fits a machine best",
            hint="envdoctor resolve --all --machine all",
        )
    if request.profile:
        return read_profile(request.profile), request.architecture
    machine = read_recorded(request.machine)
    profile = chosen_profile(choose(machine, read_candidates()))
    return profile, request.architecture or machine.system.architecture.value or ""
