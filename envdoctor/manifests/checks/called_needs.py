"""Checks on what the calls of programs need: packages that no requirement names, and data that no step downloads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.call_needs import CallData, CallNeed, LauncherPackage, call_needs
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, table_evidence
from envdoctor.manifests.checks.further_packages import installed_further
from envdoctor.manifests.checks.missing_packages import package_is_used_but_not_installed
from envdoctor.manifests.checks.program_imports import (
    last_step,
    named_packages,
    names_of_module,
)
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.install_texts import names_in_text
from envdoctor.manifests.program_calls import Call, program_calls
from envdoctor.manifests.program_launches import Launch, Program
from envdoctor.manifests.unread_sources import UnreadSource, list_sources, unread_sources
from envdoctor.rules.registry import Problem, rule

EXTRAS = "https://packaging.python.org/en/latest/specifications/dependency-specifiers/#extras"
MODELS = "https://spacy.io/usage/models"
_MAX_PROGRAMS = 30
_MAX_PART = 2  # more than a half of the modules of the programs are not those of another environment
_TEXTS = lazy_pattern(r"(?i).*\.(?:py|md|rst|sh|ya?ml|txt|toml|cfg|ipynb|in)|(?:.*/)?(?:dockerfile|makefile)[\w.-]*")
_MAX_TEXTS = 1500
# Downloads all data of NLTK, or what is missing.
_ALL_OF_NLTK = lazy_pattern(
    r"nltk\.download\(\s*\)|download\(\s*['\"](?:all|popular|book)['\"]"
    r"|nltk\.downloader\s+[^\n]{0,40}\b(?:all|popular|book)\b|nltk\.data\.find|LookupError|NLTK_DATA|nltk_data"
)
_CONFIG_OPTIONS = ("--config_file", "--config-file")  # of accelerate
_OPTION = lazy_pattern(r"(?:args|opts?|options|flags|FLAGS|parsed_args)\.(\w+)")


class _Need(NamedTuple):
    """A call of a program, and the row that it matches."""

    call: Call
    launch: Launch


@rule(
    "RUN224", kind="guide", severity=("error", "warning", "unknown"), cause="dependency-pin-violated", url=EXTRAS,
    needs=("release",),
)  # fmt: skip
def call_needs_a_package_that_no_step_installs(context: GuideContext) -> Iterator[Problem]:
    """A program calls a function that needs a package which the requirements of its library do not name.

    `from_pretrained(device_map="auto")` needs accelerate, and `DataFrame.to_markdown` tabulate. Calls under a
    condition, in a `try` with a handler and in functions that the program may not use are left out. A launcher, such
    as `deepspeed train.py`, needs its package.
    """
    state = _known_state(context)
    if state is None:
        return
    given = set(named_packages(context, state))
    sources = unread_sources(context, state)
    given |= frozenset[str]().union(*(each.packages for each in sources))
    tops = _imported_modules(context)
    if _is_of_another_environment(tops, given):
        return
    imported = frozenset[str]().union(*map(names_of_module, tops))  # RUN181 reports the missing ones
    opened = [each for each in sources if each.is_open]
    text = _texts(context, is_partly_read=bool(opened))
    reported = " ".join(each.message for each in package_is_used_but_not_installed(context))
    seen: set[str] = set()
    for need, row in _needs(context, state):
        package = row.needs[0]
        is_known = package in seen or not imported.isdisjoint(row.needs)
        is_known = is_known or re.search(rf" needs {re.escape(package)}\b", reported) is not None
        if not is_known and given.isdisjoint(row.needs) and not names_in_text(row.needs, text):
            seen.add(package)
            yield _of_call(context, need, row, opened)
    for program in call_needs().launcher:
        package = program.package
        launch = next((each for each in context.guide.launches if _is_started_by(context, each, program)), None)
        is_known = package in seen or package in imported
        is_known = is_known or re.search(rf" needs {re.escape(package)}\b", reported) is not None
        if launch and not is_known and package not in given and not names_in_text([package], text):
            name, use = (program.option, "needs") if program.option else (program.program, "is a program of")
            evidence = table_evidence(name, f"{use} {package}", program.source, program.date)
            message = f"`{launch.command[:80]}` needs {package}"
            yield _missing(context, launch, message, package, opened, evidence)


def _is_started_by(context: GuideContext, launch: Launch, row: LauncherPackage) -> bool:
    """Whether a command starts its program with that of a row, and with the option of the row."""
    checkout, program = context.guide.checkout, launch.program
    if program.launcher != row.program or not row.option or checkout is None:
        return program.launcher == row.program
    words = launch.command.partition(program.script or program.module)[0].replace("=", " ").split()
    names = [after for before, after in pairwise(words) if before in _CONFIG_OPTIONS]
    paths = [checkout.script(launch._replace(program=Program(script=name))) for name in names]
    return row.option in words or any(re.search(row.config, checkout.text(path)) for path in paths if path)


def _known_state(context: GuideContext) -> EnvironmentState | None:
    """The environment of the programs of the checkout, if its packages were read."""
    state = context.environments[-1].state if context.environments else None
    is_known = context.index_facts is not None and context.guide.checkout is not None
    return state if is_known and state is not None and state.packages else None


def _imported_modules(context: GuideContext) -> set[str]:
    """The top-level modules that the programs import."""
    reached = context.guide.checkout.reached(context.guide.launches) if context.guide.checkout else ()
    return {each.statement.top for each in reached}


def _is_of_another_environment(tops: set[str], given: set[str]) -> bool:
    """Whether no step brings most of the modules that the programs import."""
    missing = [top for top in tops if names_of_module(top).isdisjoint(given)]
    return len(missing) * _MAX_PART > len(tops)


def _texts(context: GuideContext, *, is_partly_read: bool) -> str:
    """The texts of the checkout that can name a package that is to be installed."""
    checkout = context.guide.checkout
    if checkout is None:
        return ""
    is_guide = any(each.line for each in context.guide.launches)
    manifests = checkout.manifest_text if is_partly_read or not is_guide else ""
    return f"{checkout.guide_text}\n{manifests}"


def _calls(context: GuideContext) -> Iterator[_Need]:
    """The calls of the programs that the commands start, each place once."""
    checkout = context.guide.checkout
    starts: dict[tuple[str, Program], Launch] = {}
    for launch in context.guide.launches:
        if checkout and launch.program.is_python and (start := checkout.script(launch)):
            program = Program(function=launch.program.function, arguments=launch.program.arguments)
            starts.setdefault((start, program), launch)
    seen: set[str] = set()
    for (start, program), launch in list(starts.items())[:_MAX_PROGRAMS]:
        for call in _calls_of(checkout, start, program, checkout.program_files(launch)) if checkout else ():
            key = f"{call.place} {call.name}"
            if key not in seen:
                seen.add(key)
                yield _Need(call, launch)


@lru_cache(maxsize=64)  # several rules read the calls, for several environments
def _calls_of(checkout: Checkout, start: str, program: Program, files: tuple[str, ...]) -> tuple[Call, ...]:
    is_used = any(_words().search(checkout.text(path)) for path in files)
    return tuple(program_calls(checkout, start, program, files)) if is_used else ()


@cache
def _words() -> re.Pattern[str]:
    """A word of each row that the file with its call has."""
    words = {
        each.argument if each.argument and each.position < 0 else call.rpartition(".")[2]
        for each in call_needs().call
        for call in each.calls
    }
    words |= {each.package for each in call_needs().data}
    return re.compile("|".join(re.escape(word.replace("*", "")) for word in sorted(words)))


def _needs(context: GuideContext, state: EnvironmentState) -> Iterator[tuple[_Need, CallNeed]]:
    rows = [each for each in call_needs().call if _holds(state, each.package, each.releases)]
    for need in _calls(context) if rows else ():
        for row in rows:
            if _is_call(context, need.call, row) and _has_argument(context, need, row):
                yield need, row


def _holds(state: EnvironmentState, package: str, releases: str) -> bool:
    """Whether the environment has a package, in one of the releases if a row is for some only."""
    found = state.packages.get(package)
    version = public_part(found.version) if found and found.version else ""
    return not releases or (bool(version) and satisfies(version, releases) is True)


def _is_call(context: GuideContext, call: Call, row: CallNeed | CallData) -> bool:
    """Whether a call is one of a row. A method of any object is one where its file imports the package."""
    if not any(fnmatchcase(call.name, pattern) for pattern in row.calls):
        return False
    if row.unless and call.argument(row.unless):
        return False
    if not call.name.startswith("."):
        return True
    imports = context.guide.checkout.source(call.file).imports if context.guide.checkout else ()
    return any(row.package == normalize_name(each.top) for each in imports)


def _has_argument(context: GuideContext, need: _Need, row: CallNeed) -> bool:
    if not row.argument and row.position < 0:
        return True
    value = _value(context, need, need.call.argument(row.argument, row.position))
    return bool(re.fullmatch(row.value, value)) if row.value else value not in ("", "None", "False")


def _value(context: GuideContext, need: _Need, expression: str) -> str:
    """The value of an option of the program, `args.env_name`: that of the command, or its default."""
    option = _OPTION.fullmatch(expression)
    if option is None or context.guide.checkout is None:
        return expression
    name = re.sub("[-_]", "[-_]", option[1])
    words = need.launch.program.arguments
    given = [word for before, word in pairwise(words) if re.fullmatch(f"--{name}", before)]
    given += [word.partition("=")[2] for word in words if re.match(f"--{name}=", word)]
    text = context.guide.checkout.text(need.call.file)
    default = re.search(rf"add_argument\(\s*['\"]--{name}['\"][^()]*?\bdefault\s*=\s*(['\"][^'\"\n]*['\"])", text)
    return repr(given[-1]) if given else default[1] if default else expression


def _of_call(context: GuideContext, need: _Need, row: CallNeed, opened: Sequence[UnreadSource]) -> Problem:
    value = need.call.argument(row.argument) if row.argument else ""
    argument = f"{row.argument}={value[:40]}" if value else need.call.argument("", row.position)[:40]
    name = need.call.name.lstrip(".")
    return _missing(
        context, need.launch, f"{need.call.place} calls {name}({argument}), which needs {' or '.join(row.needs[:2])}",
        row.needs[0], opened, table_evidence(f"{name}({argument})", f"needs {row.needs[0]}", row.source, row.date),
    )  # fmt: skip


def _missing(  # noqa: PLR0917
    context: GuideContext, launch: Launch, text: str, package: str, opened: Sequence[UnreadSource], evidence: Evidence
) -> Problem:
    program = (
        guide_evidence(context, "program", launch.command, launch.line)
        if launch.line
        else table_evidence("program", launch.command, "the checkout")
    )
    module = package.replace("-", "_")
    if opened:
        return Problem(
            "unknown",
            f"{text}, which none of the {len(context.environments[-1].state.packages)} packages that were read has; "
            f"not read: {list_sources(opened)}",
            (program, evidence),
            f"Run this in the finished environment. If it fails, install {package}.",
            guide_command(shell_command("python -c {}", f"import {module}")),
            line=launch.line or last_step(context),
        )
    return Problem(
        "error" if launch.line else "warning",
        f"{text}, and no step installs it",
        (program, evidence),
        *installed_further(context, package),
        line=launch.line or last_step(context),
    )


@rule(
    "RUN225", kind="guide", severity="warning", cause="dependency-pin-violated", url=MODELS, needs=("release",),
)  # fmt: skip
def call_reads_data_that_no_step_downloads(context: GuideContext) -> Iterator[Problem]:
    """A program loads a model of spaCy, or uses data of NLTK, that neither a step nor its code downloads.

    NLTK from 3.9 on reads punkt_tab in place of punkt.
    """
    state, checkout = _known_state(context), context.guide.checkout
    if state is None or checkout is None:
        return
    known = [each for each in call_needs().data if each.package in state.packages]
    rows = [each for each in known if _holds(state, each.package, each.releases)]
    given = named_packages(context, state)
    seen: set[str] = set()
    for need in _calls(context) if rows else ():
        for row in rows:
            name = _data(need.call, row) if _is_call(context, need.call, row) else ""
            if name and name not in seen and normalize_name(name) not in given:
                seen.add(name)
                if not _is_brought(context, checkout, row, name):
                    yield _absent_data(context, need, row, name)


def _data(call: Call, row: CallData) -> str:
    """The name of the data that a call reads; empty if it is not known."""
    match = re.fullmatch(row.value, call.argument("", row.position)) if row.value else None
    return match[1] if match else row.data


def _is_brought(context: GuideContext, checkout: Checkout, row: CallData, name: str) -> bool:
    """Whether a text of the checkout downloads the data, or handles their absence."""
    spelling = re.escape(name).replace("_", "[-_]")
    pattern = re.compile(row.brought.replace("{}", spelling))
    paths = sorted(path for path in checkout.paths if _TEXTS.fullmatch(path))
    texts = ("\n".join(context.guide.lines), *map(checkout.text, paths[:_MAX_TEXTS]))
    is_nltk = row.package == "nltk"
    return any(pattern.search(text) or (is_nltk and _ALL_OF_NLTK.search(text)) for text in texts)


def _absent_data(context: GuideContext, need: _Need, row: CallData, name: str) -> Problem:
    launch = need.launch
    command = row.download.replace("{}", name)
    return Problem(
        "warning",
        f"{need.call.place} calls {need.call.name}, which reads {name}, and neither a step nor the code downloads it",
        (
            guide_evidence(context, "program", launch.command, launch.line)
            if launch.line
            else table_evidence("program", launch.command, "the checkout"),
            table_evidence(need.call.name, f"reads {name}", row.source, row.date),
        ),
        f"Run {command} after the installation.",
        guide_command(command),
        line=launch.line or last_step(context),
    )
