"""Reads the statements of a shell text in the order in which a shell runs them: lists, loops, branches, functions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING, ClassVar

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.alternatives import Branch
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.shell_records import (
    Command,
    ShellState,
    ShellText,
    has_replaced_bound,
    is_known,
    original_text,
)
from envdoctor.manifests.shell_words import WordReader, node_text

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# A comment with one of these words marks the next command as a bad example.
_BAD_EXAMPLE = lazy_pattern(
    r"(?i)❌|✗|\b(?:wrong|bad|falsch|incorrect|do not run|don't run|do not do|don't do)\b|错误"
)
_TESTS = frozenset({"[", "[[", "test", "command", "which", "type", "hash", "grep", "true", "false", "nvidia-smi"})
_MAX_COMMANDS = 4000
_MAX_STATEMENTS = 100_000  # a function that calls itself twice has no other end
_MAX_DEPTH = 60
_MAX_ITERATIONS = 50
_MAX_NAME = 60  # characters of a branch's name
# Text that is no shell, such as prompts `(a) ` in one line, takes the grammar time that grows with its square.
MAX_PARSE_SECONDS = 1.0  # of CPU time
_ALWAYS_PARSED = 4_000  # bytes; the worst text of this size takes less than 0.1 s


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@lru_cache(maxsize=512)  # the paths through a guide share most of their texts
def parse_tree(source: bytes) -> Node | None:
    """The syntax tree of a shell text; None if the grammar takes more than MAX_PARSE_SECONDS for it."""
    if len(source) > _ALWAYS_PARSED and not _is_parsed_in_time(source):
        return None
    return _parser().parse(source).root_node


def _is_parsed_in_time(source: bytes) -> bool:
    """Parse a text up to the time limit. Only a text that is read in pieces can be interrupted."""
    parser, end = _parser(), time.thread_time() + MAX_PARSE_SECONDS
    try:
        parser.parse(
            lambda offset, _: source[offset : offset + _ALWAYS_PARSED],
            progress_callback=lambda *_: time.thread_time() > end,
        )
    except ValueError:
        parser.reset()
        return False
    return True


class StatementReader:
    """Collects the commands of a syntax tree."""

    def __init__(self, text: ShellText, state: ShellState) -> None:
        self.text = text
        self.state = state
        self.words = WordReader(state)
        self.commands: list[Command] = []
        self.depth = 0
        self.loops = 0  # around the current statement
        self.statements = 0

    def read(self, node: Node) -> None:
        """Read a statement; also the statements in a part that the grammar rejects."""
        self.statements += 1
        if len(self.commands) >= _MAX_COMMANDS or self.depth >= _MAX_DEPTH or self.statements >= _MAX_STATEMENTS:
            return
        self.depth += 1
        self._readers.get(node.type, StatementReader._children)(self, node)
        self.depth -= 1

    def _children(self, node: Node) -> None:
        is_bad_example = False
        for child in node.children:
            if child.type == "comment":
                starts_line = child.start_point[1] == 0 or self._is_first_in_line(child)
                is_bad_example = bool(starts_line and _BAD_EXAMPLE.search(node_text(child)))
            elif child.is_named and is_bad_example:
                is_bad_example = False
            elif child.is_named:
                self.read(child)

    def _is_first_in_line(self, node: Node) -> bool:
        start = node.start_byte - node.start_point[1]
        return not self.text.source[start : node.start_byte].strip()

    def _command(self, node: Node, output: str = "", heredoc: tuple[Line, ...] = ()) -> None:
        assignments: list[tuple[str, str]] = []
        words: list[str] = []
        bounds: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                assignments.append((self._name(child), self.words.value(child.child_by_field_name("value"))))
            elif child.type in ("file_redirect", "herestring_redirect"):
                output = self._output(child) or output
            else:
                fields = self.words.fields(child)
                words += fields
                if child.type in ("word", "concatenation") and has_replaced_bound(node_text(child)):
                    bounds += fields
        if words and words[0] in self.state.functions:
            self._call(words)
        elif words:
            self._add(Command(self.text.line(node), tuple(words), tuple(assignments), output, heredoc, tuple(bounds)))

    def _add(self, command: Command) -> None:
        if len(self.commands) < _MAX_COMMANDS:
            self.commands.append(command)

    def _call(self, words: list[str]) -> None:
        """Read the body of a function with the arguments of the call."""
        body, text = self.state.functions[words[0]]
        outer = self.state.arguments, self.text
        self.state.arguments, self.text = words[1:], text
        self.read(body)
        self.state.arguments, self.text = outer

    def _output(self, redirect: Node) -> str:
        """The file of `> FILE`; empty for other redirections."""
        writes = any(child.type in (">", ">>", "&>", ">|") for child in redirect.children)
        target = redirect.child_by_field_name("destination")
        has_descriptor = redirect.child_by_field_name("descriptor") is not None
        return self.words.value(target) if writes and target is not None and not has_descriptor else ""

    def _redirected(self, node: Node) -> None:
        """A statement with redirections. A heredoc belongs to its command, and so does what follows its marker."""
        body = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child.type in ("file_redirect", "heredoc_redirect")]
        heredocs = [child for child in redirects if child.type == "heredoc_redirect"]
        in_heredocs = [child for heredoc in heredocs for child in heredoc.named_children]
        files = [child for child in (*redirects, *in_heredocs) if child.type == "file_redirect"]
        output = next((file for child in reversed(files) if (file := self._output(child))), "")
        heredoc = self._heredoc(heredocs[0]) if heredocs else ()
        if body is not None and body.type == "command":
            count = len(self.commands)
            self._command(body, output, heredoc)
            # In `> FILE a b` the grammar counts the words a and b to the redirection.
            words = [word for child in files for word in child.children_by_field_name("destination")[1:]]
            if words and len(self.commands) > count:
                extra = tuple(field for word in words for field in self.words.fields(word))
                self.commands[-1] = self.commands[-1]._replace(words=(*self.commands[-1].words, *extra))
        elif body is not None:
            self.read(body)
        for child in in_heredocs:
            if child.type not in ("file_redirect", "heredoc_start", "heredoc_body", "heredoc_end", "file_descriptor"):
                self.read(child)

    def _heredoc(self, redirect: Node) -> tuple[Line, ...]:
        """The lines of a heredoc, with known variables expanded unless its marker is quoted."""
        start = next((child for child in redirect.children if child.type == "heredoc_start"), None)
        body = next((child for child in redirect.children if child.type == "heredoc_body"), None)
        if start is None or body is None:
            return ()
        text = node_text(body)
        if not re.search(r"['\"\\]", node_text(start)):
            for child in reversed(body.named_children):
                if child.type in ("simple_expansion", "expansion"):
                    first, last = child.start_byte - body.start_byte, child.end_byte - body.start_byte
                    encoded = text.encode()
                    text = (encoded[:first] + self.words.value(child).encode() + encoded[last:]).decode()
        row = body.start_point[0]
        lines = original_text(text).removesuffix("\n").split("\n")
        numbers = self.text.numbers
        return tuple((numbers[min(row + index, len(numbers) - 1)], line) for index, line in enumerate(lines))

    def _name(self, assignment: Node) -> str:
        name = assignment.child_by_field_name("name")
        return node_text(name) if name is not None else ""

    def _assignment(self, node: Node) -> None:
        """`X=1`, `A=(a b)`, `A+=(c)`. An assignment of a script is a command as well: it can set a variable."""
        name, value = self._name(node), node.child_by_field_name("value")
        appends = any(child.type == "+=" for child in node.children)
        state = self.state
        if value is not None and value.type == "array":
            elements = [field for child in value.named_children for field in self.words.fields(child)]
            state.arrays[name] = [*(state.arrays.get(name, []) if appends else []), *elements]
            state.variables.pop(name, None)
            return
        text = self.words.value(value)
        text = state.variables.get(name, "" if name in state.arrays else f"${name}") + text if appends else text
        state.variables[name] = text
        self._add(Command(self.text.line(node), ("export",), ((name, text),)))

    def _declaration(self, node: Node) -> None:
        """`export X=1`, `local X=$1`, `declare -a A=(a b)`: the words of a command, and variables of the script."""
        words = [node_text(node.children[0])]
        for child in node.named_children:
            if child.type != "variable_assignment":
                words += self.words.fields(child)
                continue
            name, value = self._name(child), child.child_by_field_name("value")
            if value is not None and value.type == "array":
                self._assignment(child)
                continue
            self.state.variables[name] = self.words.value(value)
            words.append(f"{name}={self.state.variables[name]}")
        if len(words) > 1 and words[0] == "export":
            self._add(Command(self.text.line(node), tuple(words)))

    def _unset(self, node: Node) -> None:
        for child in node.named_children:
            self.state.variables.pop(node_text(child), None)
            self.state.arrays.pop(node_text(child), None)

    def _function(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.state.functions[node_text(name)] = (body, self.text)

    def _for(self, node: Node) -> None:
        """Read the body once for each word of a known list, else once with an unknown variable."""
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            self._children(node)
            return
        name = node_text(variable)
        values = [field for child in node.children_by_field_name("value") for field in self.words.fields(child)]
        is_literal = values and all(is_known(value) and not re.search(r"[*?\[]", value) for value in values)
        self.loops += 1
        for value in values[:_MAX_ITERATIONS] if is_literal else ["$" + name]:
            self.state.variables[name] = value
            self.read(body)
        self.loops -= 1
        self.state.variables.pop(name, None)

    def _while(self, node: Node) -> None:
        """Read the condition and the body once. `read NAME` makes the variable unknown."""
        self.loops += 1
        self._children(node)
        self.loops -= 1

    def _list(self, node: Node) -> None:
        """`A && B` runs both. Of `A || B` the second is an alternative, unless the first is only a test."""
        left, right = node.named_children[0], node.named_children[-1]
        if not any(child.type == "||" for child in node.children):
            self._children(node)
            return
        if _is_test(left) or _is_negligible(right):
            self._children(node)
            return
        self._follow([[left], [right]], ["", ""])

    def _follow(self, branches: list[list[Node]], names: list[str]) -> None:
        """Read the chosen branch. A branch without a name has that of its first command."""
        self.state.choices = max(self.state.choices, len(branches))
        index = min(self.state.choice, len(branches) - 1)
        nodes = branches[index]
        if len(branches) > 1 and nodes:
            first, last = self.text.line(nodes[0]), self.text.last_line(nodes[-1])
            name = names[index] or node_text(nodes[0])
            branch = Branch(f"`{' '.join(original_text(name).split())[:_MAX_NAME]}`", first, last)
            self.state.followed += [branch] if branch not in self.state.followed else []
        for node in nodes:
            self.read(node)

    def _if(self, node: Node) -> None:
        """Read the condition, then one branch: the true one if that is known, the only one, or the chosen one."""
        branches: list[list[Node]] = [[]]
        conditions = [child for child in node.children_by_field_name("condition") if child.is_named]
        outcomes = [self._outcome(conditions)]
        names = [f"if {' '.join(map(node_text, conditions))}"]
        for condition in conditions:
            self.read(condition)
        for child in node.named_children:
            if child.type == "elif_clause":
                end = next((i for i, part in enumerate(child.children) if part.type == "then"), 0)
                tests = [part for part in child.children[:end] if part.is_named]
                outcomes.append(self._outcome(tests))
                names.append(f"elif {' '.join(map(node_text, tests))}")
                branches.append([part for part in child.children[end:] if part.is_named])
            elif child.type == "else_clause":
                branches.append(list(child.named_children))
                names.append(f"else of {names[0]}")
            elif child not in conditions:
                branches[0].append(child)
        self._read_branch(branches, outcomes, names)

    def _read_branch(self, branches: list[list[Node]], outcomes: list[bool | None], names: list[str]) -> None:
        possible = [index for index in range(len(branches)) if index >= len(outcomes) or outcomes[index] is not False]
        true = next((index for index, outcome in enumerate(outcomes) if outcome), None)
        if true is not None and all(outcome is False for outcome in outcomes[:true]):
            possible = [true]
        if possible:
            self._follow([branches[index] for index in possible], [names[index] for index in possible])

    def _outcome(self, conditions: list[Node]) -> bool | None:
        """Whether `[ "$X" = y ]` with known words, or `[ -f FILE ]`, is true; None for other conditions."""
        if len(conditions) != 1 or conditions[0].type != "test_command":
            return None
        expression = next(iter(conditions[0].named_children), None)
        if expression is None:
            return None
        if expression.type == "unary_expression":
            operator, operand = expression.children[0], expression.children[-1]
            value = self.words.value(operand)
            if node_text(operator) in ("-z", "-n") and is_known(value):
                return bool(value) is (node_text(operator) == "-n")
            if node_text(operator) in ("-f", "-e") and self.state.has_file(value):
                return True
        elif expression.type == "binary_expression" and len(expression.children) == 3:
            first, operator, second = expression.children
            values = [self.words.value(first), self.words.value(second)]
            if node_text(operator) in ("=", "==", "!=") and all(map(is_known, values)):
                return fnmatchcase(*values) is (node_text(operator) != "!=")
        return None

    def _case(self, node: Node) -> None:
        """Read the branch of a known value, else the chosen one."""
        value = self.words.value(node.child_by_field_name("value"))
        items = [child for child in node.named_children if child.type == "case_item"]
        if is_known(value):
            items = [item for item in items if self._matches(value, item)][:1]
        elif self.loops and any(map(_is_option, items)):
            for item in filter(_is_option, items):  # options of a script combine
                self._children(item)
            return
        elif sum(map(_is_version, items)) > 1:
            return  # a table of versions, of which one applies on the machine
        branches, names = [], []
        for item in items:
            patterns = item.children_by_field_name("value")
            branches.append([child for child in item.named_children if child not in patterns])
            names.append(f"case {value}: {' | '.join(map(node_text, patterns))}")
        if branches:
            self._follow(branches, names)

    def _matches(self, value: str, item: Node) -> bool:
        patterns = item.children_by_field_name("value")
        return any(fnmatchcase(value, self.words.value(pattern)) for pattern in patterns)

    _readers: ClassVar[dict[str, Callable[[StatementReader, Node], None]]] = {
        "command": _command,
        "redirected_statement": _redirected,
        "variable_assignment": _assignment,
        "declaration_command": _declaration,
        "unset_command": _unset,
        "function_definition": _function,
        "for_statement": _for,
        "while_statement": _while,
        "list": _list,
        "if_statement": _if,
        "case_statement": _case,
        "test_command": lambda _reader, _node: None,
        "comment": lambda _reader, _node: None,
    }


def _is_option(item: Node) -> bool:
    """Whether an item of `case` handles an option such as `--train`, except that for help."""
    patterns = [node_text(pattern).strip("'\"") for pattern in item.children_by_field_name("value")]
    return any(pattern.startswith("--") for pattern in patterns) and not {"-h", "--help"} & set(patterns)


def _is_version(item: Node) -> bool:
    """Whether an item of `case` is for a version."""
    return any(re.match(r"['\"]?\d+\.\d", node_text(pattern)) for pattern in item.children_by_field_name("value"))


def _first_word(node: Node) -> str:
    while node.type not in ("command", "test_command") and node.named_children:
        node = node.named_children[0]
    return "[" if node.type == "test_command" else next(iter(node_text(node).split(None, 1)), "")


def _is_test(node: Node) -> bool:
    """Whether a statement only tests something, so that what follows `||` runs on a new machine."""
    return _first_word(node) in _TESTS


def _is_negligible(node: Node) -> bool:
    """Whether what follows `||` only ends or reports: `|| true`, `|| exit 1`, `|| { echo failed; exit 1; }`."""
    if node.type in ("compound_statement", "subshell"):
        return all(_is_negligible(child) for child in node.named_children)
    return _first_word(node) in {"true", ":", "exit", "return", "echo", "printf", "continue", "break", "false"}
