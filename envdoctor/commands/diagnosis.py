"""The commands that say what is wrong: check, explain, rules, report."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from envdoctor import __version__
from envdoctor.commands.rules import documentation
from envdoctor.core.decoding import write_file
from envdoctor.core.directories import state_directory
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, EnvdoctorError, nearest
from envdoctor.core.paths import exists
from envdoctor.core.records import Finding, Machine, Record, Stack
from envdoctor.core.results import Answer, Checked, Made, Written
from envdoctor.environment.select import select_stack
from envdoctor.machine import recorded as machines
from envdoctor.machine.select import select_machine

if TYPE_CHECKING:
    from envdoctor.explain import Cause, Explanation
    from envdoctor.reports import Report

REPORT_BYTES = 16 << 20  # a pasted report has some KiB; of a longer text the beginning is read
LIKELY = 0.5  # confidence from which a cause is told below an error of ours
TEXT_ERROR, TEXT_WARNING = 0.6, 0.3  # confidence from which a cause in a report's own lines is an error, a warning
NEAR_CERTAIN = 0.8  # confidence from which lines that are mere warnings count as much as others
FAILURE = re.compile(  # what a warning tells of that is more than a remark
    r"[a-z]Error\b|\bError \d|\b[Ff]ail(?:ed|ure)\b|\bERROR\b|is_available\(\).{0,20}False|UnspecifiedPlatform"
)
ARCHITECTURE_CAUSES = {"gpu-arch-not-in-build", "gpu-arch-dropped"}


class CheckRequest(Record, frozen=True):
    """What `check` was asked for."""

    machine: str = ""  # a recorded one
    facts: tuple[str, ...] = ()
    venv: str = ""
    python: str = ""
    report: str = ""  # a file, or - for standard input
    save: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


def check(request: CheckRequest) -> Answer:
    """Facts, then findings, then the profile that fits: of this machine, a recorded one, or a pasted report."""
    from envdoctor.rules import RULES, evaluate

    wanted = selection(request.select, request.ignore, list(RULES))
    if request.report:
        return _check_report(request, wanted)
    machine = select_machine(request.machine, request.facts)
    stack = select_stack(request.venv, request.python, search=not request.machine)
    findings = wanted.of(evaluate(machine, stack))
    if request.save:
        _save(machine, Path(request.save))
    answer = _checked(machine, stack, findings, len(RULES), ())
    return answer if stack is None or request.machine else _with_verification(answer, stack, machine)


def _with_verification(answer: Answer, stack: Stack, machine: Machine) -> Answer:
    """The answer, with what envdoctor knows of an environment of this machine beside its files."""
    from envdoctor.environment.managed import read_install_record
    from envdoctor.verify.status import read_benchmark_status, read_verification_status, verification_state

    interpreter = Path(stack.python.value or "")
    installed = read_install_record(interpreter.parent.parent)
    now = machine.driver.version.value or "", tuple(g.name.value or "unreadable" for g in machine.gpus.value or ())
    verification = read_verification_status(interpreter, *now)
    made = installed and Made(
        profile=installed.profile,
        lock=installed.lock,
        created=installed.created,
        verified=verification_state(verification),
        fallbacks=installed.fallbacks,
    )
    checked = msgspec.structs.replace(
        answer.data, made=made, verification=verification, benchmark=read_benchmark_status(interpreter, *now)
    )
    return msgspec.structs.replace(answer, data=checked)


def _check_report(request: CheckRequest, wanted: Selection) -> Answer:
    from envdoctor.reports import has_no_facts, parse_report
    from envdoctor.rules import RULES

    if request.machine or request.venv or request.python:
        raise BadInput(
            "--from-report beside --machine, --venv or --python",
            expected="one source of facts",
            hint="envdoctor check --from-report FILE",
        )
    report = parse_report(_read_start(request.report))
    told = diagnose_report(report)
    if has_no_facts(report) and not told:
        raise BadInput(
            f"nothing of a report is in {_name(request.report)}",
            expected="what collect_env, nvidia-smi, pip freeze, accelerate env or ds_report print",
            hint="envdoctor check --from-report report.txt",
        )
    if request.facts:
        machine = machines.override(report.machine, list(request.facts))
        report = msgspec.structs.replace(report, machine=machine)
        told = diagnose_report(report)
    if request.save:
        _save(report.machine, Path(request.save))
    return _checked(report.machine, report.stack, wanted.of(told), len(RULES), report.kinds)


def diagnose_report(report: Report) -> list[Finding]:
    """What the rules say of a report's facts, and what its own error lines say where the rules say nothing."""
    from envdoctor.explain import explain
    from envdoctor.rules import evaluate

    findings = evaluate(report.machine, report.stack)
    bad = {finding.cause for finding in findings if finding.status in ("error", "warning")}
    told = explain(io.BytesIO(report.errors.encode())).causes if report.errors.strip() else ()
    from_lines = [
        Finding(
            f"TEXT-{cause.cause}",
            cause.cause,
            _status_of_lines(cause),
            cause.lines[0],
            fix=cause.fix,
            commands=cause.commands,
            url=cause.url,
        )
        for cause in told
        if cause.lines and cause.confidence >= TEXT_WARNING and not _facts_say_more(cause.cause, bad, report)
    ]
    return sorted([*from_lines, *findings], key=lambda finding: finding.status != "error")


