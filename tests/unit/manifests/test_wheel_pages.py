"""Pages of wheels that are compiled for another torch than the one of the environment."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text

DETECTRON = "https://dl.fbaipublicfiles.com/detectron2/wheels/cu101/torch1.7/index.html"
PYG = "https://data.pyg.org/whl/torch-2.1.0+cu118.html"
MMCV = "https://download.openmmlab.com/mmcv/dist/cu113/torch1.10/index.html"
PYTORCH3D = "https://dl.fbaipublicfiles.com/pytorch3d/packaging/wheels/py38_cu113_pyt1100/download.html"
FOUND: dict[str, tuple[tuple[str, ...], str]] = {  # commands, and the status
    "detectron2": (("pip install torch==1.8.1", f"pip install detectron2 -f {DETECTRON}"), "error"),
    "a pinned build": (("pip install torch==2.3.1", f"pip install torch-scatter==2.1.2 -f {PYG}"), "error"),
    "an open release": (("pip install torch==2.3.1", f"pip install torch_sparse -f {PYG}"), "warning"),
    "mmcv": (("pip install torch==1.12.1", f"pip install mmcv-full==1.6.0 -f {MMCV}"), "error"),
    "an option of uv": (("pip install torch==2.3.1", f"uv pip install pyg_lib==0.4.0 --find-links {PYG}"), "error"),
    "PyTorch3D": (("pip install torch==1.9.1", f"pip install pytorch3d --no-index -f {PYTORCH3D}"), "error"),
    "a later torch": ((f"pip install torch==2.1.0 dgl==1.0 -f {PYG}", "pip install torch==2.4.0"), "error"),
}
SOUND: dict[str, tuple[str, ...]] = {
    "the same torch": ("pip install torch==2.1.0", f"pip install torch-scatter==2.1.2 -f {PYG}"),
    "a later patch release": ("pip install torch==2.1.2", f"pip install torch-scatter==2.1.2 -f {PYG}"),
    "a package without compiled code": ("pip install torch==2.3.1", f"pip install torch-geometric -f {PYG}"),
    "no torch": ("pip install numpy==1.26.4 trl==0.9.6 --no-deps", f"pip install torch-scatter==2.1.2 -f {PYG}"),
    "an index of torch": (
        "pip install torch==2.3.1 --index-url https://download.pytorch.org/whl/cu118", "pip install detectron2",
    ),
    "a variable": (
        "pip install torch==2.3.1", "pip install torch-scatter -f https://data.pyg.org/whl/torch-${TORCH}+${CUDA}.html",
    ),
    "an address of the reader": (
        "pip install torch==2.3.1", "# Replace 2.1.0 with your version of PyTorch",
        f"pip install torch-scatter==2.1.2 -f {PYG}",
    ),
    "a torch that the wheels run with": (
        "pip install torch==2.5.1", "pip install flashinfer -i https://flashinfer.ai/whl/cu121/torch2.4/",
    ),
    "PyTorch3D for the same torch": ("pip install torch==1.10.2", f"pip install pytorch3d -f {PYTORCH3D}"),
}  # fmt: skip


def _statuses(*commands: str) -> list[tuple[str, int]]:
    found = audit_text(sh(*commands), "README.md", None, None).result.findings
    return [(each.status, each.line) for each in found if each.id == "RUN251"]


@each_case("name", [*FOUND])
def test_a_page_for_another_torch(name: str) -> None:
    commands, status = FOUND[name]
    line = 3 + next(index for index, each in enumerate(commands) if "http" in each)
    assert _statuses(*commands) == [(status, line)]


@each_case("name", [*SOUND])
def test_a_page_for_the_torch_of_the_environment(name: str) -> None:
    assert not _statuses(*SOUND[name])
