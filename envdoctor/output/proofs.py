"""Whether an environment is proven and how fast its GPUs were, in a line each."""

from __future__ import annotations

from rich.text import Text

from envdoctor.core.results import Proof, Speed
from envdoctor.verify.evidence import proof_words, speed_words

PROOF_STYLES = {"passed": "ok", "failed": "error", "stale": "warning"}
SPEED_STYLES = {"healthy": "ok", "slow": "warning", "failing": "error", "unknown": "dim", "stale": "warning"}


def proof_lines(proof: Proof | None, speed: Speed | None, *, ours: bool) -> list[Text]:
    """What the probes and the benchmark showed; that nothing was shown matters for environments of `ours` alone."""
    lines = []
    if proof or ours:
        lines.append(Text(proof_words(proof), style=PROOF_STYLES[proof.state] if proof else "dim"))
    if speed:
        lines.append(Text(speed_words(speed), style=SPEED_STYLES[speed.state]))
    return lines
