"""Checks on the arguments with which commands start programs of the checkout."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence, Status
from envdoctor.knowledge.dataclass_fields import compared_releases, compared_sources, fields_of
from envdoctor.knowledge.names import Span
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.compared_packages import newest_of_main_branch
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.dataclass_options import option_names
from envdoctor.manifests.parser_options import Option, Parser, Refusal, refusals
from envdoctor.manifests.program_launches import Launch
from envdoctor.manifests.program_parsers import parsers_of
from envdoctor.rules.registry import Problem, rule

ARGPARSE = "https://docs.python.org/3/library/argparse.html"
# Launchers that pass on all words after the program.
_LAUNCHERS = frozenset({
    "", "torchrun", "accelerate", "deepspeed", "horovodrun", "mpiexec", "nsys", "ncu", "xvfb-run", "uv", "kernprof",
    "torch",
})  # fmt: skip
_MAX_PROGRAMS = 40  # of a guide
_MAX_OPTIONS = 3  # that a fix names
_MAX_SAME = 4  # files of one name
_LIKENESS = 0.8
_MIN_KNOWN = 3  # options of a program, for each that it drops
_LACKING = ("required", "positional")  # what a command does not have
_CHOICES = ("choice", "subcommand")
_WORD = lazy_pattern(r"[(\[]?[a-z]+[.,)\]]?")
_OF_SENTENCES = frozenset({
    "the", "a", "with", "same", "for", "as", "and", "of", "to", "on", "in", "from", "then", "using", "uses", "your",
    "is",
})  # fmt: skip
_MIN_OF_SENTENCE = 2
_RANK, _DASHED_RANK = _RANKS = "--local_rank", "--local-rank"
_PLACEHOLDER = lazy_pattern(r"(?:^|[/_-])(?:name|your?|my|path|some|here|x{2,})(?:[/_-]|$)", re.IGNORECASE)


class StartedProgram:
    """The parsers of a program that decide about its arguments, and the fields that a release no longer has."""

    def __init__(self, path: str, parsers: tuple[Parser, ...], context: GuideContext) -> None:
        self.path = path
        self.removed: dict[str, Span] = {}
        for parser in parsers:
            for package, name in parser.libraries:
                self._add_fields(parser, package, name, context)
        self.parsers = [each for each in parsers if each.is_decided]
        # Of several parsers, each can have options that the others drop.
        self.dropping = next((each for each in parsers if each.drops_rest and not each.is_open), None)
        self.has_one_parser = len(parsers) == 1
        self.dropping = self.dropping if self.has_one_parser else None

    def _add_fields(self, parser: Parser, package: str, name: str, context: GuideContext) -> None:
        fields = fields_of(package, name)
        if fields is None:
            parser.is_open = True
            return
        for field, spans in fields.items():
            name_of_package = spans[0].package if spans else ""
            version = context.version(name_of_package) or newest_of_main_branch(context, name_of_package)
            names = (*option_names(field), f"--no_{field}", f"--no-{field.replace('_', '-')}")
            if version and not any(span.can_be_in(version) for span in spans):
                self.removed |= dict.fromkeys(names, spans[-1])
            else:
                parser.add_missing(Option(names, "", nargs="?"))


@rule("RUN200", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=ARGPARSE)
def program_does_not_have_the_option(context: GuideContext) -> Iterator[Problem]:
    """A command starts a program of the checkout with an option or a value that its parser refuses.

    The parser is read from the code of the program: `argparse`, and the dataclasses of HfArgumentParser. A program
    whose options are computed is left out. One that permits unknown options and loses them,
    `args, _ = parser.parse_known_args()`, runs without such an option: a warning. The arguments that CMD of a
    Dockerfile lacks are a warning, as `docker run` can name another command; ENTRYPOINT gets further ones. Also
    reported: the rank that deepspeed and torch.distributed.launch add, which torch 2.0 passes as `--local-rank`.
    """
    found: set[tuple[str, str, str]] = set()
    for launch, programs in started_programs(context):
        yield from _refused_rank(context, launch, programs, found)
        lacking: list[tuple[Refusal, StartedProgram, Parser]] = []
        for refusal, program, parser in _refused(programs, launch.program.arguments):
            key = (program.path, refusal.option, refusal.value)
            if key in found or (refusal.kind in _CHOICES and _stands_for_a_choice(refusal)):
                continue
            if refusal.kind == "value" and not _is_followed(context, launch, refusal):
                continue
            if refusal.kind not in _LACKING:
                found.add(key)
                yield _problem(context, launch, refusal, program, parser)
            elif launch.instruction != "ENTRYPOINT" and not _is_written(context, launch, refusal.option):
                found.add(key)
                lacking.append((refusal, program, parser))
        for refusal, program, parser in _dropped(context, programs, launch.program.arguments):
            key = (program.path, refusal.option, refusal.value)
            if key not in found:
                found.add(key)
                yield _problem(context, launch, refusal, program, parser)
        for refusal, program, parser in lacking[:1]:
            names = tuple(each.option for each, *_ in lacking)
            yield _problem(context, launch, refusal._replace(candidates=names), program, parser)


def started_programs(context: GuideContext) -> Iterator[tuple[Launch, list[StartedProgram]]]:
    """The commands that start programs of the checkout, each with the files that can be the program."""
    checkout = context.guide.checkout
    programs: dict[tuple[str, ...], list[StartedProgram]] = {}  # by their files and the function of an entry point
    for launch in context.guide.launches if checkout and checkout.paths else ():
        paths = _candidates(checkout, launch) if checkout and _is_judged(launch) else ()
        key = *paths, launch.program.function
        if not checkout or not paths or (key not in programs and len(programs) >= _MAX_PROGRAMS):
            continue
        if key not in programs:
            programs[key] = [_read(checkout, path, launch, context) for path in paths]
        yield launch, programs[key]


def _is_judged(launch: Launch) -> bool:
    program = launch.program
    if any(each[:1].isspace() for each in program.arguments):  # a blank after a backslash, which ends the command
        return False
    if _ends_in_a_sentence(program.arguments):
        return False
    return bool(launch.line) and program.is_python and program.launcher.partition(".")[0] in _LAUNCHERS


def _ends_in_a_sentence(arguments: Sequence[str]) -> bool:
    """Whether the last words are those of a sentence: `train.py --lr 0.1 with the same hyperparameters`.

    Words after an option can be a value without quotation marks: `--prompt a photo of the sea`.
    """
    start = len(arguments)
    while start and _WORD.fullmatch(arguments[start - 1]):
        start -= 1
    is_value = start > 0 and arguments[start - 1].startswith("-")
    return not is_value and len(_OF_SENTENCES.intersection(arguments[start:])) >= _MIN_OF_SENTENCE


def _stands_for_a_choice(refusal: Refusal) -> bool:
    """Whether a reader is to replace a value: `MODE`, `Task_Name`, `train/test`."""
    value, choices = refusal.value, {each.lower() for each in refusal.candidates}
    is_list = {part.lower() for part in re.split(r"[/|,]", value)} <= choices and value.lower() not in choices
    is_capital = value.isupper() and value.lower() not in choices
    return is_list or is_capital or bool(_PLACEHOLDER.search(value))


def _is_followed(context: GuideContext, launch: Launch, refusal: Refusal) -> bool:
    """Whether another option follows an option in the text: an empty variable between them has a value later."""
    first = line_of(context, launch.line, refusal.option)
    text = "\n".join(context.guide.lines[first - 1 : first + 1])
    option, other = map(re.escape, (refusal.option, refusal.value))
    return bool(re.search(rf"(?<!\S){option}[ \t]+(?:\\\n\s*)?{other}(?!\S)", text))


def _is_written(context: GuideContext, launch: Launch, option: str) -> bool:
    """Whether the lines of a command have an option: a placeholder such as `<step 2>` hides it from the shell."""
    lines = context.guide.lines[launch.line - 1 :]
    last = next((index for index, line in enumerate(lines) if not line.rstrip().endswith("\\")), 0)
    text = " ".join(lines[: last + 1])
    return option in text if option.startswith("-") else "<" in text


def _candidates(checkout: Checkout, launch: Launch) -> tuple[str, ...]:
    """The program, and those of the same name in other directories, which a guide can mean."""
    path = checkout.script(launch)
    if not path:
        return ()
    name = posixpath.normpath(launch.program.script) if launch.program.script else path
    end = f"/{name.lstrip('./')}"
    others = sorted(each for each in checkout.of_name(posixpath.basename(end)) if each.endswith(end) and each != path)
    return (path, *others) if len(others) < _MAX_SAME else ()


def _read(checkout: Checkout, path: str, launch: Launch, context: GuideContext) -> StartedProgram:
    folders = (*map(checkout.relative, launch.folders), "", "src", "python", "lib")
    return StartedProgram(path, parsers_of(checkout, path, folders, launch.program.function), context)


def _refused(
    programs: Sequence[StartedProgram], words: Sequence[str]
) -> Iterator[tuple[Refusal, StartedProgram, Parser]]:
    """What all programs refuse."""
    found = [
        [(each, program, parser) for parser in program.parsers for each in refusals(parser, words)]
        for program in programs
    ]
    if not all(found):
        return
    shared = set.intersection(*({(each.kind, each.option) for each, _, _ in refused} for refused in found))
    yield from (each for each in found[0] if (each[0].kind, each[0].option) in shared)


def _refused_rank(
    context: GuideContext, launch: Launch, programs: Sequence[StartedProgram], found: set[tuple[str, str, str]]
) -> Iterator[Problem]:
    """The option of the rank that the launcher adds, if all files that can be the program refuse it.

    Once for each program and launcher: `found` has the others.
    """
    if not launch.program.gets_rank:
        return
    torch = context.version("torch")
    if launch.program.launcher == "deepspeed":
        names: tuple[str, ...] = (_RANK,)
    else:
        names = (_DASHED_RANK,) if torch and satisfies(torch, ">=2.0") else (_RANK,) if torch else _RANKS
    refused = [list(_refused(programs, (f"{name}=0",))) for name in names]
    unknown = [[each for each in of_name if each[0].kind == "unknown"] for of_name in refused]
    key = (programs[0].path, "", launch.program.launcher)
    if all(unknown) and key not in found:
        found.add(key)
        _, program, parser = unknown[0][0]
        yield _problem_of_rank(context, launch, names[0], program, parser)


def _problem_of_rank(
    context: GuideContext, launch: Launch, option: str, program: StartedProgram, parser: Parser
) -> Problem:
    launcher = launch.program.launcher
    other = next((each for each in _RANKS if each != option and each in parser.options), "")
    torch = context.version("torch")
    of_release = f" of torch {torch}" if other else ""
    without = "--no_local_rank" if launcher == "deepspeed" else "--use_env"
    return Problem(
        "error",
        f"{program.path} has no option {option}, which {launcher}{of_release} adds: argparse stops the program",
        (
            guide_evidence(context, "command", launch.command, launch.line),
            table_evidence("parser", parser.options[other].place if other else parser.place, "the checkout"),
        ),
        f"Add {option} to the names of {other}, or start the program with {without} and read LOCAL_RANK."
        if other
        else f"Add {without} before the program, which then gets no {option}; LOCAL_RANK has the rank.",
        line=launch.line,
    )


def _dropped(
    context: GuideContext, programs: Sequence[StartedProgram], words: Sequence[str]
) -> Iterator[tuple[Refusal, StartedProgram, Parser]]:
    """The unknown options that a program drops, if it has most of the others.

    No code of the checkout has their names, and no other file can be the program.
    """
    checkout = context.guide.checkout
    program = programs[0] if len(programs) == 1 else None
    if checkout is None or program is None or program.dropping is None or not checkout.is_clone:
        return
    unknown = [each for each in refusals(program.dropping, words) if each.kind == "unknown"]
    known = [word for word in words if word.startswith("--") and word in program.dropping.options]
    if len(unknown) * _MIN_KNOWN > len(known):
        return
    code = [checkout.text(each) for each in sorted(checkout.paths) if each.endswith(".py")] if unknown else []
    for each in unknown:
        name = each.option.lstrip("-")
        if not any(name in text or name.replace("-", "_") in text for text in code):
            yield each, program, program.dropping


def _problem(
    context: GuideContext, launch: Launch, refusal: Refusal, program: StartedProgram, parser: Parser
) -> Problem:
    option, place = refusal.option, refusal.place or parser.place
    line = launch.line if refusal.kind in _LACKING else line_of(context, launch.line, option or refusal.value)
    reason, fix = _texts(context, refusal, program, parser, launch.program.arguments)
    evidence = [
        guide_evidence(context, "command", _shown(launch, option), line),
        table_evidence("parser", place, "the checkout"),
    ]
    if refusal.kind == "unknown":
        evidence += [_fields_evidence(package, name) for package, name in dict.fromkeys(parser.libraries)]
    if parser.drops_rest:
        message = f"{reason}: parse_known_args drops it, and the program runs without it"
        return Problem("warning", message, tuple(evidence), fix, line=line)
    stops = "HfArgumentParser" if parser.is_of_dataclasses else "argparse"
    if launch.instruction == "CMD" and refusal.kind in _LACKING:
        message = f"{reason}: `docker run` without a command of its own stops"
        fix = f"{fix} Or state them in the command of `docker run`."
        return Problem("warning", message, tuple(evidence), fix, line=line)
    removed = program.removed.get(option)
    is_certain = not removed or bool(context.version(removed.package))
    status: Status = "error" if is_certain else "warning"  # the main branch of a package is about its newest release
    return Problem(status, f"{reason}: {stops} stops the program", tuple(evidence), fix, line=line)


def _fix_of_surplus(word: str, parser: Parser, words: Sequence[str]) -> str:
    """What to do with a word without an option: it can be the value of one that the command does not have."""
    given = {each.partition("=")[0] for each in words}
    options = dict.fromkeys(
        each for each in parser.options.values() if each.takes_value and given.isdisjoint(each.names)
    )
    having = [each for each in options if word in each.choices]
    if having:
        return f"Write {having[0].names[0]} {word}."
    names = " or ".join(each.names[0] for each in [each for each in options if not each.choices][:_MAX_OPTIONS])
    return f"Write the option whose value it is, such as {names}, or remove {word}." if names else f"Remove {word}."


def _texts(  # noqa: PLR0911
    context: GuideContext, refusal: Refusal, program: StartedProgram, parser: Parser, words: Sequence[str]
) -> tuple[str, str]:
    """The reason and the fix."""
    path, option = program.path, refusal.option
    if refusal.kind == "ambiguous":
        candidates = " and ".join(refusal.candidates[:4])
        return f"{option} of {path} is ambiguous, the start of {candidates}", "Write the option in full."
    if refusal.kind == "choice":
        choices = ", ".join(refusal.candidates[:12])
        return f"{path} does not accept the value {refusal.value} of {option}", f"Use one of {choices}."
    if refusal.kind == "subcommand":
        return f"{path} has no subcommand {refusal.value}", f"Use one of {', '.join(refusal.candidates[:12])}."
    if refusal.kind == "type":
        what = {"int": "an integer", "float": "a number"}[refusal.candidates[0]]
        return f"{path} does not accept the value {refusal.value} of {option}, which is {what}", f"Use {what}."
    if refusal.kind == "value":
        return f"{option} of {path} needs a value, and {refusal.value} follows", f"Add the value of {option}."
    if refusal.kind == "surplus":
        is_flag = option in parser.options and not parser.options[option].takes_value
        after = f" after {option}, which has no value" if is_flag else ""
        fix = f"Remove {refusal.value}." if is_flag else _fix_of_surplus(refusal.value, parser, words)
        return f"{path} has no argument for the word {refusal.value}{after}", fix
    if refusal.kind in _LACKING:
        what = " and ".join(f"{'' if each.startswith('-') else 'a value for '}{each}" for each in refusal.candidates)
        return f"{path} requires {what}, which the command does not have", f"Add {what}."
    nearest = nearest_option(option, parser, words)
    fix = f"Write {nearest}, if it is meant." if nearest else f"Remove {option}, or use an option of the program."
    if removed := program.removed.get(option):
        version = context.version(removed.package)
        version = version or f"{newest_of_main_branch(context, removed.package)}, and so probably its main branch,"
        period = f"{removed.package} {version} does not have this field, {removed.in_words} have it"
        older = (
            f"{removed.package} {removed.last} or older" if removed.last else f"another release of {removed.package}"
        )
        return f"{path} has no option {option} ({period})", f"{fix} Or install {older}."
    return f"{path} has no option {option}", fix


def nearest_option(option: str, parser: Parser, words: Sequence[str] = ()) -> str:
    """The option of a parser that is most like another one, and that a command does not have; empty if none is."""
    used = {word.partition("=")[0] for word in words}
    unused = [each for each in parser.options if each not in used]
    return next(iter(difflib.get_close_matches(option, unused, n=1, cutoff=_LIKENESS)), "")


def _shown(launch: Launch, option: str) -> str:
    """A part of the command that has the option."""
    name = launch.program.script or f"-m {launch.program.module}"
    is_there = any(word.partition("=")[0] == option for word in launch.program.arguments)
    return f"{name} ... {option}" if is_there and not launch.program.function else launch.command


def _fields_evidence(package: str, name: str) -> Evidence:
    releases = compared_releases(package)
    source, date = compared_sources()
    return table_evidence(f"{package}.{name}", f"fields of {releases[0]} to {releases[-1]}", source, date)
