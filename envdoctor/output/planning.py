"""Rendering of memory plans: the parts at the peak, the verdict, and the remedies."""

from __future__ import annotations

from envdoctor.commands.plan import MemoryPlan, format_setting
from envdoctor.output.text import Part, Text, command, table

GIB = 1 << 30
SMALLEST_PART = 1 << 20  # bytes; smaller parts are omitted
PHASE_NAMES = {
    "load": "loading",
    "generate": "generation",
    "score": "scoring",
    "update": "the update",
    "step": "the optimizer's step",
}


def render_memory_plan(data: MemoryPlan) -> list[Part]:
    """Render the parts at the peak, the other phases, the verdict, and the remedies."""
    head = Text.assemble(
        (data.model or data.recipe, "title"),
        f"  {_count(data.parameters)} parameters, {_count(data.trained)} trained",
        (f"  ({data.source})", "dim"),
    )
    batch = f"{data.answers} completions per step and GPU, micro-batch of {data.micro_batch}"
    lengths = f"prompts of {data.prompt_tokens} and completions of {data.completion_tokens} tokens"
    rows = table("at the peak, in " + PHASE_NAMES[data.peak_phase], "GiB", "details")
    for part in sorted(data.parts, key=lambda part: -part.bytes):
        if part.bytes >= SMALLEST_PART:
            rows.add_row(part.part, _gib(part.bytes), part.why)
    rows.add_row(Text("total", style="title"), Text(_gib(data.peak), style="title"), "")
    others = ", ".join(
        f"{PHASE_NAMES[phase]} {_gib(size)}" for phase, size in data.phases.items() if phase != data.peak_phase
    )
    parts: list[Part] = [head, Text(f"{batch}; {lengths}; {data.dtype}, {data.attention}"), rows]
    parts.append(Text(f"other phases: {others} GiB", style="dim"))
    if data.host >= SMALLEST_PART:
        parts.append(Text(f"host memory without the libraries: {_gib(data.host)} GiB", style="dim"))
    parts += [Text(f"note: {note}", style="dim") for note in data.notes]
    if data.vllm_share is not None:
        computed = "computed: " if data.vllm_share_computed else ""
        parts.append(Text(f"vLLM's share: {computed}vllm_share={data.vllm_share:g}"))
    parts += [_verdict(data), *_remedies(data)]
    return [*parts, command(data.remedies[-1].command)] if data.remedies and data.remedies[-1].fits else parts


def _verdict(data: MemoryPlan) -> Text:
    if data.fits is None:
        return Text.assemble(("? ", "unknown"), "no verdict without a GPU; select one with --machine NAME or FILE")
    where = f"{data.gpu}: {_gib(data.free)} of {_gib(data.memory)} GiB free"
    if data.fits:
        return Text.assemble(("✓ ", "ok"), ("fits", "title"), f"  {where}, {_gib(data.free - data.peak)} GiB left")
    return Text.assemble(("✗ ", "error"), ("does not fit", "title"), f"  {where}, {_gib(data.peak)} needed")


def _remedies(data: MemoryPlan) -> list[Part]:
    """Render the remedies, each in addition to the previous ones."""
    if data.fits is not False:
        return []
    if not data.remedies:
        return [Text("no change of settings makes it fit: a larger GPU or a smaller model is needed")]
    rows = table("change", "saves GiB", "then GiB", "effect", "")
    for remedy in data.remedies:
        change = " ".join(f"--set {key}={format_setting(value)}" for key, value in remedy.set.items())
        mark = Text("✓ fits", style="ok") if remedy.fits else Text("")
        rows.add_row(Text(change, style="command"), _gib(remedy.saves), _gib(remedy.peak), remedy.why, mark)
    if not data.remedies[-1].fits:
        return [rows, Text("all changes together do not suffice: a larger GPU or a smaller model is needed")]
    return [rows]


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} G" if number >= 1e9 else f"{number / 1e6:.3g} M"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}" if abs(size) >= GIB / 10 else f"{size / GIB:.3f}"
