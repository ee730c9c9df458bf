"""Verify an installed stack: each probe is a process of the stack's interpreter with a deadline.

A crash, a hang, invalid output or a missing result of a probe is an outcome, not an error of the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from envdoctor.core import processes as process
from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, EnvdoctorError, unknown_name
from envdoctor.core.records import ProbeResult, Verification
from envdoctor.verify.probe_batches import plan_batches, read_capacity, run_batch
from envdoctor.verify.probe_process import MAX_MESSAGE
from envdoctor.verify.probe_scripts import PROBES_FOLDER, bundled_probes, read_probes
from envdoctor.verify.stored_results import VERIFICATION_SCHEMA

MINIMUM_PYTHON = (3, 10)


def verify_interpreter(
    python: Path,
    probes: Sequence[str],
    *,
    required: Sequence[str],
    driver: str,
    gpus: Sequence[str],
    lock: str,
    gpu_memory: int = 0,
    deadline_scale: float = 1.0,
    on_start: Callable[[str], None] = lambda _: None,
    on_result: Callable[[ProbeResult], None] = lambda _: None,
    folder: Path = PROBES_FOLDER,
) -> Verification:
    """Run probes in an interpreter and return their results in the given order.

    `gpu_memory`: the smallest free memory of all GPUs, in bytes. With enough of it, of cores and of host memory, GPU
    probes run in parallel; otherwise one at a time after the CPU probes. The callbacks run in the calling thread.
    """
    known = {probe.name: probe for probe in (bundled_probes() if folder == PROBES_FOLDER else read_probes(folder))}
    for name in (*probes, *required):
        if name not in known:
            raise unknown_name("probe", name, list(known), hint="envdoctor verify --help")
    if not deadline_scale > 0:
        raise BadInput(
            f"deadline scale {deadline_scale}", expected="a number above 0", hint="envdoctor verify --help"
        )
    require_python(python)
    selected = [known[name] for name in dict.fromkeys(probes)]
    results: dict[str, ProbeResult] = {}
    for batch in plan_batches(selected, read_capacity(gpu_memory)):
        results |= run_batch(python, batch, scale=deadline_scale, on_start=on_start, on_result=on_result)
    ordered = tuple(results[probe.name] for probe in selected)
    attention, attention_with_sinks = usable_attention(ordered)
    return Verification(
        schema=VERIFICATION_SCHEMA,
        python=str(python),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        driver=driver,
        gpus=tuple(gpus),
        lock=lock,
        required=tuple(required),
        results=ordered,
        attention=attention,
        attention_with_sinks=attention_with_sinks,
    )


def usable_attention(results: Sequence[ProbeResult]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Attention implementations of transformers that a trainer may use, best first: without and with attention sinks.

    vLLM's copy of FlashAttention does not count: it has no backward pass and transformers cannot use it.
    """
    passed = {result.probe: result for result in results if result.outcome == "passed"}
    flash = [n for n in (3, 2) if (result := passed.get(f"flash_attn{n}")) and result.numbers.get("own_package") == 1]
    without_sinks = (*(f"flash_attention_{n}" for n in flash), *(("sdpa",) if "sdpa" in passed else ()), "eager")
    sinks = passed.get("gptoss_sinks")
    return without_sinks, sinks.lists.get("safe", ()) if sinks else ()


def require_python(python: Path) -> None:
    """Raise BadInput unless this is a Python interpreter that can run the probes."""
    expected = f"a Python interpreter, {MINIMUM_PYTHON[0]}.{MINIMUM_PYTHON[1]} or newer"
    hint = "envdoctor verify --python PATH, or install an environment: envdoctor install"
    if python.is_dir():
        raise BadInput(
            f"{python} is a directory", expected=expected, hint=command_line("envdoctor", "verify", "--venv", python)
        )
    if not python.exists():
        target = f" (a symlink to {python.readlink()}, which does not exist)" if python.is_symlink() else ""
        raise BadInput(f"{python} does not exist{target}", expected=expected, hint=hint)
    code = "import sys; print('envdoctor-python', *sys.version_info[:2])"
    try:
        finished = process.run([python, "-I", "-S", "-c", code], timeout=30)
    except EnvdoctorError as error:
        raise BadInput(f"{python} does not run: {error.message}", expected=expected, hint=hint) from error
    last_line = (finished.output.strip().splitlines() or [""])[-1]
    marker, *version = last_line.split()[:3] or [""]
    if not finished.ok or marker != "envdoctor-python":
        output = f": {last_line[:MAX_MESSAGE]}" if last_line else ""
        raise BadInput(
            f"{python} is not a Python interpreter: it {finished.ending}{output}", expected=expected, hint=hint
        )
    if tuple(map(int, version)) < MINIMUM_PYTHON:
        raise BadInput(f"{python} is Python {'.'.join(version)}", expected=expected, hint=hint)
