"""The packages of an environment whose versions are certain, although some of its steps are not fully known."""

from __future__ import annotations

import re

from envdoctor.knowledge.images import is_bare_image
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import GuideTrace

# What conda installs with torch and Python before a solver reads the next step: Requires-Dist of torch, torchvision
# and torchaudio with their requirements, and conda's own packages. METADATA of torch 2.0.1 and 2.5.1, 2026-11-26.
FROM_CONDA = frozenset({
    "numpy", "pillow", "requests", "pyyaml", "typing-extensions", "filelock", "sympy", "mpmath", "networkx", "jinja2",
    "markupsafe", "fsspec", "urllib3", "certifi", "charset-normalizer", "idna", "triton", "gmpy2", "setuptools",
    "wheel", "pip", "six", "cffi", "pycparser", "mkl-fft", "mkl-random", "mkl-service", "brotli", "pysocks",
})  # fmt: skip
# conda packages whose requirements are all in FROM_CONDA, or are libraries without Python files.
_BASE = re.compile(
    r"python|pip|setuptools|wheel|numpy|torch\w*|pytorch(?:-cuda|-gpu|-cpu|-mutex)?|cpuonly|cuda\w*(?:-.*)?|cudnn|nvcc|mkl"
    r"|gcc\w*(?:-.*)?|gxx\w*(?:-.*)?|g\+\+|ffmpeg|cmake|ninja|git(?:-lfs)?|make|openssl|llvm-openmp|libstdcxx-ng|nodejs"
)


def is_conda_base(name: str) -> bool:
    """Whether all requirements of a conda package are known, or are libraries without Python files."""
    return bool(_BASE.fullmatch(name))


def certain_packages(trace: GuideTrace, state: EnvironmentState) -> frozenset[str]:
    """The packages that a solved step, or the text of a step, determines; later steps keep what is installed.

    After a step whose requirements are not all shown, the dependencies of further steps are not certain. A step of
    conda is one: pip keeps the dependencies that it has brought.
    """
    named = {name for name, package in state.packages.items() if not package.is_dependency}
    if state.image and not is_bare_image(state.image):
        return frozenset()
    found: set[str] = set()
    has_conda = False
    for install in trace.installs:
        if install.before.name != state.name or install.before.image != state.image:
            continue
        if install.action.tool == "conda":
            has_conda = True
            if not all(is_conda_base(each.name) for each in install.action.requirements):
                break
        elif install.resolution.state == "solved":
            found |= {name for name, package in install.resolution.packages.items() if package.is_dependency}
        else:
            break
    return frozenset(
        named | {name for name in found if name in state.packages} - (FROM_CONDA if has_conda else set())
    )
