"""Writes corrected requirements into the text that they come from."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.corrected_pins import CorrectedSet
from envdoctor.manifests.install_corrections import RENAMED
from envdoctor.manifests.places import Place
from envdoctor.manifests.torch_index_text import INDEX, INDEX_URL, with_torch_index
from envdoctor.resolution.torch_sources import TORCH_FAMILY

# Names on PyPI that no environment should have; their requirements are removed.
MANIFESTS = frozenset({"requirements", "conda", "pyproject", "setup.cfg", "setup.py", "pixi", "Pipfile"})
_REMOVED = frozenset({"flash-attn-3", "triton-kernels"})

# The version of a package in a variable of the shell or of a workflow: `torch==$V`, `torch==${{ env.V }}`.
_OF_VARIABLE = r"(?<![\w.-]){}(?:\[[^\]]*\])?==\$\{{{{0,2}}\s*(?:env\.)?(\w+)"
_ITEMS = lazy_pattern(r"\s*(?:([\"'])[^\"']*\1\s*,?\s*)+(?:#.*)?")  # several items of an array in TOML
_REQUIREMENT = lazy_pattern(  # a line of a requirements file
    r"\s*[A-Za-z0-9._-]+(?:\[[^\]]*\])?\s*[=<>!~][^#]*(?:#.*)?|\s*[A-Za-z0-9._-]+\s*"
)
# Commands whose arguments are no requirements: a script that they run has those.
_OTHER_COMMAND = lazy_pattern(r"\s*(?:\$\s+)?(?:bash|sh|zsh|source|\.|sbatch|cd|git|python3?)\s")
_ENTRY = lazy_pattern(r"(\s*)[\"']?([A-Za-z0-9][A-Za-z0-9._-]*)[\"']?\s*=\s*[\"'{]")  # of a table in TOML


class WrittenText(NamedTuple):
    """A corrected text, and what it does not contain: requirements, and the index of torch."""

    text: str
    missing: tuple[str, ...]


def write_back(
    text: str,
    sets: Sequence[tuple[CorrectedSet, str]],
    kind: str = "guide",
    limited: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> WrittenText:
    """Write solved sets into a text, each with the backend of the PyTorch index that it needs (empty for PyPI).

    Of several alternatives, each has lines of its own. A line that they share takes the first set. An open version of
    a `limited` package gets an upper bound: an extra of the project needs an older release, or its users choose the
    release. Packages `elsewhere` have their place in another file.
    """
    writer = _Writer(text.split("\n"), has_commands=kind not in MANIFESTS, limited=limited)
    missing: list[str] = []
    for corrected, backend in sets:
        missing += writer.write(corrected, backend, elsewhere)
    written = writer.text
    backends = {backend: corrected for corrected, backend in reversed(sets) if backend and kind in MANIFESTS}
    for backend, corrected in backends.items():
        names = [name for requirement in corrected.requirements if (name := _base_name(requirement))]
        with_index = with_torch_index(written, kind, backend, names) if len(backends) == 1 else None
        missing += [] if with_index else [f"the index {INDEX_URL}{backend} of torch"]
        written = with_index or written
    return WrittenText(written, tuple(dict.fromkeys(missing)))


class _Writer:
    """Edits lines. The number of lines stays the same until the end: added lines are part of the line above."""

    def __init__(self, lines: list[str], *, has_commands: bool, limited: Collection[str] = ()) -> None:
        self.lines = lines
        self.limited = limited
        self.has_commands = has_commands
        self.edited: set[tuple[int, str]] = set()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def write(self, corrected: CorrectedSet, backend: str, elsewhere: Collection[str] = ()) -> list[str]:
        """Write one set. Returns the requirements without a place. Packages `elsewhere` have one in another file."""
        pins = {text.partition("==")[0]: text for text in corrected.requirements if "==" in text}
        built = {text.partition("==")[0]: text for text in corrected.built_later}
        placed: dict[str, Place] = {}
        of_pip = {place.name for place in corrected.places if place.tool != "conda"}
        for place in corrected.places:
            if place.tool == "conda" and (self.has_commands or place.name in of_pip):
                continue
            name = RENAMED.get(place.name, place.name)
            if place.name in _REMOVED:
                self._remove(place)
            elif name in pins and self._replace(place, self._with_build(place, pins[name], backend)):
                placed.setdefault(name, place)
            elif name in built and "==" in place.text:
                self._replace(place, built[name])
        # What the steps install today as dependencies needs a place only next to another one, which can change it.
        unplaced = [pin for name, pin in pins.items() if name not in placed and name not in elsewhere]
        added = unplaced if not set(unplaced) <= set(corrected.installed) else []
        kept = self._torch_of_conda(corrected)  # pip would replace it with the build of PyPI
        added = [pin for pin in added if pin not in kept.values() or pin not in corrected.installed]
        places = {
            pin: None if name in kept else self._place_for(name, corrected, placed)
            for pin in added
            for name in [pin.partition("==")[0]]
        }
        missing = [pin for pin, place in places.items() if not self._insert(place, pin)]
        first = corrected.torch_place if self.has_commands and "torch" in pins else None
        if first and first.name != "torch" and (backend or "torch" in missing):
            missing = [pin for pin in missing if not pin.startswith("torch==")]
            missing += [] if self._insert(first, pins["torch"]) else [pins["torch"]]
        if backend and self.has_commands:
            self._set_backend(first or placed.get("torch"), backend)
        return missing

    def _torch_of_conda(self, corrected: CorrectedSet) -> dict[str, str]:
        """The pins of the packages of torch that a command of conda installs."""
        of_conda = {RENAMED.get(place.name, place.name) for place in corrected.places if place.tool == "conda"}
        names = of_conda & TORCH_FAMILY if self.has_commands else frozenset()
        return {name: text for text in corrected.requirements if (name := text.partition("==")[0]) in names}

    def _with_build(self, place: Place, pin: str, backend: str) -> str:
        """The pin with the build that its step names, `+cu116` next to the index of cu116.

        Without it, the step keeps the build of PyPI that an earlier step has installed.
        """
        is_named = bool(backend) and "+" not in pin and place.text.endswith(f"+{backend}")
        return f"{pin}+{backend}" if is_named and backend in self._backends_at(place.line) else pin

    def _backends_at(self, number: int) -> set[str]:
        """The builds that the PyTorch indexes of a command provide."""
        first = last = number
        while first > 1 and self.lines[first - 2].rstrip().endswith("\\"):
            first -= 1
        while last < len(self.lines) and self.lines[last - 1].rstrip().endswith("\\"):
            last += 1
        return {found[2] for found in INDEX.finditer("\n".join(self.lines[first - 1 : last]))}

    def _replace(self, place: Place, pin: str) -> bool:
        """Replace a requirement by a pin, with its extras and marker."""
        if (place.line, place.name) in self.edited:
            return True
        line = self.lines[place.line - 1] if 0 < place.line <= len(self.lines) else ""
        if entry := _with_entry(line, place.name, pin, is_limited=place.name in self.limited):
            self.lines[place.line - 1] = line if _pin_of(place.text) == pin else entry
            self.edited.add((place.line, place.name))
            return True
        found = _find(line, place.text)
        if not found:
            return _pin_of(place.text) == pin or self._replace_definition(place, pin)
        self.edited.add((place.line, place.name))
        written = place.text
        if place.tool == "conda":
            written = _conda_requirement(written, pin)
        elif _pin_of(written) != pin:
            extras = re.match(r"[A-Za-z0-9._-]+\s*(\[[^\]]*\])?", written)
            name, equals, version = pin.partition("==")
            marker = f" ; {written.partition(';')[2].strip()}" if ";" in written else ""
            bounds = f"{equals}{version}"
            if name in self.limited and "==" not in written and extras:
                bounds = _with_upper_bound(written.partition(";")[0][extras.end() :].strip(), version)
            written = f"{name}{(extras and extras[1]) or ''}{bounds}{marker}"
        self.lines[place.line - 1] = line[: found.start()] + written + line[found.end() :]
        return True

    def _replace_definition(self, place: Place, pin: str) -> bool:
        """Replace a requirement that a variable or an array contains, where the text defines it once."""
        rows = [row for row, text in enumerate(self.lines) if _defines(text, place.text)]
        old, new = place.text, pin
        if len(rows) != 1:
            variable = re.search(_OF_VARIABLE.format(re.escape(_base_name(place.text))), self.lines[place.line - 1])
            if not variable:
                return False
            old, new = place.text.partition("==")[2].strip(), pin.partition("==")[2]
            definition = re.compile(rf"\b{variable[1]}\s*[=: ]\s*[\"']?{re.escape(old)}(?![\w.])")
            rows = [row for row, text in enumerate(self.lines) if old and definition.search(text)]
        if len(rows) != 1:
            return False
        self.lines[rows[0]] = self.lines[rows[0]].replace(old, new, 1)
        self.edited.add((place.line, place.name))
        return True

    def _place_for(self, name: str, corrected: CorrectedSet, placed: dict[str, Place]) -> Place | None:
        """The requirement next to which a package is added: the one that requires it, else the last one.

        In an array of TOML, it is the last one of the array with the first: others are extras.
        """
        if requiring := placed.get(corrected.required_by.get(name, "")):
            return requiring
        places = sorted(placed.values(), key=lambda place: place.line)
        end = _end_of_array(self.lines, places[0].line) if places and not self.has_commands else len(self.lines)
        return next((place for place in reversed(places) if place.line <= end), None)

    def _insert(self, place: Place | None, pin: str) -> bool:
        """Add a pin next to a requirement, in the notation of its line."""
        if place is None:
            return False
        key = (place.line, pin.partition("==")[0])
        line = self.lines[place.line - 1]
        name = re.escape(RENAMED.get(place.name, _base_name(place.text)))
        pattern = re.compile(rf"(?<![\w./-])[\"']?{name}(?![\w/-]|\.\w)(?:\[[^\]]*\])?[^\s\"',\\]*[\"']?")
        start = _start_of_arguments(line)
        found = None if not start and _OTHER_COMMAND.match(line) else pattern.search(line, start)
        if key in self.edited or not found:
            return key in self.edited
        self.edited.add(key)
        added, _, version = pin.partition("==")
        comparison = "<=" if added in self.limited else "=="
        pin = f"{added}{comparison}{version}"
        last = line.split("\n")[-1]
        if entry := _ENTRY.match(last):  # a key of a table in TOML
            self.lines[place.line - 1] = f'{line}\n{entry[1]}{added} = "{comparison}{version}"'
        elif (
            item := re.fullmatch(r"(\s*)([\"'])(?:(?!\2).)+\2,?\s*(?:#.*)?", last)
        ) and not self.has_commands:  # an item of an array in TOML
            head = line if last.rstrip().endswith(",") or "#" in last else f"{line},"
            self.lines[place.line - 1] = f"{head}\n{item[1]}{item[2]}{pin}{item[2]},"
        elif found[0][:1] in "\"'" and (re.search(r"=\s*\[", line) or _ITEMS.fullmatch(last)):
            quote = found[0][0]
            end = line.find(quote, found.start() + 1) + 1  # also after a second bound
            self.lines[place.line - 1] = f"{line[:end]}, {quote}{pin}{quote}{line[end:]}"
        elif item := re.match(r"(\s*-\s+)[^-\s]", last):  # an item of a list in YAML
            self.lines[place.line - 1] = f"{line}\n{item[1]}{pin}"
        elif _REQUIREMENT.fullmatch(last) and not self._is_part_of_a_command(place.line):
            self.lines[place.line - 1] = f"{line}\n{pin}"
        else:
            # The quotation mark that ends a line of a notebook's cell is not that of the requirement.
            end = found.end() - (found[0][-1] in "\"'" and found[0][0] not in "\"'")
            if found[0][0] == '"' and line[end : end + 2] == '\\"':  # a quotation in the JSON of a notebook
                end += 2
            self.lines[place.line - 1] = f"{line[:end]} {pin}{line[end:]}"
        return True

    def _is_part_of_a_command(self, number: int) -> bool:
        """Whether a line continues, or is continued: a further line would end the command."""
        return any(text.rstrip().endswith("\\") for text in self.lines[max(0, number - 2) : number])

    def _remove(self, place: Place) -> None:
        line = self.lines[place.line - 1] if 0 < place.line <= len(self.lines) else ""
        if found := re.search(rf"\s?[\"']?{re.escape(place.text)}[\"']?(?![\w.-])", line):
            self.lines[place.line - 1] = line[: found.start()] + line[found.end() :]

    def _set_backend(self, place: Place | None, backend: str) -> None:
        """Select the build of torch in the command that installs it first."""
        if not place:
            return
        line = self.lines[place.line - 1]
        if INDEX.search(line):
            line = re.sub(r"\s--pre\b", "", INDEX.sub(rf"\g<1>{backend}", line))
        elif match := re.search(r"--torch-backend[= ](\S+)", line):
            line = line.replace(match[1], backend)
        elif re.search(r"\buv pip install\b", line):
            line = re.sub(r"(\buv pip install\b(?: --system)?)", rf"\1 --torch-backend={backend}", line, count=1)
        else:
            option = f"--extra-index-url {INDEX_URL}{backend}"
            line = re.sub(r"(\bpip3? install\b)", rf"\1 {option}", line, count=1)
        self.lines[place.line - 1] = line


def _find(line: str, text: str) -> re.Match[str] | None:
    pattern = re.compile(rf"(?<![\w.\-/%!]){re.escape(text)}(?![\w.\-\[=<>~!])")
    return pattern.search(line, _start_of_arguments(line))


def _defines(line: str, text: str) -> bool:
    """Whether a line gives a requirement to a variable, or is an item of a list. Sentences and commands do not."""
    item = rf"\s*[-(]?\s*[\"']?{re.escape(text)}[\"']?\s*[,)\\]*\s*(?:#.*)?"
    assigned = re.match(r"\s*(?:(?:export|ARG|ENV|local|declare(?:\s+-\w+)?)\s+)?[A-Za-z_]\w*(?:\+?=|:)", line)
    return bool(re.fullmatch(item, line) or (assigned and _find(line, text)))


def _end_of_array(lines: Sequence[str], first: int) -> int:
    """The line on which the array of TOML with a line ends; the last line without one."""
    is_last = re.compile(r"\s*\]|.*=\s*\[.*\]\s*(?:#.*)?$")
    return next((n for n in range(first, len(lines) + 1) if is_last.match(lines[n - 1])), len(lines))


def _start_of_arguments(line: str) -> int:
    """Where the packages of a command or an array start: after `pip install` and `build = [`."""
    found = re.match(r"\s*[\w\"'.-]+\s*=\s*\[", line) or re.search(r"\binstall\s", line)
    return found.end() if found else 0


def _with_upper_bound(specifier: str, version: str) -> str:
    """A specifier with a release as its upper bound. Lower bounds that exclude the release are removed."""
    lower = ",".join(part for part in specifier.replace(" ", "").split(",") if part and not part.startswith("<"))
    if lower == f">={version}":
        return f"=={version}"
    return f"{lower},<={version}" if lower and satisfies(version, lower) else f"<={version}"


def _with_entry(line: str, name: str, pin: str, *, is_limited: bool) -> str:
    """A line `name = "^2.5"` or `name = { version = "^2.5" }` with another version; empty for other lines."""
    entry = _ENTRY.match(line)
    if not entry or normalize_name(entry[2]) != name:
        return ""
    head, value = line[: entry.end(2)], line[entry.end(2) :]
    is_bound = is_limited and not re.search(r"[\"']\s*=*\s*\d", value)
    version = f"{'<=' if is_bound else '=='}{pin.partition('==')[2]}"
    if re.match(r"[\"']?\s*=\s*[\"']", value):
        return head + re.sub(r"(=\s*)([\"'])[^\"']*\2", rf"\g<1>\g<2>{version}\g<2>", value, count=1)
    changed, count = re.subn(r"(\bversion\s*=\s*)([\"'])[^\"']*\2", rf"\g<1>\g<2>{version}\g<2>", value, count=1)
    return head + (changed if count else re.sub(r"\{\s*", f'{{ version = "{version}", ', value, count=1))


def _conda_requirement(text: str, pin: str) -> str:
    """A requirement of conda, which keeps its name and, where it is the release of the pin, its build."""
    found = re.match(r"([^\s=<>!~]+)\s*(?:=+\s*([\w.]+))?", text)
    version = pin.partition("==")[2]
    if not found or (found[2] and satisfies(version, f"=={found[2]}.*")):
        return text
    return f"{found[1]}={version}"


def _pin_of(text: str) -> str:
    return "".join(text.split())


def _base_name(text: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", text)
    return match[0] if match else text
