"""Short options in one word: the last one can take the next word as its value."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.manifests.options import parse_options


@each_case(
    ("command", "values", "flags", "arguments"),
    [
        ("-qr yolov5/requirements.txt", {"-r": ["yolov5/requirements.txt"]}, {"-q"}, []),
        ("-qUr requirements.txt torch", {"-r": ["requirements.txt"]}, {"-q", "-U"}, ["torch"]),
        ("-yn env python=3.9", {"-n": ["env"]}, {"-y"}, ["python=3.9"]),
        ("-qe .", {"-e": ["."]}, {"-q"}, []),
        ("-qU torch", {}, {"-q", "-U"}, ["torch"]),
        ("-Uqq torch", {}, {"-q", "-U"}, ["torch"]),
        ("-rrequirements.txt torch", {"-r": ["requirements.txt"]}, set(), ["torch"]),
        ("--user torch", {}, set(), ["torch"]),
    ],
)
def test_options_of_one_word(
    command: str, values: dict[str, list[str]], flags: set[str], arguments: list[str]
) -> None:
    found = parse_options(tuple(command.split()))
    assert (found.values, found.arguments) == (values, arguments)
    assert flags <= found.flags
