"""Mutated guides: no traceback, no crashed check, bounded time.

ENVDOCTOR_FUZZ_EXAMPLES sets how many.
"""

from __future__ import annotations

import random
import time
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbook_cases import FAULTS
from test_fuzz import fuzz, mutated

from envdoctor.manifests import audit_runbook

GUIDES = [path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "data/runbooks").glob("*.md"))]
SECONDS = 10.0
PIECES = ["```", "~~~", "$(", "${", "'", '"', "\\\n", "<<EOF\n", "&&", "|", ">=", "==", "-r ", "[", "]", "@",
"#", "FROM ", "<pre>",
          "pip install ", "git+https://", ".whl", "=" * 50, "GRPOConfig(", "\r", "\u2028", "9" * 300]  # fmt: skip


def twisted(text: str, seed: int) -> str:
    """A mutated guide with pieces that the parsers look for put in."""
    source = random.Random(seed)
    text = mutated(text, seed)
    for _ in range(source.randint(0, 8)):
        at = source.randrange(len(text) + 1)
        text = text[:at] + source.choice(PIECES) + text[at:]
    return text


@fuzz
@given(st.builds(twisted, st.sampled_from([*GUIDES, *(fault.text for fault in FAULTS)]), st.integers(0, 1 << 32)))
def test_any_guide_is_audited(text: str) -> None:
    began = time.process_time()
    audit = audit_runbook(text, name="guide.md", today=date(2026, 11, 21))
    assert time.process_time() - began < SECONDS
    assert not [finding.message for finding in audit.findings if finding.status == "crashed"]
    assert all(0 <= finding.line <= text.count("\n") + 1 for finding in audit.findings)


HOSTILE = {
    "quotes": "```bash\n" + "'" * 200_000 + "\n```",
    "one long word": "```bash\npip install " + "a" * 500_000 + "\n```",
    "many packages": "```bash\npip install " + "torch==2.8.0 " * 20_000 + "\n```",
    "open fences": "```bash\n" * 100_000,
    "parentheses": "```bash\necho " + "$(" * 100_000 + "\n```",
    "continuations": "```bash\npip install \\\n" + "torch \\\n" * 50_000 + "```",
    "prompts": "```console\n" + "(a) " * 100_000 + "$ pip install x\n```",
    "numbered lists": "1. `pip install x` \n" * 50_000,
    "calls": "```python\n" + "GRPOConfig(" * 20_000 + "\n```",
    "table rows": "| driver " + "5" * 100_000 + " |\n" * 20,
    "html": "<pre>" + "<b" * 200_000,
    "many steps": "```bash\n" + "pip install torch==2.8.0 vllm trl transformers\n" * 2_000 + "```",
    "conda": "```yaml\ndependencies:\n" + "  - pip:\n" * 50_000 + "```",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_guide_is_audited_in_bounded_time(name: str) -> None:
    began = time.process_time()
    audit = audit_runbook(HOSTILE[name], name=name, today=date(2026, 11, 21))
    assert time.process_time() - began < 60
    assert not [finding.message for finding in audit.findings if finding.status == "crashed"]
