"""Human output of an environment's stored verification and benchmark results, one line each."""

from __future__ import annotations

from envdoctor.output.text import Text
from envdoctor.verify.status import BenchmarkStatus, VerificationStatus, describe_benchmark, describe_verification

VERIFICATION_STYLES = {"passed": "ok", "failed": "error", "stale": "warning"}
BENCHMARK_STYLES = {"healthy": "ok", "slow": "warning", "failing": "error", "unknown": "dim", "stale": "warning"}


def status_lines(
    verification: VerificationStatus | None, benchmark: BenchmarkStatus | None, *, managed: bool
) -> list[Text]:
    """The status of both. That no verification is stored is shown only for environments that envdoctor manages."""
    lines = []
    if verification or managed:
        style = VERIFICATION_STYLES[verification.state] if verification else "dim"
        lines.append(Text(describe_verification(verification), style=style))
    if benchmark:
        lines.append(Text(describe_benchmark(benchmark), style=BENCHMARK_STYLES[benchmark.state]))
    return lines
