"""Mutated texts for fuzz tests. ENVDOCTOR_FUZZ_EXAMPLES is the number of examples of each test with Hypothesis."""

from __future__ import annotations

import os
import random
import time

EXAMPLES = int(os.environ.get("ENVDOCTOR_FUZZ_EXAMPLES", "100"))


MAX_SECONDS = 2.0  # for one input of some KiB, on a busy machine


PIECES = [
    "\n",
    "\r\n",
    "\0",
    "\x1b[31m",
    "==",
    ": ",
    "|",
    "9" * 40,
    "é",
    "\ud7ff",
    "{}",
    "()",
    "-1",
    "NaN",
    "1e999",
    "[pip3] ",
    "GPU 0: ",
    "\t",
    "%s",
]


def mutate(text: str, seed: int) -> str:
    """The text with parts removed, repeated, shuffled or replaced, and unusual characters inserted."""
    source = random.Random(seed)
    for _ in range(source.randint(1, 6)):
        start, end = sorted(source.randrange(len(text) + 1) for _ in range(2))
        kind = source.randrange(6)
        if kind == 0:
            text = text[:start] + text[end:]
        elif kind == 1:
            text = text[:end] + text[start : start + 2000] + text[end:]
        elif kind == 2:
            lines = text.split("\n")
            source.shuffle(lines)
            text = "\n".join(lines)
        elif kind == 3:
            text = text[:start] + source.choice(PIECES) * source.randint(1, 50) + text[start:]
        elif kind == 4:
            text = text[:start] + chr(source.randrange(32, 0x2FF)) + text[start + 1 :]
        else:
            text = text.replace(source.choice("0123456789.:=/_ -"), source.choice(PIECES), source.randint(1, 20))
    return text


class TimeLimit:
    """Fails if one input takes too long."""

    def __enter__(self) -> None:
        self.start = time.process_time()

    def __exit__(self, *_: object) -> None:
        assert time.process_time() - self.start < MAX_SECONDS
