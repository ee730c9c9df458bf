"""The options that a program accepts: those of an `argparse.ArgumentParser`, or of a parser of transformers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.shell_records import is_known

_NUMBER = lazy_pattern(r"-(?:\d+|\d*\.\d+)")  # as argparse has it
_ONE_OR_MORE = frozenset({"+", "*"})
_REST = frozenset({"...", "A..."})  # argparse.REMAINDER and PARSER: what follows is not read as options
_HELP = frozenset({"-h", "--help", "--version"})
# The smallest number of words that a positional argument takes, by its nargs.
_LEAST = {"": 1, "+": 1, **{str(number): number for number in range(1, 10)}}
_BOUNDED = frozenset({"", "?", *map(str, range(1, 10))})  # nargs of positional arguments with a largest number
# Values that a reader does not replace: a number, several of them, and the constants of Python.
_LITERAL = lazy_pattern(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?(?:,[-+\d.]+)*|True|False|None|true|false")
# What a reader replaces, or can leave out.
_OMISSION = lazy_pattern(r"\.{2,}\S*|…|[\[<({].*|.*[\])}>]|\S*\.\.\.")


class Option(NamedTuple):
    """An option of a parser."""

    names: tuple[str, ...]
    place: str  # file and line of the definition
    takes_value: bool = True
    nargs: str = ""  # as it is written; empty for one value
    choices: tuple[str, ...] = ()  # that are known to be all
    is_required: bool = False
    kind: str = ""  # int or float, if values are converted to it


class Parser:
    """A parser as the code builds it. `is_open`: it can accept options that are not known."""

    def __init__(self, place: str, *, is_of_dataclasses: bool = False) -> None:
        self.place = place
        self.options: dict[str, Option] = {"-h": HELP, "--help": HELP}
        self.is_of_dataclasses = is_of_dataclasses
        self.is_open = False
        self.abbreviates = True
        self.has_subcommands = False
        self.subcommands: list[str] | None = []  # None: not all names are known
        self.has_rest = False  # a positional argument that takes all words that follow
        self.is_tolerant = False  # the program permits unknown options
        self.drops_rest = False  # the program certainly parses its command line, and loses unknown options
        self.is_strict = False  # the program certainly parses its command line, and stops at unknown options
        self.positionals: list[Option] = []  # with the name of their value
        self.libraries: list[tuple[str, str]] = []  # classes of libraries whose fields are options

    def open(self) -> None:
        """Note that further options are possible, unless the command line is already parsed."""
        self.is_open = self.is_open or not self.is_strict

    def add(self, option: Option) -> None:
        """Add an option; the definition that comes last replaces earlier ones."""
        self.options |= dict.fromkeys(option.names, option)

    def add_missing(self, option: Option) -> None:
        """Add the names of an option that the parser does not have."""
        self.options = dict.fromkeys(option.names, option) | self.options

    def add_all(self, other: Parser) -> None:
        """Add the options of a parent parser."""
        self.options |= other.options
        self.is_open = self.is_open or other.is_open
        self.has_rest = self.has_rest or other.has_rest
        self.positionals += other.positionals
        self.libraries += other.libraries

    @property
    def is_decided(self) -> bool:
        """Whether all options are known, and an unknown one stops the program."""
        return self.is_strict and not self.is_tolerant and not self.is_open


HELP = Option(("-h", "--help"), "", takes_value=False)


class Refusal(NamedTuple):
    """Why a parser stops at a command line."""

    kind: str  # unknown, ambiguous, choice, subcommand, type, value, required, positional, surplus
    option: str
    value: str = ""
    candidates: tuple[str, ...] = ()
    place: str = ""


def refusals(parser: Parser, words: Sequence[str]) -> list[Refusal]:
    """What a parser refuses in the arguments of a command. Words of unknown value are not judged."""
    found: list[Refusal] = []
    seen: set[str] = set()
    is_complete = True  # all arguments are there to be read
    for index, word in enumerate(words):
        if word == "--" or (parser.has_rest and not word.startswith("-")):
            break
        is_complete = is_complete and not _hides_arguments(words, index, parser)
        if not _is_option(word):
            continue
        name = word.partition("=")[0]
        names = _matches(parser, word)
        options = {parser.options[each] for each in names}
        if not names:
            found.append(Refusal("unknown", name))
        elif len({each for each in options if each.place}) > 1:
            candidates = tuple(sorted({each.names[-1] for each in options}))
            found.append(Refusal("ambiguous", name, candidates=candidates))
        else:
            option = max(options, key=lambda each: bool(each.place))
            seen.update(option.names)
            if option.nargs in _REST:
                words = words[: index + 1]
                break
            following = next(iter(words[index + 1 :]), "")
            if option.takes_value and option.nargs in _LEAST and "=" not in word and following in parser.options:
                found.append(Refusal("value", name, following, place=option.place))
            found += _refused_values(option, word, words[index + 1 :])
    # A file alone can contain the arguments.
    is_complete = is_complete and (len(words) != 1 or words[0].startswith("-") or bool(parser.positionals))
    if is_complete and not parser.has_subcommands and not _HELP.intersection(words) and not found:
        required = {each for each in parser.options.values() if each.is_required and seen.isdisjoint(each.names)}
        found += [Refusal("required", each.names[-1], place=each.place) for each in sorted(required)]
        found += _refused_positionals(parser, words)
    if is_complete and parser.has_subcommands and not found:
        found += _refused_subcommand(parser, words)
    return found


def _refused_positionals(parser: Parser, words: Sequence[str]) -> list[Refusal]:
    """The positional arguments that a command lacks, or the first word for which the parser has none."""
    if parser.has_rest or parser.is_of_dataclasses:
        return []
    given = list(_positional_words(parser, words))
    needed = [(each, _LEAST.get(each.nargs, 0)) for each in parser.positionals if each.is_required]
    missing = sum(number for _, number in needed) - len(given)
    if missing > 0:
        last = [each for each, number in needed if number][-missing:]
        return [Refusal("positional", each.names[0], place=each.place) for each in last]
    if "--" in words or not all(each.nargs in _BOUNDED for each in parser.positionals):
        return []
    surplus = given[sum(int(each.nargs or 1) if each.nargs != "?" else 1 for each in parser.positionals) :]
    refused = [] if surplus or any(each.nargs for each in parser.positionals) else [
        Refusal("choice", each.names[0], word, each.choices, each.place)
        for each, (_, word) in zip(parser.positionals, given, strict=False)
        if each.choices and word not in each.choices and is_known(word) and not _OMISSION.fullmatch(word)
    ]  # fmt: skip
    return refused or [Refusal("surplus", before, word) for before, word in surplus if word.strip()][:1]


def _refused_subcommand(parser: Parser, words: Sequence[str]) -> list[Refusal]:
    """The first word that is no option, if the parser has only other subcommands."""
    first = next((word for _, word in _positional_words(parser, words)), "")
    is_judged = first and is_known(first) and not _OMISSION.fullmatch(first)
    if not is_judged or not parser.subcommands or first in parser.subcommands or "--" in words:
        return []
    return [Refusal("subcommand", "", first, tuple(parser.subcommands), parser.place)]


def _positional_words(parser: Parser, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The words that are neither options nor their values, each with the option before it."""
    taken, before = 0.0, ""
    for index, word in enumerate(words):
        if word == "--":
            yield from (("", each) for each in words[index + 1 :])
            return
        if _is_option(word):
            taken, before = _following(parser, word), word
        elif taken:
            taken -= 1
        else:
            yield before, word
            before = ""


