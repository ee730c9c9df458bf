"""Profiles for people: the list, everything that one says, and what resolving them gave."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from envdoctor.commands.profiles import ProfileEntry, ProfileList
from envdoctor.commands.profiles_show import LockSummary, ProfileDetails
from envdoctor.commands.resolve import ProfileResolution, ResolveResult
from envdoctor.core.records import Finding
from envdoctor.locking.lock import Lock
from envdoctor.output.console import table
from envdoctor.profiles import Build, Pin, Profile, Wheel, When

Parts = Iterator[RenderableType]
SHA_SHOWN = 12  # characters of a hash: enough to tell two wheels apart by eye


def entries(data: ProfileList) -> list[RenderableType]:
    """Each profile in a row; below them the user's own: where they come from, and what is wrong with them."""
    rows = table("profile", "machine", "stack", "locks", "shown")
    for entry in data.profiles:
        if entry.profile and not entry.problem:
            whole = entry.locks == entry.targets and not entry.partial
            locked = f"{entry.locks} of {entry.targets}" + (", partial" if entry.partial else "")
            rows.add_row(
                Text(entry.id, style="title"),
                Text(needs(entry.profile)),
                Text(entry.profile.summary),
                Text(locked, style="" if whole else "warning"),
                Text(_shown(entry.profile)),
            )
    return [rows, *(_own(entry) for entry in data.profiles if entry.origin != "bundled" or entry.problem)]


def _own(entry: ProfileEntry) -> Text:
    if entry.problem and entry.profile is None:
        return Text.assemble(("✗ ", "error"), (entry.id, "title"), f"  {entry.origin}: ", (entry.problem, "error"))
    if entry.problem:
        return Text.assemble(("- ", "dim"), (entry.id, "title"), (f"  {entry.origin}: {entry.problem}", "dim"))
    made_of = f", extends {' and '.join(entry.extends)}" if entry.extends else ""
    return Text.assemble(("✓ ", "ok"), (entry.id, "title"), f"  from {entry.origin}{made_of}")


def _shown(profile: Profile) -> str:
    return "\n".join(dict.fromkeys(f"{e.what} {e.date}" for e in profile.evidence)) or "nothing yet"


def needs(profile: Profile) -> str:
    """The machine that a profile needs, on one line."""
    when = profile.when
    cuda = f", CUDA {profile.cuda.build}" if profile.cuda else ""
    return f"{' or '.join(when.architectures)}; {_gpus(when)}{cuda}; glibc {when.glibc}+; {when.disk_gb:g} GiB disk"


def _gpus(when: When) -> str:
    if not when.gpus:
        return "no GPU needed"
    parts = [f"{when.gpus}+ GPU"]
    parts += [f"cc {when.compute_capability}+"] if when.compute_capability else []
    parts += [f"{when.gpu_memory_gb:g} GiB"] if when.gpu_memory_gb else []
    return ", ".join(parts)


def profile_shown(data: ProfileDetails) -> list[RenderableType]:
    """Everything that a profile says, and its locks."""
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
        *_environment("environment", profile.environment),
        *_locks(data),
        *_evidence(profile),
    ]


def _facts(data: ProfileDetails) -> Table:
    profile, when = data.profile, data.profile.when
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    told = {
        "from": data.origin + (f", extends {' and '.join(data.extends)}" if data.extends else ""),
        "machine": " or ".join(when.architectures),
        "glibc": f"{when.glibc} or newer",
        "disk": f"{when.disk_gb:g} GiB free",
        "GPUs": _gpus(when),
        "CUDA": f"the {profile.cuda.build} build of torch" if profile.cuda else "a CPU build of torch",
        "driver": _driver(when),
        "Python": ", ".join(profile.python.versions),
        "sources": ", then ".join(map(_source, profile.sources)),
        "cut-off": f"nothing uploaded after {profile.exclude_newer}" if profile.exclude_newer else "",
        "preference": f"{profile.preference}",
        "probes": ", ".join(profile.verify.required) or "none",
        "recipe": profile.train.recipe,
    }
    for name, text in told.items():
        if text:
            rows.add_row(name, Text(text))
    return rows


