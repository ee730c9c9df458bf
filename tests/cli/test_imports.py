"""The import direction between packages, and the modules that the command line loads at start-up."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from support.cases import each_case
from support.paths import PACKAGE

# The layers, from the lowest to the highest: a package imports from itself and from lower layers only. Packages on
# one line do not import one another.
LAYERS = (
    ("core",),
    ("redact", "pages"),
    ("download",),
    ("knowledge",),
    ("binaries",),
    ("machine", "environment"),
    ("rules",),
    ("reports",),
    ("explain",),
    ("profiles",),
    ("resolution",),
    ("remedies",),
    ("manifests",),
    ("locking",),
    ("package_index",),
    ("verify",),
    ("install",),
    ("fleet", "training", "export", "knowledge_check", "knowledge_update", "bisect", "forecast"),
    ("trial",),
    ("completion",),
    ("commands",),
    ("output",),
    ("integrations",),
    ("cli",),
    ("__main__",),
)
# Packages that neither start a process nor open a socket.
PURE = {
    "binaries",
    "environment",
    "explain",
    "knowledge",
    "manifests",
    "pages",
    "redact",
    "remedies",
    "reports",
    "rules",
}
STARTS_THINGS = {"subprocess", "socket", "urllib.request", "http", "envdoctor.core.processes", "envdoctor.download"}
FOREIGN = {"torch", "vllm", "transformers", "trl", "peft", "datasets", "accelerate", "numpy", "click"}


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not path.is_relative_to(PACKAGE / "probes")]


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def is_pure(path: Path) -> bool:
    return layer_of(path) in PURE


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement of a file, also those of functions. Their expressions are most of a tree and import nothing."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            left += getattr(node, name, ())


@cache
def imports(path: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each import of a file: the module, and the names that are imported from it."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, tuple(alias.name for alias in node.names)))
    return tuple(found)


def imported(path: Path) -> set[str]:
    """Every module that a file imports, with full names of envdoctor's modules."""
    found = {module for module, _ in imports(path)}
    return found | {f"envdoctor.{name}" for module, names in imports(path) if module == "envdoctor" for name in names}


def imported_modules(path: Path, known: Collection[str]) -> set[str]:
    """Every module that a file imports. `from package import module` gives the module, not the package."""
    found: set[str] = set()
    for module, names in imports(path):
        full = (f"{module}.{name}" for name in names)
        found.update({name if name in known else module for name in full} or {module})
    return found


def test_every_package_has_one_layer() -> None:
    packages = [package for layer in LAYERS for package in layer]
    assert sorted(packages) == sorted({layer_of(path) for path in modules()} - {"__init__"})
    assert set(packages) >= PURE


def test_no_modules_import_each_other() -> None:
    """There is no import cycle, including imports inside functions.

    The package's own module has the version and loads the notebook extension when IPython calls it.
    """
    files = {module_name(path): path for path in modules() if path != PACKAGE / "__init__.py"}
    order = TopologicalSorter({name: imported_modules(path, files) & files.keys() for name, path in files.items()})
    assert len(list(order.static_order())) == len(files)


def test_imports_follow_the_layers() -> None:
    rank = {package: number for number, layer in enumerate(LAYERS) for package in layer}
    wrong = []
    for path in modules():
        package = layer_of(path)
        if package == "__init__":
            continue
        for name in imported(path):
            parts = name.split(".")
            if parts[0] != "envdoctor" or len(parts) == 1 or parts[1] == "__version__":
                continue
            if parts[1] != package and rank[parts[1]] >= rank[package]:
                wrong.append(f"{module_name(path)} imports {name} of a higher layer")
    assert wrong == []


def modules_that_import(paths: Iterable[Path], names: Collection[str]) -> list[str]:
    """The modules that import one of these modules or packages, each with the names."""
    found = {module_name(path): {name for name in imported(path) if {name, name.split(".")[0]} & set(names)}
             for path in paths}  # fmt: skip
    return [f"{module}: {', '.join(sorted(each))}" for module, each in found.items() if each]