def _facts_say_more(cause: str, bad: set[str], report: Report) -> bool:
    """Whether the rules name this cause themselves, or know which of two like ones it is.

    "no kernel image" is the same line for a GPU too new, one too old, and an extension: the facts tell them apart.
    """
    from envdoctor.rules.torch_build import has_code_for_every_gpu

    if cause not in ARCHITECTURE_CAUSES:
        return cause in bad
    return bool(bad & ARCHITECTURE_CAUSES) or has_code_for_every_gpu(report.machine, report.stack)


def _status_of_lines(cause: Cause) -> Literal["error", "warning", "info"]:
    """How bad a cause is that only lines speak for.

    Libraries warn at import of what they do without: that is a remark, unless the warning says that something failed,
    or is known to come with nothing else. What is deprecated still works.
    """
    from envdoctor.explain.rank import WARNING_LINE

    quiet = all(WARNING_LINE.search(line) and not FAILURE.search(line) for line in cause.lines)
    deprecated = all("deprecated" in line for line in cause.lines)
    if quiet and (deprecated or cause.confidence < NEAR_CERTAIN):
        return "info"
    return "error" if cause.confidence >= TEXT_ERROR else "warning"


def _checked(
    machine: Machine, stack: Stack | None, findings: list[Finding], rules: int, kinds: tuple[str, ...]
) -> Answer:
    from envdoctor.profiles import choose, read_candidates

    bad = any(finding.status in ("error", "crashed") for finding in findings)
    checked = Checked(machine, stack, tuple(findings), rules, choose(machine, read_candidates()), kinds)
    return Answer(checked, EXIT_NO if bad else EXIT_OK)


def _save(machine: Machine, path: Path) -> None:
    origin = f"recorded by envdoctor {__version__} on {datetime.now(UTC):%Y-%m-%d}"
    recorded = machines.anonymize(machine, name=path.stem, origin=origin, home=str(Path.home()))
    write_file(path, machines.machine_json(recorded), hint="envdoctor check --save machine.json")


class Selection(Record, frozen=True):
    """Which findings are wanted: by id or the beginning of one."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]

    def of(self, findings: list[Finding]) -> list[Finding]:
        """The findings that are wanted."""
        return [
            finding
            for finding in findings
            if (not self.select or finding.id.startswith(self.select)) and not finding.id.startswith(self.ignore)
        ]


def selection(select: Sequence[str], ignore: Sequence[str], known: list[str]) -> Selection:
    """Ids or beginnings, comma-separated or given several times; one that no rule has is refused."""
    parsed = [
        tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
        for texts in (select, ignore)
    ]
    for prefix in [*parsed[0], *parsed[1]]:
        if not any(name.startswith(prefix) for name in [*known, "TEXT-"]) and not prefix.startswith("TEXT-"):
            close = nearest(prefix, known)
            raise BadInput(
                f"no rule begins with '{prefix}'" + (f"; did you mean '{close}'?" if close else ""),
                expected="ids or their beginnings, as DRV001 or DRV",
                hint="envdoctor rules",
            )
    return Selection(*parsed)


def explain(text: str, recorded: str, facts: Sequence[str], venv: str, python: str) -> Answer:
    """The causes of an error text or log; or the documentation of a rule or a cause."""
    from envdoctor.explain import explain as run_explain

    if documented := documentation(text):
        return Answer(documented)
    stack = select_stack(venv, python, search=False)
    # An environment that was named lies on this machine: its errors are this machine's, too.
    machine = select_machine(recorded, facts) if recorded or facts or stack else None
    with _opened(text) as stream:
        explained = run_explain(stream, machine, stack)
    if not explained.size:
        raise BadInput(f"{_name(text or '-')} is empty", expected="an error text or a log", hint="envdoctor check")
    return Answer(explained, EXIT_OK if explained.causes else EXIT_NO)


@contextmanager
def explaining(machine: Machine, python: Path | None) -> Iterator[None]:
    """Let an error that leaves a child's log behind carry the likely causes that are in it."""
    try:
        yield
    except EnvdoctorError as error:
        if error.log:
            error.causes = _likely_causes(Path(error.log), machine, python)
        raise


