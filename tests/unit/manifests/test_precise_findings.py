"""Statements that make a finding a note, or leave it out: a listed package, a torch of the same CUDA."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import DAY
from support.guide_cases import sh

from envdoctor.manifests import audit_guide

CODE = "```python\nAutoModel.from_pretrained(a, attn_implementation='flash_attention_2')\n```\n"


def statuses(text: str, rule: str) -> list[str]:
    return [each.status for each in audit_guide(text, name="guide.md", today=DAY).findings if each.id == rule]


@each_case(
    ("text", "expected"),
    [
        ("- `flash-attn>=2.6.3`\n", []),
        ("1. **flash_attn** for long prompts\n", []),
        ("- flash-attn-like kernels\n", ["warning"]),
        ("\n", ["warning"]),
    ],
)
def test_a_package_that_a_list_states_is_not_missing(text: str, expected: list[str]) -> None:
    guide = f"{sh('pip install torch==2.8.0 transformers==4.57.1')}\n{text}\n{CODE}"
    assert statuses(guide, "RUN066") == expected


INDEX = "pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu{}"


@each_case(
    ("steps", "expected"),
    [
        ((INDEX.format(124), "pip install torch==2.6.0"), ["info"]),  # for CUDA 12.4, too
        ((INDEX.format(121), "pip install torch==2.6.0"), ["error"]),
        ((INDEX.format(124), "pip install torch==2.7.1"), ["error"]),  # for CUDA 12.6
        ((INDEX.format(124), "pip install flash-attn --no-build-isolation", "pip install torch==2.6.0"), ["error"]),
    ],
)
def test_a_pin_for_the_same_cuda_replaces_torch_with_a_note(steps: tuple[str, ...], expected: list[str]) -> None:
    assert statuses(sh(*steps), "RUN010") == expected
