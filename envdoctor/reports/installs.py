"""Parsers for install commands and for what they print: `Successfully installed torch-2.7.0`, ` + torch==2.7.1`."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Distribution
from envdoctor.knowledge.torch_builds import LAST_CPU_BUILD_FOR_ARM
from envdoctor.knowledge.versions import major_minor
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.reports.section import Line, Section, distribution_name, dotted_version, first_group, is_version

INSTALLED = lazy_pattern(r"\bSuccessfully installed ((?:\S+-\d\S*\s*){1,600})")
NAME_AND_VERSION = lazy_pattern(r"([A-Za-z0-9][\w.-]*?)-(\d[\w.+!]*)$")
ADDED = lazy_pattern(r"[+~] ?([A-Za-z0-9][\w.-]{0,80})==(\d[\w.+!]{0,60})(?: \(from .{0,300}\))?$")
SATISFIED = lazy_pattern(
    r"Requirement already satisfied: ([A-Za-z0-9][\w.-]{0,80})[^()]{0,300}? in (\S{1,300}).{0,300}?"
    r"\((\d[\w.+!]{0,60})\)$"
)
# Lines about the release that an installation replaces, of pip and of uv.
REPLACED = lazy_pattern(
    r"(?:Found existing installation: |Uninstalling |Successfully uninstalled |- )"
    r"([A-Za-z0-9][\w.-]{0,80}?)(?:[ -]|==)(\d[\w.+!]{0,60})(?: \(from .{0,300}\)|:)?$"
)
WINDOWS_PATH = lazy_pattern(
    r"(?:PS )?[A-Za-z]:\\[\w .()\\-]{0,120}>|\b[a-z]:\\\S{1,200}\\site-packages", re.IGNORECASE
)
TORCH_WHEEL = lazy_pattern(r"\btorch-(\d[\w.]{0,30})-cp\w{2,6}-cp\w{2,6}-(\w{0,30}(win_amd64|x86_64|aarch64))\.whl")

DOWNLOADED_TORCH = lazy_pattern(
    r"(?:Downloading|Using cached) (?:\S*/)?(torch)-(\d[\w.]{0,30})-cp\w{2,6}-cp\w{2,6}-\w{3,40}\.whl(?! ?\.metadata)"
)


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
        elif text.startswith("Installing collected packages: "):
            pairs = _downloaded(text, lines)
        elif text[0] in "+~" and (match := ADDED.match(text)):
            pairs = [match]
        elif text.startswith("Requirement already satisfied: ") and (match := SATISFIED.match(text)):
            section.add_distribution(match[1], match[3], location=match[2])
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


def _downloaded(text: str, lines: list[Line]) -> list[re.Match[str]]:
    """The torch that pip installs, from the wheel it downloaded: a text may end before the versions are printed."""
    wheels = [match for line in lines if (match := DOWNLOADED_TORCH.search(line.text))]
    versions = {match[2] for match in wheels}
    return wheels[-1:] if len(versions) == 1 and re.search(r"[ ,]torch(?:,|$)", text) else []


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


COMMAND = lazy_pattern(r"(?<![A-Za-z0-9_/.-])(?:uv pip|pip[\d.]{0,4}|uv) (?:install|add)\b([^|&;`#\n]{0,400})")
OPTIONS_WITH_VALUE = frozenset({
    "-r", "-c", "-f", "-i", "-t", "-p", "--index-url", "--extra-index-url", "--index", "--find-links", "--python",
    "--torch-backend", "--requirement", "--constraint", "--target", "--config-settings", "--default-index",
})  # fmt: skip
REQUIREMENT = lazy_pattern(
    r"[\"'(]?([A-Za-z][\w.-]{1,60}?)(?:\[[\w,-]{1,60}\])?(?:==([\w.+!]{1,40}?))?[\"'),.:]{0,2}$"
)
# An index of builds for one torch: `flashinfer.ai/whl/cu121/torch2.3`, `data.pyg.org/whl/torch-2.5.0+cu124.html`,
# `download.openmmlab.com/mmcv/dist/cu111/torch1.10.0/index.html`.
INDEX_FOR_ONE_TORCH = lazy_pattern(
    r"https?://[^\s\"']{3,60}/(?:whl|mmcv/dist)/(\S{0,20}torch-?\d\.\d{1,2}[\w.+]{0,16})"
)
SOURCE_ONLY = lazy_pattern(r"--no-binary\b")  # pip compiles, whatever builds the index has
# A program of one Python: `pip3.14 install`, `python3.14 -m pip install`.
PYTHON_OF_PIP = lazy_pattern(r"(?<![\w./-])(?:pip|python(?=\S{1,8} -m pip ))(3\.\d{1,2}) (?:-m pip )?install\b")
COMPANIONS = ("torchvision", "torchaudio", "torchtext")  # installed in the same command as torch
TORCH_INDEX = lazy_pattern(r"(?:whl/(?:nightly/|test/)?|--torch-backend[ =])(cu(\d{3})|cpu)\b")
# pip takes a source archive if no wheel fits the platform and the Python.
WHEEL_BUILD = lazy_pattern(r"Building wheels? for ([A-Za-z][\w.-]{1,40}) \((?:setup\.py|pyproject\.toml)\)")
SOURCE_ARCHIVE = lazy_pattern(
    r"(?:Using cached|Downloading|Collecting|Building wheels? for collected packages:) (?:\S*/)?"
    r"([A-Za-z][\w.]*?(?:-[A-Za-z][\w.]*?)*)-(\d[\w.+]*?)\.(?:tar\.gz|zip)\b"
)


# A sentence about a package that is to be installed: `flash-attn: not installed, I want 2.8.3`.
WISH = lazy_pattern(
    r"(?i)\u60f3\u88c5|\b(?:want|wants|trying|try|tried|plan|attempt\w*) to (?:install|build|compile)"
    r"|not (?:yet )?installed,? \w|\b(?:build|building|compile|compiling) [\w-]{3,24} from source"
)
# A package whose installation failed, in words: `only Flash Attn failed to install`; the last one is Chinese.
INSTALL_FAILED = lazy_pattern(
    r"(?i)(?<![\w/.-])(flash (?:attn|attention)|[a-z][\w-]{2,24})"
    r"(?: (?:fails?|failed|refuses) to (?:install|build|compile)"
    r"|\s?\u5b89\u88c5(?:\u5931\u8d25|\u4e0d\u4e0a|\u4e0d\u4e86))"
    r"|\b(?:cannot|can't|could not|couldn't|unable to) install [`'\"]?(flash (?:attn|attention)|[a-z][\w-]{2,24})"
)
WANTED = lazy_pattern(r"(?i)(?<![\w/.-])([a-z][\w-]{2,24})(?:[ =]+v?(\d+\.\d+[\w.]*))?")
WANTED_VERSION = lazy_pattern(r"(?i)(?:\u88c5|install|want|build|compile)\D{0,12}(\d+\.\d+\.\d+[\w.]*)")


# The data type that a command or a configuration selects.
DTYPE = lazy_pattern(
    r"(?<!kv-cache-)(?<!quant_)\bdtype[ =:]+[\"']?(?:torch\.)?\w|--(?:bf16|fp16)\b|\b(?:bf16|fp16)[ =:]+[Tt]rue"
)
BFLOAT16 = lazy_pattern(
    r"\bdtype[ =:]+[\"']?(?:torch\.)?(?:bfloat16|bf16)\b|--bf16\b(?! [Ff]alse)|\bbf16[ =:]+[Tt]rue"
)

# A command of LMDeploy with a checkpoint, or an option, for FP8 weights.
FP8 = lazy_pattern(r"\blmdeploy\b.{0,200}?(?:[-_]FP8\b|--model-format[ =]fp8\b)", re.IGNORECASE)


TORCH_NOT_FOUND = lazy_pattern(r"\bNo matching distribution found for torch(?![\w-])|no version of torch(?![\w-])")


def parse_install_commands(lines: list[Line], *, lists_packages: bool = False) -> Section | None:
    """Parse the packages that install commands name, and the build of torch that their index has.

    If the text lists no installed packages, those that several commands pin are taken as installed.

    ```
    $ pip install torch==2.9.1 --index-url https://download.pytorch.org/whl/cu130
      Using cached vllm-0.6.4.post1.tar.gz (3.1 MB)
    ```
    """
    section = Section("install commands")
    requested: dict[str, str] = {}
    several: set[str] = set()  # packages requested in several versions: one of them was an attempt
    builds: set[str] = set()
    for line in lines:
        pairs = []
        for command in COMMAND.finditer(line.text):
            pairs += (named := list(_requirements(command[1])))
            _record_pinned_companions(section, dict(named))
            _record_index(section, command[1], named)
            build = TORCH_INDEX.search(command[1])
            if build and any(name == "torch" for name, _ in named):
                builds.add(build[1])
        if WISH.search(line.text):
            pairs += _wanted_packages(line.text)
        if match := SOURCE_ARCHIVE.search(line.text):
            pairs.append((distribution_name(match[1]), match[2]))
        pairs += [(distribution_name(match[1]), "") for match in WHEEL_BUILD.finditer(line.text)]
        failed = (match[1] or match[2] for match in INSTALL_FAILED.finditer(line.text))
        pairs += [(distribution_name(name.replace(" ", "-")), "") for name in failed]
        for name, version in pairs:
            if name in KNOWN_PACKAGES:
                several |= {name} if version and requested.get(name, version) not in ("", version) else set()
                requested[name] = version or requested.get(name, "")
    requested = {name: "" if name in several else version for name, version in requested.items()}
    section.set_fact("stack.requested", requested or None)
    pythons = {match[1] for line in lines for match in PYTHON_OF_PIP.finditer(line.text)}
    section.set_fact("stack.python_version", pythons.pop() if len(pythons) == 1 else None, "from a pip command")
    if not lists_packages:
        _record_pins(section, lines, requested)
    _record_dtype(section, lines)
    section.set_fact("stack.torch.version", requested.get("torch"), "from an install command")
    _record_wheels(section, lines)
    _record_torch_build(section, builds, requested.get("torch", ""))
    _record_torch_of_conda(section, lines)
    _forget_missing_torch(section, lines)
    return section if section.facts or section.distributions else None


CONDA_COMMAND = lazy_pattern(r"(?<![\w/.-])(?:micro)?(?:conda|mamba) install\b([^|&;`#\n]{0,400})")
CONDA_TORCH = lazy_pattern(r"(?:^|\s)(?:\w+::)?(?:pytorch|torch)(?:==?(\d\.\d{1,2}(?:\.\d{1,2})?))?(?=\s|$)")
CONDA_PLAN = lazy_pattern(r"Package Plan|packages will be (?:downloaded|INSTALLED)")  # it names the builds
CONDA_CUDA = lazy_pattern(r"(?:^|\s)(?:pytorch-cuda|cudatoolkit)==?(\d{1,2}\.\d)(?:\.\d{1,3})?(?=\s|$)")


def _record_torch_of_conda(section: Section, lines: list[Line]) -> None:
    """The build that the only `conda install pytorch==2.4.0 pytorch-cuda=12.1` installs, if no other is named."""
    commands = {match[1].strip() for line in lines for match in CONDA_COMMAND.finditer(line.text)}
    found = [
        (torch, cuda)
        for text in commands
        if (torch := CONDA_TORCH.search(text)) and (cuda := CONDA_CUDA.search(text))
    ]
    is_named = any("+cu" in line.text or "+cpu" in line.text or CONDA_PLAN.search(line.text) for line in lines)
    if len(found) != 1 or is_named:
        return
    torch, cuda = found[0]
    section.set_fact("stack.torch.version", torch[1] or "", "from a conda command")
    section.set_fact("stack.torch.cuda", cuda[1], "from a conda command")


def _record_pins(section: Section, lines: list[Line], requested: dict[str, str]) -> None:
    """Take the pins of several commands as installed. One command alone can be the one that fails."""
    commands = [_requirements(command[1]) for line in lines for command in COMMAND.finditer(line.text)]
    pinning = [named for named in commands if any(version and name in KNOWN_PACKAGES for name, version in named)]
    for name, version in requested.items() if len(pinning) > 1 else ():
        if version and name != "torch" and name not in section.distributions:
            section.add_distribution(name, version, "install command")


def _record_dtype(section: Section, lines: list[Line]) -> None:
    """The data type that commands and configurations select."""
    if any(FP8.search(line.text) for line in lines):
        section.set_fact("stack.dtype", "fp8")
    elif all(not DTYPE.search(line.text) or BFLOAT16.search(line.text) for line in lines):
        section.set_fact("stack.dtype", "bfloat16" if any(BFLOAT16.search(line.text) for line in lines) else None)


def _forget_missing_torch(section: Section, lines: list[Line]) -> None:
    """Forget the torch that a command requested and its companions if the index has no such release."""
    if not any(TORCH_NOT_FOUND.search(line.text) for line in lines):
        return
    for path in [path for path in section.facts if path.startswith("stack.torch.")]:
        del section.facts[path]
    for name in ("torch", *COMPANIONS):
        section.remove_distribution(name)


def _record_pinned_companions(section: Section, pins: dict[str, str]) -> None:
    """The releases that one command installs with a release of torch, for which each of them is compiled."""
    for name in COMPANIONS if pins.get("torch") else ():
        section.add_distribution(name, pins.get(name, ""), "install command")


def _record_index(section: Section, arguments: str, named: list[tuple[str, str]]) -> None:
    """The torch that the index of a command has the builds for, as the source of the packages."""
    index = None if SOURCE_ONLY.search(arguments) else INDEX_FOR_ONE_TORCH.search(arguments)
    for name, version in named if index else ():
        if index and name in KNOWN_PACKAGES and name not in ("torch", *COMPANIONS):
            section.distributions.setdefault(name, Distribution(name=name, version=version, source=index[1]))


WHEEL = lazy_pattern(r"(?<![\w.-])([A-Za-z]\w{2,40})-(\d[\w.]*(?:\+[\w.]+)?)-cp\d{2,3}-\w{3,12}-[\w.]{5,60}\.whl\b")


CPYTHON = lazy_pattern(r"-cp3(\d{1,2})-cp")  # an abi3 wheel is for newer Pythons as well
NAMES_TORCH = lazy_pattern(r"\+.*(?:torch|pt)\d")  # the wheel of an extension: 1.5.0+pt24cu124
REFUSED_WHEEL = "is not a supported wheel on this platform"  # pip installed nothing
OF_UV = lazy_pattern(
    r"[+~-] [A-Za-z0-9][\w.-]{0,80}==\S{1,60} \(from "
)  # `parse_installs` reads what uv added and removed


def _record_wheels(section: Section, lines: list[Line]) -> None:
    """Wheels that the text names, `flash_attn-2.6.3+cu123torch2.4cxx11abiFALSE-cp310-cp310-linux_x86_64.whl`."""
    found: dict[str, set[tuple[str, str]]] = {}
    for line in (line for line in lines if REFUSED_WHEEL not in line.text and not OF_UV.match(line.text)):
        for match in WHEEL.finditer(line.text.replace("%2B", "+")):
            found.setdefault(distribution_name(match[1]), set()).add((match[2], match[0]))
    tags = {tag for wheels in found.values() for _, wheel in wheels for tag in CPYTHON.findall(wheel)}
    is_refused = any(REFUSED_WHEEL in line.text for line in lines)
    if len(tags) == 1 and not is_refused:
        section.set_fact("stack.python_version", f"3.{tags.pop()}", "from the name of a wheel")
    for name, wheels in found.items():
        version, wheel = next(iter(wheels))
        is_extension = NAMES_TORCH.search(version) is not None
        if len(wheels) == 1 and (name in KNOWN_PACKAGES or is_extension) and is_version(version):
            section.add_distribution(name, version, wheel)
            if name == "torch":
                _record_cpu_build(section, lines, "")


def _requirements(arguments: str) -> list[tuple[str, str]]:
    found = []
    words = iter(arguments.split())
    for word in words:
        if word in OPTIONS_WITH_VALUE:
            next(words, "")
        elif match := REQUIREMENT.match(word):
            found.append((distribution_name(match[1]), match[2] or ""))
    return found


def _wanted_packages(text: str) -> list[tuple[str, str]]:
    named = [(distribution_name(match[1]), match[2] or "") for match in WANTED.finditer(text)]
    named = [(name, version) for name, version in named if name in KNOWN_PACKAGES]
    version = WANTED_VERSION.search(text)
    return [(named[0][0], version[1])] if version and len(named) == 1 and not named[0][1] else named


def _record_torch_build(section: Section, builds: set[str], version: str) -> None:
    """The build of the only index of PyTorch that the commands name."""
    if len(builds) != 1:  # one of several was an attempt
        return
    build = builds.pop()
    note = f"installed from PyTorch's index {build}"
    if build == "cpu":
        section.set_absent("stack.torch.cuda", f"a build without CUDA ({note})")
    else:
        section.set_fact("stack.torch.cuda", dotted_version(build.removeprefix("cu")), note)
    section.set_fact("stack.torch.version", version, note)
