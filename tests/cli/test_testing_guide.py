"""The examples of docs/testing.md are tests that pass."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from support.paths import ROOT

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/testing.md").read_text(), re.DOTALL)
CASES = [
    pytest.param(
        code, id=re.findall(r"def (\w+)", code)[0], marks=pytest.mark.stack if "stack_python" in code else ()
    )
    for code in EXAMPLES
]


@pytest.mark.parametrize("code", CASES)
def test_an_example_passes(code: str, request: pytest.FixtureRequest) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})