def _likely_causes(log: Path, machine: Machine, python: Path | None) -> tuple[Cause, ...]:
    from envdoctor.explain import explain

    try:
        stack = select_stack("", str(python), search=False) if python else None
    except EnvdoctorError:
        stack = None  # no environment that can be read: the log speaks for itself
    try:
        with log.open("rb") as stream:
            return _likely(explain(stream, machine, stack))
    except OSError:
        return ()  # the error itself matters more than that its log cannot be read


def _likely(explained: Explanation) -> tuple[Cause, ...]:
    return tuple(cause for cause in explained.causes if cause.lines and cause.confidence >= LIKELY)[:2]


def likely_cause(text: str, machine: Machine, stack: Stack | None) -> str:
    """The likeliest cause of a text with its fix, in one line; empty where nothing in it is known."""
    from envdoctor.explain import explain

    causes = _likely(explain(io.BytesIO(text.encode()), machine, stack))
    return f"{causes[0].cause}: {causes[0].fix}" if causes else ""


def report(venv: str, python: str, output: str) -> Answer:
    """One file for an issue: printed, or written to `output`, as JSON where its name ends so."""
    from envdoctor.commands.report import make_report, to_markdown
    from envdoctor.rules import evaluate
    from envdoctor.verify import status as verify_status

    machine = select_machine("", ())
    stack = select_stack(venv, python, search=True)
    interpreter = Path(stack.python.value) if stack and stack.python.value else None
    made = make_report(
        machine,
        stack,
        evaluate(machine, stack),
        logs=state_directory() / "logs",
        runs=Path("runs"),
        verification=verify_status.verification_path(interpreter) if interpreter else None,
    )
    if not output:
        return Answer(made)
    text = machines.json_text(made) if output.endswith(".json") else to_markdown(made)
    write_file(Path(output), text, hint="envdoctor report --output report.md")
    return Answer(Written(output, made.summary))


def _opened(text: str) -> BinaryIO:
    """What is to be explained: standard input, a file, or the argument itself."""
    if text == "-" or (not text and not sys.stdin.isatty()):
        return sys.stdin.buffer
    if not text:
        raise BadInput(
            "nothing to explain",
            expected="an error text, a file, a rule, a cause, or text on standard input",
            hint="envdoctor explain train.log",
        )
    if "\n" not in text and len(text) < 1024 and exists(text):
        return _open_file(Path(text))
    if "\n" not in text and " " not in text and Path(text).suffix in (".log", ".txt", ".out", ".err"):
        return _open_file(Path(text))  # says that it is not there, instead of explaining the name
    return io.BytesIO(text.encode("utf-8", "replace"))


def _open_file(
    path: Path, *, expected: str = "a file with an error text or log", hint: str = "envdoctor explain -"
) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput(
            f"cannot read {path}: {error.strerror}",
            expected=expected,
            hint=hint,
        ) from error


def _read_start(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read(REPORT_BYTES).decode("utf-8", "replace")
    hint = "envdoctor check --from-report report.txt"
    with _open_file(Path(name), expected="a file with a pasted report, or - for standard input", hint=hint) as stream:
        try:
            return stream.read(REPORT_BYTES).decode("utf-8", "replace")
        except OSError as error:  # a folder opens on some systems and then does not read
            raise BadInput(
                f"cannot read {name}: {error.strerror}", expected="a file", hint="envdoctor check --help"
            ) from error


def _name(source: str) -> str:
    return "standard input" if source == "-" else source
