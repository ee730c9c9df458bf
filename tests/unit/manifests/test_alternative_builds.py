"""Commands of one block that install torch for one machine each are alternatives, and an installed torch is kept."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.resolved_guides import audit, found

from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.manifests.guide import parse_guide, parse_paths

PYTORCH = "https://download.pytorch.org/whl"
CU118 = f"pip install torch --index-url {PYTORCH}/cu118"
CU121 = f"pip install torch torchvision --index-url {PYTORCH}/cu121"
NIGHTLY = f"pip3 install --pre torch torchvision --index-url {PYTORCH}/nightly/cu128"
PAGE = f"-f {PYTORCH}/torch_stable.html"
NIGHTLY_AUDIO = f"pip install --pre torchaudio --index-url {PYTORCH}/nightly/cu128"
CPU = f"pip install torch --index-url {PYTORCH}/cpu"
LAST = "pip install -r requirements.txt"

ALTERNATIVES = {
    "comments with CUDA versions": (("# CUDA 11.8 (RTX 30xx)", CU118, "", "# CUDA 12.1", CU121, LAST), 2),
    "a companion in a command of its own": (
        ("# CUDA 11.8", CU118, "# RTX 50", NIGHTLY, NIGHTLY_AUDIO, "", "# CPU only", CPU),
        3,
    ),
    "comments behind the commands": ((f"{CU118}  # older GPUs", f"{CU121}  # newer GPUs"), 2),
    "PyPI for the GPU": (("# GPU", "pip install torch torchvision", "# CPU only", CPU), 2),
    "options of uv": (("uv pip install torch --torch-backend=cu128", "uv pip install torch --torch-backend=cpu"), 2),
    "a command over two rows": ((CU118.replace(" --index", " \\\n  --index"), "# CUDA 12.1", CU121), 2),
    "builds in the versions": (
        ("# CUDA 11.1", f"pip --default-timeout=9 install torch==1.8.0+cu111 {PAGE}", "# CUDA 10.2",
         "pip install torch==1.8.0", "# CPU only", f"pip install torch==1.8.0+cpu torchvision==0.9.0+cpu {PAGE}"),
        3,
    ),
    "extras of a project": (("uv sync --extra gpu  # NVIDIA", "uv sync --extra cpu  # (or) MPS", "uv run train"), 2),
    "extras that name no machine": (("uv sync --extra gpu", "uv sync --extra gpu --extra docs", "uv sync"), 1),
    "a step between them": ((CU118, LAST, CU121), 1),
    "the same build": ((CU118, CU118.replace("torch", "torch torchvision")), 1),
    "torch, and then what needs it": (("# PyTorch", CU118, "# the rest", "pip install transformers"), 1),
    "an upgrade of a named torch": (("# first", "pip install torch==2.4.0", "# then", "pip install torch==2.5.1"), 1),
}  # fmt: skip


@each_case("name", list(ALTERNATIVES))
def test_a_block_has_one_command_for_each_build(name: str) -> None:
    commands, count = ALTERNATIVES[name]
    text = sh(*commands)
    paths = parse_paths(parse_guide(text, "guide.md"), text, "guide.md")
    assert len(paths) == count


def test_builds_for_other_machines_replace_nothing(solver: UvStepSolver, tmp_path: Path) -> None:
    text = sh("# CUDA 11.8", CU118, "", "# CUDA 12.1", CU121, "", "# CPU only", CPU)
    assert found(audit(tmp_path, text, solver), "RUN010") == []


def test_an_installed_torch_stays_where_an_index_has_older_ones_only(solver: UvStepSolver, tmp_path: Path) -> None:
    """`pip install torch` does nothing where a torch is installed, whatever index it names (pip 26.3, uv 0.13.9)."""
    for later in (CU118, "uv pip install torch --torch-backend=cu118"):
        assert found(audit(tmp_path, sh("pip install torch", later), solver), "RUN010") == [], later
    pinned = CU118.replace("torch", "torch==2.4.1", 1)
    assert found(audit(tmp_path, sh("pip install torch==2.8.0", pinned), solver), "RUN010")


def test_sections_of_releases_of_torch_are_alternatives() -> None:
    text = "".join(sh(f"pip install torch=={each}", title=f"## v{each}\n\n### Linux") for each in ("1.8.0", "1.7.1"))
    assert len(parse_paths(parse_guide(text, "guide.md"), text, "guide.md")) == 2
    steps = text.replace("## v1.8.0", "## 1. PyTorch").replace("## v1.7.1", "## 2. Others")
    assert len(parse_paths(parse_guide(steps, "guide.md"), steps, "guide.md")) == 1
