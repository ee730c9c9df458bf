"""The documentation of the fleet findings."""

from __future__ import annotations

import re
from pathlib import Path

from support.command import envdoctor
from support.paths import ROOT

from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.fleet import fleet_texts


def test_each_id_is_documented_with_its_cause() -> None:
    code = "".join(path.read_text() for path in sorted((ROOT / "envdoctor" / "fleet").glob("*.py")))
    used = dict(re.findall(r'"(FLT\d{3})",\s*"([a-z-]+)"', code))
    texts = fleet_texts()
    assert set(re.findall(r'"(FLT\d{3})"', code)) == set(texts)
    assert {name: texts[name].cause for name in used} == used
    assert {text.cause for text in texts.values()} <= set(causes())


def test_explain_an_id(tmp_path: Path) -> None:
    done = envdoctor("explain", "FLT032", home=tmp_path)
    assert done.returncode == 0
    assert "MTU" in done.stdout
    assert "nccl-interface" in done.stdout
