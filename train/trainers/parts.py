"""What the trainers are constructed from, and what a run uses of a constructed one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from patches.context import PatchContext
from run.directory import RunDirectory
from run.interrupt import Interrupt
from run.ranks import Ranks
from run.recorder import Recorder
from trl_config.versions import InstalledVersions

if TYPE_CHECKING:
    from modeling.policy import Policy


@dataclass(frozen=True)
class RunParts:
    """A run before TRL's trainer is constructed."""

    run: RunDirectory
    task: Any
    policy: Policy
    settings: dict[str, Any]
    ranks: Ranks
    device: str
    installed: InstalledVersions
    interrupt: Interrupt
    first_step: int


@dataclass(frozen=True)
class Training:
    """TRL's trainer with what records and evaluates it, and the applied patches."""

    trainer: Any
    recorder: Recorder
    evaluate: Callable[[str, int], dict[str, float]]
    patches: PatchContext
