"""The cause of a failed build or import, as `explain` finds it in the output."""

from __future__ import annotations

import io

from envdoctor.explain import explain
from envdoctor.explain.rank import Cause


def explained(output: str) -> Cause | None:
    """The most likely cause; None if the text does not decide."""
    found = explain(io.BytesIO(output.encode("utf-8", "replace")))
    first = next(iter(found.causes), None)
    return first if first and not first.undecided and not first.similar else None
