"""Human output of `profiles`, `profiles show` and `resolve`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.commands.profiles import ProfileEntry, ProfileList
from envdoctor.commands.profiles_show import LockSummary, ProfileDetails
from envdoctor.commands.resolve import ProfileResolution, ResolveResult
from envdoctor.core.command_line import command_line
from envdoctor.core.records import Finding
from envdoctor.locking.lock import Lock
from envdoctor.output.findings import remedy_lines
from envdoctor.output.text import Part, Rows, Text, facts_table, hint, indent, table
from envdoctor.profiles import Build, Pin, Profile, Wheel, When
from envdoctor.profiles.records import ProfileEvidence

Parts = Iterator[Part]
SHA_SHOWN = 12  # characters of a hash


def render_profiles(data: ProfileList) -> list[Part]:
    """A table of all usable profiles; below it the origin of user profiles, and the problems of unusable ones."""
    rows = table("profile", "machine", "stack", "locks", "evidence")
    for entry in data.profiles:
        if entry.profile and not entry.problem:
            complete = entry.locks == entry.targets and not entry.partial
            locked = f"{entry.locks} of {entry.targets}" + (", partial" if entry.partial else "")
            rows.add_row(
                Text(entry.id, style="title"),
                Text(needs(entry.profile)),
                Text(entry.profile.summary),
                Text(locked, style="" if complete else "warning"),
                Text(_newest_evidence(entry.profile.evidence) or "none"),
            )
    return [rows, *(_origin(entry) for entry in data.profiles if entry.origin != "bundled" or entry.problem)]


def _newest_evidence(evidence: Sequence[ProfileEvidence]) -> str:
    """Each kind of evidence with its newest date."""
    newest: dict[str, str] = {}
    for each in evidence:
        newest[each.what] = max(each.date, newest.get(each.what, ""))
    return ", ".join(f"{kind} {date}" for kind, date in newest.items())


def _origin(entry: ProfileEntry) -> Text:
    if entry.problem and entry.profile is None:
        return Text.assemble(("✗ ", "error"), (entry.id, "title"), f"  {entry.origin}: ", (entry.problem, "error"))
    if entry.problem:
        return Text.assemble(("- ", "dim"), (entry.id, "title"), (f"  {entry.origin}: {entry.problem}", "dim"))
    extends = f", extends {' and '.join(entry.extends)}" if entry.extends else ""
    return Text.assemble(("✓ ", "ok"), (entry.id, "title"), f"  from {entry.origin}{extends}")


def needs(profile: Profile) -> str:
    """The machine that a profile needs, on one line."""
    when = profile.when
    cuda = f", CUDA {profile.cuda.build}" if profile.cuda else ""
    return f"{' or '.join(when.architectures)}; {_gpus(when)}{cuda}; glibc {when.glibc}+; {when.disk_gb:g} GiB disk"


def _gpus(when: When) -> str:
    if not when.gpus:
        return "no GPU required"
    parts = [f"{when.gpus}+ GPU"]
    parts += [f"cc {when.compute_capability}+"] if when.compute_capability else []
    parts += [f"{when.gpu_memory_gb:g} GiB"] if when.gpu_memory_gb else []
    return ", ".join(parts)


def render_profile(data: ProfileDetails) -> list[Part]:
    """The content of a profile, and its locks."""
    profile = data.profile
    return [
        Text.assemble((profile.id, "title"), f"  {profile.title}"),
        Text(profile.summary),
        _facts(data),
        *_pins("requirements", profile.requirements),
        *_pins("constraints", profile.constraints),
        *_wheels(profile),
        *_build(profile.build),
        *_system(data),
        *_environment(profile.environment),
        *_locks(data),
        *_evidence(profile),
    ]


def _facts(data: ProfileDetails) -> Rows:
    profile, when = data.profile, data.profile.when
    rows = facts_table()
    facts = {
        "from": data.origin + (f", extends {' and '.join(data.extends)}" if data.extends else ""),
        "machine": " or ".join(when.architectures),
        "glibc": f"{when.glibc} or newer",
        "disk": f"{when.disk_gb:g} GiB free",
        "GPUs": _gpus(when),
        "CUDA": f"the {profile.cuda.build} build of torch" if profile.cuda else "a CPU build of torch",
        "driver": _driver(when),
        "Python": ", ".join(profile.python.versions),
        "sources": ", then ".join(map(_source, profile.sources)),
        "exclude newer": f"packages uploaded after {profile.exclude_newer}" if profile.exclude_newer else "",
        "preference": f"{profile.preference}",
        "probes": ", ".join(profile.verify.required) or "none",
        "recipe": profile.train.recipe,
    }
    for name, text in facts.items():
        if text:
            rows.add_row(name, Text(text))
    return rows


def _source(source: object) -> str:
    backend = getattr(source, "backend", "")
    return f"the PyTorch index ({backend})" if backend else "configured sources, else PyPI"


def _driver(when: When) -> str:
    versions = [f"{when.driver} or newer"] if when.driver else []
    versions += [f"{when.driver_recommended} recommended"] if when.driver_recommended else []
    if not versions:
        return ""
    reason = f": {when.driver_why}" if when.driver_why else ""
    return f"{', '.join(versions)}{reason} {when.driver_url}".strip()


def _pins(title: str, pins: tuple[Pin, ...]) -> Parts:
    if pins:
        rows = table(title, "reason")
        for pin in pins:
            rows.add_row(pin.spec, " ".join(part for part in (pin.why, pin.url) if part))
        yield Text()
        yield rows


def _wheels(profile: Profile) -> Parts:
    if not profile.wheels:
        return
    yield Text("\ndirect wheels, of which the first compatible one is installed", style="title")
    for wheel in profile.wheels:
        yield indent(Text(wheel.file), 2)
        details = [f"for {_conditions(wheel)}", f"sha256 {wheel.sha256[:SHA_SHOWN]}...", wheel.url, wheel.why]
        yield from (indent(Text(text, style="dim"), 4) for text in details if text)
    for name, attention in profile.fallbacks.items():
        yield indent(Text(f"if no wheel of {name} is compatible: attention implementation {attention}"), 2)


def _conditions(wheel: Wheel) -> str:
    conditions = {
        "Python": wheel.python, "": wheel.architecture, "torch": wheel.torch, "CUDA": wheel.cuda,
        "C++11 ABI": wheel.abi,
    }  # fmt: skip
    return ", ".join(f"{name} {value}".strip() for name, value in conditions.items() if value) or "any machine"


def _build(build: Build | None) -> Parts:
    if build is None:
        return
    yield Text("\ncompiled on the machine", style="title")
    why = f": {build.why}" if build.why else ""
    yield indent(Text(f"{', '.join(build.packages)}, against the torch of the environment{why}"), 2)
    cost = f"{build.memory_gb_per_job:g} GiB of memory for each compiler"
    cost += f", {build.core_minutes:g} minutes of one core" if build.core_minutes else ", duration not measured"
    yield indent(Text(cost), 2)
    for name, value in build.environment.items():
        yield indent(Text(f"{name}={value}"), 2)


def _system(data: ProfileDetails) -> Parts:
    if data.system:
        yield Text("\nsystem packages", style="title")
    for need in data.system:
        yield indent(Text.assemble(need.name, (f"  {need.why}", "dim")), 2)
        packages = "; ".join(f"{manager}: {' '.join(names)}" for manager, names in need.packages.items())
        yield indent(Text(packages, style="dim"), 4)


def _environment(values: dict[str, str]) -> Parts:
    if values:
        yield Text("\nenvironment", style="title")
    for name, value in values.items():
        yield indent(Text(f"{name}={value}"), 2)


def _locks(data: ProfileDetails) -> Parts:
    yield Text("\nlocks", style="title")
    for lock in data.locks:
        yield from _lock(lock)
    for missing in data.missing_locks:
        yield indent(Text.assemble(("✗ ", "error"), f"none for {missing}"), 2)
    if data.missing_locks:
        name = data.profile.id if data.origin == "bundled" else data.file
        yield indent(Text(f"$ {command_line('envdoctor', 'lock', name)}", style="command"), 2)


def _lock(lock: LockSummary) -> Parts:
    if lock.problem:
        yield indent(Text.assemble(("✗ ", "error"), lock.problem), 2)
        return
    usable = not lock.without and not lock.unmet
    mark, style = ("✓ ", "ok") if usable else ("! ", "warning")
    build = "CPU" if lock.torch == "cpu" else f"CUDA {lock.torch}"
    summary = f"{lock.platform}, Python {lock.python}: {lock.packages} packages, {build}, {lock.digest}, {lock.made}"
    yield indent(Text.assemble((mark, style), summary), 2)
    if lock.without:
        yield indent(Text(f"without {', '.join(lock.without)}: only the PyTorch index has their build"), 4)
    yield from (indent(Text(unmet, style="warning"), 4) for unmet in lock.unmet)


def _evidence(profile: Profile) -> Parts:
    yield Text("\nevidence", style="title")
    for shown in profile.evidence:
        yield indent(Text(f"{shown.date}  {shown.what} on {shown.where}: {shown.detail}"), 2)
    if not profile.evidence:
        yield indent(Text("none"), 2)


def render_resolutions(data: ResolveResult) -> list[Part]:
    """Each profile with the attempts, its lock, and the findings of the rules."""
    return [part for result in data.results for part in _resolved(result, alone=len(data.results) == 1)]


def _resolved(result: ProfileResolution, *, alone: bool) -> Parts:
    resolution = result.resolution
    lock = resolution.lock if resolution else None
    mark = ("✓ ", "ok") if lock else ("✗ ", "error")
    yield Text.assemble(mark, (result.profile, "title"), f"  {resolution.platform if resolution else ''}")
    for attempt in resolution.attempts if resolution else ():
        reason = f": {attempt.reason}" if attempt.reason else ""
        text = f"Python {attempt.python} from {attempt.source}: {attempt.outcome}{reason}"
        yield indent(Text(text, style="dim"), 4)
    if lock:
        yield from _lines_of_lock(lock, result.digest)
        if alone:
            yield _packages(lock)
    for finding in result.findings:
        yield from _finding(finding)
    if result.hint:
        yield indent(hint(result.hint), 4)
    if result.fits is False:
        mismatch = f"does not fit {result.machine}: {'; '.join(result.violated)}"
        yield indent(Text(mismatch, style="warning"), 4)


def _lines_of_lock(lock: Lock, digest: str) -> Parts:
    torch = next((package for package in lock.packages if package.name == "torch"), None)
    build = "CPU" if lock.torch_build == "cpu" else f"CUDA {lock.torch_build}"
    torch_build = f"torch build {build}" if torch else "no torch"
    counts: dict[str, int] = {}
    for package in lock.packages:
        counts[package.source] = counts.get(package.source, 0) + 1
    yield indent(Text(f"{len(lock.packages)} packages, {torch_build}, lock {digest}"), 4)
    yield from (indent(Text(f"{count:4} from {source}"), 4) for source, count in counts.items())
    yield from (indent(Text(f"{p.name} {p.version} is compiled on the machine"), 4) for p in lock.built)
    if torch:
        yield indent(Text(f"torch {torch.version} from {torch.source}"), 4)


def _packages(lock: Lock) -> Rows:
    rows = table("package", "version", "source")
    for package in lock.packages:
        rows.add_row(package.name, package.version, Text(package.source))
    return rows


def _finding(finding: Finding) -> Parts:
    style = "error" if finding.status in ("error", "crashed") else "warning"
    mark = {"error": "✗ ", "warning": "! "}[style]
    yield indent(Text.assemble((mark, style), (f"{finding.id} ", "title"), finding.message), 4)
    if finding.fix:
        yield indent(Text(finding.fix), 6)
    yield from remedy_lines(finding.remedies, 6)
