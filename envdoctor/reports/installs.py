"""Parser for the output of installations: `Successfully installed torch-2.7.0`, ` + torch==2.7.1+cu128`."""

from __future__ import annotations

import re

from envdoctor.knowledge.versions import major_minor
from envdoctor.reports.section import Line, Section, first_group, is_version

INSTALLED = re.compile(r"\bSuccessfully installed ((?:\S+-\d\S*\s*){1,600})")
NAME_AND_VERSION = re.compile(r"([A-Za-z0-9][\w.-]*?)-(\d[\w.+!]*)$")
ADDED = re.compile(r"[+~] ?([A-Za-z0-9][\w.-]{0,80})==(\d[\w.+!]{0,60})(?: \(from .{0,300}\))?$")
SATISFIED = re.compile(
    r"Requirement already satisfied: ([A-Za-z0-9][\w.-]{0,80})[^()]{0,300}? in (\S{1,300}).{0,300}?"
    r"\((\d[\w.+!]{0,60})\)$"
)
# Lines about the release that an installation replaces, of pip and of uv.
REPLACED = re.compile(
    r"(?:Found existing installation: |Uninstalling |Successfully uninstalled |- )"
    r"([A-Za-z0-9][\w.-]{0,80}?)(?:[ -]|==)(\d[\w.+!]{0,60}):?$"
)
WINDOWS_PATH = re.compile(r"(?:PS )?[A-Za-z]:\\[\w .()\\-]{0,120}>|\b[a-z]:\\\S{1,200}\\site-packages", re.IGNORECASE)
TORCH_WHEEL = re.compile(r"\btorch-(\d[\w.]{0,30})-cp\w{2,6}-cp\w{2,6}-(\w{0,30}(win_amd64|x86_64|aarch64))\.whl")
LAST_CPU_BUILD_FOR_ARM = (2, 10)  # of PyPI; pypi.org/project/torch, sizes of the files


def parse_installs(lines: list[Line]) -> Section | None:
    """Parse the versions that pip and uv report as installed. A later installation replaces an earlier one.

    ```
    Successfully installed torch-2.7.0+cu128 torchaudio-2.11.0+cu128 torchvision-0.22.0+cu128
    - torch==2.6.0
    + torch==2.7.1+cu128
    Requirement already satisfied: torch in ./venv/lib/python3.11/site-packages (from vllm) (2.4.0)
    ```
    """
    section = Section("pip install")
    replaced = ""
    of_uv = any(line.text[0] == "+" and ADDED.match(line.text) for line in lines)  # else `- torch==2.9` is a bullet
    for line in lines:
        text = line.text
        if (old := REPLACED.match(text)) and (of_uv or text[0] != "-"):
            replaced = old[2] if old[1] == "torch" else replaced
            section.consumed.add(line.number)
            continue
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
    if not section.distributions:
        return None
    _record_cpu_build(section, lines, replaced)
    return section


def _record_cpu_build(section: Section, lines: list[Line], replaced: str) -> None:
    """PyPI's wheels of torch for Windows have no CUDA, nor had those for Arm. Those of PyTorch's index have a `+`."""
    torch = section.distributions.get("torch")
    if not torch or "+" in torch.version:
        return
    wheels = [match for line in lines if (match := TORCH_WHEEL.search(line.text)) and match[1] == torch.version]
    platform = wheels[-1][3] if wheels else ""
    if platform == "win_amd64" or (not wheels and any(WINDOWS_PATH.search(line.text) for line in lines)):
        section.set_fact("system.os", "Windows", "from the log of an installation")
        name = "Windows"
    elif platform == "aarch64" and major_minor(torch.version) <= LAST_CPU_BUILD_FOR_ARM:
        section.set_fact("system.architecture", platform)
        name = "aarch64"
    else:
        return
    before = f"; it replaced torch {replaced}" if "+cu" in replaced else ""
    section.set_absent(
        "stack.torch.cuda", f"the wheel of torch {torch.version} on PyPI for {name} has no CUDA{before}"
    )
