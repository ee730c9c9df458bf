"""Steps of remedies: their notation, their commands, and the environment that they change."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import msgspec
import pytest
from support.cases import each_case
from support.paths import PACKAGE

from envdoctor.core.remedies import (
    Install,
    RootCommand,
    SetVariable,
    Step,
    SystemPackages,
    Uninstall,
    UnsetVariable,
    UserCommand,
    command_lines,
    command_of,
    either,
    for_environment,
    parse_step,
    pip_arguments,
    steps,
)

PYTHON = "/my env/bin/python"
TARGET = f"--python '{PYTHON}'"


@each_case(
    ("line", "step", "targeted"),
    [
        (
            "uv pip install 'trl>=0.28,<0.29' torch==2.9.1 --torch-backend=cu128 --reinstall-package torch",
            Install(packages=("trl>=0.28,<0.29", "torch==2.9.1"), backend="cu128", reinstall=("torch",)),
            f"uv pip install {TARGET} 'trl>=0.28,<0.29' torch==2.9.1 --torch-backend=cu128 --reinstall-package torch",
        ),
        (
            "TORCH_CUDA_ARCH_LIST='8.0;9.0' uv pip install fast==1.0 --no-binary fast --no-build-isolation",
            Install(
                packages=("fast==1.0",), from_source=("fast",), no_build_isolation=True,
                variables={"TORCH_CUDA_ARCH_LIST": "8.0;9.0"},
            ),
            f"TORCH_CUDA_ARCH_LIST='8.0;9.0' uv pip install {TARGET} fast==1.0 --no-binary fast --no-build-isolation",
        ),
        ("uv pip uninstall a b", Uninstall(packages=("a", "b")), f"uv pip uninstall --python '{PYTHON}' a b"),
        ("export CUDA_HOME=/usr/local/cuda", SetVariable(assignment="CUDA_HOME=/usr/local/cuda"), ""),
        ("unset LD_LIBRARY_PATH", UnsetVariable(name="LD_LIBRARY_PATH"), ""),
        ("sudo apt-get install -y g++-13 ninja-build", SystemPackages(packages=("g++-13", "ninja-build")), ""),
        ("sudo modprobe -a nvidia nvidia_uvm", RootCommand(command="sudo modprobe -a nvidia nvidia_uvm"), ""),
        ("lsmod && sudo modprobe nvidia", RootCommand(command="lsmod && sudo modprobe nvidia"), ""),
        ("nvidia-smi -L", UserCommand(command="nvidia-smi -L"), ""),
        ("uv pip check", UserCommand(command="uv pip check"), f"uv pip check {TARGET}"),
        ("uv pip show a | head", UserCommand(command="uv pip show a | head"), f"uv pip show {TARGET} a | head"),
        ("envdoctor check", UserCommand(command="envdoctor check"), f"envdoctor check {TARGET}"),
        ("envdoctor check --venv PATH", UserCommand(command="envdoctor check --venv PATH"), ""),
    ],
)  # fmt: skip
def test_a_step_is_its_command(line: str, step: Step, targeted: str) -> None:
    assert parse_step(line) == step
    assert command_of(step) == line
    (remedy,) = for_environment(steps(line), PYTHON)
    assert remedy.commands == (targeted or line,)
    assert parse_step(remedy.commands[0]) == remedy.steps[0]
    assert msgspec.json.decode(msgspec.json.encode(step), type=Step) == step
    if isinstance(step, Install | Uninstall):
        changed = remedy.steps[0]
        assert isinstance(changed, Install | Uninstall)
        assert changed.python == PYTHON
        assert pip_arguments(changed)[2:4] == ["--python", PYTHON]


@each_case(
    "line",
    [
        "pip install trl==0.28.0", "python -m pip install trl==0.28.0", "uv pip install", "uv pip uninstall",
        "uv pip install -U trl", "uv pip install --upgrade trl", "uv pip install --reinstall trl==0.28.0",
        "uv pip install trl==0.28.0 --reinstall-package", "uv pip install -r requirements.txt",
        "uv venv --python 3.12 && uv pip install vllm", "uv pip uninstall -y trl", "uv pip install 'trl",
    ],
)  # fmt: skip
def test_an_install_without_bounds_is_no_step(line: str) -> None:
    with pytest.raises(ValueError, match=r"install|quotation"):
        parse_step(line)


def texts_of(tree: ast.Module) -> Iterator[str]:
    """The texts of a module without documentation; a value in a formatted text is `x`."""
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for node in formatted:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def test_every_install_in_rules_and_tables_is_a_step() -> None:
    """Also of branches that no test of a rule reaches, where an invalid notation would end `check`."""
    modules = [*PACKAGE.glob("rules/*.py"), *PACKAGE.glob("fleet/*.py")]
    texts = [text for path in modules for text in texts_of(ast.parse(path.read_text()))]
    tables = [tomllib.loads(path.read_text()) for path in PACKAGE.glob("knowledge/*.toml")]
    texts += [
        line
        for table in tables
        for rows in table.values()
        if isinstance(rows, list)
        for row in rows
        if isinstance(row, dict)
        for remedy in row.get("remedies", ())
        for line in ([remedy] if isinstance(remedy, str) else remedy)
    ]
    installs = [
        text for text in texts if re.match(r"(\w+=\S+ )*(uv venv\b|(uv |python -m )?pip3? (un)?install) ", text)
    ]
    assert len(installs) > 20
    for text in installs:
        parse_step(re.sub(r"\{\w+\}", "x", text))


def test_alternatives_are_separated() -> None:
    remedies = either(["unset A", "unset B"], "unset C")
    assert [remedy.commands for remedy in remedies] == [("unset A", "unset B"), ("unset C",)]
    assert command_lines(remedies) == ["$ unset A", "$ unset B", "or:", "$ unset C"]
    assert (steps(), either(), command_lines(())) == ((), (), [])
