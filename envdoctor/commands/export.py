"""`envdoctor export`: convert a profile's lock for use without envdoctor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from envdoctor.commands.install import chosen_profile
from envdoctor.core.command_line import command_line
from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput, Refused, unknown_name
from envdoctor.core.options import (
    GPU_OPTION,
    AcceptVariablesOption,
    Option,
    OutputOption,
    ProfileArgument,
    PythonVersionOption,
    ReplaceOption,
    reject_combination,
)
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult, WrittenFile
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import read_sources
from envdoctor.export import FORMS, ExportedFile, export
from envdoctor.export.kubernetes import kubernetes
from envdoctor.export.node_scripts import WRITERS as NODE_FORMS
from envdoctor.export.node_scripts import node_script
from envdoctor.export.stack import check_stack
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

    Example: envdoctor export --gpu h100 --as dockerfile --output Dockerfile

    Example: envdoctor export --as slurm-prolog --gpus 8 --output prolog.sh
    """

    profile: ProfileArgument = ""
    machine: Annotated[
        str,
        Option("--machine", "Export the profile that fits a recorded machine best.", "FILE|NAME", other=GPU_OPTION),
    ] = ""
    form: Annotated[
        str,
        Option(
            "--as",
            "requirements, pylock, dockerfile, apptainer, conda, script, uv-project, kubernetes; without a profile: "
            "slurm-prolog, slurm-health-check, nhc.",
            "KIND",
        ),
    ] = "requirements"
    python: PythonVersionOption = ""
    architecture: Annotated[
        str, Option("--arch", "x86_64 or aarch64; default: the first one of the profile.", "NAME")
    ] = ""
    image: Annotated[str, Option("--image", "kubernetes: the image with envdoctor and the stack.", "IMAGE")] = ""
    gpus: Annotated[int, Option("--gpus", "For nodes: the number of GPUs.", "N", minimum=0)] = 0
    program: Annotated[
        str, Option("--program", "Scripts for nodes: the path of envdoctor there; default: the one here.", "PATH")
    ] = ""
    accept_variables: AcceptVariablesOption = ""
    output: OutputOption = ""
    force: ReplaceOption = False


def run(request: ExportRequest) -> CommandResult:
    """Print the exported text, or write it to `output`."""
    exported = _node_script(request) if request.form in NODE_FORMS else _stack_export(request)
    if request.output:
        write_file(Path(request.output), exported.text, hint="envdoctor export --help", replace=request.force)
        return CommandResult(WrittenFile(request.output, "; ".join(exported.notes)))
    return CommandResult(exported)


def _node_script(request: ExportRequest) -> ExportedFile:
    """A script that calls envdoctor on the nodes of a cluster."""
    ignored = {"PROFILE": request.profile, "--machine": request.machine, "--python": request.python,
               "--arch": request.architecture, "--image": request.image}  # fmt: skip
    reason = "the script judges the node, not a stack"
    reject_combination(
        f"--as {request.form}", ignored, reason=reason, hint=shell_command("envdoctor export --as {}", request.form)
    )
    program = request.program or str(Path(sys.prefix) / "bin/envdoctor")
    if not program.startswith("/") or not program.isprintable():
        raise BadInput(
            f"--program {program!r}",
            expected="an absolute path: programs of SLURM have no search path",
            hint=shell_command("envdoctor export --as {} --program /opt/envdoctor/bin/envdoctor", request.form),
        )
    return node_script(request.form, program, request.gpus)


def _stack_export(request: ExportRequest) -> ExportedFile:
    if request.form not in (*FORMS, "kubernetes"):
        hint = "envdoctor export cpu --as requirements"
        raise unknown_name("format", request.form, [*FORMS, "kubernetes", *NODE_FORMS], hint=hint)
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
    if request.form == "kubernetes":
        return kubernetes(check_stack(profile, file), request.image, request.gpus)
    return export(profile, file, request.form, tuple(found))


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