def _source(source: object) -> str:
    backend = getattr(source, "backend", "")
    return f"the PyTorch index ({backend})" if backend else "configured sources, else PyPI"


def _driver(when: When) -> str:
    told = f"{when.driver} or newer" if when.driver else ""
    if when.driver_recommended:
        told = f"{told}, {when.driver_recommended} recommended" if told else f"{when.driver_recommended} recommended"
    return _reasons(told, when.driver_why, when.driver_url) if told else ""


def _reasons(text: str, why: str, url: str) -> str:
    return " ".join(part for part in (text + (f": {why}" if why else ""), url) if part)


def _pins(title: str, pins: tuple[Pin, ...]) -> Parts:
    if pins:
        rows = table(title, "why")
        for pin in pins:
            # as Text: Rich would take the extra in `verl[vllm]` for markup
            rows.add_row(Text(pin.spec), Text(" ".join(part for part in (pin.why, pin.url) if part)))
        yield Text()
        yield rows


def _wheels(profile: Profile) -> Parts:
    if not profile.wheels:
        return
    yield Text("\nwheels by their address, the first that fits", style="title")
    for wheel in profile.wheels:
        yield _indent(Text(wheel.file))
        told = [f"for {_conditions(wheel)}", f"sha256 {wheel.sha256[:SHA_SHOWN]}...", wheel.url, wheel.why]
        yield from (_indent(Text(text, style="dim"), 4) for text in told if text)
    for name, attention in profile.fallbacks.items():
        yield _indent(Text(f"where none of {name} fits: attention by {attention}"))


def _conditions(wheel: Wheel) -> str:
    told = {
        "Python": wheel.python, "": wheel.architecture, "torch": wheel.torch, "CUDA": wheel.cuda,
        "C++11 ABI": wheel.abi,
    }  # fmt: skip
    return ", ".join(f"{name} {value}".strip() for name, value in told.items() if value) or "any machine"


def _build(build: Build | None) -> Parts:
    if build is None:
        return
    yield Text("\nbuilt on the machine", style="title")
    why = f": {build.why}" if build.why else ""
    yield _indent(Text(f"{', '.join(build.packages)}, against the torch of the environment{why}"))
    cost = f"{build.memory_gb_per_job:g} GiB of memory for each compiler"
    cost += f", {build.core_minutes:g} minutes of one core" if build.core_minutes else ", time not measured"
    yield _indent(Text(cost))
    for name, value in build.environment.items():
        yield _indent(Text(f"{name}={value}"))


def _system(data: ProfileDetails) -> Parts:
    if data.system:
        yield Text("\nneeds of the system", style="title")
    for need in data.system:
        yield _indent(Text.assemble(need.name, (f"  {need.why}", "dim")))
        told = "; ".join(f"{manager}: {' '.join(names)}" for manager, names in need.packages.items())
        yield _indent(Text(told, style="dim"), 4)


def _environment(title: str, values: dict[str, str]) -> Parts:
    if values:
        yield Text(f"\n{title}", style="title")
    for name, value in values.items():
        yield _indent(Text(f"{name}={value}"))


def _locks(data: ProfileDetails) -> Parts:
    yield Text("\nlocks", style="title")
    for lock in data.locks:
        yield from _lock(lock)
    for missing in data.missing_locks:
        yield _indent(Text.assemble(("✗ ", "error"), f"none for {missing}"))
    if data.missing_locks:
        name = data.profile.id if data.origin == "bundled" else data.file
        yield _indent(Text(f"$ envdoctor lock --profile {name}", style="command"))


