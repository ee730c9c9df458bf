"""Errors about a name, an argument or an attribute that a library has only in some releases.

`SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'`: the tables of all releases show whether the
library is newer or older than the code that calls it. An installed version that has the member contradicts both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.call_changes import functions_without, removals_of_argument
from envdoctor.knowledge.causes import Question
from envdoctor.knowledge.changed_names import Removal, change_of, removal_of
from envdoctor.knowledge.imports import cause_of, spans_of_name
from envdoctor.knowledge.modules import spans_of_module, spans_of_module_name
from envdoctor.knowledge.names import Span, find_member, find_name, owners_of_argument, packages, project_of
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import numpy2_releases, required_specifier
from envdoctor.knowledge.symptoms import Symptom
from envdoctor.knowledge.versions import satisfies

ARGUMENT = lazy_pattern(
    r"\b(?P<owner>[A-Za-z_]\w*)(?:\.(?P<method>\w+))?\(\) got an unexpected keyword argument '(?P<member>\w+)'"
)
ATTRIBUTE = lazy_pattern(r"'(?P<owner>\w+)' object has no attribute '(?P<member>\w+)'")
TYPE_ATTRIBUTE = lazy_pattern(r"type object '(?P<owner>\w+)' has no attribute '(?P<member>\w+)'")
MISSING = lazy_pattern(
    r"\b(?P<owner>[A-Za-z_]\w*)\.__init__\(\) missing \d+ required positional arguments?: (?P<members>'\w+'[\w', ]*)"
)
UNRECOGNIZED = lazy_pattern(
    r"\b(?P<program>vllm|api_server\.py)\b.{0,40}: error: unrecognized arguments: (?P<options>.+)"
)
NO_OWNER = lazy_pattern(r"(?:(?<![\w.])__init__\(\) got an unexpected|Unexpected) keyword argument '(?P<member>\w+)'")
NAME = lazy_pattern(r"annot import name '(?P<member>\w+)' from '?(?P<package>\w+)(?P<module>(?:\.\w+)*)")
# Of pickle: an object in a file is of a class that its module no longer has, or does not have yet.
UNPICKLED = lazy_pattern(r"Can't get attribute '(?P<member>\w+)' on <module '(?P<package>\w+)(?P<module>(?:\.\w+)*)'")
MODULE = lazy_pattern(r"module '(?P<package>\w+)(?P<module>[\w.]*)' has no attribute '(?P<member>\w+)'")
NO_MODULE = lazy_pattern(r"\bNo module named '(?P<package>\w+)(?P<module>(?:\.\w+)*)'")
NUMBER = lazy_pattern(r"\d+(?:\.\d+)*")
# Callables that receive the keywords of a function of a table: vLLM's serve_http passes its own to uvicorn.Config.
# load_dataset passes unknown ones to the configuration of the file type.
FILE_TYPES = (
    "Json",
    "Csv",
    "Parquet",
    "Text",
    "ImageFolder",
    "AudioFolder",
    "Arrow",
    "Pandas",
    "WebDataset",
    "Builder",
)
RECEIVES_KEYWORDS_OF = {"Config": "serve_http", **{f"{each}Config": "load_dataset" for each in FILE_TYPES}}
OPTIONS_OF = ("AsyncEngineArgs", "EngineArgs")  # classes whose attributes are vLLM's options
STRUCT = "SamplingParams"  # its error names no class, since msgspec raises it
DISTINCTIVE, MOST_OWNERS = 10, 6  # characters of an argument that identifies its class, classes that have it
NUMPY_2 = "1.26.1"  # the first release with modules of NumPy 2
OF_TORCH = ("torchvision", "torchaudio", "torch", "triton")  # torch, or its build, decides on their releases
OWN_SYMPTOMS = ("numpy", *OF_TORCH)  # a symptom names the cause of a removal
NAMES_MOVE_IN = ("vllm",)  # a name that one of its modules lacks can be in another one of the same release
RELEASE_PAGES = {
    "vllm": "vllm-project/vllm", "unsloth_zoo": "unslothai/unsloth-zoo", "verl": "verl-project/verl",
    "liger_kernel": "linkedin/Liger-Kernel", "flash_attn": "Dao-AILab/flash-attention",
    "deepspeed": "deepspeedai/DeepSpeed", "torch": "pytorch/pytorch", "ray": "ray-project/ray",
    "bitsandbytes": "bitsandbytes-foundation/bitsandbytes",
    "sentence_transformers": "huggingface/sentence-transformers",
}  # fmt: skip
SPECIFIERS = "https://packaging.python.org/en/latest/specifications/dependency-specifiers/"
WEIGHT = 89  # of 100 texts, if the direction is known


class Verdict(Record, frozen=True):
    """A member that the installed release of a library lacks."""

    member: str  # as the error names it: "SFTTrainer(tokenizer=)"
    span: Span
    is_newer: bool  # the library is newer than its caller
    installed: str  # version; empty if unknown
    is_required: bool = False  # the caller does not pass an argument that older releases lack
    returned: str = ""  # the release that has the member again, if the installed one is unknown
    requirer: str = ""  # an installed package that excludes the last release with the member: "trl 0.23.1"
    removal: Removal | None = None  # of the table of changed names: no other release lacks the name


def name_error_symptoms(hits: Iterable[Hit], versions: Mapping[str, str]) -> dict[Symptom, Hit]:
    """A symptom for each error whose direction the tables of releases show."""
    found: dict[Symptom, Hit] = {}
    for hit in hits:
        verdict = _change(hit.text, versions) or _verdict(hit, versions)
        if verdict:
            found[_symptom(verdict)] = hit
    return found


def _verdict(hit: Hit, versions: Mapping[str, str]) -> Verdict | None:
    for member, spans in _members(hit.text, hit.groups.get("caller", "")):
        package = project_of(spans[0].package)
        number = NUMBER.match(versions.get(package, ""))  # 5.0.0.dev0 has the names of 5.0.0
        installed = number[0] if number else ""
        if installed and any(span.can_be_in(installed) for span in spans):
            continue  # the reason is another one
        if spans[0].sometimes and not installed:
            continue  # an instance can lack it in every release
        ended = [span for span in spans if span.last and (not installed or _reaches(installed, span.next))]
        span = ended[-1] if ended else spans[0]  # an undecided removal is more frequent than an old release
        later = [each.first for each in spans[spans.index(span) + 1 :] if each.first]
        return Verdict(
            member,
            span,
            is_newer=bool(ended),
            installed=installed,
            returned=later[0] if ended and later and not installed else "",
            requirer=_requirer(package, span.last, versions) if ended else "",
        )
    return next(_required_arguments(hit.text), None)


def _change(text: str, versions: Mapping[str, str]) -> Verdict | None:
    """The first name of an error line that the table of changed names has, unless the installed release has it."""
    for name in _names_of_line(text):
        span = change_of(name) or _removed_argument(name, versions)
        installed = versions.get(span.package.replace("-", "_"), "") if span else ""
        if span is None or (installed and span.can_be_in(installed)):
            continue
        return Verdict(
            name.replace(")", "=...)"),
            span,
            is_newer=bool(span.last),
            installed=installed,
            requirer=_requirer(span.package, span.last, versions) if span.last else "",
            removal=removal_of(name),
        )
    return None


def _removed_argument(name: str, versions: Mapping[str, str]) -> Span | None:
    """The releases of a function with an argument, `Trainer(gpus)`, preferably of an installed package."""
    function, _, argument = name.removesuffix(")").partition("(")
    rows = removals_of_argument(function, argument) if argument else ()
    row = next((each for each in rows if each.package.replace("-", "_") in versions), next(iter(rows), None))
    return Span(row.package, "", "", row.last, row.first) if row else None


def _names_of_line(text: str) -> Iterator[str]:
    """What an error line does not find, in the notation of the table of changed names."""
    for match in ARGUMENT.finditer(text):
        if match["method"] in (None, "__init__"):
            yield f"{match['owner']}({match['member']})"
    for match in NO_OWNER.finditer(text):
        functions = functions_without(match["member"]) if _is_distinctive(match["member"]) else ()
        if len(functions) == 1:
            yield f"{functions[0]}({match['member']})"
    for match in ATTRIBUTE.finditer(text):
        yield f"{match['owner']}.{match['member']}"
    for pattern in (NAME, UNPICKLED, MODULE, NO_MODULE):
        for match in pattern.finditer(text):
            yield f"{match['package']}{match['module']}.{match.groupdict().get('member', '')}".removesuffix(".")


def _requirer(package: str, version: str, versions: Mapping[str, str]) -> str:
    """An installed package whose requirement excludes a release, with its own release; empty if there is none."""
    for name, installed in versions.items():
        specifier = required_specifier(name, installed, package)
        if specifier and satisfies(version, specifier) is False:
            return f"{name} {installed}"
    return ""


def _required_arguments(text: str) -> Iterator[Verdict]:
    """Arguments that a caller does not pass, since releases before `first` did not have them."""
    for match in MISSING.finditer(text):
        for member in re.findall(r"\w+", match["members"]):
            spans = find_member("arguments", match["owner"], member)
            if spans and spans[0].first:
                yield Verdict(
                    f"{match['owner']}({member}=...)", spans[0], is_newer=True, installed="", is_required=True
                )


def _reaches(version: str, release: str) -> bool:
    return satisfies(version, f">={release}") is True


def _members(text: str, caller: str) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """The members that an error line names, with the releases that have them."""
    yield from _arguments(text, caller)
    yield from _options(text)
    for pattern in (ATTRIBUTE, TYPE_ATTRIBUTE):
        for match in pattern.finditer(text):
            if spans := find_member("attributes", match["owner"], match["member"]):
                yield f"{match['owner']}.{match['member']}", spans
    yield from _members_of_modules(text)
    for pattern in (NAME, UNPICKLED, MODULE):
        for match in pattern.finditer(text):
            spans = find_name(match["package"], match["member"])
            if spans and (spans[-1].last or not match["module"] or match["package"] not in NAMES_MOVE_IN):
                yield f"{match['package']}.{match['member']}", spans
    for pattern in (NAME, NO_MODULE):
        for match in pattern.finditer(text):
            module = f"{match['package']}{match['module']}"
            member = match["member"] if pattern is NAME else ""
            if match["package"] not in OWN_SYMPTOMS and (spans := spans_of_name(module, member)):
                yield f"{module}.{member}".removesuffix("."), spans


def _members_of_modules(text: str) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """The modules, and the names of one module, that an error line does not find."""
    for pattern in (NAME, UNPICKLED, MODULE, NO_MODULE):
        for match in pattern.finditer(text):
            module, member = f"{match['package']}{match['module']}", match.groupdict().get("member", "")
            if match["package"] in OF_TORCH:
                continue
            if member:
                # For names of the package itself the other table compares more releases.
                is_in_names = not match["module"] and find_name(module, member)
                spans = () if is_in_names else spans_of_module_name(module, member)
                if pattern is MODULE and not spans:
                    spans = spans_of_module(f"{module}.{member}")
                    spans = spans if spans and spans[-1].last else ()  # others are there, but not imported
            else:
                spans = spans_of_module(module)
            if spans:
                yield f"{module}.{member}".removesuffix("."), spans


def _arguments(text: str, caller: str) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """`caller` is what the line before the error calls: Python 3.9 and msgspec do not name the class."""
    for match in ARGUMENT.finditer(text):
        method = match["method"] or ""
        is_class = method in ("", "__init__")
        owner = RECEIVES_KEYWORDS_OF.get(match["owner"], match["owner"])
        member = match["member"] if is_class else f"{method}.{match['member']}"
        if spans := find_member("arguments", owner, member):
            yield f"{owner if is_class else f'{owner}.{method}'}({match['member']}=...)", spans
    for match in NO_OWNER.finditer(text):
        found = {owner: find_member("arguments", owner, match["member"]) for owner in (caller, STRUCT) if owner}
        found = {owner: spans for owner, spans in found.items() if spans} or _only_owner(match["member"])
        yield from ((f"{owner}({match['member']}=...)", spans) for owner, spans in found.items())


def _only_owner(argument: str) -> dict[str, tuple[Span, ...]]:
    """The class that an error without its name is about, if the argument has a distinctive name.

    Of several classes the first one, if all of them lost the argument or all of them gained it.
    """
    if not _is_distinctive(argument):
        return {}
    owners = owners_of_argument(argument)
    directions = {bool(span.last) for spans in owners.values() for span in spans}
    return dict(list(owners.items())[:1]) if len(directions) == 1 and len(owners) <= MOST_OWNERS else {}


def _is_distinctive(argument: str) -> bool:
    return "_" in argument.strip("_") and len(argument) >= DISTINCTIVE


def _options(text: str) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """The options of vLLM's command line that its argument parser refuses."""
    for match in UNRECOGNIZED.finditer(text):
        for option in re.findall(r"--[\w-]+", match["options"]):
            member = option.removeprefix("--").replace("-", "_")
            found = (find_member("arguments", owner, member) for owner in OPTIONS_OF)
            yield from ((f"vllm serve {option}", spans) for spans in found if spans)


