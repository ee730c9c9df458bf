"""Parsing and comparison of wheel names and METADATA as found on the index."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import msgspec
import pytest
from support.dated_index import serve
from support.paths import PACKAGE
from support.release_index import Release as GeneratedRelease

from envdoctor.download.http_client import HttpClient
from envdoctor.download.sources import Sources
from envdoctor.knowledge.guides import PypiTorch
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.knowledge.pythons import PythonRange
from envdoctor.knowledge.releases import Release
from envdoctor.knowledge.torch_builds import TorchRelease
from envdoctor.knowledge_check.comparison import (
    compare_published,
    compare_pythons,
    compare_requirements,
    compare_torch_cuda,
    compare_torch_release,
    cuda_of,
    new_releases,
)
from envdoctor.knowledge_check.library_files import (
    compare_cuda_versions,
    compare_torch_libraries,
    read_cuda_versions,
)
from envdoctor.package_index.address import index_address
from envdoctor.package_index.releases import read_releases
from envdoctor.package_index.simple_index import Project, parse_html
from envdoctor.package_index.wheel_metadata import Metadata
from envdoctor.package_index.wheel_names import WheelSummary, parse_wheel_name, summarize_wheels

ORIGIN = {"source": "a test", "date": "2026-11-21"}


def project(*names: str, attributes: str = "") -> Project:
    files = parse_html("".join(f'<a href="{name}" {attributes}>x</a>' for name in names), "http://h/simple/torch/")
    releases: dict[str, list] = {}
    for file in files:
        releases.setdefault(file.version, []).append(file)
    return Project("torch", "page", releases)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl", "vllm-0.33.0.tar.gz"],
         WheelSummary("wheels", ("3.8+",), (("x86_64", "2.28"),))),
        (["torch-2.5.1-cp39-cp39-manylinux1_x86_64.whl", "torch-2.5.1-cp310-cp310-manylinux2014_aarch64.whl"],
         WheelSummary("wheels", ("3.9", "3.10"), (("x86_64", "2.5"), ("aarch64", "2.17")))),
        # A free-threaded wheel does not count: llguidance 1.9.1.
        (["l-1-cp39-abi3-manylinux_2_31_x86_64.whl",
          "l-1-cp314-cp314t-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"],
         WheelSummary("wheels", ("3.9+",), (("x86_64", "2.31"),))),
        (["numpy-2-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"],
         WheelSummary("wheels", ("3.12",), (("x86_64", "2.27"),))),
        (["trl-1.0-py3-none-any.whl", "trl-1.0.tar.gz"], WheelSummary("any")),
        (["deepspeed-0.16.5-cp312-cp312-win_amd64.whl", "deepspeed-0.16.5.tar.gz"], WheelSummary("source")),
        (["x-1-cp312-cp312-win_amd64.whl"], WheelSummary("other")),
        (["x-1-cp312-cp312-musllinux_1_2_x86_64.whl"], WheelSummary("other")),
        (["torch-2.10.0-3-cp312-cp312-manylinux_2_28_x86_64.whl"],
         WheelSummary("wheels", ("3.12",), (("x86_64", "2.28"),))),
    ],
)  # fmt: skip
def test_summarize_wheels(names: list[str], expected: WheelSummary) -> None:
    assert summarize_wheels(parse_wheel_name(name) for name in names) == expected


@pytest.mark.parametrize(
    ("lines", "cuda"),
    [
        (['nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux" and platform_machine == "x86_64"'], "12.8"),
        (['cuda-toolkit[cudart,nvrtc]==13.0.2; platform_system == "Linux"'], "13.0"),
        (["nvidia-cuda-runtime==13.0.48"], "13.0"),
        (['nvidia-cuda-runtime-cu12==12.8.90; platform_machine == "aarch64"'], "cpu"),
        ([], "cpu"),
    ],
)
def test_cuda_of_torch(lines: list[str], cuda: str) -> None:
    assert cuda_of(Metadata(tuple(lines), "", "w"), "x86_64") == cuda
    row = PypiTorch(first="2.8", x86_64="12.8", aarch64="cpu", **ORIGIN)
    drifts = list(compare_torch_cuda([row], "2.8.0", "x86_64", Metadata(tuple(lines), "", "w")))
    assert [drift.index_value for drift in drifts] == ([] if cuda == "12.8" else [cuda])


@pytest.mark.parametrize(
    ("lines", "drifted"),
    [
        (["torch (==2.8.0)", "numpy"], []),
        (["torch==2.8.1"], ["requires torch"]),
        (["numpy"], ["requires torch"]),
        (["torch==2.8.0", "vllm<1"], []),  # a package that the table does not cover
        (["torch==2.8.0", "numba==0.61; python_version > '3.9'"], ["requires numba"]),
        (["torch==2.8.0", "numba==0.61; platform_machine == 'aarch64'"], []),
        (["torch==2.8.0", "numba==0.61; python_version < '3.12'"], []),  # does not hold for all Pythons of the table
        (["torch==2.8.0", "peft>=1; extra == 'peft'"], ["optional peft"]),
    ],
)
def test_compare_requirements(lines: list[str], drifted: list[str]) -> None:
    row = Release(versions=("1.0",), requires=("torch==2.8.0",), **ORIGIN)
    other = Release(versions=("0.9",), requires=("numba<1",), optional=("peft>=0.1",), **ORIGIN)
    found = compare_requirements("x", "1.0", row, [row, other], Metadata(tuple(lines), "", "w"))
    assert [drift.field for drift in found] == drifted


@pytest.mark.parametrize(
    ("change", "field"),
    [({}, ""), ({"yanked": True}, "yanked"), ({"glibc": {"x86_64": "2.17"}}, "glibc"),
     ({"pythons": ("3.11",)}, "Pythons"),
     ({"date": "2025-08-07"}, "day of upload"), ({"kind": "any"}, "wheels")],
)  # fmt: skip
def test_compare_published(change: dict[str, object], field: str) -> None:
    page = project("torch-2.8.0-cp312-cp312-manylinux_2_28_x86_64.whl",
                   attributes='data-upload-time="2025-08-06T10:00:00Z"')  # fmt: skip
    row = msgspec.structs.replace(
        PublishedRelease("2.8.0", "2025-08-06", "wheels", ("3.12",), {"x86_64": "2.28"}), **change
    )
    found = [drift.field for drift in compare_published("torch", row, page.releases["2.8.0"], "page")]
    assert found == ([field] if field else [])


def test_compare_torch_release() -> None:
    page = project(*(f"torch-2.14.{n}-cp3{py}-cp3{py}-manylinux_2_28_x86_64.whl" for n in (0, 1) for py in (10, 14)))
    row = TorchRelease(torch="2.14", latest="2.14.0", python=("3.10", "3.15"), **ORIGIN)
    assert [(drift.field, drift.index_value) for drift in compare_torch_release(row, page)] == [
        ("latest", "2.14.1"), ("Pythons", "3.10 to 3.14")]  # fmt: skip


def test_compare_pythons_and_new_releases() -> None:
    names = ("torch-1.0-py3-none-any.whl", "torch-1.1-py3-none-any.whl")
    page = project(*names, attributes='data-requires-python="&gt;=3.9"')
    row = PythonRange(package="torch", versions=">=1", python=">=3.10", source="Requires-Python", date="2026-11-21")
    assert [drift.row for drift in compare_pythons(row, page)] == ["torch 1.0", "torch 1.1"]
    assert [new.version for new in new_releases(page, ["1.0.0"], "2026-11-21")] == ["1.1"]
    yanked = project("torch-1.1-py3-none-any.whl", attributes="data-yanked")
    assert new_releases(yanked, ["1.0"], "2026-11-21") == []


@pytest.mark.parametrize(
    ("required", "drifts"),
    [
        (["cuda-toolkit[cudart,nvrtc]==13.0.2; platform_system == 'Linux'", "nvidia-nccl-cu13==2.28.9"], []),
        (["cuda-toolkit==13.0.2", "nvidia-nccl-cu13 (==2.28.9)", "sympy>=1.13.3"], []),
        (["cuda-toolkit==13.0.2", "nvidia-nccl-cu13==2.29.7"],
         [("nvidia-nccl-cu13==2.28.9", "required"), ("nvidia-nccl-cu13==2.29.7", "not required")]),
        (["cuda-toolkit==13.0.2", "nvidia-nccl-cu13==2.28.9; platform_machine == 'aarch64'"],
         [("nvidia-nccl-cu13==2.28.9", "required")]),
    ],
)  # fmt: skip
def test_compare_torch_libraries(required: list[str], drifts: list[tuple[str, str]]) -> None:
    expected = ("cuda-toolkit==13.0.2", "nvidia-nccl-cu13==2.28.9")
    found = compare_torch_libraries("2.11.0", expected, Metadata(tuple(required), "", "w"))
    assert [(drift.field, drift.table_value) for drift in found] == drifts


def test_cuda_versions_of_bitsandbytes_are_those_of_its_libraries() -> None:
    files = [
        f"bitsandbytes/libbitsandbytes_{name}.so" for name in ("cpu", "cuda118", "cuda130", "cuda118_nocublaslt")
    ]
    added = GeneratedRelease("bitsandbytes", "0.48.0", files=tuple((name, "x") for name in files))
    with serve(added) as index:
        client = HttpClient(Sources(), end=time.monotonic() + 30)
        (release,) = read_releases(client, f"http://127.0.0.1:{index.port}/main/simple/", "bitsandbytes")
        (file,) = release.files
        assert read_cuda_versions(client, file) == ("11.8", "13.0")
    assert list(compare_cuda_versions("0.48.0", ("13.0", "11.8"), ("11.8", "13.0"), file)) == []
    (drift,) = compare_cuda_versions("0.48.0", ("11.8",), ("11.8", "13.0"), file)
    assert (drift.table_value, drift.index_value, drift.source) == ("11.8", "11.8 13.0", file.name)


def test_index_host_is_not_in_the_code() -> None:
    host = urlsplit(index_address(Sources())).hostname
    files = [
        path for name in ("knowledge_check", "package_index", "download") for path in (PACKAGE / name).glob("*.py")
    ]
    assert host
    assert len(files) > 10
    assert not [path for path in files if host in path.read_text()]
