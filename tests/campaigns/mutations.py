"""Faults at random places of the product, and whether the tests notice them.

    python tests/campaigns/mutations.py [--seed N] [--count 30] [--only PATH:LINE] [--tests PATH ...] [--json FILE]

Each fault is written to a copy of the repository: an inverted condition, an off-by-one, a dropped argument, or a
wrong unit. The copy's tests run until the first failure: first those of the changed package, then all default tests.
Set ENVDOCTOR_STACK_PYTHON to an installed CPU stack, or every fault that survives its package waits for quickstart.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OTHER_COMPARISON = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BOUNDARY = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
UNITS = {1024: 1000, 1000: 1024, 60: 3600, 3600: 60, 1e9: 2**30, 1e6: 2**20}
MAX_SECONDS = 1200


@dataclass(frozen=True)
class Fault:
    """A replacement of a part of a file, with the kind of the fault."""

    kind: str
    path: str
    line: int
    start: int  # offsets in the file's bytes
    end: int
    before: str
    after: str


@dataclass(frozen=True)
class Outcome:
    """What the tests said of a fault: the first failing test, or nothing."""

    fault: Fault
    caught_by: str
    seconds: float


def product_files() -> list[Path]:
    """The Python files of the tool and of the trainer."""
    return [path for folder in ("envdoctor", "train") for path in sorted((ROOT / folder).rglob("*.py"))]


def faults_of(path: Path) -> Iterator[Fault]:
    """Every fault that can be made in a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            child.parent = parent  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        for kind, replaced, after in changes(node):
            start = starts[replaced.lineno - 1] + replaced.col_offset
            end = starts[replaced.end_lineno - 1] + replaced.end_col_offset
            before = source[start:end].decode()
            text = f"({ast.unparse(after)})"
            yield Fault(kind, str(path.relative_to(ROOT)), replaced.lineno, start, end, before, text)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """The faults at a node: their kind, the expression that is replaced, and its replacement."""
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not is_constant_test(node.test):
        yield "inverted condition", node.test, invert(node.test)
    elif isinstance(node, ast.comprehension):
        for condition in node.ifs:
            yield "inverted condition", condition, invert(condition)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], BOUNDARY):
        changed = copy.copy(node)
        changed.ops = [OTHER_COMPARISON[type(node.ops[0])]()]
        yield "off by one", node, changed
    elif isinstance(node, ast.Subscript | ast.Call):
        yield from changes_of_numbers(node)
        if isinstance(node, ast.Call):
            yield from dropped_arguments(node)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        yield from changes_of_units(node)


def is_constant_test(test: ast.expr) -> bool:
    """Whether a condition is decided without running: `while True`, `if TYPE_CHECKING`, `if __name__ == ...`."""
    return (
        isinstance(test, ast.Constant)
        or {"TYPE_CHECKING", "__name__"} & {each.id for each in ast.walk(test) if isinstance(each, ast.Name)} != set()
    )


def invert(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) not in BOUNDARY:
        inverted = copy.copy(test)
        inverted.ops = [OTHER_COMPARISON[type(test.ops[0])]()]
        return inverted
    return (
        test.operand
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        else ast.UnaryOp(ast.Not(), test)
    )


