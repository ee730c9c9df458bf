"""Renderer of `envdoctor quickstart`."""

from __future__ import annotations

from envdoctor.commands.quickstart import QuickstartResult
from envdoctor.output.environments import render_install
from envdoctor.output.text import Part, Text
from envdoctor.output.train import render_training


def render_quickstart(data: QuickstartResult) -> list[Part]:
    """The chosen profile, the install, the verification, the run, and the time of each step."""
    times = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in data.seconds.items())
    passed = sum(result.outcome == "passed" for result in data.verification.results)
    return [
        Text.assemble(("✓ ", "ok"), ("checked", "title"), f"  {data.installed.installed.profile} fits this machine"),
        *render_install(data.installed)[:3],
        Text.assemble(("✓ ", "ok"), ("verified", "title"), f"  {passed} probes passed"),
        *render_training(data.trained),
        Text(f"{times}; {sum(data.seconds.values()):.0f} s in total"),
        Text("$ envdoctor recipes", style="command"),
    ]
