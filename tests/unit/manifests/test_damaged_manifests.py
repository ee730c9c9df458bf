"""Files that their tools refuse, and guides with notations of other formats."""

from __future__ import annotations

import pytest
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import AuditResult, audit_text
from envdoctor.core.errors import BadInput
from envdoctor.manifests import audit_guide
from envdoctor.resolution.step import NoSolver

MISINDENTED = """name: serving
 channels:
   - nvidia
   - pytorch
 dependencies:
   - python=3.9
   - pytorch=2.1.2
   - pip:
       - vllm==0.10.2
"""


def audit(text: str, name: str) -> AuditResult:
    return audit_text(text, name, None, NoSolver()).result


def test_what_is_left_of_invalid_yaml_is_audited() -> None:
    findings = {each.id: each for each in audit(MISINDENTED, "environment.yml").findings}
    assert (findings["RUN123"].status, findings["RUN123"].line) == ("error", 2)
    assert "line 2 is not valid YAML (mapping values are not allowed" in findings["RUN123"].message
    assert findings["RUN010"].line == 9
    valid = MISINDENTED.replace("\n ", "\n")
    assert "RUN123" not in {each.id for each in audit(valid, "environment.yml").findings}


def test_invalid_yaml_without_packages_names_its_line() -> None:
    with pytest.raises(BadInput, match="is not valid YAML: line 3: "):
        audit("jobs:\n  build: [a\n  steps: 1\n", "workflow.yml")


HEADERS = "--- a/setup.txt\n+++ b/setup.txt\n@@ -1 +1 @@\n"


@each_case(
    "block, is_read",
    [
        ("# Install it\npip install torch==2.8.9", True),
        ("+ pip install torch==2.8.9", True),
        ("- pip install torch==2.8.9\n+ pip install torch==2.8.0", False),
        (f"{HEADERS}+pip install torch==2.8.9", False),
    ],
)
def test_commands_in_a_block_of_additions(block: str, is_read: bool) -> None:
    found = audit_guide(f"# Setup\n\n```diff\n{block}\n```\n", name="guide.md").findings
    assert ("RUN001" in {each.id for each in found}) == is_read
    assert "RUN001" in {each.id for each in audit_guide(sh("pip install torch==2.8.9"), name="guide.md").findings}


def test_the_torch_of_conda_forge_is_judged() -> None:
    text = '[workspace]\nname = "x"\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n[dependencies]\n'
    assert audit(text + 'pytorch = ">=2.8"\n', "pixi.toml").coverage.judged == 1
