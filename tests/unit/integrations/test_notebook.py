"""The notebook extension in a real kernel: a notebook is executed, and the outputs of its cells are examined."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import environment

from envdoctor.core.errors import BadInput
from envdoctor.integrations.calls import Call
from envdoctor.integrations.command_line import parse_line

EXECUTE = "from nbclient.cli import main; main()"  # as the command `jupyter execute`
STATE = """
import gc, json, os, signal, sys
def state():
    return {
        "variables": dict(os.environ), "path": list(sys.path), "directory": os.getcwd(), "gc": gc.get_threshold(),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "excepthook": str(sys.excepthook), "streams": [id(sys.stdout), id(sys.stderr)],
    }
before, modules = state(), set(sys.modules)
"""
HOSTILE = "{1 + 1} </pre><script>alert(1)</script><img src=x onerror=alert(2)>"
# What IPython imports to print a traceback.
TRACEBACK_PACKAGES = {"IPython", "asttokens", "executing", "pure_eval", "pygments", "stack_data"}
MISSING_LIBRARY = f"libcudart.so.12: cannot open shared object file: No such file or directory {HOSTILE}"
CELLS = {
    "state": STATE,
    "load": "%load_ext envdoctor",
    "nothing": "%envdoctor explain",
    "check": "%envdoctor check",
    "select": "%envdoctor check --machine h200 --fact driver.library=580.173.02 -v",
    "raise": f"raise ImportError({MISSING_LIBRARY!r})",
    "explain": "%envdoctor explain",
    "cell": f"%%envdoctor explain\nCUDA error: no kernel image is available for execution on the device {HOSTILE}\n",
    "command": "%envdoctor chek",
    "option": "%envdoctor check --selct DRV",
    "machine": "%envdoctor check --machine h900",
    "state_after": "print(json.dumps([before, state(), sorted(set(sys.modules) - modules)]))",
}


class Outputs:
    """The outputs of the cells."""

    def __init__(self, cells: dict[str, Any]) -> None:
        self.cells = cells

    def displayed(self, name: str) -> tuple[str, str]:
        """The text and the HTML that a cell displayed, its only output."""
        (output,) = self.cells[name]
        assert output["output_type"] == "display_data", output
        return "".join(output["data"]["text/plain"]), "".join(output["data"]["text/html"])


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    home = tmp_path_factory.mktemp("notebook")
    file = home / "notebook.ipynb"
    cells = [
        {"cell_type": "code", "id": name, "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for name, source in CELLS.items()
    ]
    file.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    subprocess.run(
        [sys.executable, "-c", EXECUTE, "--allow-errors", "--inplace", "--kernel_name=python3", str(file)],
        env=environment(home, VIRTUAL_ENV=str(home), PYTHONWARNINGS="ignore"), cwd=home, timeout=300, check=True,
    )  # fmt: skip
    return Outputs({cell["id"]: cell["outputs"] for cell in json.loads(file.read_text())["cells"]})


def test_check_examines_the_environment_of_the_kernel(outputs: Outputs) -> None:
    text, html = outputs.displayed("check")
    assert str(Path(sys.executable).parent.parent) in text
    assert "Traceback" not in text
    assert html.startswith('<div class="envdoctor">')


def test_the_options_of_check_are_those_of_the_command_line(outputs: Outputs) -> None:
    text, html = outputs.displayed("select")
    assert "DRV001" in text
    assert 'class="command"><code>docker restart' in html
    assert "ldconfig -p" in html


def test_the_last_traceback_is_explained(outputs: Outputs) -> None:
    assert outputs.cells["raise"][0]["ename"] == "ImportError"
    text, html = outputs.displayed("explain")
    assert "cudart-missing" in text.splitlines()[0]
    assert "cudart-missing" in html


def test_the_text_of_a_cell_is_explained_and_not_evaluated(outputs: Outputs) -> None:
    text, _ = outputs.displayed("cell")
    assert "gpu-arch" in text
    assert "{1 + 1}" in text


def test_hostile_text_does_not_become_markup(outputs: Outputs) -> None:
    for name in ("explain", "cell"):
        _, html = outputs.displayed(name)
        tags = set(re.findall(r"<\s*([a-z]+\d?)", html))
        assert tags <= {"div", "style", "p", "h3", "span", "strong", "code", "pre", "a"}, tags
        assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", html)
        assert not re.search(r"(?:src|href)=\"(?!https://)", html)
    assert "&lt;script&gt;" in outputs.displayed("explain")[1]


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("nothing", "no exception was raised in this kernel", "%envdoctor explain TEXT"),
        ("command", "unknown command 'chek'; did you mean 'check'?", "%envdoctor check"),
        ("option", "--selct", "%envdoctor check"),
        ("machine", "h900", "envdoctor"),
    ],
)
def test_a_wrong_line_is_an_error_without_a_traceback(outputs: Outputs, name: str, message: str, hint: str) -> None:
    text, html = outputs.displayed(name)
    assert text.startswith("error: ")
    assert message in text.splitlines()[0]
    assert "expected: " in text
    assert f"hint: {hint}" in text
    assert '<span class="error">error: </span>' in html


def test_the_state_of_the_kernel_does_not_change(outputs: Outputs) -> None:
    (output,) = outputs.cells["state_after"]
    before, after, modules = json.loads("".join(output["text"]))
    assert before == after
    layers = {".".join(name.split(".")[:2]) for name in modules}
    assert {name for name in layers if name.startswith("envdoctor.")} == {
        "envdoctor.core", "envdoctor.integrations", "envdoctor.output", "envdoctor.pages", "envdoctor.commands",
        "envdoctor.redact",
    }  # fmt: skip
    packages = {name.partition(".")[0] for name in modules} - {"envdoctor", "msgspec"} - TRACEBACK_PACKAGES
    assert packages <= set(sys.stdlib_module_names)


@each_case(
    ("line", "arguments", "message"),
    [
        ("", {"python": "/kernel"}, ""),
        ("-v --select DRV --select GPU", {"python": "/kernel", "select": ["DRV", "GPU"]}, ""),
        ("'./my env'", {"venv": "./my env"}, ""),
        ("--machine=h200 --fact driver.cuda=12.4", {"machine": "h200", "facts": ["driver.cuda=12.4"]}, ""),
        ("'x", {}, "no closing quotation"),
        ("--save machine.json", {}, "--save"),
        ("a b", {}, "unrecognized arguments: b"),
    ],
)
def test_options_select_the_subject_of_a_check(line: str, arguments: dict[str, Any], message: str) -> None:
    call = Call(tool="check", arguments={"python": "/kernel"}, line=line)
    if message:
        with pytest.raises(BadInput, match=message):
            parse_line(call)
    else:
        parsed = parse_line(call)
        assert parsed.arguments == arguments
        assert parsed.details == ("-v" in line)
