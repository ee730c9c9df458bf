"""`envdoctor check`: facts of a machine and its environment, findings, and the profile that fits."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor import __version__
from envdoctor.commands.check_verdict import undecided_parts
from envdoctor.commands.pasted_text import read_pasted_text
from envdoctor.commands.report_findings import diagnose_report, evaluate_with_versions
from envdoctor.commands.rule_filter import CAUSE_PREFIX, RuleFilter, parse_rule_filter
from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput, exit_code
from envdoctor.core.options import (
    FactOption,
    MachineOption,
    Option,
    PythonOption,
    ReplaceOption,
    VenvArgument,
    machine_words,
    reject_combination,
)
from envdoctor.core.paths import is_file
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, ReportCoverage, Stack
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.environment.find import EnvironmentSelection, find_environment
from envdoctor.environment.managed import read_install_record
from envdoctor.environment.select import read_environment
from envdoctor.install.known_environments import installed_environments
from envdoctor.install.remedy_plan import is_automatic, with_interpreter
from envdoctor.knowledge.notebook_services import INSTALL_TORCH
from envdoctor.machine import recorded as machines
from envdoctor.machine.select import facts_with_driver, select_machine
from envdoctor.profiles import choose, read_candidates
from envdoctor.profiles.checks import distribution_names
from envdoctor.profiles.choice import Choice
from envdoctor.profiles.unused_gpu import unused_gpu
from envdoctor.rules import RULES, evaluate
from envdoctor.verify.status import (
    BenchmarkStatus,
    VerificationState,
    VerificationStatus,
    read_benchmark_status,
    read_verification_status,
    verification_state,
)

UNNAMED_REPORT = "text"  # facts in a text that is the output of no known command


class CheckRequest(Record, frozen=True, kw_only=True):
    """Prints facts, findings with fixes, and the install profile that fits the machine.

    The environment is the one of --venv or --python, else the active one, else .venv, else the newest one that
    envdoctor installed. It is read without importing any of its packages.

    Example: envdoctor check --venv ./venv

    Example: envdoctor check --image vllm/vllm-openai:v0.10.2 --gpu l4 --driver 550.54
    """

    machine: MachineOption = ""
    facts: FactOption = ()
    venv: VenvArgument = ""
    python: PythonOption = ""
    report: Annotated[
        str, Option("--from-report", "Use pasted output of collect_env, nvidia-smi, pip freeze ...", "FILE|-")
    ] = ""
    select: Annotated[
        tuple[str, ...], Option("--select", "Show only rules with this id or prefix, such as DRV or GPU001.", "ID")
    ] = ()
    ignore: Annotated[tuple[str, ...], Option("--ignore", "Hide rules with this id or prefix.", "ID")] = ()
    image: Annotated[str, Option("--image", "Judge whether an image runs on the machine.", "REF|FILE|-")] = ""
    driver: Annotated[str, Option("--driver", "The driver's version, such as 550.54.", "VERSION")] = ""
    save: Annotated[str, Option("--save", "Record this machine's facts to a file for --machine.", "FILE")] = ""
    force: ReplaceOption = False


class ManagedEnvironment(Record, frozen=True, kw_only=True):
    """An environment that envdoctor installed, from the record inside it."""

    profile: str
    lock: str
    created: str
    verified: VerificationState
    fallbacks: dict[str, str] = {}  # attention implementation used instead of a package without a fitting wheel


class CheckResult(Record, frozen=True):
    """Facts, findings and the choice of a profile."""

    machine: Machine
    stack: Stack | None  # None: no environment was examined
    findings: tuple[Finding, ...]
    rules: int
    choice: Choice
    report: tuple[str, ...] = ()  # kinds of output recognized in a pasted report
    made: ManagedEnvironment | None = None  # None: envdoctor did not install the environment
    verification: VerificationStatus | None = None  # None: its probes were not run
    benchmark: BenchmarkStatus | None = None
    environment: EnvironmentSelection = EnvironmentSelection("", "")  # which one was examined, and why
    evaluated: int | None = None  # rules that gave a result, also if they found no problem; None for a report
    rule_filter: RuleFilter = RuleFilter((), ())  # of the findings
    coverage: ReportCoverage | None = None  # of a pasted report; None: a machine was examined
    next_command: str = ""  # on the examined machine; empty if there is nothing to do

    @property
    def undecided(self) -> tuple[str, ...]:
        """The parts that could not be read; those of a report are in its coverage."""
        return () if self.coverage else tuple(undecided_parts(self.machine, self.stack, self.rule_filter))


def run(request: CheckRequest) -> CommandResult:
    """Examine this machine, a recorded one, or a pasted report."""
    request = msgspec.structs.replace(request, facts=facts_with_driver(request.facts, request.driver))
    if request.image:
        return _check_image(request)
    rule_filter = parse_rule_filter(request.select, request.ignore, list(RULES))
    if request.report:
        return _check_report(request, rule_filter)
    machine = select_machine(request.machine, request.facts)
    environment = _select_environment(request)
    stack = read_environment(environment)
    if request.save:
        _save(machine, request)
    findings = evaluate_with_versions(machine, stack)
    findings = with_interpreter(findings, (stack.python.value or "") if stack else "")
    result = _check_result(machine, stack, findings, rule_filter=rule_filter, environment=environment)
    return _result(request, result if stack is None or request.machine else _with_stored_results(result, stack))


def _check_image(request: CheckRequest) -> CommandResult:
    """Judge a container image on the machine instead of an environment."""
    from envdoctor.commands.check_image import check_image

    ignored = {
        "--venv": request.venv, "--python": request.python, "--from-report": request.report, "--save": request.save,
        "--select": request.select, "--ignore": request.ignore,
    }  # fmt: skip
    reason = "an image is compared with a machine"
    reject_combination("--image", ignored, reason=reason, hint="envdoctor check --image IMAGE --gpu l4")
    options = machine_words(request.machine)
    options += [word for fact in request.facts for word in ("--fact", fact)]
    return check_image(request.image, select_machine(request.machine, request.facts), tuple(options))


def _result(request: CheckRequest, data: CheckResult) -> CommandResult:
    data = msgspec.structs.replace(data, next_command=choose_next_command(request, data))
    failed = any(finding.status in ("error", "crashed") for finding in data.findings)
    lacks_facts = not data.coverage.enough if data.coverage else bool(data.undecided) or data.evaluated == 0
    return CommandResult(data, exit_code(failed=failed, undecided=lacks_facts))


def check_machine() -> CheckResult:
    """Examine this machine without an environment."""
    machine = select_machine("", ())
    selection = EnvironmentSelection("", "not requested")
    return _check_result(machine, None, evaluate(machine), rule_filter=RuleFilter((), ()), environment=selection)


def _select_environment(request: CheckRequest) -> EnvironmentSelection:
    """Select the environment. With a recorded machine, only a named one is examined."""
    if request.machine and not (request.venv or request.python):
        return EnvironmentSelection("", "--venv PATH selects one")
    return find_environment(request.venv, request.python, os.environ, installed=installed_environments)


def _check_result(
    machine: Machine,
    stack: Stack | None,
    findings: Sequence[Finding],
    *,
    rule_filter: RuleFilter,
    environment: EnvironmentSelection,
    report: tuple[str, ...] = (),
    coverage: ReportCoverage | None = None,
) -> CheckResult:
    choice = choose(machine, read_candidates())
    unused = None if report else unused_gpu(machine, choice)
    known_causes = {finding.cause for finding in findings if finding.status in ("error", "warning")}
    shown = rule_filter.apply([*findings, *([unused] if unused and unused.cause not in known_causes else [])])
    unknown = {finding.id for finding in shown if finding.status in ("unknown", "crashed")}
    applied = (
        rule for rule in RULES.values() if rule_filter.includes(rule.id) and (stack or not rule.needs_environment)
    )
    return CheckResult(
        machine, stack, shown, len(RULES), choice, report,
        environment=environment, evaluated=None if report else sum(rule.id not in unknown for rule in applied),
        rule_filter=rule_filter, coverage=coverage,
    )  # fmt: skip


def _with_stored_results(result: CheckResult, stack: Stack) -> CheckResult:
    """Add the install record and the stored verification and benchmark of an environment on this machine."""
    interpreter = Path(stack.python.value or "")
    driver = result.machine.driver.version.value or ""
    gpus = tuple(gpu.name.value or "unreadable" for gpu in result.machine.gpus.value or ())
    installed = read_install_record(interpreter.parent.parent)
    verification = read_verification_status(interpreter, driver, gpus)
    managed = installed and ManagedEnvironment(
        profile=installed.profile,
        lock=installed.lock,
        created=installed.created,
        verified=verification_state(verification),
        fallbacks=installed.fallbacks,
    )
    return msgspec.structs.replace(
        result, made=managed, verification=verification, benchmark=read_benchmark_status(interpreter, driver, gpus)
    )


def _environment_words(request: CheckRequest, environment: EnvironmentSelection) -> list[str]:
    """The option that selects the examined environment: an interpreter outside of any needs --python."""
    if request.python:
        return ["--python", request.python]
    path = request.venv or environment.path
    return ["--python" if is_file(Path(path)) else "--venv", path]


def choose_next_command(request: CheckRequest, data: CheckResult) -> str:
    """Fix problems, or check again after the user did; otherwise install, verify or train, in this order."""
    problem = next((finding for finding in data.findings if finding.status in ("error", "warning")), None)
    is_venv = data.stack is not None and data.stack.kind.value == "venv"
    can_fix = is_venv and any(map(is_automatic, data.findings))
    if data.report or (problem and request.machine and not can_fix):
        return shell_command("envdoctor explain {}", re.sub(CAUSE_PREFIX, "", problem.id)) if problem else ""
    place = _environment_words(request, data.environment)
    lacks_packages = _lacks_notebook_packages(data)  # which may solve the problem, as a newer torchao does
    if problem and not lacks_packages:
        named = place if request.venv or request.python else []
        words = ["envdoctor", "fix" if can_fix else "check", *named]
        words += machine_words(request.machine)
        return shlex.join([*words, *(word for fact in request.facts for word in ("--fact", fact))])
    if lacks_packages or data.stack is None or data.stack.torch.state == "absent":
        return _install_command(request, data, needs_torch=not lacks_packages)
    if request.machine:
        return ""
    if verification_state(data.verification) != "passed":
        return shlex.join(["envdoctor", "verify", *place])
    profiles = {profile.id: profile for profile in read_candidates()}
    recipe = profiles[data.made.profile].train.recipe if data.made and data.made.profile in profiles else "sort"
    return shlex.join(["envdoctor", "train", recipe, *place])


def _lacks_notebook_packages(data: CheckResult) -> bool:
    """Whether the profile for this notebook was chosen, and its Python has a torch but not all packages."""
    profile = next((each for each in read_candidates() if each.id == data.choice.profile and each.notebook), None)
    installed = (data.stack.distributions.value or {}) if data.stack else {}
    if profile is None or not data.environment.notebook or "torch" not in installed:
        return False
    return any(name not in installed for name in distribution_names(profile.requirements))


def _install_command(request: CheckRequest, data: CheckResult, *, needs_torch: bool) -> str:
    """The command for missing packages. A notebook without torch would not use the environment of a profile."""
    if data.environment.notebook and needs_torch and not request.machine:
        return shell_command(INSTALL_TORCH, data.environment.path)
    return shell_command("envdoctor install {}", data.choice.profile) if data.choice.profile else ""


def _check_report(request: CheckRequest, rule_filter: RuleFilter) -> CommandResult:
    from envdoctor.reports import has_no_facts, parse_report
    from envdoctor.reports.coverage import measure_coverage

    if request.machine or request.venv or request.python:
        raise BadInput(
            "--from-report cannot be combined with --machine, --venv or --python",
            expected="one source of facts",
            hint="envdoctor check --from-report FILE",
        )
    text, unread = read_pasted_text(request.report)
    report = parse_report(text)
    findings = diagnose_report(report)
    is_report = bool(findings) or not has_no_facts(report)
    if request.facts:
        machine = machines.override(report.machine, list(request.facts))
        report = msgspec.structs.replace(report, machine=machine)
        findings = diagnose_report(report)
    result = _check_result(
        report.machine,
        report.stack,
        findings,
        rule_filter=rule_filter,
        environment=EnvironmentSelection("", "that of the report"),
        report=report.kinds or (UNNAMED_REPORT,),
        coverage=measure_coverage(report, unread),
    )
    if not is_report:
        name = "standard input" if request.report == "-" else request.report
        raise BadInput(
            f"no environment report found in {name}",
            expected="output of collect_env, nvidia-smi, pip freeze, accelerate env or ds_report",
            hint="envdoctor check --from-report report.txt",
            data=result,
        )
    if request.save:
        _save(report.machine, request)
    return _result(request, result)


def _save(machine: Machine, request: CheckRequest) -> None:
    path = Path(request.save)
    origin = f"recorded by envdoctor {__version__} on {datetime.now(UTC):%Y-%m-%d}"
    recorded = machines.anonymize(machine, name=path.stem, origin=origin, home=str(Path.home()))
    text, hint = machines.machine_json(recorded), "envdoctor check --save machine.json"
    write_file(path, text, hint=hint, replace=request.force)
