"""Reports from a Mac: its processor in words, and requested packages without a wheel for it."""

# ruff: noqa: E501 - forms on one line

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.knowledge.mac_wheels import mac_wheels
from envdoctor.reports import parse_report


def messages(text: str) -> list[str]:
    findings = diagnose_report(parse_report(text))
    return [each.message for each in findings if each.status in ("error", "warning")]


@each_case(
    ("text", "system", "architecture"),
    [
        ("I'm on an Intel MacBook Pro with macOS 14.5 and Python 3.12.", "macOS 14.5", "x86_64"),
        ("To obtain the error on MacOS I7 CPU running python 3.11, do the following:", "macOS", "x86_64"),
        ("I am on Apple M1 Pro, and the python environment is 3.9.13.", "macOS", "arm64"),
        ("My machine is a Mac mini M4 with Python 3.12.", "macOS", "arm64"),
        ("iMac 2019, Intel i7, macOS 13. Python 3.11", "macOS 13", "x86_64"),
        ("Ubuntu 22.04, Intel i7-12700K, RTX 4090, Python 3.11", "Ubuntu 22.04", None),
    ],
)
def test_the_processor_of_a_mac_is_read(text: str, system: str, architecture: str | None) -> None:
    facts = parse_report(text).machine.system
    assert (facts.os.value, facts.architecture.value) == (system, architecture)


@each_case(
    ("text", "message"),
    [
        ("I'm on an Intel MacBook Pro with macOS 14.5 and Python 3.12. pip install torch==2.4.0 fails", "torch 2.4.0 has no wheel for a Mac with an Intel processor"),
        ("Apple M2, macOS 14.4\npip install bitsandbytes==0.43.1\n", "bitsandbytes 0.43.1 has no wheel for a Mac with an Apple processor"),
        ("iMac 2019, Intel i7, macOS 13\npip install onnxruntime==1.24.1\n", "onnxruntime 1.24.1 has no wheel for a Mac with an Intel processor"),
        ("My machine is a Mac mini M4.\n$ pip install decord\n", "decord has no wheel for a Mac with an Apple processor"),
        ("macOS 15\npip install triton\n", "triton has no wheel for a Mac"),
    ],
)  # fmt: skip
def test_a_requested_package_without_a_wheel_is_reported(text: str, message: str) -> None:
    assert message in messages(text)


@each_case(
    "text",
    [
        "MacBook Pro M3, macOS 15, Python 3.12\npip install torch==2.6.0 torchvision\ntraining on mps is slow",
        'Intel MacBook Pro, Python 3.11\npip install torch==2.2.2 "numpy<2"\n',
        "macOS 14\npip install torch==2.6.0\n",  # the processor is not stated
        "Apple M2, macOS 14.4\npip install bitsandbytes==0.49.1 bitsandbytes==0.42.0\n",
        "OS: macOS 13.6 (x86_64)\ntorch 2.4.1\n",  # conda-forge has it
    ],
)
def test_a_package_with_a_wheel_for_the_mac_is_not_blamed(text: str) -> None:
    assert not messages(text)


def test_the_command_for_an_intel_mac_has_numpy_1() -> None:
    text = "Intel MacBook, Python 3.11. pip install torch==2.6.0 fails"
    commands = [
        line for each in diagnose_report(parse_report(text)) for remedy in each.remedies for line in remedy.commands
    ]
    assert any("torch==2.2.2" in line and "numpy==1.26.4" in line for line in commands)


def test_alternatives_of_a_range() -> None:
    row = mac_wheels()["bitsandbytes"]
    assert [row.has_wheel("arm64", each) for each in ("0.42.0", "0.43.0", "0.49.2")] == [True, False, True]
    assert not row.has_wheel("x86_64", "0.49.2")
