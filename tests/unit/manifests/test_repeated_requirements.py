"""Several entries of one package all count."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import IndexedRelease

VERSIONS = {"torch": "2.8.0", "sentencepiece": "0.1.99", "einops": "0.6.1", "scipy": "1.15.0"}


@each_case(
    ("entries", "name", "wanted"),
    [
        (["sentencepiece", "sentencepiece~=0.1.99"], "sentencepiece", "sentencepiece~=0.1.99"),
        (["sentencepiece~=0.1.99", "sentencepiece"], "sentencepiece", "sentencepiece~=0.1.99"),
        (["einops", "einops==0.6.1"], "einops", "einops==0.6.1"),
        (["einops>=0.6", "einops==0.6.1"], "einops", "einops==0.6.1"),
        (["scipy>=1.10", "scipy<1.16"], "scipy", "scipy<1.16,>=1.10"),
        (["scipy"], "scipy", "scipy"),
    ],
)
def test_each_entry_of_a_package_counts(entries: list[str], name: str, wanted: str, tmp_path: Path) -> None:
    solver = FixedSolver(FixedIndex(IndexedRelease("chain", "1.0", "2026-10-01")), VERSIONS)
    text = "\n".join(["torch==2.8.0", *entries])
    audit = audit_text(text, str(tmp_path / "requirements.txt"), None, solver, python="3.12").audit
    assert audit
    assert [each for each in audit.main.own if each.startswith(name)] == [wanted]


def test_a_pin_counts_after_a_range_that_an_installed_companion_excludes(tmp_path: Path) -> None:
    """The installed torchvision requires torch 2.1.2. Wheels of both releases of torch exist for 3.9 to 3.11."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch>=1.13.1", "torchvision>=0.14.1"]\n'
        '[project.optional-dependencies]\ndev = ["torch==2.7.1"]\n'
    )
    commands = ("conda create -n x python=3.8", "conda activate x", "pip install torch==2.1.2 torchvision==0.16.2")
    text = sh(*commands, "pip install -e .[dev]")
    found = audit_text(text, str(tmp_path / "README.md"), None, None).result.findings
    (wheels,) = [each for each in found if each.id == "RUN005"]
    assert wheels.message.startswith("torch 2.7.1 has no wheel for Python 3.8")
    assert wheels.fix == "Use Python 3.11."
    assert not any("2.15" in f"{each.message} {each.fix}" for each in found)
