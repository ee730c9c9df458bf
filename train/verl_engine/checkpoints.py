"""The checkpoints that verl writes into a run: directories named global_step_N."""

from __future__ import annotations

from pathlib import Path

from settings import BadInput

TRACKER = "latest_checkpointed_iteration.txt"  # written after a checkpoint is complete (checkpoint_handler.py)


def step_of(checkpoint: Path | None) -> int:
    """Return 10 for .../global_step_10, and 0 for None or another name."""
    number = checkpoint.name.rpartition("global_step_")[2] if checkpoint else ""
    return int(number) if number.isdigit() else 0


class Checkpoints:
    """The checkpoints of a run, and which of them are complete."""

    def __init__(self, folder: Path, *, tracked: bool = True) -> None:
        self.folder = folder
        self.tracked = tracked  # false for 0.4.1's SFT trainer, which writes no tracker file

    def latest(self) -> Path | None:
        """Return the last complete checkpoint; without a tracker file, the one with the highest step."""
        if not self.tracked:
            folders = (path for path in self.folder.glob("global_step_*") if step_of(path))
            return max(folders, key=step_of, default=None)
        try:
            checkpoint = self.folder / f"global_step_{int((self.folder / TRACKER).read_text())}"
        except (OSError, ValueError):
            return None
        return checkpoint if checkpoint.is_dir() else None

    def choose(self, name: str) -> Path:
        """Return the checkpoint for `--resume NAME`."""
        folder = next((path.resolve() for path in (self.folder / name, Path(name)) if path.is_dir()), None)
        checkpoint = self.latest() if name == "latest" else folder
        if checkpoint and step_of(checkpoint) and checkpoint.parent == self.folder.resolve():
            return checkpoint
        existing = ", ".join(sorted(path.name for path in self.folder.glob("global_step_*"))) or "none"
        raise BadInput(
            f"--resume {name}: no complete checkpoint of that name in {self.folder} (existing: {existing})",
            expected="a complete checkpoint global_step_N",
            hint="start the run again in a new directory, without --resume",
        )

    def shards(self, checkpoint: Path | None, task: str) -> Path:
        """Return the directory with the shards of the model, which PPO and GRPO call the actor."""
        if checkpoint is None:
            raise BadInput(
                f"{self.folder} has no complete checkpoint to merge", expected="save_steps below the run's steps",
                hint="--set save_steps=10, or --set merge=false",
            )  # fmt: skip
        return checkpoint if task == "sft" else checkpoint / "actor"
