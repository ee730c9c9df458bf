"""Results for people. One renderer a kind of result; adding a command adds a row to RENDERERS or ELSEWHERE."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from envdoctor import results
from envdoctor.errors import EnvdoctorError
from envdoctor.model import Choice, Condition, Finding, Verification
from envdoctor.output import diagnosis
from envdoctor.output.console import err, out, table
from envdoctor.output.machine import machine_tables
from envdoctor.profiles import Profile, violations
from envdoctor.results import Answer

if TYPE_CHECKING:
    from envdoctor.install import InstallResult

MARKS = {"ok": "✓", "info": "i", "warning": "!", "error": "✗", "unknown": "?", "crashed": "✗", "skipped": "-"}
OUTCOMES = {"passed": "ok", "unavailable": "info"}
GIB = 1 << 30


def render(answer: Answer) -> None:
    """Print a result on stdout."""
    for part in _renderer(type(answer.data).__name__)(answer.data):
        out().print(part)


def render_error(error: EnvdoctorError) -> None:
    """Print an error on stderr: what was seen, what was expected, what to run next."""
    console = err()
    console.print(Text.assemble(("error: ", "error"), error.message))
    if error.expected:
        console.print(Text.assemble(("expected: ", "dim"), error.expected))
    if error.hint:
        console.print(Text.assemble(("hint: ", "info"), error.hint))
    for part in diagnosis.likely(error.causes):
        console.print(part)


def _checked(data: results.Checked) -> list[RenderableType]:
    seen = f"recognised in the report: {', '.join(data.report)}" if data.report else ""
    return [
        *([Text(seen, style="dim")] if seen else []),
        *machine_tables(data.machine),
        *diagnosis.stack_lines(data.stack, from_report=bool(data.report)),
        *_findings(data.findings, data.rules),
        *_choice(data.choice),
    ]


def _findings(findings: tuple[Finding, ...], rules: int) -> list[RenderableType]:
    title = Text.assemble(("\nFindings", "title"), f"  {len(findings)} from {rules} rules")
    if not findings:
        return [title, Text.assemble(("  ✓ ", "ok"), "nothing wrong found")]
    told = [finding for finding in findings if finding.status != "unknown"]
    return [title, *(part for finding in told for part in _finding(finding)), *_unknown(findings)]


def _unknown(findings: tuple[Finding, ...]) -> list[RenderableType]:
    """Rules that could not judge, by the fact that they lacked."""
    lacking: dict[str, list[str]] = {}
    for finding in findings:
        if finding.status == "unknown":
            lacking.setdefault(f"{finding.evidence[0].fact} ({finding.evidence[0].value})", []).append(finding.id)
    return [
        Text.assemble(("  ? ", "unknown"), f"{fact} could not be read, so nothing is said by ", ", ".join(rules))
        for fact, rules in lacking.items()
    ]


def _finding(finding: Finding) -> list[RenderableType]:
    mark = MARKS.get(finding.status, "?")
    head = Text.assemble(
        (f"  {mark} ", finding.status),
        (f"{finding.id} ", "title"),
        finding.message,
        (f"  [{finding.cause}]", "dim"),
    )
    if finding.status == "info":
        return [head]  # true and harmless: `envdoctor explain ID` has the rest
    parts: list[RenderableType] = [head]
    if finding.fix:
        parts.append(_indent(Text(finding.fix)))
    parts.extend(_indent(Text(f"$ {command}", style="command")) for command in finding.commands)
    parts.extend(_indent(Text.assemble((f"{e.fact}: {e.value} ({e.source})", "dim"))) for e in finding.evidence)
    if finding.url:
        parts.append(_indent(Text(finding.url, style="dim")))
    return parts


def _indent(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 4))


def _choice(choice: Choice) -> list[RenderableType]:
    parts: list[RenderableType] = [Text("\nProfile", style="title")]
    if choice.profile:
        parts.append(Text.assemble(("  ✓ ", "ok"), (choice.profile, "title"), f"  {choice.reason}"))
        parts.append(_indent(Text(f"$ envdoctor install --profile {choice.profile}", style="command")))
    else:
        parts.append(Text.assemble(("  ✗ ", "error"), choice.reason))
    for candidate in choice.candidates:
        if candidate.profile == choice.profile:
            continue
        reasons = "; ".join(_condition(c) for c in violations(candidate)) or "fits, but another one is preferred"
        parts.append(Text.assemble(("  - ", "dim"), candidate.profile, (f"  {reasons}", "dim")))
    return parts


def _condition(condition: Condition) -> str:
    return f"{condition.name}: {condition.observed}, needed {condition.expected}"


def _profile_list(data: results.ProfileList) -> list[RenderableType]:
    rows = table("profile", "machine", "stack", "shown")
    for profile in data.profiles:
        shown = "\n".join(dict.fromkeys(f"{e.what} {e.date}" for e in profile.evidence)) or "nothing yet"
        rows.add_row(Text(profile.id, style="title"), _needs(profile), profile.summary, shown)
    return [rows]


def _needs(profile: Profile) -> str:
    when = profile.when
    gpus = (
        f"{when.gpus}+ GPU, cc {when.compute_capability}+, {when.gpu_memory_gb:g} GiB"
        if when.gpus
        else "no GPU needed"
    )
    cuda = f", CUDA {profile.cuda.build}" if profile.cuda else ""
    return f"{' or '.join(when.architectures)}; {gpus}{cuda}; glibc {when.glibc}+; {when.disk_gb:g} GiB disk"


def _profile(data: Profile) -> list[RenderableType]:
    pins = table("requirement", "why")
    for pin in (*data.requirements, *data.constraints):
        pins.add_row(pin.spec, pin.why + (f" {pin.url}" if pin.url else ""))
    sources = ", then ".join(
        "configured sources, else PyPI" if s.kind == "configured" else f"the PyTorch index ({s.backend})"
        for s in data.sources
    )
    parts: list[RenderableType] = [
        Text.assemble((data.id, "title"), f"  {data.title}"),
        Text(data.summary),
        Text.assemble(("needs    ", "dim"), _needs(data)),
        Text.assemble(("python   ", "dim"), ", ".join(data.python.versions)),
        Text.assemble(("sources  ", "dim"), sources),
        Text.assemble(("probes   ", "dim"), ", ".join(data.verify.required)),
        Text.assemble(("recipe   ", "dim"), data.train.recipe),
        pins,
        Text("evidence", style="title"),
    ]
    parts += [Text(f"  {e.date}  {e.what} on {e.where}: {e.detail}") for e in data.evidence] or [
        Text("  nothing shown yet")
    ]
    return parts


def _resolved(data: results.ResolvedAll) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for result in data.results:
        lock = result.resolution.lock if result.resolution else None
        mark = ("✓ ", "ok") if lock else ("✗ ", "error")
        platform = result.resolution.platform if result.resolution else ""
        parts.append(Text.assemble(mark, (result.profile, "title"), f"  {platform}"))
        for attempt in result.resolution.attempts if result.resolution else ():
            reason = f": {attempt.reason}" if attempt.reason else ""
            parts.append(
                _indent(
                    Text(
                        f"Python {attempt.python} from {attempt.source}: {attempt.outcome}{reason}",
                        style="dim",
                    )
                )
            )
        if lock:
            build = "CPU" if lock.torch_build == "cpu" else f"CUDA {lock.torch_build}"
            counts: dict[str, int] = {}
            for package in lock.packages:
                counts[package.source] = counts.get(package.source, 0) + 1
            parts.append(_indent(Text(f"{len(lock.packages)} packages, torch build {build}, lock {result.digest}")))
            parts.extend(_indent(Text(f"{count:4} from {source}")) for source, count in counts.items())
            torch = next((p for p in lock.packages if p.name == "torch"), None)
            if torch:
                parts.append(_indent(Text(f"torch {torch.version} from {torch.source}")))
            if len(data.results) == 1:
                parts.append(_packages(lock.packages))
        if result.hint:
            parts.append(_indent(Text.assemble(("hint: ", "info"), result.hint)))
        if result.fits is False:
            parts.append(
                _indent(Text(f"does not fit {result.machine}: {'; '.join(result.violated)}", style="warning"))
            )
    return parts


def _packages(packages: Any) -> Table:
    rows = table("package", "version", "source")
    for package in packages:
        rows.add_row(package.name, package.version, package.source)
    return rows


def _planned(data: results.Planned) -> list[RenderableType]:
    notes = [] if data.fits else [Text(f"# does not fit this machine: {'; '.join(data.violated)}")]
    # soft_wrap would be lost in a Group: these lines are for pasting and must not be broken
    for line in (f"# {data.profile} into {data.venv}", *(str(note) for note in notes), *data.commands):
        out().print(Text(line), soft_wrap=True)
    return []


def _installed(data: InstallResult) -> list[RenderableType]:
    build = "CPU" if data.installed.torch_build == "cpu" else f"CUDA {data.installed.torch_build}"
    head = "unchanged: this lock is installed already" if data.unchanged else f"installed in {data.seconds:.1f} s"
    return [
        Text.assemble(("✓ ", "ok"), (data.installed.profile, "title"), f"  {head}"),
        _indent(Text(f"{data.installed.packages} packages, {data.installed.size / GIB:.1f} GiB in {data.venv}")),
        _indent(Text(f"torch is the {build} build, from {data.installed.torch_source}")),
        _indent(Text(f"$ envdoctor verify --venv {data.venv}", style="command")),
    ]


def _verification(data: Verification) -> list[RenderableType]:
    rows = table("probe", "outcome", "s", "what it showed")
    for result in data.results:
        style = OUTCOMES.get(result.outcome, "error")
        rows.add_row(result.probe, Text(result.outcome, style=style), f"{result.seconds:.1f}", escape(result.message))
    verdict = (
        Text.assemble(("✓ ", "ok"), "verified") if data.passed else Text.assemble(("✗ ", "error"), "not verified")
    )
    outcomes = {result.probe: result.outcome for result in data.results}
    lacking = [f"{name} {outcomes.get(name, 'not run')}" for name in data.required if outcomes.get(name) != "passed"]
    if lacking:
        verdict.append(f": required, but {', '.join(lacking)}")
    where = f"{data.python}, " + (f"driver {data.driver}, {', '.join(data.gpus)}" if data.driver else "no GPU")
    outputs = [
        _indent(Text(f"{r.probe}: {r.output.strip()[-600:]}", style="dim"))
        for r in data.results
        if r.output and r.outcome not in OUTCOMES
    ]
    return [rows, *outputs, Text.assemble(verdict, f"  {where}")]


def _recipes(data: results.RecipeList) -> list[RenderableType]:
    rows = table("recipe", "what it trains")
    for recipe in data.recipes:
        rows.add_row(Text(recipe.name, style="title"), recipe.summary)
    return [rows]


def _trained(data: results.Trained) -> list[RenderableType]:
    if data.dry_run:
        rows = table("setting", "value")
        for key, value in data.run.settings.items():
            rows.add_row(key, str(value))
        facts = [Text(f"{key}: {value}") for key, value in data.summary.items()]
        return [rows, *facts, Text("$ " + " ".join(data.run.command), style="command")]
    result = data.result
    metrics = list(dict.fromkeys([*result.get("before", {}), *result.get("after", {})]))
    rows = table("held-out", "before", "after")
    for name in metrics:
        rows.add_row(name, _number(result.get("before", {}).get(name)), _number(result.get("after", {}).get(name)))
    for name, values in (result.get("baselines") or {}).items():
        shown = ", ".join(f"{metric} {_number(value)}" for metric, value in values.items())
        rows.add_row(Text(f"against {name}", style="dim"), "", Text(shown, style="dim"))
    device = result.get("gpu") or result.get("device", "")
    versions = " ".join(f"{name} {version}" for name, version in result.get("versions", {}).items())
    return [
        rows,
        Text.assemble(("✓ ", "ok"), f"{result.get('steps', '?')} steps in {data.seconds:.0f} s on {device}"),
        _indent(Text(versions, style="dim")),
        _indent(Text(f"run: {data.run.directory} (run.json, metrics.csv, generations.csv, curves.png, model/)")),
    ]


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "" if value is None else str(value)


def _quickstarted(data: results.Quickstarted) -> list[RenderableType]:
    laps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in data.seconds.items())
    passed = sum(result.outcome == "passed" for result in data.verification.results)
    return [
        *_choice(data.checked.choice)[:2],
        *_installed(data.installed)[:3],
        Text.assemble(("✓ ", "ok"), ("verified", "title"), f"  {passed} probes passed"),
        *_trained(data.trained),
        Text(f"{laps}; {sum(data.seconds.values()):.0f} s in all"),
        Text("$ envdoctor train --list", style="command"),
    ]


RENDERERS: dict[str, Callable[[Any], list[RenderableType]]] = {
    "Checked": _checked,
    "ProfileList": _profile_list,
    "Profile": _profile,
    "ResolvedAll": _resolved,
    "Planned": _planned,
    "InstallResult": _installed,
    "Verification": _verification,
    "RecipeList": _recipes,
    "Trained": _trained,
    "Quickstarted": _quickstarted,
}
# Renderers in modules of their own, which are imported when there is something to render.
ELSEWHERE = {
    "Explained": ("diagnosis", "explained"),
    "RuleList": ("diagnosis", "rule_list"),
    "Documentation": ("diagnosis", "documented"),
    "Schema": ("diagnosis", "schema"),
    "Written": ("diagnosis", "written"),
    "Text": ("diagnosis", "text"),
    "FactsChecked": ("locks", "facts_checked"),
    "Report": ("diagnosis", "report"),
    "LockedAll": ("locks", "locked_all"),
    "Exported": ("locks", "exported"),
    "Matrix": ("locks", "matrix"),
    "Audited": ("audit", "audited"),
}


def _renderer(name: str) -> Callable[[Any], list[RenderableType]]:
    """What renders a kind of result, by the record's name."""
    if name in RENDERERS:
        return RENDERERS[name]
    module, function = ELSEWHERE[name]
    found: Callable[[Any], list[RenderableType]] = getattr(import_module(f"envdoctor.output.{module}"), function)
    return found


__all__ = ["Group", "render", "render_error"]
