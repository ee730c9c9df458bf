"""Parser for the output of installations: `Successfully installed torch-2.7.0`, ` + torch==2.7.1+cu128`."""

from __future__ import annotations

import re

from envdoctor.reports.section import Line, Section, first_group, is_version

INSTALLED = re.compile(r"\bSuccessfully installed ((?:\S+-\d\S*\s*){1,600})")
NAME_AND_VERSION = re.compile(r"([A-Za-z0-9][\w.-]*?)-(\d[\w.+!]*)$")
ADDED = re.compile(r"[+~] ?([A-Za-z0-9][\w.-]{0,80})==(\d[\w.+!]{0,60})(?: \(from .{0,300}\))?$")
SATISFIED = re.compile(
    r"Requirement already satisfied: ([A-Za-z0-9][\w.-]{0,80})[^()]{0,300}? in (\S{1,300}).{0,300}?"
    r"\((\d[\w.+!]{0,60})\)$"
)


def parse_installs(lines: list[Line]) -> Section | None:
    """Parse the versions that pip and uv report as installed. A later installation replaces an earlier one.

    ```
    Successfully installed torch-2.7.0+cu128 torchaudio-2.11.0+cu128 torchvision-0.22.0+cu128
    + torch==2.7.1+cu128
    Requirement already satisfied: torch in ./venv/lib/python3.11/site-packages (from vllm) (2.4.0)
    ```
    """
    section = Section("pip install")
    for line in lines:
        text = line.text
        if "Successfully installed " in text and (match := INSTALLED.search(text)):
            pairs = [pair for word in match[1].split() if (pair := NAME_AND_VERSION.match(word))]
        elif text[0] in "+~" and (match := ADDED.match(text)):
            pairs = [match]
        elif text.startswith("Requirement already satisfied: ") and (match := SATISFIED.match(text)):
            section.add_distribution(match[1], match[3])
            section.set_fact("stack.python_version", first_group(r"/python(3\.\d{1,2})/", match[2]), "from a path")
            section.consumed.add(line.number)
            continue
        else:
            continue
        for pair in pairs:
            if is_version(pair[2]):
                section.remove_distribution(pair[1])
                section.add_distribution(pair[1], pair[2])
        section.consumed.add(line.number)
    return section if section.distributions else None