def test_the_tool_does_not_import_the_stack() -> None:
    assert modules_that_import(modules(), FOREIGN) == []


def test_pure_packages_start_no_process() -> None:
    pure = [path for path in modules() if is_pure(path)]
    assert pure
    assert modules_that_import(pure, STARTS_THINGS) == []


# What run/redaction.py imports. test_secret_forms.py shows that it needs the standard library only.
REDACTION = {"envdoctor.redact.output"}


@each_case("folder", ["probes", "../train"])
def test_stack_programs_do_not_import_the_tool(folder: str) -> None:
    files = list((PACKAGE / folder).rglob("*.py"))
    assert files
    for path in files:
        names = {name for name in imported(path) if name.split(".")[0] == "envdoctor"}
        assert names == (REDACTION if path.name == "redaction.py" else set()), path


@each_case(
    ("arguments", "heavy"),
    [
        (["--help"], {"inspect", "pathlib", "subprocess", "msgspec", "packaging", "pynvml", "torch"}),
        (
            ["check", "--format", "json", "--machine", "cpu-2core"],
            {
                *("asyncio", "configparser", "http", "ssl", "torch", "pydantic", "hashlib", "envdoctor.download"),
                *("packaging.requirements", "packaging.specifiers", "packaging.utils"),
                *("envdoctor.environment.inspect", "envdoctor.explain", "envdoctor.manifests", "envdoctor.reports"),
            },
        ),
    ],
)
def test_start_up_loads_no_heavy_module(arguments: list[str], heavy: set[str]) -> None:
    code = (
        "import sys; from envdoctor.cli import main\n"
        f"try: sys.argv[1:] = {arguments!r}; main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert not loaded & heavy


def test_a_short_command_collects_no_garbage() -> None:
    code = (
        "import gc, sys; from envdoctor.__main__ import main\n"
        "def collections(): return sum(generation['collections'] for generation in gc.get_stats())\n"
        "before = collections(); sys.argv[1:] = ['check', '--format', 'json', '--machine', 'cpu-2core']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(collections() - before, gc.get_freeze_count() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 True"


# The trainer's packages from the lowest layer to the highest. Only run/redaction.py imports envdoctor.
TRAINER = PACKAGE.parent / "train"
TRAINER_LAYERS = (
    "messages", "regular_files", "renamed_settings", "conflicts", "setting_values", "trl_fields", "settings", "hub",
    "checks", "data", "rewards", "tasks", "memory", "plan", "trl_config", "run", "patches", "modeling",
    "generation", "verl_engine", "programs",
)  # fmt: skip


def trainer_layer(path: Path) -> str:
    name = path.relative_to(TRAINER).parts[0].removesuffix(".py")
    return name if name in TRAINER_LAYERS else "programs"


def test_imports_of_the_trainer_follow_its_layers() -> None:
    names = {each.name.removesuffix(".py") for each in TRAINER.iterdir()}
    paths = sorted(TRAINER.rglob("*.py"))
    wrong = []
    for path in paths:
        found = {name.partition(".")[0] for name in imported(path)}
        rank = TRAINER_LAYERS.index(trainer_layer(path))
        wrong += [
            f"{path.relative_to(TRAINER)} imports {name}"
            for name in sorted(found & names)
            if TRAINER_LAYERS.index(name if name in TRAINER_LAYERS else "programs") > rank
        ]
    assert paths
    assert wrong == []


def test_the_trainers_modules_do_not_import_each_other() -> None:
    """There is no import cycle in the trainer, including imports inside functions."""
    paths = sorted(TRAINER.rglob("*.py"))
    files = {".".join(path.relative_to(TRAINER).with_suffix("").parts): path for path in paths}
    order = TopologicalSorter({name: imported_modules(path, files) & files.keys() for name, path in files.items()})
    assert len(list(order.static_order())) == len(files)
