"""Extensions that setup.py compiles for fixed GPU architectures: RUN294 and RUN295."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests.gpu_code import GpuCode, gpu_code_of_setup
from envdoctor.resolution.step import NoSolver

IMPORT = "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n"
END = "setup(name='ops', ext_modules=[CUDAExtension('ops', [], extra_compile_args={'nvcc': FLAGS})])\n"
SM_80, SM_90 = "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"
SETUPS = {
    "two": (f"FLAGS = ['{SM_80}', '{SM_90}']", GpuCode(("sm_80", "sm_90"), 2, ("compute_80", "compute_90"))),
    "split": ("FLAGS = ['-gencode', 'arch=compute_75,code=sm_75']", GpuCode(("sm_75",), 2, ("compute_75",))),
    "PTX": (r"FLAGS = ['arch=compute_80,code=\"sm_80,compute_80\"']",
            GpuCode(("sm_80", "compute_80"), 2, ("compute_80",))),
    "-arch": ("FLAGS = ['-arch=sm_86']", GpuCode(("sm_86", "compute_86"), 2, ("compute_86",))),
    "conditional": (f"FLAGS = []\nif NEW:\n    FLAGS += ['{SM_80}']", GpuCode(("sm_80",), 4)),
    "function": (f"def flags():\n    return ['{SM_80}']\nFLAGS = flags()", GpuCode(("sm_80",), 3, ("compute_80",))),
    "unused function": (f"def flags():\n    return ['{SM_80}']\nFLAGS = []", GpuCode(("sm_80",), 3)),
    "none": ("FLAGS = ['-O3']", None),
    "of a variable": (f"FLAGS = ['{SM_80}']\nos.environ.get('TORCH_CUDA_ARCH_LIST')", None),
    "computed": (f"FLAGS = ['{SM_80}', f'-gencode=arch=compute_{{ARCH}},code=sm_{{ARCH}}']", None),
    "added": (f"FLAGS = ['{SM_80}', '-gencode=arch=compute_' + ARCH]", None),
}  # fmt: skip


@each_case("name", [*SETUPS])
def test_the_code_of_a_setup(name: str) -> None:
    text, expected = SETUPS[name]
    assert gpu_code_of_setup(f"{IMPORT}{text}\n{END}") == expected


def audited(tmp_path: Path, flags: str, *steps: str, text: str = "") -> list[tuple[str, str]]:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "setup.py").write_text(f"from setuptools import setup\n{IMPORT}FLAGS = {flags.split()}\n{END}")
    guide = tmp_path / "README.md"
    guide.write_text("\n".join(["# Ops", "", text, "", "```sh", *steps, "```", ""]))
    found = audit_text(guide.read_text(), str(guide), None, NoSolver()).result.findings
    return [(each.id, each.status) for each in found if each.id in ("RUN294", "RUN295")]


@each_case(
    "flags, steps, expected",
    [
        (SM_80, ("pip install torch==2.8.0",), [("RUN295", "warning")]),
        (SM_80, ("pip install torch==1.13.1",), []),  # RUN240: torch itself has no code for H100
        (SM_80, ("pip install numpy",), [("RUN295", "warning")]),
        (f"{SM_80} {SM_90}", ("pip install torch==2.8.0",), []),
        ("-arch=sm_80", ("pip install torch==2.8.0",), []),  # with PTX
        ("-arch=sm_70", ("pip install torch==2.11.0",), [("RUN294", "error")]),
        ("-arch=sm_70", ("pip install torch==2.8.0",), []),
        ("-arch=sm_35", ("pip install torch==2.8.0",), [("RUN294", "error")]),
    ],
)  # fmt: skip
def test_a_project_on_disk(tmp_path: Path, flags: str, steps: tuple[str, ...], expected: list[object]) -> None:
    assert audited(tmp_path, flags, *steps, "python setup.py install") == expected


def test_the_gpu_that_a_guide_names(tmp_path: Path) -> None:
    steps = ("pip install torch==2.8.0", "python setup.py install")
    assert audited(tmp_path, SM_80, *steps, text="# On A100") == []
    assert audited(tmp_path, SM_80, *steps, text="# On H100") == [("RUN295", "warning")]
