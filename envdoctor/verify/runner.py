"""Prove an installed stack: each probe in a process of its own inside the stack's interpreter, with a deadline.

A crash, a hang, garbage or silence in there is a named outcome, not an accident here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from envdoctor.core import processes as process
from envdoctor.core.errors import BadInput, EnvdoctorError, unknown_name
from envdoctor.core.records import ProbeResult, Verification
from envdoctor.verify.probe_batches import plan_batches, read_capacity, run_batch
from envdoctor.verify.probe_process import (
    MESSAGE_LIMIT,
    SIGNAL_MEANINGS,
    last_lines,
    parse_exception,
    probe_variables,
)
from envdoctor.verify.probe_scripts import PROBES_FOLDER, Probe, bundled_probes, choose_probes, read_probes
from envdoctor.verify.stored_results import VERIFICATION_SCHEMA, read_verification, stale_reason, write_record

__all__ = [
    "PROBES_FOLDER",
    "SIGNAL_MEANINGS",
    "VERIFICATION_SCHEMA",
    "Probe",
    "bundled_probes",
    "choose_probes",
    "last_lines",
    "parse_exception",
    "probe_variables",
    "read_probes",
    "read_verification",
    "stale_reason",
    "verify",
    "write_record",
    "write_verification",
]  # fmt: skip

MINIMUM_PYTHON = (3, 10)


def verify(
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
    """Run probes in an interpreter and say what each showed, in the order asked for.

    `gpu_memory` is what is free on the GPU with the least, in bytes: with enough of it, and of cores and host memory,
    GPU probes run side by side, else one by one after those for the CPU. The callbacks run in the calling thread.
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
    chosen = [known[name] for name in dict.fromkeys(probes)]
    results: dict[str, ProbeResult] = {}
    for batch in plan_batches(chosen, read_capacity(gpu_memory)):
        results |= run_batch(python, batch, scale=deadline_scale, on_start=on_start, on_result=on_result)
    shown = tuple(results[probe.name] for probe in chosen)
    attention, attention_with_sinks = usable_attention(shown)
    return Verification(
        schema=VERIFICATION_SCHEMA,
        python=str(python),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        driver=driver,
        gpus=tuple(gpus),
        lock=lock,
        required=tuple(required),
        results=shown,
        attention=attention,
        attention_with_sinks=attention_with_sinks,
    )


def usable_attention(results: Sequence[ProbeResult]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a trainer may ask transformers for, best first: for most models, and for those with attention sinks.

    vLLM's copy of FlashAttention proves nothing for a trainer: it has no backward and transformers cannot use it.
    """
    passed = {result.probe: result for result in results if result.outcome == "passed"}
    own = [n for n in (3, 2) if (found := passed.get(f"flash_attn{n}")) and found.numbers.get("own_package") == 1]
    plain = (*(f"flash_attention_{n}" for n in own), *(("sdpa",) if "sdpa" in passed else ()), "eager")
    sinks = passed.get("gptoss_sinks")
    return plain, sinks.lists.get("safe", ()) if sinks else ()


def require_python(python: Path) -> None:
    """Raise BadInput unless this is a Python that can run the probes."""
    expected = f"a Python interpreter, {MINIMUM_PYTHON[0]}.{MINIMUM_PYTHON[1]} or newer"
    hint = "envdoctor verify --python PATH, or make an environment: envdoctor install"
    if python.is_dir():
        raise BadInput(f"{python} is a directory", expected=expected, hint=f"envdoctor verify --venv {python}")
    if not python.exists():
        gone = f" (a link to {python.readlink()}, which is gone)" if python.is_symlink() else ""
        raise BadInput(f"{python} does not exist{gone}", expected=expected, hint=hint)
    say = "import sys; print('envdoctor-python', *sys.version_info[:2])"
    try:
        finished = process.run([python, "-I", "-S", "-c", say], deadline=30)
    except EnvdoctorError as error:
        raise BadInput(f"{python} does not run: {error.message}", expected=expected, hint=hint) from error
    words = finished.output.strip().splitlines()[-1:] or [""]
    mark, *version = words[0].split()[:3] or [""]
    if not finished.ok or mark != "envdoctor-python":
        said = f": {words[0][:MESSAGE_LIMIT]}" if words[0] else ""
        raise BadInput(f"{python} is no Python: it {finished.ending}{said}", expected=expected, hint=hint)
    if tuple(map(int, version)) < MINIMUM_PYTHON:
        raise BadInput(f"{python} is Python {'.'.join(version)}", expected=expected, hint=hint)


def write_verification(path: Path, verification: Verification) -> None:
    """Keep a verification, whole or not at all."""
    write_record(path, verification)
