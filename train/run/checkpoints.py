"""A run's checkpoint-STEP directories: which are complete, and which one to resume from. Standard library only."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from settings import BadInput

COMPLETE = "complete.json"  # written last into a checkpoint, with the size and SHA-256 of every file
HASHING_THREADS, BLOCK = 4, 1 << 22


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint complete: list its files with sizes and hashes, after they are synced to disk."""
    paths = [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.name != COMPLETE]
    for path in paths:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    hashes = _hash_files(paths)
    files = {
        str(path.relative_to(checkpoint)): {"bytes": path.stat().st_size, "sha256": sha256}
        for path, sha256 in zip(paths, hashes, strict=True)
    }
    temporary = checkpoint / f"{COMPLETE}.part"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"files": files}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(checkpoint / COMPLETE)


def record_dtype(file: Path, dtype: str) -> None:
    """Let transformers and vLLM load a model in the type that it was trained to compute in.

    save_pretrained writes the type of the weights. Weights in float32 that were rounded in each training pass give
    other completions unrounded: SmolLM2-135M adds 0.06 to 0.14 instead of 0.8 of the sums of the recipe `add`.
    """
    config = json.loads(file.read_text(encoding="utf-8"))
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        part |= {name: dtype for name in ("dtype", "torch_dtype") if name in part}
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def record_compute_dtype(checkpoint: Path, arguments: Any) -> None:
    """Record the type of the trainer's autocast in a checkpoint of all weights, which transformers wrote."""
    dtype = "bfloat16" if arguments.bf16 else "float16" if arguments.fp16 else ""
    if dtype and (checkpoint / "config.json").is_file():  # an adapter has none
        record_dtype(checkpoint / "config.json", dtype)


def find_defect(checkpoint: Path, *, hashes: bool = True) -> str:
    """Why a checkpoint cannot be resumed from; empty if it can. Without `hashes` the content is not read."""
    try:
        files = json.loads((checkpoint / COMPLETE).read_text(encoding="utf-8"))["files"]
        # Earlier versions stored the size alone.
        known = {name: entry if isinstance(entry, dict) else {"bytes": entry} for name, entry in files.items()}
    except OSError:
        return f"{COMPLETE} is missing: the checkpoint is incomplete"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{COMPLETE} is damaged"
    for name, entry in known.items():
        file = checkpoint / name
        if not file.exists():
            return f"{name} is missing"
        if file.stat().st_size != entry.get("bytes"):
            return f"{name} has {file.stat().st_size} bytes, not {entry.get('bytes')}"
    hashed = {name: entry["sha256"] for name, entry in known.items() if hashes and "sha256" in entry}
    for name, sha256 in zip(hashed, _hash_files([checkpoint / name for name in hashed]), strict=True):
        if sha256 != hashed[name]:
            return f"{name} has changed since it was saved: its SHA-256 differs"
    return ""


def _hash_files(paths: Sequence[Path]) -> Iterator[str]:
    with ThreadPoolExecutor(HASHING_THREADS) as pool:  # hashlib releases the interpreter's lock
        yield from pool.map(_hash_file, paths)


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def choose_checkpoint(checkpoints: Path, wanted: str) -> tuple[Path, list[tuple[Path, str]]]:
    """The checkpoint of `--resume VALUE`, and the newer ones that are skipped, each with its defect."""
    found = list_checkpoints(checkpoints)
    if wanted != "latest":
        by_name = next((path for path in found if path.name == wanted), None)
        path = by_name or Path(wanted).resolve()
        in_run = path in [known.resolve() for known in found]
        defect = find_defect(path) if in_run else f"it is no checkpoint-STEP in {checkpoints}"
        if not path.is_dir():
            defect = "there is no such directory"
        if defect:
            raise BadInput(
                f"--resume {wanted}: {defect}",
                expected=f"a checkpoint of this run: {', '.join(p.name for p in found) or 'it has none'}",
                hint="--resume latest",
            )
        return path, []
    skipped = []
    for path in reversed(found):
        defect = find_defect(path)
        if not defect:
            return path, skipped
        skipped.append((path, defect))
    seen = "; ".join(f"{path.name}: {defect}" for path, defect in skipped) or "no checkpoint-STEP"
    raise BadInput(
        f"--resume latest: no complete checkpoint in {checkpoints} ({seen})",
        expected="a run of at least save_steps steps",
        hint="start the run again in a new directory, without --resume",
    )


def delete_old_checkpoints(checkpoints: Path, keep: int) -> None:
    """Delete every checkpoint that is older than the newest `keep` complete ones."""
    complete = [path for path in list_checkpoints(checkpoints) if not find_defect(path, hashes=False)]
    if len(complete) <= keep:
        return
    oldest = checkpoint_step(complete[-keep])
    for path in list_checkpoints(checkpoints):
        if checkpoint_step(path) < oldest:
            shutil.rmtree(path)


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """Every checkpoint-STEP directory, oldest first."""
    found = [path for path in checkpoints.glob("checkpoint-*") if path.is_dir() and checkpoint_step(path)]
    return sorted(found, key=checkpoint_step)


def checkpoint_step(checkpoint: Path) -> int:
    """50 for .../checkpoint-50, else 0."""
    number = checkpoint.name.rpartition("checkpoint-")[2]
    return int(number) if number.isdigit() else 0


def archive_later_files(run: Path, checkpoints: Path, step: int) -> Path | None:
    """Move the checkpoints after a step, and result.json, to checkpoints/aside-N, with copies of the tables.

    Those steps are trained again. New checkpoints would otherwise be written into the old directories: a kill could
    leave a mixture that looks complete, and an old checkpoint could count as the newest one.
    """
    later = [path for path in list_checkpoints(checkpoints) if checkpoint_step(path) > step]
    later += [path for path in [run / "result.json"] if path.exists()]
    if not later:
        return None
    number = 1
    while (folder := checkpoints / f"aside-{number}").exists():
        number += 1
    folder.mkdir()
    try:
        for name in ("metrics.csv", "generations.csv"):
            if (run / name).exists():
                shutil.copy2(run / name, folder)
    except OSError:  # a full disk: nothing was moved yet
        shutil.rmtree(folder)
        raise
    for path in later:
        path.rename(folder / path.name)
    return folder
