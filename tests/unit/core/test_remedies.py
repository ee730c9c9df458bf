"""Steps of remedies: their notation, their commands, and the environment that they change."""

from __future__ import annotations

import msgspec
from support.cases import each_case

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
        ("nvidia-smi -q | sudo tee log", RootCommand(command="nvidia-smi -q | sudo tee log"), ""),
        ("nvidia-smi -L", UserCommand(command="nvidia-smi -L"), ""),
    ],
)  # fmt: skip
def test_a_step_is_its_command(line: str, step: Step, targeted: str) -> None:
    assert parse_step(line) == step
    assert command_of(step) == line
    (remedy,) = for_environment(steps(line), PYTHON)
    assert remedy.commands == (targeted or line,)
    assert msgspec.json.decode(msgspec.json.encode(step), type=Step) == step
    if isinstance(step, Install | Uninstall):
        changed = remedy.steps[0]
        assert isinstance(changed, Install | Uninstall)
        assert changed.python == PYTHON
        assert pip_arguments(changed)[2:4] == ["--python", PYTHON]


def test_alternatives_are_separated() -> None:
    remedies = either(["unset A", "unset B"], "unset C")
    assert [remedy.commands for remedy in remedies] == [("unset A", "unset B"), ("unset C",)]
    assert command_lines(remedies) == ["$ unset A", "$ unset B", "or:", "$ unset C"]
    assert (steps(), either(), command_lines(())) == ((), (), [])
