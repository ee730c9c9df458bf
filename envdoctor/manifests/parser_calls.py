"""What the calls of `argparse`, of the parsers of transformers, and of DeepSpeed do."""

from __future__ import annotations

from envdoctor.manifests.dataclass_options import add_dataclasses
from envdoctor.manifests.parser_options import Option, Parser
from envdoctor.manifests.parser_values import (
    Arguments,
    External,
    Items,
    Literal,
    ParserMethod,
    Reader,
    constants,
    option_of,
    parsers_in,
)

_HARMLESS = frozenset({
    "set_defaults", "print_help", "print_usage", "error", "exit", "format_help", "format_usage", "register",
    "get_default",
})  # fmt: skip
_PARSES = frozenset({"parse_args", "parse_intermixed_args"})
_DEEPSPEED = ("--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config", "--deepspeed_mpi")
_KNOWN = frozenset({
    "prog", "usage", "description", "epilog", "parents", "formatter_class", "fromfile_prefix_chars",
    "argument_default", "conflict_handler", "add_help", "allow_abbrev", "suggest_on_error", "color",
})  # fmt: skip
_OF_DATACLASSES = ("transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser")


def new_parser(reader: Reader, arguments: Arguments) -> Parser:
    """An `argparse.ArgumentParser`."""
    parser = Parser(reader.place)
    reader.parsers.append(parser)
    parser.is_open = arguments.is_open or not arguments.named.keys() <= _KNOWN
    parser.abbreviates = not ("allow_abbrev" in arguments.named and arguments.value("allow_abbrev") is not True)
    _add_parents(parser, arguments)
    return parser


def _add_parents(parser: Parser, arguments: Arguments) -> None:
    if "parents" not in arguments.named:
        return
    value = arguments.named["parents"]
    elements = value.elements if isinstance(value, Items) else (None,)
    for each in elements:
        if isinstance(each, Parser):
            parser.add_all(each)
        else:
            parser.is_open = True


def call_external(reader: Reader, name: str, arguments: Arguments) -> tuple[bool, object]:
    """Whether this is a known function of a library, and the value of its call."""
    if name == "argparse.ArgumentParser":
        return True, new_parser(reader, arguments)
    if name in _OF_DATACLASSES:
        parser = Parser(reader.place, is_of_dataclasses=True)
        reader.parsers.append(parser)
        value = arguments.positional[0] if arguments.positional else arguments.named.get("dataclass_types")
        parser.is_open = arguments.is_open or not arguments.named.keys() <= {"dataclass_types", *_KNOWN}
        add_dataclasses(reader, parser, value.elements if isinstance(value, Items) else (value,))
        return True, parser
    if name == "deepspeed.add_config_arguments" and arguments.positional:
        for parser in parsers_in(arguments.positional[0]):
            parser.add(Option(_DEEPSPEED[:1], reader.place, takes_value=False))
            for each in _DEEPSPEED[1:]:
                parser.add(Option((each,), reader.place))
        return True, arguments.positional[0]
    return name in ("print", "isinstance", "hasattr", "type", "id", "len"), None


def call_parser(reader: Reader, method: ParserMethod, arguments: Arguments, *, certain: bool) -> object:
    """The value of a call of a parser's method. Groups and the parsers of subcommands count as the parser itself."""
    parser, name = method
    parser.drops_rest = parser.drops_rest and not name.startswith("parse_")  # it parses the command line again
    if name == "add_argument":
        _add_argument(reader, parser, arguments, certain=certain)
    elif name in ("add_argument_group", "add_mutually_exclusive_group"):
        return parser
    elif name in ("add_subparsers", "add_parser"):
        if not parser.has_subcommands and parser.positionals:
            parser.subcommands = None  # the first word is another argument
        parser.has_subcommands = True
        if name == "add_parser":
            _add_subcommand(parser, arguments)
        _add_parents(parser, arguments)
        parser.is_open = parser.is_open or arguments.is_open
        return parser
    elif name in ("parse_known_args", "parse_known_intermixed_args"):
        parser.is_tolerant = parser.is_tolerant or not parser.is_strict
    elif name in _PARSES:
        _parse(parser, arguments, certain=certain)
    elif name == "parse_args_into_dataclasses":
        remaining = arguments.named.get("return_remaining_strings", Literal(value=False))
        parser.is_tolerant = parser.is_tolerant or remaining != Literal(value=False)
        parser.is_open = parser.is_open or "args_file_flag" in arguments.named
        _parse(parser, arguments, certain=certain)
    elif name not in _HARMLESS and not name.startswith("parse_"):
        parser.open()
    return None


def _add_argument(reader: Reader, parser: Parser, arguments: Arguments, *, certain: bool) -> None:
    option = option_of(arguments, reader.place, certain=certain)
    if option is None:
        parser.open()
    elif option.names:
        parser.add(option)
    elif option.nargs in ("...", "A..."):
        parser.has_rest = True
    else:
        text = next(iter(arguments.positional), arguments.named.get("dest"))
        name = str(text.value) if isinstance(text, Literal) else "argument"
        is_required = certain and "action" not in arguments.named and not arguments.is_open
        parser.positionals.append(option._replace(names=(name,), is_required=is_required))


def _add_subcommand(parser: Parser, arguments: Arguments) -> None:
    name, aliases = next(iter(arguments.positional), None), arguments.named.get("aliases", Literal(()))
    texts = (name.value, *constants(aliases)) if isinstance(name, Literal) and not arguments.is_open else ()
    is_known = texts and (constants(aliases) or "aliases" not in arguments.named)
    parser.subcommands = (
        [*parser.subcommands, *map(str, texts)] if is_known and parser.subcommands is not None else None
    )


def _parse(parser: Parser, arguments: Arguments, *, certain: bool) -> None:
    value = arguments.positional[0] if arguments.positional else arguments.named.get("args", Literal(None))
    is_of_command = value == Literal(None) or value == External("sys.argv[1:]")
    if is_of_command and certain and not arguments.is_open:
        parser.is_strict = True
