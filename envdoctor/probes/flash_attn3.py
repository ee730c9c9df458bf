"""FlashAttention 3, from its package or vLLM's copy, causal with grouped heads, compared with float32."""

from _flash import check
from _result import Result, run

DEADLINE_SECONDS = 240
NEEDS_GPU = True
MEMORY_GB = 16


def probe(result: Result) -> str:
    """Run forward, and backward if the implementation supports it."""
    return check(result, 3)


if __name__ == "__main__":
    run(probe)
