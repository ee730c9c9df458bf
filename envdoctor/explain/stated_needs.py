"""What the message of an error states that the program needs: a missing package, or a newer release of something.

Libraries word these messages freely, and no pattern lists them: `To support decoding audio data, please install
'torchcodec'`, `Building a device_mesh requires to have torch>=2.2.0`. The name decides: it is that of a package in
the tables or in the `pip install` of the message. Only for a text in which no pattern matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.explain.missing_modules import BUILT_FOR_THE_MACHINE, is_known, package_of
from envdoctor.explain.outcome import FALLBACK_LINE, WARNING_LINE
from envdoctor.explain.placeholders import bounded
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.symptoms import Symptom
from envdoctor.redact.output import without_secrets

ERROR_LINE = lazy_pattern(
    r"(?:^|[\s|:\]])(?:[\w.]{0,80}\.)?(?P<type>\w{2,40}(?:Error|Exception)|Exception)(?:\[\w+\])?: ?(?P<message>.*)"
    r"|\b(?P<level>ERROR|CRITICAL|FATAL)\b(?P<logged>.*)"
)
# A line after the message: a frame, a prompt, or the installed releases that people add.
NEXT_LINE = lazy_pattern(
    r"\s*(?:File \"|Traceback|During handling|The above exception|raise |\^+|```|[$>#] ?"
    r"|[\w.-]{2,40}(?:==| |: )v?\d|$)"
)
LONGEST_MESSAGE, NEXT_LINES, ERRORS_READ = 1200, 8, 3

NAME = r"(?<![\w.-])(?P<quote>[`'\"]{0,2})(?P<name>[A-Za-z](?:[\w-]|\.(?=\w)){1,40})(?:\[[\w, -]{1,40}\])?[`'\"]{0,2}"
KIND = "(?: Python)?(?: package| library| module| extension| SDK| extra| kernel)?s?"
VERSION = r"v?(?P<version>\d{1,4}(?:\.\d{1,4}){0,3})(?:\.?(?:rc|post|dev|a|b)\d+)?"


def _shapes(*patterns: str) -> tuple[re.Pattern[str], ...]:
    parts = {"NAME": NAME, "KIND": KIND, "VERSION": VERSION}
    return tuple(lazy_pattern(re.sub("NAME|KIND|VERSION", lambda found: parts[found[0]], each)) for each in patterns)


OF_INSTALLATION = lazy_pattern(
    r"(?i)\binstall|\bis (?:required|needed)\b[^.\n]{0,60} but (?:it )?is not (?:available|found)\b"
    r"|^\S+ is (?:required (?:for|to (?!be\b))|not available for )|^\S{2,60} requires \S{2,40}[.!]?$"
)
# A package in no table: its name is all that the message has, or it is quoted.
PLAINLY = _shapes(
    r"^NAME (?:is )?not installed[.!]?$",
    r"[Ii]nstall the (?=[`'\"])NAME (?:package|library|module)",
    r"annot import (?=[`'\"])NAME[,.]",
    r"^\S{2,60} requires (?:either )?(?:the )?(?=[`'\"])NAME(?:$|[.]$| package| or )",
)
MISSING = _shapes(
    r"NAMEKIND (?:is|are|was|isn't|must|needs?|has|have|should|to)(?: not| to)?(?: be)?"
    r"(?: properly| correctly)? installed",
    r"(?:have|without|has|with) (?:the )?NAMEKIND installed",
    r"NAMEKIND is (?:required|needed)[^.\n]{0,60} but (?:it )?is not (?:available|found)",
    r"^NAMEKIND is (?:required (?:for|to (?!be\b))|not available for )",
    r"^\S{2,60} requires NAME[.!]?$",
    r"NAMEKIND (?:was|is|has been) \w{3,20}, but (?:it )?is not (?:installed|available)",
    r"(?:[Ee]nsure|[Mm]ake sure)(?: that)?(?: to have)?(?: you have)? (?:the )?NAMEKIND (?:is |are )?installed",
    r"(?:[Pp]lease|need(?:ed)? to|have to|must|[Yy]ou can|[Mm]ake sure to|^|[.;:] )(?: also)?"
    r" ?[Ii]nstall(?:ing)? (?:the )?NAME",
)
MISSING_IN_AN_IMPORT = _shapes(
    r"(?<!\()(?:requires?|needs?|depends on) (?:the |an? )?(?:optional )?NAMEKIND(?:$|[ .,:;](?! ?[<>=\d]))",
    r"NAMEKIND (?:is|was|are) (?:required|needed|missing|unavailable|not (?:found|available|importable))",
    r"NAMEKIND (?:not (?:found|available)|could not be (?:found|imported|loaded))",
    r"(?:[Uu]nable to|[Cc]ould not|[Cc]annot|[Ff]ailed to) (?:import|find) (?:the )?NAMEKIND(?:$|[.,:;])",
)
PIP_INSTALL = lazy_pattern(r"\bpip3? install (?P<words>[^`\n]{1,200})")
PACKAGE_WORD = lazy_pattern(
    r"['\"(]*(?P<name>[A-Za-z][\w.-]*\w)(?:\[[\w,-]+\])?(?:[<>=!~]=?[\w.,<>=!*]+)?['\").,;:]*$"
)
OPTION = lazy_pattern(r"-{1,2}[\w-]+$")
OPTIONAL = lazy_pattern(r"(?i)\bif you (?:want|wish|would like|prefer)\b[^.]*$")  # another way to do it
SENTENCE_END = lazy_pattern(r"[.;!?]\s+(?=[A-Z(`'\"])")
# What is wrong is not that a package is missing.
OTHER_STATE = lazy_pattern(
    r"(?i)\b(?:too new|downgrade|uninstall|incompatible|conflict\w*|already installed"
    r"|install(?:ation|er)? (?:failed|timed)|failed to install|(?:proper|right|matching|other) [\w-]{0,40} ?version"
    r"|reinstall|rebuild|not supported|unsupported)\b"
)
NOT_TOO_OLD = lazy_pattern(r"(?i)\b(?:too new|downgrade|uninstall|conflict\w*|unsupported)\b")
NOT_THERE = lazy_pattern(r"(?i)\bnot (?:\w+ )?(?:installed|found|available|importable)|\bneed to install|\bmissing\b")

MINIMUM = _shapes(
    r"NAME(?: version)? ?(?:>=?|\u2265) ?VERSION(?![\w.]*,? ?(?:<|!=))",
    r"(?<!\()NAME(?:'s)?(?: version)?:? VERSION(?: ?\+(?!\w)| (?:or|and) (?:later|newer|higher|above|greater|up)\b)",
    r"NAME(?: package)?(?:'s)? version (?:must|should|needs to|to) be (?:at least|>=?|\w+ [a-z ]{4,13}) VERSION",
    r"NAME version \S{1,24} (?:is|was) (?:installed|found),? but (?:version )?VERSION or (?:higher|newer|later)",
    r"NAME(?:'s)? (?:is |version )?(?:older|lower|less) than VERSION",
    r"(?:at least|minimum|newer) (?:version of )?NAME(?: version)? VERSION",
)
NEWER = _shapes(
    r"(?<!how to )(?:[Uu]pgrade|[Uu]pdate) (?:your |the )?(?:installed |version of )?NAME",
    r"(?:newer|latest|more recent|recent) (?:versions? |releases? )?(?:of )?(?:the )?NAME",
    r"NAME(?:'s)?(?: version)? is (?:too old|outdated)",
)
REQUIRED = lazy_pattern(
    r"(?i)\b(?:requir\w*|needs?|must|should be|make sure|ensure|only|support\w*|please|upgrade|update|install\w*"
    r"|too old|expected|at least|minimum)\b"
)
UPGRADE = lazy_pattern(r"(?i)\b(?:up-?(?:grade|date)|newer|latest|older|too old|outdated)\b")
# Words of a message about releases, not about the arguments of a function.
OF_RELEASES = lazy_pattern(r"(?i)\b(?:version|installed|upgrade|update|pip|release)\b")
# The releases of these are no packages: their cause is another one, or the number is not a release.
OTHER_PRODUCTS = {
    "python": "python-unsupported",
    "driver": "driver-too-old",
    "cuda": "nvcc-too-old",
    "nvcc": "nvcc-too-old",
    "cudnn": "cudnn-too-old",
    "glibc": "glibc-too-old",
}
PRODUCTS = {  # names of products that are not those of their packages
    "pytorch": "torch", "transformerengine": "transformer-engine", "transformer_engine": "transformer-engine",
    "flashattention": "flash-attn", "te": "transformer-engine", "cupy": "cupy-cuda12x",
    "math_verify": "math-verify",
}  # fmt: skip
IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "PackageNotFoundError")
# Words before a version or `is required`, and programs whose name is also that of a package.
NO_PACKAGES = (
    "version", "versions", "it", "capability", "gpu", "sm", "cc", "rocm", "hip", "linux", "windows", "value", "git",
    "docker", "ffmpeg", "node", "mpi",
)  # fmt: skip
WEIGHT_OF_MISSING, WEIGHT_OF_OLD = 72, 80


class _Message(Record, frozen=True):
    """The message of an error: its line from 1, the type of the exception, and its text on one line."""

    line: int
    type: str
    text: str


def stated_need(text: str) -> dict[Symptom, Hit]:
    """What the last error of a text states that its program needs."""
    for message in _messages(text):
        if found := _newer_release(message) or _missing_package(message):
            return {found: Hit(found.id, message.line, without_secrets(message.text[:400]), {})}
    return {}


def _messages(text: str) -> Iterator[_Message]:
    """The messages of the last errors, the last one first."""
    lines = text.split("\n")
    read = 0
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        found = ERROR_LINE.search(line[:LONGEST_MESSAGE])
        if not found or WARNING_LINE.search(line) or FALLBACK_LINE.search(line):
            continue
        first = found["message"] if found["type"] else found["logged"]
        parts = [first.strip()]
        for following in lines[number : number + NEXT_LINES]:
            if NEXT_LINE.match(following) and any(parts):
                break
            parts.append(following.strip())
        yield _Message(number, found["type"] or "", " ".join(part for part in parts if part)[:LONGEST_MESSAGE])
        read += 1
        if read == ERRORS_READ:
            return


def _package(name: str) -> str:
    """The package with this name or of this module, if the tables have it."""
    lower = name.lower()
    if lower in NO_PACKAGES or lower in OTHER_PRODUCTS:
        return ""
    if product := PRODUCTS.get(lower):
        return product
    package = package_of(name) or package_of(lower)
    return "" if "/" in package or package.startswith("git+") else package


def _sentence(text: str, found: re.Match[str]) -> str:
    """The sentence of a match."""
    start = max((end.end() for end in SENTENCE_END.finditer(text, 0, found.start())), default=0)
    end = SENTENCE_END.search(text, found.end())
    return text[start : end.start() if end else len(text)]


def _missing_package(message: _Message) -> Symptom | None:
    """A package that the message names as missing."""
    text = message.text
    is_import = message.type in IMPORT_ERRORS
    if OTHER_STATE.search(text) or not (is_import or OF_INSTALLATION.search(text)):
        return None
    every = (match for shape in (*MISSING, *MISSING_IN_AN_IMPORT) for match in shape.finditer(text))
    found = [match for match in every if not OPTIONAL.search(text, 0, match.start())]
    if package := next((package for match in found if (package := _package(match["name"]))), ""):
        return _missing(package)
    if match := PIP_INSTALL.search(text):
        return _missing(package) if (package := _first_package(match["words"])) else None
    named = [match for match in found if match["quote"] and is_import and "nstall" in match[0]]
    named += [match for shape in PLAINLY for match in shape.finditer(text)]
    return next((_missing(normalize_name(match["name"])) for match in named), None)


def _first_package(words: str) -> str:
    """The first package of the words after `pip install`; also one that is in no table."""
    for word in words.split():
        if OPTION.match(word):
            continue
        found = PACKAGE_WORD.match(word)
        return normalize_name(found["name"]) if found and found["name"] not in ("failed", "it", "the") else ""
    return ""


def _newer_release(message: _Message) -> Symptom | None:
    """Something of which the message requires a newer release."""
    text = message.text
    if NOT_TOO_OLD.search(text) or not REQUIRED.search(text):
        return None
    absent = NOT_THERE.search(text)
    for shape in MINIMUM:
        for found in shape.finditer(text):
            if not REQUIRED.search(_sentence(text, found)):
                continue
            name = found["name"].lower()
            if cause := OTHER_PRODUCTS.get(name):
                return _other_product(cause, found["version"])
            package = _package(found["name"]) or _named(found, text)
            if package and not (absent and not UPGRADE.search(text)):
                return _too_old(package, found["version"])
    if absent:
        return None
    packages = (_package(found["name"]) for shape in NEWER for found in shape.finditer(text))
    return next((_too_old(package, "") for package in packages if package), None)


def _named(found: re.Match[str], text: str) -> str:
    """A package that is in no table: its minimum is a release with two points, or the message is about releases."""
    points = found["version"].count(".")
    is_release = points >= 2 or (points == 1 and (OF_RELEASES.search(text) or text.startswith("Require")))
    return normalize_name(found["name"]) if is_release and found["name"].lower() not in NO_PACKAGES else ""


def _missing(package: str) -> Symptom:
    is_plain = is_known(package) and package not in BUILT_FOR_THE_MACHINE
    build = "" if is_plain else ", in its build for this machine" if is_known(package) else ", as the message states"
    return Symptom(
        id="named-package-missing",
        cause="wrong-python-env",
        pattern="",
        weight=WEIGHT_OF_MISSING,
        sample="",
        fix=f"The Python that runs the program does not have {package}, which the message names: install it there"
        f"{build}, or start the program with the Python that has it.",
        remedies=(("which -a python", shell_command("uv pip install {}", package) if is_plain else "uv pip list"),),
        check="uv pip list",
    )


def _too_old(package: str, version: str) -> Symptom:
    least = f"{package}>={version}"
    release = f"{package} {version} or newer" if version else f"a newer release of {package}"
    requirement = bounded(least) if version and is_known(package) and package not in BUILT_FOR_THE_MACHINE else ""
    change = shell_command("uv pip install {}", requirement) if requirement else "uv pip check"
    return Symptom(
        id="named-release-too-old",
        cause="library-too-old",
        pattern="",
        weight=WEIGHT_OF_OLD,
        sample="",
        fix=f"The message requires {release}: install it, together with the packages that limit its release, in one "
        "command.",
        remedies=((shell_command("uv pip show {}", package), change),),
        check="uv pip check",
    )


def _other_product(cause: str, version: str) -> Symptom:
    return Symptom(id=f"stated-{cause}", cause=cause, pattern="", weight=WEIGHT_OF_OLD, sample=f"{version} or newer")
