"""`envdoctor archs`: verdicts for each GPU on compiled files, bad input, real wheels compared with cuobjdump."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.sample_environments import (
    add_distribution,
    compile_with_fatbin,
    fatbin_container,
    fatbin_entry,
    make_venv,
)

from envdoctor.binaries.coverage import Coverage, cuda_of_ptx
from envdoctor.binaries.elf import ElfError
from envdoctor.binaries.objects import read_object
from envdoctor.commands.archs import ArchsReport, ArchsRequest, ScannedFile, exemption_reason, parse_capabilities
from envdoctor.commands.archs import run as archs
from envdoctor.core.errors import BadInput
from envdoctor.core.records import KernelCode
from envdoctor.environment.inspect import read_compiled_files
from envdoctor.knowledge.architectures import runs_as_ptx, runs_native
from envdoctor.output import display
from envdoctor.output.archs import render_archs
from envdoctor.output.layout import lines

pytestmark = pytest.mark.usefixtures("isolated_cache")

PTX, CUBIN = 1, 2
SPECIFIC, FAMILY = 0x100011, 0x200011


def compile_with_containers(path: Path, *containers: bytes) -> Path:
    return compile_with_fatbin(path, b"".join(containers))


def scan(target: Path, cc: str, machine: str = "", facts: tuple[str, ...] = ()) -> tuple[ArchsReport, int]:
    result = archs(ArchsRequest(target=str(target), cc=cc, machine=machine, facts=tuple(facts)))
    return result.data, result.exit_code


def coverage_of_only_file(report: ArchsReport) -> dict[str, Coverage]:
    (file,) = report.files
    return {each.capability: each for each in file.coverage}


def test_verdict_for_each_gpu(tmp_path: Path) -> None:
    both = fatbin_container(fatbin_entry(CUBIN, 80), fatbin_entry(PTX, 80, isa=(8, 7)))
    hopper = fatbin_container(fatbin_entry(CUBIN, 90, flags=SPECIFIC))
    report, code = scan(compile_with_containers(tmp_path / "x.so", both, both, hopper), "7.5,8.6,9.0,12.0")
    verdicts = coverage_of_only_file(report)
    assert [(c, v.verdict, v.native, v.ptx, v.none) for c, v in verdicts.items()] == [
        ("7.5", "none", 0, 0, 3), ("8.6", "native", 2, 0, 1), ("9.0", "mixed", 1, 2, 0), ("12.0", "ptx", 0, 2, 1),
    ]  # fmt: skip
    assert (verdicts["9.0"].needs_cuda, verdicts["9.0"].needs_driver) == ("12.8", "570.26")
    assert verdicts["8.6"].needs_driver == ""
    assert code == 1  # 7.5 runs no container
    assert scan(tmp_path / "x.so", "8.6,9.0")[1] == 0


@pytest.mark.parametrize(
    ("code", "supported", "unsupported"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0), (8, 7)]),  # 8.7 is a Jetson
        ("sm_86", [(8, 6), (8, 9)], [(8, 0)]),
        ("sm_90a", [(9, 0)], [(10, 0)]),
        ("sm_100a", [(10, 0)], [(10, 3)]),
        ("sm_100f", [(10, 0), (10, 3)], [(12, 0), (9, 0)]),
        ("sm_120f", [(12, 0), (12, 1)], [(10, 0)]),
    ],
)
def test_native_code_runs_within_its_major_version(
    code: str, supported: list[tuple[int, int]], unsupported: list[tuple[int, int]]
) -> None:
    assert all(runs_native([code], gpu) for gpu in supported)
    assert not any(runs_native([code], gpu) for gpu in unsupported)


def test_ptx_runs_on_newer_gpus_unless_architecture_specific() -> None:
    assert runs_as_ptx(["compute_80"], (12, 0))
    assert not runs_as_ptx(["compute_80"], (7, 5))
    assert runs_as_ptx(["compute_90a"], (9, 0))
    assert not runs_as_ptx(["compute_90a"], (10, 0))
    assert runs_as_ptx(["compute_100f"], (10, 3))
    assert not runs_as_ptx(["compute_100f"], (12, 0))


def test_ptx_isa_without_a_known_driver_needs_the_next_release() -> None:
    assert (cuda_of_ptx("8.5"), cuda_of_ptx("8.6"), cuda_of_ptx("99.0")) == ("12.5", "12.8", "")


def test_older_driver_does_not_compile_newer_ptx(tmp_path: Path) -> None:
    path = compile_with_containers(tmp_path / "x.so", fatbin_container(fatbin_entry(PTX, 80, isa=(8, 7))))
    old = ("driver.version=550.54.14", "driver.cuda=12.4")
    report, code = scan(path, "", "h200", old)
    assert (coverage_of_only_file(report)["9.0"].compiles, code) == (False, 1)
    new = ("driver.version=570.26", "driver.cuda=12.8")
    report, code = scan(path, "", "h200", new)
    assert (coverage_of_only_file(report)["9.0"].compiles, code) == (True, 0)


def test_object_files_and_archives_are_read(tmp_path: Path) -> None:
    data = tmp_path / "fatbin"
    data.write_bytes(fatbin_container(fatbin_entry(CUBIN, 90), fatbin_entry(PTX, 90, isa=(8, 4))))
    for section in (".nv_fatbin", "__nv_relfatbin"):
        source = tmp_path / "x.c"
        source.write_text(f'__asm__(".section {section},\\"a\\"\\n.incbin \\"{data}\\"\\n.previous\\n");')
        subprocess.run(["gcc", "-c", "-o", tmp_path / f"{section.strip('._')}.o", source], check=True)
    objects = sorted(tmp_path.glob("*.o"))
    for path in objects:
        code = read_object(path)
        assert code is not None
        assert (code.containers, code.ptx_isa) == ({"sm_90 compute_90": 1}, "8.4")
    subprocess.run(["ar", "rcs", tmp_path / "x.a", *objects], check=True)
    code = read_object(tmp_path / "x.a")
    assert code is not None
    assert code.containers == {"sm_90 compute_90": 2}
    archive = (tmp_path / "x.a").read_bytes()
    (tmp_path / "cut.a").write_bytes(archive[:-100])
    with pytest.raises(ElfError, match="truncated"):
        read_object(tmp_path / "cut.a")
    fatbin = read_object(data)
    assert fatbin is not None
    assert fatbin.native == ("sm_90",)


@pytest.mark.parametrize(
    ("abi", "flags", "name"),
    [(7, 0x500550, "sm_80"), (7, 0x5A0D5A, "sm_90a"), (8, 0x600640A, "sm_100a"), (8, 0x6007804, "sm_120")],
)  # as ptxas 12.0 and 12.8 write them
def test_cubin_architecture_is_read_from_its_header(tmp_path: Path, abi: int, flags: int, name: str) -> None:
    header = bytearray(64)
    header[:9] = b"\x7fELF\x02\x01\x01" + bytes([51 if abi == 7 else 65, abi])
    struct.pack_into("<HH", header, 16, 2, 190)
    struct.pack_into("<I", header, 48, flags)
    path = tmp_path / "k.cubin"
    path.write_bytes(bytes(header))
    code = read_object(path)
    assert code is not None
    assert code.native == (name,)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """vLLM with Ampere and Hopper code in its main file, and a second file with Hopper code only."""
    site = make_venv(tmp_path / "venv")
    ampere = fatbin_container(fatbin_entry(CUBIN, 80), fatbin_entry(CUBIN, 90))
    compile_with_containers(site / "vllm/_C.abi3.so", ampere)
    compile_with_containers(
        site / "vllm/_flashmla_C.abi3.so", fatbin_container(fatbin_entry(CUBIN, 90, flags=SPECIFIC))
    )
    compile_with_containers(site / "nvidia/cublas/lib/libcublas.so.12", ampere)
    compile_with_containers(site / "mine/_C.so", fatbin_container(fatbin_entry(CUBIN, 80)))
    add_distribution(site, "vllm", "0.10.2", files=("vllm/_C.abi3.so", "vllm/_flashmla_C.abi3.so"))
    add_distribution(site, "nvidia-cublas-cu12", "12.8", files=("nvidia/cublas/lib/libcublas.so.12",))
    add_distribution(site, "mine", "1.0", files=("mine/_C.so",))
    return tmp_path / "venv"


def test_environment_is_checked_by_its_required_files(venv: Path) -> None:
    report, code = scan(venv, "8.0")
    files = {file.path.rpartition("/")[2]: file for file in report.files}
    assert set(files) == {"_C.abi3.so", "_flashmla_C.abi3.so", "libcublas.so.12", "_C.so"}  # including NVIDIA wheels
    assert files["_flashmla_C.abi3.so"].coverage[0].verdict == "none"
    assert files["_flashmla_C.abi3.so"].exempt_reason
    assert code == 0
    assert scan(venv, "9.0")[1] == 1  # `mine` has sm_80 only
    _, code = scan(venv / "lib/python3.11/site-packages/vllm/_flashmla_C.abi3.so", "8.0")
    assert code == 1  # a file that is named explicitly is never exempt


@pytest.mark.parametrize(
    ("path", "distribution", "exempt"),
    [
        ("vllm/_C.abi3.so", "vllm", False),
        ("vllm/_C_stable_libtorch.abi3.so", "vllm", False),
        ("vllm/_moe_C_stable_libtorch.abi3.so", "vllm", False),
        ("vllm/_flashmla_C.abi3.so", "vllm", True),
        ("torch/lib/libtorch_cuda_linalg.so", "torch", False),
        ("nccl/m2n/lib/cu13/libnccl_m2n.so", "nccl-extensions", True),
        ("sgl_kernel/sm100/common_ops.abi3.so", "sglang-kernel", False),
        ("sgl_kernel/flash_ops.abi3.so", "sglang-kernel", True),
        ("torchao/_C_mxfp8.cpython-310-x86_64-linux-gnu.so", "torchao", True),
    ],
)
def test_files_that_a_library_always_loads_are_never_exempt(path: str, distribution: str, exempt: bool) -> None:
    assert bool(exemption_reason(path, distribution, KernelCode(native=("sm_90",)))) is exempt


def test_plain_folder_is_searched(venv: Path, tmp_path: Path) -> None:
    report, code = scan(venv / "lib/python3.11/site-packages/vllm", "9.0")
    assert [file.path for file in report.files] == ["_C.abi3.so", "_flashmla_C.abi3.so"]
    assert code == 0
    (tmp_path / "some").mkdir()
    compile_with_containers(tmp_path / "some/good.so", fatbin_container(fatbin_entry(CUBIN, 90)))
    (tmp_path / "some/bad.so").write_bytes(b"\x7fELF\x02\x01" + bytes(20))
    report, _ = scan(tmp_path / "some", "9.0")
    assert [file.path for file in report.unreadable] == ["bad.so"]


@pytest.mark.parametrize("verbose", [False, True])
def test_the_table_fits_80_columns(venv: Path, verbose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_display", display.Display(verbose=verbose))
    result = archs(ArchsRequest(target=str(venv), cc="8.0,9.0,12.0"))
    shown = [line.plain for part in render_archs(result.data) for line in lines(part, 80)]
    assert max(map(len, shown)) <= 80
    text = re.sub(r"\s+", " ", " ".join(shown))
    assert "vllm/_C.abi3.so native native no code" in text
    assert "12.0: no code that it can run in mine/_C.so, vllm/_C.abi3.so" in text
    assert ("1 x 80 90" in text) == verbose


@pytest.mark.parametrize("cc", ["9,x", "9", "sm_90", "9.0;10.0", "9.0,", "-1.0", "9.0.1"])
def test_rejects_invalid_capability(cc: str) -> None:
    with pytest.raises(BadInput, match="not a compute capability"):
        parse_capabilities(cc)


def test_suggests_the_likely_capability() -> None:
    with pytest.raises(BadInput, match=r"did you mean 9\.0\?"):
        parse_capabilities("sm_90a")
    assert parse_capabilities("9.0, 12.0,9.0") == ("9.0", "12.0")
    assert parse_capabilities("") == ()


def test_rejects_other_files_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello world")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "x-1-py3-none-any.whl").write_bytes(b"PK\x03\x04" + bytes(100))
    content = compile_with_containers(tmp_path / "intact.so", fatbin_container(fatbin_entry(CUBIN, 90))).read_bytes()
    (tmp_path / "cut.so").write_bytes(content[: len(content) // 2])
    os.mkfifo(tmp_path / "pipe")
    for name, reason in {
        "text": "it starts with b'hell", "empty": "empty", "nowhere": "No such file", "folder": "no compiled file",
        "cut.so": "truncated", "pipe": "not a regular file",
        "x-1-py3-none-any.whl": "it starts with b'PK",
    }.items():  # fmt: skip
        with pytest.raises(BadInput, match=re.escape(reason)):
            scan(tmp_path / name, "9.0")


def test_file_without_gpu_code_is_accepted(tmp_path: Path) -> None:
    path = compile_with_fatbin(tmp_path / "x.so", b"")
    report, code = scan(path, "9.0")
    assert (report.files, report.without_gpu_code, code) == ((), 1, 0)


def test_coverage_runs() -> None:
    assert not Coverage(capability="9.0", verdict="ptx", ptx=3, compiles=False).runs
    assert Coverage(capability="9.0", verdict="ptx", ptx=3).runs
    assert ScannedFile.__struct_config__.frozen


def cuobjdump_counts(program: Path, path: str) -> Counter[str] | None:
    """`ELF file 1: x.1.sm_80.cubin` as {"sm_80.cubin": 1}; None if cuobjdump fails."""
    done = subprocess.run([program, "--list-elf", "--list-ptx", path], capture_output=True, text=True, check=False)
    if "fatal" in done.stderr:  # "Invalid ELF" by 13.5 on three files of bitsandbytes that 12.8 reads
        return None
    return Counter(re.findall(r"\.(sm_\d+[af]?\.(?:cubin|ptx))", done.stdout))


def reader_counts(path: str) -> Counter[str]:
    code = read_object(Path(path))
    found: Counter[str] = Counter()
    for kinds, number in (code.containers if code else {}).items():
        for kind in kinds.split():
            found[kind.replace("compute", "sm") + (".ptx" if kind[0] == "c" else ".cubin")] += number
    return found


@pytest.mark.stack
def test_files_of_a_real_environment_agree_with_cuobjdump() -> None:
    """ENVDOCTOR_CUDA_PYTHON: the interpreter. ENVDOCTOR_CUOBJDUMP: a cuobjdump other than triton's.

    Two differences are bugs of cuobjdump and are ignored: it prints no "f" for a cubin (13.5 with code=sm_100f as
    well), and 12.8 prints `sm_50a` to `sm_61a`, which do not exist, for some cubins in libcublas.
    """
    interpreter = os.environ.get("ENVDOCTOR_CUDA_PYTHON")
    if not interpreter:
        pytest.skip("ENVDOCTOR_CUDA_PYTHON is not set to an interpreter with CUDA wheels")
    prefix = Path(interpreter).parent.parent
    tool = os.environ.get("ENVDOCTOR_CUOBJDUMP")
    bundled = prefix.glob("lib/python3.*/site-packages/triton/backends/nvidia/bin/cuobjdump")
    program = Path(tool) if tool else next(bundled)
    different, identical, compared, with_code, failed = [], 0, 0, 0, 0
    for path, file in read_compiled_files(prefix, None).files.items():
        if file.problem:
            continue
        actual, expected = reader_counts(path.full), cuobjdump_counts(program, path.full)
        if expected is None:
            failed += 1
            continue
        compared += 1
        with_code += bool(actual)
        identical += actual.keys() == expected.keys()
        if without_cuobjdump_bugs(actual) != without_cuobjdump_bugs(expected):
            different.append((path.path, dict(actual - expected), dict(expected - actual)))
    agreement = f"{identical} identical, {len(different)} different"
    print(f"{compared} files, {with_code} with GPU code: {agreement}; cuobjdump failed on {failed}")
    assert with_code > 20
    assert not different
    assert identical >= 0.98 * compared


def without_cuobjdump_bugs(names: Counter[str]) -> Counter[str]:
    """The names without the suffixes that cuobjdump omits or invents."""
    found: Counter[str] = Counter()
    for name, number in names.items():
        found[re.sub(r"f(?=\.cubin)|(?<=sm_[56]\d)a", "", name)] += number
    return found


def test_scan_for_given_capabilities_imports_no_rules(venv: Path) -> None:
    """The imports would take as long as a scan of a large environment with a warm cache."""
    code = "import sys\nfrom envdoctor.commands.archs import *\nrun(ArchsRequest(target=sys.argv[1], cc='9.0'))\n"
    code += "print([m for m in sys.modules if m.startswith(('envdoctor.rules', 'packaging', 'rich'))])"
    done = subprocess.run([sys.executable, "-c", code, venv], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