def _following(parser: Parser, word: str) -> float:
    """The largest number of words after an option that are its values."""
    options = [parser.options[each] for each in _matches(parser, word)]
    option = max(options, key=lambda each: bool(each.place), default=HELP)
    if not word.startswith("--") and word not in parser.options:
        letters = [parser.options.get(f"-{each}", HELP) for each in word[1:]]  # `-xe 3`, `-e3`
        with_value = next((index for index, each in enumerate(letters) if each.takes_value), -1)
        option = letters[with_value] if with_value in (-1, len(letters) - 1) else HELP
    if "=" in word or not option.takes_value:
        return 0
    nargs = option.nargs
    return int(nargs) if nargs.isdecimal() else 1 if nargs in ("", "?") else math.inf


def _hides_arguments(words: Sequence[str], index: int, parser: Parser) -> bool:
    """Whether a word can stand for several arguments, or for none."""
    word, before = words[index], words[index - 1] if index else ""
    if is_known(word) and not _OMISSION.fullmatch(word) and not word.startswith("@"):  # a file of arguments
        return False
    option = parser.options.get(before)
    is_value = option is not None and option.takes_value and not option.nargs
    return not word.startswith("-") and not is_value


def _is_option(word: str) -> bool:
    """Whether argparse reads a word as an option, and its name is known."""
    name = word.partition("=")[0]
    is_plain = re.fullmatch(r"-{1,4}[A-Za-z][\w.:/-]*", name) is not None
    return is_plain and not _NUMBER.fullmatch(word) and not (" " in word and "=" not in word)


def _matches(parser: Parser, word: str) -> list[str]:
    """The options that a word can mean."""
    name = word.partition("=")[0]
    for each in (word, name):
        if each in parser.options:
            return [each]
    if name.startswith("--"):
        return sorted(each for each in parser.options if each.startswith(name)) if parser.abbreviates else []
    short = [each for each in parser.options if each == name[:2] or each.startswith(name)]
    return short[:1]  # `-abc`: several short options, or one with its value


def _refused_values(option: Option, word: str, following: Iterable[str]) -> list[Refusal]:
    if not option.choices and not option.kind:
        return []
    name, equals, value = word.partition("=")
    values = [value] if equals else []
    for each in () if equals else following:
        if each.startswith("-") and not _NUMBER.fullmatch(each):
            break
        values.append(each)
        if option.nargs not in _ONE_OR_MORE:
            break
    known = [each for each in values if is_known(each) and not _OMISSION.fullmatch(each)]
    if option.choices:
        refused = [each for each in known if each not in option.choices]
        return [Refusal("choice", name, each, option.choices, option.place) for each in refused]
    refused = [each for each in known if _LITERAL.fullmatch(each) and not _is_number(each, option.kind)]
    return [Refusal("type", name, each, (option.kind,), option.place) for each in refused]


def _is_number(value: str, kind: str) -> bool:
    try:
        (int if kind == "int" else float)(value)
    except ValueError:
        return False
    return True
