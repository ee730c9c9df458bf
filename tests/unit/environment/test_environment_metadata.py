"""Metadata of distributions: headers, requirements, sources, shadowed copies."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker, default_environment
from support.cases import each_case
from support.sample_environments import add_distribution, make_venv

from envdoctor.core.records import Distribution
from envdoctor.environment.inspect import read_stack
from envdoctor.environment.markers import Markers
from envdoctor.environment.metadata import (
    HEAD_BYTES,
    MAX_HEAD_BYTES,
    _read_head,
    choose_home_page,
    parse_direct_url,
    parse_egg_requires,
    parse_head,
    parse_record,
    read_folder,
)
from envdoctor.knowledge.releases import Requirement, parse_requirement


def read_one(site: Path) -> Distribution:
    return read_folder(site, Markers("3.11.7", "x86_64")).found[0].distribution


def test_requirements_apply_to_the_environments_python(tmp_path: Path) -> None:
    add_distribution(
        tmp_path, "Big_Package", "1.0",
        headers="Requires-Python: >=3.9\nHome-page: UNKNOWN\nProject-URL: Repository, https://example.org/it\n"
        "Requires-Dist: torch==2.8.0\n"
        'Requires-Dist: tomli; python_version < "3.11"\n'
        'Requires-Dist: triton>=3; platform_machine == "x86_64" and sys_platform == "linux"\n'
        'Requires-Dist: pywin32; sys_platform == "win32"\n'
        'Requires-Dist: vllm>=0.10; extra == "vllm"\n'
        'Requires-Dist: numpy; python_version >= "3.9" or extra == "all"\n'
        "Requires-Dist: broken; not a marker\n",
    )  # fmt: skip
    assert read_one(tmp_path) == Distribution(
        name="big-package", version="1.0", requires=("torch==2.8.0", "triton>=3", "numpy", "broken"),
        requires_python=">=3.9", location=str(tmp_path), home="https://example.org/it", source="uv",
    )  # fmt: skip


def test_long_licence_in_the_headers(tmp_path: Path) -> None:
    add_distribution(tmp_path, "a", "1", headers="License: " + "        text\n" * 20_000 + "Requires-Dist: torch\n")
    assert read_one(tmp_path).requires == ("torch",)


def test_headers_with_carriage_returns() -> None:
    assert parse_head(b"Name: a\r\nVersion: 1\r\n\r\nName: b\r\n")["name"] == ["a"]


def test_eggs(tmp_path: Path) -> None:
    egg = tmp_path / "old_thing-0.5-py3.11.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Name: old-thing\nVersion: 0.5\n\n")
    (egg / "requires.txt").write_text('numpy\n\n[:python_version < "3.8"]\ntyping\n\n[test]\npytest\n')
    (tmp_path / "lone-2.0.egg-info").write_text("Name: lone\nVersion: 2.0\n")
    found = {f.distribution.name: f.distribution for f in read_folder(tmp_path, Markers("3.11.7")).found}
    assert (found["old-thing"].version, found["old-thing"].requires) == ("0.5", ("numpy",))
    assert found["lone"].version == "2.0"


def test_missing_metadata_gives_the_name_and_a_note(tmp_path: Path) -> None:
    (tmp_path / "torch-2.1.0.dist-info").mkdir()
    (tmp_path / "~orch-2.0.0.dist-info").mkdir()
    metadata = read_folder(tmp_path, Markers("3.11.7"))
    assert [(f.distribution.name, f.distribution.version) for f in metadata.found] == [("torch", "2.1.0")]
    assert metadata.unread == [f"{tmp_path}/torch-2.1.0.dist-info: No such file or directory"]
    assert metadata.notes == [f"{tmp_path}/~orch-2.0.0.dist-info: left by an interrupted pip run"]


@pytest.mark.parametrize(
    ("direct", "source"),
    [
        ({"url": "https://u:p@host/x/flash_attn-2.8.3.whl?token=1", "archive_info": {}}, "flash_attn-2.8.3.whl"),
        ({"url": "https://github.com/volcengine/verl.git", "vcs_info": {"vcs": "git", "commit_id": "4d1c9e6f" * 5}},
         "verl@4d1c9e6f4d1c"),
        ({"url": "file:///home/someone/vllm", "dir_info": {"editable": True}}, "vllm (editable)"),
        ([], "direct URL"),
    ],
)  # fmt: skip
def test_direct_url_is_shortened(direct: object, source: str) -> None:
    assert parse_direct_url(json.dumps(direct).encode()) == source


def test_compiled_files_of_a_record() -> None:
    record = (
        b"torch/lib/libc10.so,sha256=a,1\r\ntorch/lib/libgomp.so.1,,\n"
        b"a.social.py,sha256=b,2\nnotes.so.txt,,3\nb.cpython-312-x86_64-linux-gnu.so,sha256=x.so,2\n"
    )
    expected = ["torch/lib/libc10.so", "torch/lib/libgomp.so.1", "b.cpython-312-x86_64-linux-gnu.so"]
    assert list(parse_record(record)) == expected


def test_choose_home_page() -> None:
    assert choose_home_page("https://a", ["Source, https://b"]) == "https://a"
    assert choose_home_page("", ["Changelog, https://c", "Source Code, https://b"]) == "https://b"
    assert not choose_home_page("UNKNOWN", [])


@given(st.binary(max_size=500), st.text(max_size=200))
def test_parsers_accept_any_input(data: bytes, text: str) -> None:
    parse_head(b"Name: x\nRequires-Dist: " + data)
    parse_direct_url(data)
    list(parse_record(data + b".so"))
    parse_egg_requires(text)
    Markers("3.11").applicable([text, f"a; {text}"])


def test_markers_are_evaluated_as_packaging_does() -> None:
    simple = [
        f'{variable} {operator} "{value}"'
        for variable, operators, values in (
            ("sys_platform", ("==", "!="), ("linux", "win32")),
            ("platform_machine", ("==", "!="), ("x86_64", "aarch64")),
            ("python_version", ("==", "!=", "<", "<=", ">", ">="), ("3.9", "3.11", "3.12")),
            ("extra", ("==", "!="), ("x",)),
        )
        for operator in operators
        for value in values
    ]
    pairs = [f"{a} {word} {b}" for a in simple for b in simple for word in ("and", "or")]
    for_extras = [text for a in pairs for text in (f'{a} and extra == "x"', f"({a}) and extra == 'x'")]
    environment = default_environment() | {"platform_machine": "x86_64", "sys_platform": "linux", "extra": ""}
    environment |= {"python_version": "3.11", "python_full_version": "3.11.7"}
    for marker in (*simple, *pairs, *for_extras[::7]):
        is_applicable = Markers("3.11.7", "x86_64").applicable([f"a; {marker}"]) == ("a",)
        assert is_applicable == Marker(marker).evaluate(environment), marker


def test_shadowed_copies(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "v", settings="include-system-site-packages = true\n")
    user = tmp_path / ".local/lib/python3.11/site-packages"
    old = add_distribution(site, "triton", "3.1.0")
    add_distribution(site, "triton", "3.4.0")
    os.utime(old, (1, 1))
    add_distribution(user, "numpy", "1.26.4")
    stack = read_stack(tmp_path / "v", None, {"HOME": str(tmp_path)})
    assert stack.distributions.value["triton"].version == "3.4.0"
    assert stack.distributions.value["numpy"].location == str(user)
    assert next((copy.name, copy.version) for copy in stack.shadowed.value) == ("triton", "3.1.0")
    add_distribution(site, "numpy", "2.2.6")
    stack = read_stack(tmp_path / "v", None, {"HOME": str(tmp_path), "PYTHONPATH": str(user)})
    assert stack.distributions.value["numpy"].version == "1.26.4"
    assert "PYTHONPATH" in stack.shadowed.note
    assert "numpy" in stack.shadowed.note


def test_500_distributions_are_read_within_seconds(tmp_path: Path) -> None:
    """They take 0.06 s of processor time (2026-11-23, 2 cores); the limit leaves room for slow machines."""
    site = make_venv(tmp_path / "v")
    for number in range(500):
        lines = "".join(f'Requires-Dist: p{k}>=1; python_version < "3.{k}"\n' for k in range(8, 14))
        add_distribution(site, f"package-{number}", "1.0", headers=lines, files=("p.so",) + ("a/b.py",) * 200)
        (site / "p.so").write_bytes(b"x")
    start = time.process_time()
    stack = read_stack(tmp_path / "v", tmp_path / "cache", {"HOME": str(tmp_path)})
    assert time.process_time() - start < 3
    assert len(stack.distributions.value) == 500


@each_case(("licence", "is_read"), [(HEAD_BYTES - 100, True), (MAX_HEAD_BYTES - 100, True), (MAX_HEAD_BYTES, False)])
def test_headers_after_a_long_licence_are_read(licence: int, is_read: bool, tmp_path: Path) -> None:
    info = tmp_path / "a-1.dist-info"
    info.mkdir(exist_ok=True)
    header = f"Metadata-Version: 2.1\nName: a\nLicense: {'x' * licence}\nVersion: 1\n\n"
    (info / "METADATA").write_text(header)
    assert (b"Version: 1\n\n" in _read_head(info)) is is_read


@pytest.mark.parametrize("fold", ["\n ", "\n\t", "\r\n  "])
def test_folded_header_is_one_requirement(tmp_path: Path, fold: str) -> None:
    metadata = tmp_path / "vllm-0.11.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_bytes(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: 0.11.0\nRequires-Dist: torch{fold}==2.8.0\n\n".encode()
    )
    (found,) = read_folder(tmp_path, Markers("3.12", "x86_64")).found
    assert [parse_requirement(line) for line in found.distribution.requires] == [Requirement("torch", "==2.8.0")]
