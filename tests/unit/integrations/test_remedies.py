"""The list of remedies: each command with the environment that it changes."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.integrations.remedies import _named_environment, _with_interpreter

PYTHON = "/opt/my env/bin/python"


@each_case(
    ("command", "targeted", "environment"),
    [
        ("uv pip install 'trl[vllm]'", f"uv pip install --python '{PYTHON}' 'trl[vllm]'", PYTHON),
        ("pip install --upgrade trl", f"'{PYTHON}' -m pip install --upgrade trl", PYTHON),
        ("python -m pip uninstall -y pynvml", f"'{PYTHON}' -m pip uninstall -y pynvml", PYTHON),
        ("uv venv v && uv pip install --python v vllm", "uv venv v && uv pip install --python v vllm", "v"),
        ("uv pip install --python v vllm", "uv pip install --python v vllm", "v"),
        ("envdoctor verify --venv v", "envdoctor verify --venv v", "v"),
        ("sudo modprobe nvidia", "sudo modprobe nvidia", ""),
        ("export CUDA_HOME='/usr", "export CUDA_HOME='/usr", ""),
    ],
)
def test_an_installer_gets_the_examined_environment(command: str, targeted: str, environment: str) -> None:
    assert _with_interpreter(command, PYTHON) == targeted
    assert _named_environment(targeted) == environment
    assert _with_interpreter(command, "") == command