def _less_exact(is_newer: bool, cause: str) -> tuple[str, ...]:
    """The causes that an error without a table can have: a range is not the newest release that is needed."""
    others = {"dependency-pin-violated", "library-too-new", "library-too-old"}
    return () if is_newer else tuple(sorted(others - {cause}))


def _requirement(verdict: Verdict) -> str:
    """The releases that have the member; empty where torch decides on them, or if both directions are possible."""
    span = verdict.span
    package = project_of(span.package)
    if verdict.returned or verdict.requirer or package in OF_TORCH:
        return ""
    if verdict.is_required:
        return f"{package}<={span.before}"
    if span.first == span.last:
        return f"{package}=={span.last}"
    bounds = [f">={span.first}"] if span.first else []
    return package + ",".join([*bounds, *([f"<={span.last}"] if span.last else [])])


def _cause_of(span: Span, *, is_newer: bool) -> str:
    """The cause of a member that a library lacks because it is newer, or older, than the code that uses it."""
    package = project_of(span.package)
    if package == "numpy":
        is_of_numpy_2 = _reaches(span.next, "2") if is_newer else _reaches(span.first, NUMPY_2)
        return "numpy2-abi" if is_of_numpy_2 else "library-too-new" if is_newer else "library-too-old"
    return cause_of(package, is_newer=is_newer)


