"""`envdoctor verify`: numerical probes of an installed environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor.core.errors import EXIT_NO, EXIT_OK
from envdoctor.core.options import Option, PythonOption, VenvArgument
from envdoctor.core.record import Record
from envdoctor.core.records import Verification
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.environment.managed import read_install_record
from envdoctor.environment.select import select_stack
from envdoctor.explain.log_causes import likely_cause
from envdoctor.install.environment_use import environment_in_use
from envdoctor.install.known_environments import resolve_interpreter
from envdoctor.knowledge.notebook_services import current_service
from envdoctor.machine.gpu_sampler import smallest_free_gpu_memory
from envdoctor.machine.select import select_machine
from envdoctor.profiles import choose, read_candidates, read_profile
from envdoctor.verify.probe_scripts import bundled_probes, choose_probes
from envdoctor.verify.runner import verify_interpreter
from envdoctor.verify.status import read_driver_and_gpus
from envdoctor.verify.stored_results import verification_path, write_record


class VerifyRequest(Record, frozen=True, kw_only=True):
    """Each probe computes a result in its own process and compares it with a reference.

    Example: envdoctor verify --python /opt/venv/bin/python
    """

    venv: VenvArgument = ""
    python: PythonOption = ""
    only: Annotated[tuple[str, ...], Option("--only", "Run only this probe; may be repeated.", "PROBE")] = ()
    skip: Annotated[tuple[str, ...], Option("--skip", "Skip this probe; may be repeated.", "PROBE")] = ()
    quick: Annotated[
        bool, Option("--quick", "Skip probes that compile or start vLLM, unless the profile requires them.")
    ] = False


def run(request: VerifyRequest, reporter: Reporter) -> CommandResult:
    """Run the probes and store the result inside the environment; failed probes get their likely cause."""
    interpreter = resolve_interpreter(request.venv, request.python)
    installed = read_install_record(interpreter.parent.parent)
    required = installed.required if installed else _required_without_record()
    names = choose_probes(
        bundled_probes(), only=request.only, skip=request.skip, quick=request.quick, required=required
    )
    driver, gpus = read_driver_and_gpus()
    reporter.probes_planned(len(names))
    with environment_in_use(interpreter, "envdoctor verify"):
        verification = verify_interpreter(
            interpreter,
            names,
            required=tuple(name for name in required if name in names),
            driver=driver,
            gpus=gpus,
            lock=installed.lock if installed else "",
            gpu_memory=smallest_free_gpu_memory() if gpus else 0,
            on_start=reporter.probe_started,
            on_result=reporter.probe_ended,
        )
    verification = _with_likely_causes(verification, interpreter)
    if not (request.only or request.skip):
        write_record(verification_path(interpreter), verification)
    return CommandResult(verification, EXIT_OK if verification.passed else EXIT_NO)


def _required_without_record() -> tuple[str, ...]:
    """The probes that the profile for this notebook requires; elsewhere those that any training needs."""
    fitting = None
    if current_service(os.environ):
        fitting = choose(select_machine("", ()), [each for each in read_candidates() if each.notebook]).profile
    return read_profile(fitting or "cpu").verify.required


def _with_likely_causes(verification: Verification, interpreter: Path) -> Verification:
    failed = [result for result in verification.results if result.outcome not in ("passed", "unavailable")]
    if not failed:
        return verification
    machine, stack = select_machine("", ()), select_stack("", str(interpreter))
    causes = {result.probe: likely_cause(f"{result.message}\n{result.output}", machine, stack) for result in failed}
    results = tuple(
        msgspec.structs.replace(result, cause=causes[result.probe]) if result.probe in causes else result
        for result in verification.results
    )
    return msgspec.structs.replace(verification, results=results)
