"""The target of `--fix`: the Python of the pins, packages without wheels, and the lines of a notebook."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.locking.solve_set import _target
from envdoctor.locking.source_releases import releases_to_build
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.corrected_pins import Place
from envdoctor.manifests.write_back import write_back


def corrected(*requirements: str, python: str = "", places: tuple[Place, ...] = ()) -> CorrectedSet:
    return CorrectedSet(
        architecture="x86_64",
        glibc="2.35",
        python=python,
        requirements=requirements,
        wanted=requirements,
        places=places,
    )


@each_case(
    "case",
    [
        (("torch==2.0.1", "transformers==4.35.0"), "", "3.11"),
        (("torch==2.1.2",), "", "3.11"),
        (("torch==2.8.0", "vllm==0.10.2"), "", "3.12"),
        (("ray==2.12.0",), "", "3.11"),
        (("torch==2.0.1",), "3.10", "3.10"),
    ],
)
def test_the_python_is_one_that_all_pins_support(case: tuple[tuple[str, ...], str, str]) -> None:
    requirements, python, expected = case
    assert _target(corrected(*requirements, python=python)).pythons == (expected,)


@each_case(
    "text",
    [
        "Because antlr4-python3-runtime==4.9.3 has no usable wheels and you require it",
        "Because antlr4-python3-runtime>=4.9,<=4.9.3 has no usable wheels and only the following versions",
    ],
)
def test_a_release_with_only_a_source_archive_is_named(text: str) -> None:
    assert releases_to_build(text, (), lambda _: set()) == {("antlr4-python3-runtime", "4.9.3")}


@each_case("line", ["%pip install --upgrade pip", "!pip install -U pip", "python -m pip install --upgrade pip"])
def test_the_program_of_a_command_is_no_requirement(line: str) -> None:
    pip = corrected("pip==26.3", places=(Place(1, "pip", "pip", "pip"),))
    assert write_back(line, [(pip, "")], "notebook").text == line.removesuffix("pip") + "pip==26.3"
