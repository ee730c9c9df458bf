"""Texts of a solved set: the builds of pages that it does not have."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.locking.set_pins import note_on_pages, way_to_build
from envdoctor.manifests import CorrectedSet

PAGE = "pip install dgl -f https://data.dgl.ai/wheels/cu116/repo.html"


@each_case(
    ("pin", "command", "is_named"),
    [
        ("dgl==0.9.0", PAGE, True),
        ("dgl==0.9.0", "uv pip install dgl --find-links https://data.dgl.ai/wheels/cu116/repo.html", True),
        ("dgl==0.9.0", "pip install dgl -f https://data.dgl.ai/wheels-test/repo.html", False),
        ("dgl==0.9.0", "pip install dgl -f wheels", False),
        ("torch==1.12.1", "pip install torch -f https://a.example/cu113/index.html", False),
        ("timm==1.0.31", "", False),
    ],
)
def test_a_build_of_a_page_is_named(pin: str, command: str, is_named: bool) -> None:
    pages = {pin.partition("=")[0]: command} if command else {}
    note = note_on_pages([pin, "tqdm==4.67.0"], CorrectedSet(architecture="x86_64", glibc="2.35", from_pages=pages))
    assert (f"`{command}` of the file installs another build" in note) is is_named
    assert bool(note) is is_named


@each_case(
    ("versions", "contained", "start"),
    [
        (
            {"torch": "2.5.1"},
            {},
            "uv pip install pip 'setuptools<82' wheel` and `uv pip install --no-build-isolation",
        ),
        (
            {},
            {"torch": "2.5.1"},
            "uv pip install pip 'setuptools<82' wheel` and `uv pip install --no-build-isolation",
        ),
        ({"jax": "0.5.0"}, {}, "uv pip install --build-constraints <(echo 'setuptools<82') jittor=="),
    ],
)
def test_a_set_without_torch_builds_in_isolation(
    versions: dict[str, str], contained: dict[str, str], start: str
) -> None:
    corrected = CorrectedSet(architecture="x86_64", glibc="2.35", contained=contained)
    assert f"`{start}" in way_to_build("jittor==1.3.11.0", corrected, versions)


def test_a_build_without_isolation_gets_what_its_archive_needs() -> None:
    needs = {"faces": ("numpy", "cython<3")}
    corrected = CorrectedSet(architecture="x86_64", glibc="2.35", build_needs=needs)
    way = way_to_build("faces==0.7.3", corrected, {"torch": "2.5.1", "numpy": "1.26.4"})
    assert "`uv pip install pip 'setuptools<82' wheel 'cython<3'` and `uv pip install --no-build-isolation f" in way


def test_no_command_builds_a_release_whose_build_fails() -> None:
    corrected = CorrectedSet(
        architecture="x86_64", glibc="2.35", failing_builds={"pyext": "Create A with Python 3.10."}
    )
    way = way_to_build("pyext==0.7", corrected, {"torch": "2.5.1"})
    assert way == "only a source archive on the index, and its build fails: create A with Python 3.10"
