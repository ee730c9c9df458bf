"""Output of `envdoctor verify`: a line for each probe when it ends, the output of failed ones, and the verdict."""

from __future__ import annotations

from envdoctor.core.records import ProbeResult, Verification
from envdoctor.core.shell_commands import shell_command
from envdoctor.output.console import err, out
from envdoctor.output.text import Part, Text, command, indent

MARKS = {"passed": ("✓", "ok"), "unavailable": ("-", "dim")}  # all other outcomes are failures
NAME_WIDTH = 22  # of the longest name of a probe
MAX_OUTPUT = 600  # last characters of a failed probe's output


def probe_line(result: ProbeResult) -> Text:
    """The result of a probe on one line."""
    mark, style = MARKS.get(result.outcome, ("✗", "error"))
    outcome = "" if result.outcome == "passed" else f"{result.outcome}: "
    return Text.assemble(
        (f"{mark} ", style),
        f"{result.probe:{NAME_WIDTH}} {result.seconds:5.1f} s  ",
        (outcome, style),
        result.message,
    )


def print_probe(result: ProbeResult) -> None:
    """Print the result of a probe as data, above the live line."""
    with err().paused():
        out().print(probe_line(result))


def render_verification(data: Verification) -> list[Part]:
    """Details of failed probes, and the verdict. The line of each probe was printed when it ended."""
    return [
        *probe_details(data),
        probe_verdict(data),
        command(shell_command("envdoctor check --python {}", data.python)),
    ]


def probe_details(data: Verification) -> list[Part]:
    """The output and the cause of failed probes, and the attention implementations that passed."""
    parts: list[Part] = []
    for result in data.results:
        if result.outcome in MARKS:
            continue
        if result.output:
            parts.append(indent(Text(f"{result.probe}: {result.output.strip()[-MAX_OUTPUT:]}", style="dim")))
        if result.cause:
            parts.append(indent(Text(f"{result.probe}: {result.cause}")))
    if len(data.attention) > 1:  # the last one is eager, which is always available
        parts.append(Text(f"attention that passed, best first: {', '.join(data.attention)}", style="dim"))
    return parts


def probe_verdict(data: Verification) -> Text:
    """Whether the environment is verified, and how many probes passed."""
    passed, unavailable = (
        sum(result.outcome == outcome for result in data.results) for outcome in ("passed", "unavailable")
    )
    failed = len(data.results) - passed - unavailable
    counts = f": {passed} of {len(data.results)} probes passed"
    counts += "".join(f", {n} {name}" for n, name in ((unavailable, "unavailable"), (failed, "failed")) if n)
    mark, title = (("✓ ", "ok"), "verified") if data.passed else (("✗ ", "error"), "not verified")
    outcomes = {result.probe: result.outcome for result in data.results}
    missing = [f"{name} {outcomes.get(name, 'not run')}" for name in data.required if outcomes.get(name) != "passed"]
    required = f"; required, but {', '.join(missing)}" if missing else ""
    place = f"driver {data.driver}, {', '.join(data.gpus)}" if data.driver else "no GPU"
    return Text.assemble(mark, (title, "title"), f"{counts}{required}", (f"  {data.python}, {place}", "dim"))
