"""The index of a build of torch in the manifests of PDM and Pipenv, and the directory of `--fix`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.commands.audit_fix import Corrections
from envdoctor.core.errors import BadInput
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.places import Place
from envdoctor.manifests.write_back import write_back

URL = "https://download.pytorch.org/whl/cu128"


@each_case(
    "case",
    [
        (
            "pyproject",
            '[project]\ndependencies = ["torch==2.7.0"]\n[tool.pdm]\n',
            {
                "source": [
                    {"name": "pytorch-cu128", "url": URL, "include_packages": ["torch"], "exclude_packages": ["*"]}
                ]
            },
        ),
        (
            "Pipfile",
            '[packages]\ntorch = "==2.7.0"\n',
            {
                "source": [
                    {"name": "pypi", "url": "https://pypi.org/simple", "verify_ssl": True},
                    {"name": "pytorch-cu128", "url": URL, "verify_ssl": True},
                ],
                "packages": {"torch": {"version": "==2.8.0", "index": "pytorch-cu128"}},
            },
        ),
        (
            "Pipfile",
            """[[source]]
name = "own"
url = "https://example.org/simple"

[packages]
torch = {version = "==2.7.0", extras = ["opt"]}
""",
            {
                "source": [
                    {"name": "own", "url": "https://example.org/simple"},
                    {"name": "pytorch-cu128", "url": URL, "verify_ssl": True},
                ],
                "packages": {"torch": {"version": "==2.8.0", "extras": ["opt"], "index": "pytorch-cu128"}},
            },
        ),
    ],
)
def test_the_index_of_a_build_is_written(case: tuple[str, str, dict[str, object]]) -> None:
    kind, text, expected = case
    line = next(number for number, row in enumerate(text.split("\n"), 1) if "torch" in row)
    pins = ("torch==2.8.0",)
    places = (Place(line, "torch", "torch==2.7.0", "pip"),)
    torch = CorrectedSet(architecture="x86_64", glibc="2.35", requirements=pins, wanted=pins, places=places)
    written = write_back(text, [(torch, "cu128")], kind)
    assert written.missing == ()
    data = tomllib.loads(written.text)
    assert (data["tool"]["pdm"] if kind == "pyproject" else data) == expected


def test_an_option_in_place_of_the_directory_is_no_directory_to_create() -> None:
    with pytest.raises(BadInput, match="--fix --gpu: not a directory") as raised:
        Corrections(Path("--gpu"))
    assert raised.value.hint == "envdoctor audit SETUP.md --fix ."


OPTION = "--extra-index-url https://download.pytorch.org/whl/"


@each_case("step, expected", [
    (f"pip install torch==1.12.0+cu116 torchvision==0.13.1+cu116 {OPTION}cu116",
     f"pip install torch==1.12.0+cu116 torchvision==0.13.0+cu116 {OPTION}cu116"),
    (f"pip install torch==1.12.0+cu116 \\\n torchvision==0.13.1+cu116 \\\n {OPTION}cu116",
     f"pip install torch==1.12.0+cu116 \\\n torchvision==0.13.0+cu116 \\\n {OPTION}cu116"),
    # The step has no index with this build, or one with another build.
    ("pip install torch==1.12.0+cu116", "pip install torch==1.12.0"),
    (f"pip install torch==1.12.0+cu113 {OPTION}cu113", f"pip install torch==1.12.0 {OPTION}cu113"),
])  # fmt: skip
def test_a_step_keeps_the_build_that_its_index_provides(step: str, expected: str) -> None:
    first = "pip install torch==1.12.1\n"
    places = [Place(1, "torch", "torch==1.12.1")]
    places += [
        Place(number, found[1], found[0])
        for number, line in enumerate(step.split("\n"), 2)
        for found in re.finditer(r"(torch\w*)==[\d.]+\+\w+", line)
    ]
    pins = ("torch==1.12.0", "torchvision==0.13.0") if "vision" in step else ("torch==1.12.0",)
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", requirements=pins, wanted=pins, places=tuple(places)
    )  # fmt: skip
    written = write_back(first + step, [(corrected, "cu116")], "script").text
    assert written == f"pip install {OPTION}cu116 torch==1.12.0\n{expected}"
