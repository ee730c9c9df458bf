"""The folders checkpoint-STEP of a run: which are whole, which one is gone on from. Standard library only."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from settings import BadInput

COMPLETE = "complete.json"  # written last into a checkpoint, with every file's size


def mark_complete(checkpoint: Path) -> None:
    """Say that a checkpoint is whole: its files and their sizes, written last, when they are on the disk."""
    sizes = {}
    for file in sorted(checkpoint.rglob("*")):
        if file.is_file() and file.name != COMPLETE:
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
            sizes[str(file.relative_to(checkpoint))] = file.stat().st_size
    temporary = checkpoint / f"{COMPLETE}.part"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"files": sizes}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(checkpoint / COMPLETE)


def find_defect(checkpoint: Path) -> str:
    """Why a checkpoint cannot be resumed from; empty when it can."""
    try:
        sizes = json.loads((checkpoint / COMPLETE).read_text(encoding="utf-8"))["files"]
    except OSError:
        return f"{COMPLETE} is missing: it was not written to its end"
    except (ValueError, KeyError, TypeError):
        return f"{COMPLETE} is damaged"
    for name, size in sizes.items():
        file = checkpoint / name
        if not file.exists():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes, not {size}"
    return ""


def choose_checkpoint(checkpoints: Path, wanted: str) -> tuple[Path, list[tuple[Path, str]]]:
    """The checkpoint that `--resume wanted` means, and the newer ones skipped, each with its defect."""
    found = list_checkpoints(checkpoints)
    if wanted != "latest":
        bare = next((path for path in found if path.name == wanted), None)
        path = bare or Path(wanted).resolve()
        own = path in [each.resolve() for each in found]
        defect = find_defect(path) if own else f"it is no checkpoint-STEP in {checkpoints}"
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
    seen = "; ".join(f"{path.name}: {defect}" for path, defect in skipped) or "it holds no checkpoint-STEP"
    raise BadInput(
        f"--resume latest: no complete checkpoint in {checkpoints} ({seen})",
        expected="a run that went on past its first save_every steps",
        hint="start the run again in a new directory, without --resume",
    )


def delete_old_checkpoints(checkpoints: Path, keep: int) -> None:
    """Remove all but the newest `keep` complete ones, and what is older than those."""
    whole = [path for path in list_checkpoints(checkpoints) if not find_defect(path)]
    if len(whole) <= keep:
        return
    oldest = checkpoint_step(whole[-keep])
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
    """Move what is later than a step where no resume finds it, beside copies of the tables; that place, if any.

    The steps are trained again: their checkpoints would be written into those of the other course, a kill could leave
    a mixture that seems whole, and the older course would count as the newer one, to be kept and gone on with.
    """
    later = [path for path in list_checkpoints(checkpoints) if checkpoint_step(path) > step]
    later += [path for path in [run / "result.json"] if path.exists()]
    if not later:
        return None
    number = 1
    while (place := checkpoints / f"aside-{number}").exists():
        number += 1
    place.mkdir()
    try:
        for name in ("metrics.csv", "generations.csv"):
            if (run / name).exists():
                shutil.copy2(run / name, place)
    except OSError:  # no room: nothing was moved yet
        shutil.rmtree(place)
        raise
    for path in later:
        path.rename(place / path.name)
    return place
