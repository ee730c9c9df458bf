"""result.json of a finished run, and its curves."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import torch
from run.directory import RunDirectory
from run.recorder import Recorder


def draw_result(run: RunDirectory, task: Any, title: str, baseline: dict[str, float], final: dict[str, float]) -> str:
    """Draw curves.png; the reason where that fails, which must not fail the run."""
    run.start_phase("plot", "curves.png")
    changes = ", ".join(
        f"{metric} {baseline[metric]:.2f} -> {final[metric]:.2f}" for metric in task.headline if metric in baseline
    )
    try:
        from run.curves import draw_curves

        metrics, target = run.path / "metrics.csv", run.path / "curves.png"
        draw_curves(metrics, run.read_evaluations(), task.curves, f"{title}: {changes}", target)
    except Exception as error:  # no matplotlib, a full disk, a damaged font
        return f"curves.png was not drawn: {error}"
    return ""


def make_result(
    *,
    recipe: str,
    trainer: str,
    recorder: Recorder,
    policy: Any,
    task: Any,
    baseline: dict[str, float],
    final: dict[str, float],
    seconds: dict[str, float],
    device: str,
    ranks: int,
    patches: list[str],
    steps: int,
    resumed_from: int,
    plot_error: str,
) -> dict[str, Any]:
    """The content of result.json."""
    packages = ("torch", "transformers", "trl", "peft", "datasets")
    versions = {package: importlib.metadata.version(package) for package in packages}
    return {
        "schema": 1,
        "recipe": recipe,
        "trainer": trainer,
        "status": "stopped" if recorder.stopped_by else "done",
        "stopped_by": recorder.stopped_by or None,
        "before": baseline,
        "after": final,
        "baselines": task.baselines(),
        "data": task.describe(),
        "seconds": seconds,
        "shares": recorder.time_shares(),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "ranks": ranks,
        "versions": {"python": platform.python_version()} | versions,
        "patches": patches,
        **policy.describe(recorder.peak),
        "steps": steps,
        "resumed_from": resumed_from or None,
        "curves": None if plot_error else "curves.png",
        "no_curves": plot_error or None,
    }
