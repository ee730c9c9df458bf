"""Mutated guides: no traceback, no crashed rule, bounded time.

ENVDOCTOR_FUZZ_EXAMPLES sets the number of examples.
"""

from __future__ import annotations

import random
import time
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import mutate
from support.guide_cases import FAULTS
from support.paths import DATA

from envdoctor.manifests import audit_guide
from envdoctor.manifests.own_names import own_names
from envdoctor.manifests.stated_packages import stated_install

GUIDES = [path.read_text(encoding="utf-8") for path in sorted((DATA / "guides").glob("*.md"))]
MAX_SECONDS = 10.0
SYNTAX = [
    "```", "~~~", "$(", "${", "'", '"', "\\\n", "<<EOF\n", "&&", "|", ">=", "==", "-r ", "[", "]", "@", "#", "FROM ",
    "<pre>", "pip install ", "git+https://", ".whl", "=" * 50, "GRPOConfig(", "\r", "\u2028", "9" * 300,
]  # fmt: skip


def mutate_guide(text: str, seed: int) -> str:
    """A mutated guide with additional syntax that the parsers recognise."""
    rng = random.Random(seed)
    text = mutate(text, seed)
    for _ in range(rng.randint(0, 8)):
        position = rng.randrange(len(text) + 1)
        text = text[:position] + rng.choice(SYNTAX) + text[position:]
    return text


@given(
    st.builds(mutate_guide, st.sampled_from([*GUIDES, *(fault.text for fault in FAULTS)]), st.integers(0, 1 << 32))
)
def test_mutated_guide_is_audited(text: str) -> None:
    start_time = time.process_time()
    audit = audit_guide(text, name="guide.md", today=date(2026, 11, 21))
    assert time.process_time() - start_time < MAX_SECONDS
    assert not [finding.message for finding in audit.findings if finding.status == "crashed"]
    assert all(0 <= finding.line <= text.count("\n") + 1 for finding in audit.findings)


ADVERSARIAL_GUIDES = {
    "a folder with another character": "```bash\nuv pip install ./" + "a" * 60 + "+b/c torch==2.8.0\n```",
    "quotes": "```bash\n" + "'" * 50_000 + "\n```",
    "one long word": "```bash\npip install " + "a" * 125_000 + "\n```",
    "many packages": "```bash\npip install " + "torch==2.8.0 " * 5_000 + "\n```",
    "open fences": "```bash\n" * 12_500,
    "parentheses": "```bash\necho " + "$(" * 25_000 + "\n```",
    "continuations": "```bash\npip install \\\n" + "torch \\\n" * 12_500 + "```",
    "repeated installs": "```bash\n" + "pip install -y " * 10_000 + "\n```",
    "prompts": "```console\n" + "(a) " * 12_500 + "$ pip install x\n```",
    "numbered lists": "1. `pip install x` \n" * 5_000,
    "calls": "```python\n" + "GRPOConfig(" * 5_000 + "\n```",
    "table rows": "| driver " + "5" * 25_000 + " |\n" * 20,
    "html": "<pre>" + "<b" * 50_000,
    "many steps": "```bash\n" + "pip install torch==2.8.0 vllm trl transformers\n" * 500 + "```",
    "Pythons": "python3.10 " * 10_000,
    "conda": "```yaml\ndependencies:\n" + "  - pip:\n" * 12_500 + "```",
}


@pytest.mark.parametrize("name", ADVERSARIAL_GUIDES)
def test_adversarial_guide_is_audited_in_bounded_time(name: str) -> None:
    start_time = time.process_time()
    audit = audit_guide(ADVERSARIAL_GUIDES[name], name=name, today=date(2026, 11, 21))
    assert time.process_time() - start_time < MAX_SECONDS
    assert not [finding.message for finding in audit.findings if finding.status == "crashed"]


@pytest.mark.parametrize("text", ["git clone " * 30_000, "git clone https://x.example/a/b\n" + "install " * 30_000])
def test_the_names_of_a_project_are_found_in_bounded_time(text: str, tmp_path: Path) -> None:
    start_time = time.process_time()
    own_names(tmp_path, text)
    assert time.process_time() - start_time < 5


@pytest.mark.parametrize("unit", ["a, ", "torch and ", "`torch==2.1.0` ", " ", "[", "<a "])
def test_long_lines_that_state_packages_are_read_in_bounded_time(unit: str) -> None:
    start_time = time.process_time()
    stated_install(["## Requirements", "- " + unit * 30_000, unit * 30_000, "| " + unit * 30_000], ())
    assert time.process_time() - start_time < 5
