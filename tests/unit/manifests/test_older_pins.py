"""Pins that can be older than the built-in tables of releases."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import DAY
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests import audit_guide
from envdoctor.resolution.step import NoSolver


@each_case(
    "pin, message",
    [
        ("pydantic==1.7.2", "older than the built-in tables (oldest 1.8 of 2021-02-26)"),
        ("opencv-python-headless==4.4.0.46", "older than the built-in tables"),
        ("pydantic==1.7.4", ""),
        ("pydantic==2.11.99", "no such release"),
    ],
)
def test_a_pin_below_the_release_of_the_earliest_day_can_be_older_than_the_tables(pin: str, message: str) -> None:
    """A table has patches of 2021 for series of 2020, and not the first releases of these series."""
    audit = audit_guide(sh(f"pip install {pin}"), name="guide.md", today=DAY)
    found = [each.message for each in audit.findings if each.id == "RUN001"]
    assert [message in each for each in found] == ([True] if message else [])


def test_no_release_for_a_newer_python_than_that_of_the_pins_is_proposed() -> None:
    """xformers 0.0.22 has wheels up to Python 3.11, and numpy from 2.5 on none for it."""
    text = "verl==0.9.1\nnumpy==1.26.4\nxformers==0.0.22\n"
    audit = audit_text(text, "requirements.txt", None, NoSolver()).audit
    assert audit
    assert "numpy==2.4.6" in audit.requirements