def _is_built_for_numpy_1(span: Span) -> bool:
    """Whether the compiled modules of the last release that has a name do not work with NumPy 2."""
    first = next((row.first for row in numpy2_releases() if row.package == project_of(span.package)), "")
    return bool(first) and satisfies(span.last, f"<{first}") is True


def _newest_python(span: Span) -> str:
    """The newest Python with a wheel of the last release that has a name, in words; empty if unknown or any."""
    release = find_release(project_of(span.package), span.last)
    newest = release.pythons[-1] if release and release.pythons else "+"
    return "" if newest.endswith("+") or newest == "3" else f", in an environment with Python {newest} or older"


def _symptom(verdict: Verdict) -> Symptom:
    span = verdict.span
    package = span.package
    newer, older = (_cause_of(span, is_newer=is_newer) for is_newer in (True, False))
    if verdict.removal and verdict.removal.cause:
        newer = verdict.removal.cause
    if verdict.is_required:
        cause = newer
        fix = (
            f"{verdict.member} is required from {package} {span.first} on and unknown to {span.before}: the calling "
            f"code is for an older release. Update that code, or install {package} {span.before} with the other "
            "packages of that time."
        )
    elif verdict.returned:
        cause = newer
        fix = (
            f"{verdict.member} is in {package} up to {span.last}, not in {span.next}, and again from "
            f"{verdict.returned} on. With {span.next} or a later release before {verdict.returned}: install "
            f"{package} {verdict.returned} or {span.last}, whichever the calling package permits. With an older "
            "release: install a newer one."
        )
    elif verdict.is_newer:
        cause = newer
        fix = (
            f"{verdict.member} is in {package} {span.last} and no longer in {span.next}: the calling code is for an "
            "older release. Update that code (or the package it belongs to)"
            + (
                f": {verdict.requirer} excludes {package} {span.last}."
                if verdict.requirer
                else f", or install {package} {span.last} with the other packages of that time{_newest_python(span)}."
            )
        )
    else:
        cause = older
        fix = (
            f"{verdict.member} is in {package} {span.first} and not in {span.before}: the installed release is older "
            f"than the code that uses it. Install {package} {span.first} or newer with the packages that require it."
        )
    shown = list(dict.fromkeys((project_of(package), *(["transformers"] if package in packages() else []))))
    requirement = _requirement(verdict)
    numpy = ["numpy<2"] if verdict.is_newer and _is_built_for_numpy_1(span) else []
    install = [shell_command("uv pip install {}", [requirement, *numpy])] if requirement else []
    page = RELEASE_PAGES.get(package, f"huggingface/{package}" if package in packages() else "")
    undecided = verdict.is_newer and not (verdict.installed or verdict.is_required or verdict.removal)
    question = Question(
        shell_command("uv pip show {}", shown),
        f"{package} {span.next} or newer: it no longer has the name"
        + (f", which {verdict.returned} has again: the program can need either" if verdict.returned else "")
        + f". {span.last} or older: another copy is imported",
    )
    return Symptom(
        id=f"releases-of-{package}",
        cause=cause,
        pattern="",
        weight=WEIGHT,
        sample="",
        fix=fix,
        remedies=((shell_command("uv pip show {}", shown), *install, "uv pip check"),),
        check=shell_command("uv pip show {}", project_of(package)),
        outranks=_less_exact(verdict.is_newer and not verdict.removal, cause),
        url=f"https://github.com/{page}/releases" if page else SPECIFIERS,
        undecided=undecided,
        never_decided=undecided and bool(verdict.returned),
        find_out=(question,) if undecided else (),
    )
