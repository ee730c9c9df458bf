"""The packages of an environment whose versions are certain, although some of its steps are not fully known."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.images import is_bare_image
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.resolution.requirement import InstallRequirement

# What conda installs with torch and Python before a solver reads the next step: Requires-Dist of torch, torchvision
# and torchaudio with their requirements, and conda's own packages. METADATA of torch 2.0.1 and 2.5.1, 2026-11-26.
FROM_CONDA = frozenset({
    "numpy", "pillow", "requests", "pyyaml", "typing-extensions", "filelock", "sympy", "mpmath", "networkx", "jinja2",
    "markupsafe", "fsspec", "urllib3", "certifi", "charset-normalizer", "idna", "triton", "gmpy2", "setuptools",
    "wheel", "pip", "six", "cffi", "pycparser", "mkl-fft", "mkl-random", "mkl-service", "brotli", "pysocks",
})  # fmt: skip
_WITH_BUILD = lazy_pattern(r"[\w.-]+=[^=\s]+=[\w.*]+$")
# conda packages whose requirements are all in FROM_CONDA, or are libraries without Python files.
_BASE = lazy_pattern(
    r"python|pip|setuptools|wheel|numpy|torch\w*|pytorch(?:-cuda|-gpu|-cpu|-mutex)?|cpuonly|cuda\w*(?:-.*)?|cudnn|nvcc|mkl"
    r"|gcc\w*(?:-.*)?|gxx\w*(?:-.*)?|g\+\+|ffmpeg|cmake|ninja|git(?:-lfs)?|make|openssl|llvm-openmp|libstdcxx-ng|nodejs"
)
# Libraries of the system in the channels of conda, which have no Python files: lists of `conda env export` with
# their recipes on conda-forge, 2026-11-28. Python projects whose name also starts with lib are not among them.
_SYSTEM = lazy_pattern(
    r"-?_?lib(?:gcc|openmp)-mutex|_?openmp-mutex|ld-impl-linux-64|ca-certificates|certifi|bzip2|ncurses|readline|sqlite"
    r"|tk|tzdata|xz|zlib(?:-ng)?|zstd|lz4-c|zeromq|icu|jpeg|openjpeg|giflib|lerc|lcms2?|lame|freetype|fontconfig|expat"
    r"|gettext|glib(?:-tools)?|gst-plugins-\w+|gstreamer|cairo|pixman|harfbuzz|graphite2|dbus|krb5|gmp|mpfr|mpc|nettle"
    r"|gnutls|openh264|x26[45]|aom|svt-av1|dav1d|nspr|nss|pcre2?|qt(?:-main|-webengine)?|mysql(?:-common|-libs)?|blas"
    r"|openblas|intel-openmp|tbb|fftw|eigen|hdf5|yaml|yaml-cpp|python-abi|attr|keyutils|alsa-lib|perl|xorg-[\w-]+"
    r"|openjdk|curl|wget|unzip|p7zip|aria2|rust|swig"
    r"|libstdcxx(?:-ng)?|lib(?!(?:rosa|cst|sass|archive-c|mambapy|tmux|pysal|linear|svm|usb1|torrent|clang)$)[a-z0-9+_-]+"
)


def is_conda_base(name: str) -> bool:
    """Whether all requirements of a conda package are known, or are libraries without Python files."""
    return bool(_BASE.fullmatch(name) or _SYSTEM.fullmatch(name))


def is_full_export(requirements: Sequence[InstallRequirement]) -> bool:
    """Whether packages of conda are a list of `conda env export`, which has all that is installed.

    Each has a build: `sqlite=3.39.2=h5082296_0`.
    """
    return bool(requirements) and all(_WITH_BUILD.match(each.text) for each in requirements)


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
            requirements = install.action.requirements
            if not is_full_export(requirements) and not all(is_conda_base(each.name) for each in requirements):
                break
        elif install.resolution.state == "solved":
            found |= {name for name, package in install.resolution.packages.items() if package.is_dependency}
        else:
            break
    return frozenset(
        named | {name for name in found if name in state.packages} - (FROM_CONDA if has_conda else set())
    )