def _lock(lock: LockSummary) -> Parts:
    if lock.problem:
        yield _indent(Text.assemble(("✗ ", "error"), lock.problem))
        return
    whole = not lock.without and not lock.unmet
    mark, style = ("✓ ", "ok") if whole else ("! ", "warning")
    build = "CPU" if lock.torch == "cpu" else f"CUDA {lock.torch}"
    told = f"{lock.platform}, Python {lock.python}: {lock.packages} packages, {build}, {lock.digest}, {lock.made}"
    yield _indent(Text.assemble((mark, style), told))
    if lock.without:
        yield _indent(Text(f"without {', '.join(lock.without)}: only the PyTorch index has their build"), 4)
    yield from (_indent(Text(unmet, style="warning"), 4) for unmet in lock.unmet)


def _evidence(profile: Profile) -> Parts:
    yield Text("\nevidence", style="title")
    for shown in profile.evidence:
        yield _indent(Text(f"{shown.date}  {shown.what} on {shown.where}: {shown.detail}"))
    if not profile.evidence:
        yield _indent(Text("nothing shown yet"))


def resolved_all(data: ResolveResult) -> list[RenderableType]:
    """Each profile with what was tried, its lock and what the rules have against it."""
    return [part for result in data.results for part in _resolved(result, alone=len(data.results) == 1)]


def _resolved(result: ProfileResolution, *, alone: bool) -> Parts:
    resolution = result.resolution
    lock = resolution.lock if resolution else None
    mark = ("✓ ", "ok") if lock else ("✗ ", "error")
    yield Text.assemble(mark, (result.profile, "title"), f"  {resolution.platform if resolution else ''}")
    for attempt in resolution.attempts if resolution else ():
        reason = f": {attempt.reason}" if attempt.reason else ""
        told = f"Python {attempt.python} from {attempt.source}: {attempt.outcome}{reason}"
        yield _indent(Text(told, style="dim"), 4)
    if lock:
        yield from _lines_of_lock(lock, result.digest)
        if alone:
            yield _packages(lock)
    for finding in result.findings:
        yield from _finding(finding)
    if result.hint:
        yield _indent(Text.assemble(("hint: ", "info"), result.hint), 4)
    if result.fits is False:
        told = f"does not fit {result.machine}: {'; '.join(result.violated)}"
        yield _indent(Text(told, style="warning"), 4)


def _lines_of_lock(lock: Lock, digest: str) -> Parts:
    torch = next((package for package in lock.packages if package.name == "torch"), None)
    build = "CPU" if lock.torch_build == "cpu" else f"CUDA {lock.torch_build}"
    told = f"torch build {build}" if torch else "no torch"
    counts: dict[str, int] = {}
    for package in lock.packages:
        counts[package.source] = counts.get(package.source, 0) + 1
    yield _indent(Text(f"{len(lock.packages)} packages, {told}, lock {digest}"), 4)
    yield from (_indent(Text(f"{count:4} from {source}"), 4) for source, count in counts.items())
    yield from (_indent(Text(f"{p.name} {p.version} is compiled on the machine"), 4) for p in lock.built)
    if torch:
        yield _indent(Text(f"torch {torch.version} from {torch.source}"), 4)


def _packages(lock: Lock) -> Table:
    rows = table("package", "version", "source")
    for package in lock.packages:
        rows.add_row(package.name, package.version, Text(package.source))
    return rows


def _finding(finding: Finding) -> Parts:
    style = "error" if finding.status in ("error", "crashed") else "warning"
    mark = {"error": "✗ ", "warning": "! "}[style]
    yield _indent(Text.assemble((mark, style), (f"{finding.id} ", "title"), finding.message), 4)
    if finding.fix:
        yield _indent(Text(finding.fix), 6)
    yield from (_indent(Text(f"$ {command}", style="command"), 6) for command in finding.commands)


def _indent(part: RenderableType, left: int = 2) -> Padding:
    return Padding(part, (0, 0, 0, left), expand=False)
