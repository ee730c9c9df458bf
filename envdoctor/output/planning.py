"""Rendering of memory plans: the parts at the peak, the verdict, and the remedies."""

from __future__ import annotations

from envdoctor.commands.plan import MemoryPlan, format_setting
from envdoctor.output.text import Part, Rows, Text, command, indent, table

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
    """Render the verdict, the parts at the peak, and the changes that make it fit. Notes follow with --verbose."""
    parts = [_verdict(data), *_subject(data), _parts(data)]
    others = ", ".join(
        f"{PHASE_NAMES[phase]} {_gib(size)}" for phase, size in data.phases.items() if phase != data.peak_phase
    )
    parts.append(Text(f"other phases: {others} GiB", style="dim"))
    if data.host >= SMALLEST_PART:
        parts.append(Text(f"host memory without the libraries: {_gib(data.host)} GiB", style="dim"))
    if data.vllm_gpu_memory_utilization is not None:
        computed = "computed: " if data.vllm_share_computed else ""
        parts.append(Text(f"vLLM's share: {computed}{_share(data)}"))
    parts += [Text(f"note: {note}", style="dim") for note in data.notes]
    return [*parts, *_remedies(data)]


def _share(data: MemoryPlan) -> str:
    return f"vllm_gpu_memory_utilization={data.vllm_gpu_memory_utilization:g}"


def _verdict(data: MemoryPlan) -> Text:
    if data.fits is None:
        return Text.assemble(
            ("? ", "unknown"), ("no verdict", "title"),
            f": {_gib(data.peak)} GiB needed, and there is no GPU; select one with ", ("--machine NAME", "command"),
        )  # fmt: skip
    free = f"{_gib(data.free)} GiB" + ("" if data.free == data.memory else f" free of {_gib(data.memory)}")
    if data.fits:
        memory = f"{_gib(data.peak)} of {free}, {_gib(data.free - data.peak)} GiB to spare"
        return Text.assemble(("✓ ", "ok"), ("fits", "title"), f": {memory}", (f"  {data.gpu}", "dim"))
    needed = max(data.peak, data.needed)
    vllm = " with the minimum of vLLM" if needed > data.peak else ""
    excess = f"{_gib(needed - data.usable)} GiB too much"
    reason = f"{excess}; {_gib(needed)} needed{vllm}, {_gib(data.usable)} of {free} usable"
    if needed <= data.usable:
        reason = f"vLLM needs {_gib(data.vllm_shortage)} GiB more than {_share(data)}"
    return Text.assemble(("✗ ", "error"), ("does not fit", "title"), f": {reason}", (f"  {data.gpu}", "dim"))


def _subject(data: MemoryPlan) -> list[Part]:
    """The model, and the settings that determine its memory."""
    parameters = f"  {_count(data.parameters)} parameters, {_count(data.trained)} trained"
    lengths = f"prompts of {data.prompt_tokens} and completions of {data.completion_tokens} tokens"
    kind = "completions"
    if data.trainer != "grpo":
        kind, lengths = "examples", f"examples of {data.completion_tokens} tokens"
    batch = f"{data.answers} {kind} per step and GPU, micro-batch of {data.per_device_train_batch_size}"
    return [
        Text.assemble("  ", (data.model or data.recipe, "name"), parameters),
        Text(f"  {batch}; {lengths}; {data.dtype}, {data.attention}"),
        Text(f"  sizes: {data.source}", style="dim"),
        Text(),
    ]


def _parts(data: MemoryPlan) -> Rows:
    rows = table("at the peak, in " + PHASE_NAMES[data.peak_phase], "GiB", "details")
    for part in sorted(data.parts, key=lambda part: -part.bytes):
        if part.bytes >= SMALLEST_PART:
            rows.add_row(part.part, _gib(part.bytes), part.why)
    rows.add_row(Text("total", style="title"), Text(_gib(data.peak), style="title"), "")
    return rows


def _remedies(data: MemoryPlan) -> list[Part]:
    """Render the changes, each in addition to the previous ones."""
    if data.fits is not False:
        return []
    if not data.remedies:
        return [Text("\nno change of settings makes it fit: a larger GPU or a smaller model is needed")]
    rows = table("change", "saves GiB", "then GiB", "effect", "")
    for remedy in data.remedies:
        change = " ".join(f"--set {key}={format_setting(value)}" for key, value in remedy.set.items())
        mark = Text("✓ fits", style="ok") if remedy.fits else Text("")
        saves = _gib(remedy.saves) if remedy.saves >= SMALLEST_PART else "-"
        rows.add_row(Text(change, style="command"), saves, _gib(remedy.peak), remedy.why, mark)
    if not data.remedies[-1].fits:
        return [Text(), rows, Text("all changes together do not suffice: a larger GPU or a smaller model is needed")]
    return [Text(), rows, Text("\nnext:"), indent(command(data.remedies[-1].command), 2)]


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} G" if number >= 1e9 else f"{number / 1e6:.3g} M"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}" if abs(size) >= GIB / 10 else f"{size / GIB:.3f}"