def changes_of_numbers(node: ast.Subscript | ast.Call) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Off-by-one of an index, a slice bound, or an argument of `range`."""
    if isinstance(node, ast.Call):
        numbers = node.args if isinstance(node.func, ast.Name) and node.func.id == "range" else []
    elif isinstance(node.slice, ast.Slice):
        numbers = [bound for bound in (node.slice.lower, node.slice.upper) if bound]
    else:
        numbers = [node.slice]
    for number in numbers:
        if isinstance(number, ast.Constant) and type(number.value) is int:
            yield "off by one", number, ast.Constant(number.value + 1)


def dropped_arguments(node: ast.Call) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """The call without one of its keyword arguments, or without its last argument."""
    for index, keyword in enumerate(node.keywords):
        if keyword.arg:
            shorter = copy.copy(node)
            shorter.keywords = node.keywords[:index] + node.keywords[index + 1 :]
            yield "dropped argument", node, shorter
    if len(node.args) > 1 and not isinstance(node.args[-1], ast.Starred):
        shorter = copy.copy(node)
        shorter.args = node.args[:-1]
        yield "dropped argument", node, shorter


def changes_of_units(node: ast.BinOp) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """A factor of another unit, or ten times the factor."""
    for side in (node.left, node.right):
        if isinstance(side, ast.Constant) and type(side.value) in (int, float) and side.value:
            yield "wrong unit", side, ast.Constant(UNITS.get(side.value, side.value * 10))


def choose(count: int, seed: int) -> list[Fault]:
    """Faults in different files, each kind equally often, drawn with a seed."""
    source = random.Random(seed)
    by_kind: dict[str, list[Fault]] = {}
    for path in product_files():
        for fault in faults_of(path):
            by_kind.setdefault(fault.kind, []).append(fault)
    chosen: dict[str, Fault] = {}
    kinds = sorted(by_kind)
    while len(chosen) < count:
        fault = source.choice(by_kind[kinds[len(chosen) % len(kinds)]])
        chosen.setdefault(fault.path, fault)
    return list(chosen.values())


def run_tests(folder: Path, *arguments: str) -> str:
    """Run pytest in a copy until the first failure, and return the failing test's name."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
                          start_new_session=True) as child:  # fmt: skip
        try:
            output, _ = child.communicate(timeout=MAX_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            return f"no end within {MAX_SECONDS} s"
    if child.returncode in (0, 5):  # 5: no test selected
        return ""
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0].partition(" ")[2] if failed else output.strip().splitlines()[-1]


def tests_of_package(fault: Fault) -> list[str]:
    """The folders with the tests of the package that a fault is in."""
    parts = Path(fault.path).parts
    folder = f"tests/unit/{parts[1].removesuffix('.py')}" if parts[0] == "envdoctor" else "tests/trainer"
    return [folder] if (ROOT / folder).is_dir() else ["tests/cli"]


def try_fault(fault: Fault, folder: Path, tests: list[str]) -> Outcome:
    """Write a fault into the copy, run the tests, and restore the file."""
    began = time.monotonic()
    path = folder / fault.path
    source = path.read_bytes()
    path.write_bytes(source[: fault.start] + fault.after.encode() + source[fault.end :])
    try:
        caught_by = run_tests(folder, *(tests or tests_of_package(fault)))
        if not caught_by and not tests:
            caught_by = run_tests(folder)
    finally:
        path.write_bytes(source)
    if "::" in caught_by and run_tests(folder, caught_by):
        raise SystemExit(f"{caught_by} fails without the fault as well")
    return Outcome(fault, caught_by, time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--only", nargs="+", help="PATH:LINE of some of the chosen faults")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument("--tests", nargs="+", default=[], help="run these tests alone")
    parser.add_argument("--json", type=Path, help="file for the outcomes")
    options = parser.parse_args()
    faults = [
        f for f in choose(options.count, options.seed) if not options.only or f"{f.path}:{f.line}" in options.only
    ]
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # some tests run as another user
        folder = Path(name) / "repository"
        tracked = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for each in filter(None, tracked.split("\0")):
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / each, folder / each)
        for fault in faults:
            print(f"{fault.path}:{fault.line} {fault.kind}: {fault.before} -> {fault.after}", flush=True)
            if options.list:
                continue
            outcomes.append(try_fault(fault, folder, options.tests))
            print(f"    {outcomes[-1].caught_by or 'MISSED'} ({outcomes[-1].seconds:.0f} s)", flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    print(f"{sum(bool(outcome.caught_by) for outcome in outcomes)} of {len(outcomes)} faults caught")


if __name__ == "__main__":
    main()
