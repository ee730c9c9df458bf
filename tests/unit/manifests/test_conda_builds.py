"""The builds of PyTorch that conda selects."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

CHANNELS = "-c pytorch -c nvidia"
STEPS: dict[str, tuple[str, bool]] = {
    "an open release": (f"conda install pytorch pytorch-cuda=11.7 {CHANNELS}", True),
    "a lower bound": (f"conda install 'pytorch>=1.13' torchvision pytorch-cuda=11.7 {CHANNELS}", True),
    "a release": (f"conda install pytorch==2.0.1 pytorch-cuda=11.7 {CHANNELS}", False),
    "a series": (f"conda install pytorch=1.13 torchvision pytorch-cuda=11.7 {CHANNELS}", False),
    "an upper bound": (f"conda install 'pytorch>=1.13,<2.1' pytorch-cuda=11.7 {CHANNELS}", False),
    "a CUDA of the newest release": (f"conda install pytorch pytorch-cuda=12.1 {CHANNELS}", False),
    "an old CUDA of the newest release": (f"conda install pytorch pytorch-cuda=11.8 {CHANNELS}", False),
    "a build": (f"conda install 'pytorch=*=*cuda11.7*' torchvision=0.15.2 pytorch-cuda=11.7 {CHANNELS} numpy", False),
    "any CUDA from one on": (f"conda install pytorch 'pytorch-cuda>=11.7' {CHANNELS}", False),
    "conda-forge": ("conda install pytorch pytorch-cuda=11.7 -c conda-forge -c pytorch -c nvidia", False),
    "without the selector": (f"conda install pytorch {CHANNELS}", False),
}


@each_case("name", [*STEPS])
def test_conda_selects_a_cpu_build(name: str) -> None:
    step, is_reported = STEPS[name]
    text = sh("conda create -n x python=3.10 -y", "conda activate x", step)
    result = audit_text(text, "SETUP.md", None, NoSolver()).result
    assert [each.line for each in result.findings if each.id == "RUN189"] == ([5] if is_reported else [])
