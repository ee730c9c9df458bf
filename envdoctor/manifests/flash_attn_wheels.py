"""Wheels of the flash-attn releases on GitHub."""

from __future__ import annotations

from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import TorchPairing, torch_pairings
from envdoctor.knowledge.versions import minor_of, satisfies
from envdoctor.resolution.resolver import ResolvedPackage

NEWEST = "2.8.3"  # the release whose assets were read one by one, 2026-11-21
# python_requires of setup.py, and cuda-version of .github/workflows/publish.yml at the tags, 2026-11-29.
_WITHOUT_PYTHON_38 = "2.7.1"
_WITHOUT_CUDA_11 = "2.7.4"


def has_release_wheel(version: str, torch: str, python: str, platform: str, abi: str = "") -> bool | None:
    """Whether a release has a wheel for torch ("2.8"), Python, CPU architecture and C++ ABI ("TRUE").

    None if that is not known. Wheels of v2.8.3 for x86_64: torch 2.4 to 2.8, both ABIs, Python 3.9 to 3.12 (3.13 from
    torch 2.5). For x86_64 and aarch64: torch 2.9, Python 3.12, ABI TRUE.
    """
    if not torch or not version:
        return None
    row = _pairing(version)
    if row and satisfies(torch, row.torch) is False:
        return False
    if minor_of(version) != "2.8" or satisfies(version, f"<{NEWEST}"):
        return False if platform == "aarch64" else None if row is None else True
    if minor_of(torch) == "2.9":
        return (not python or python == "3.12") and abi != "FALSE"
    if platform == "aarch64":
        return False
    newest_minor = 12 if minor_of(torch) == "2.4" else 13
    return not python or (9 <= int(python.partition(".")[2] or 0) <= newest_minor)


def release_with_wheel(torch: str, cuda: str, python: str, platform: str) -> str:
    """The newest release that has a wheel for torch, its CUDA version ("11.8") and Python; empty if there is none."""
    limits = [_WITHOUT_PYTHON_38] if python and satisfies(python, "<3.9") else []
    limits += [_WITHOUT_CUDA_11] if cuda.startswith("11.") else []
    versions = (row.version for row in published_releases("flash-attn"))
    fitting = (each for each in versions if all(satisfies(each, f"<{limit}") for limit in limits))
    return next((each for each in fitting if has_release_wheel(each, torch, python, platform)), "")


def without_compiling(torch: ResolvedPackage, python: str, platform: str) -> str:
    """The fix of a guide whose flash-attn has no wheel: a release that has one, or another torch."""
    release = release_with_wheel(minor_of(torch.version), torch.cuda, python, platform)
    other = f"flash-attn=={release}, which has one" if release else "a torch release with a wheel"
    return f'Omit it (attn_implementation="sdpa"; vLLM contains its own copy), or use {other}.'


def torch_of_wheels(version: str) -> tuple[str, str, str]:
    """The torch releases that a release has wheels for, with source and date."""
    row = _pairing(version)
    if row is None or satisfies(version, f">={NEWEST}"):
        return (
            "2.4 to 2.8, few for 2.9",
            "assets of https://github.com/Dao-AILab/flash-attention/releases",
            "2026-11-21",
        )
    return row.torch, row.source, row.date


def _pairing(version: str) -> TorchPairing | None:
    rows = torch_pairings("flash-attn")
    return next((row for row in rows if satisfies(version, row.versions)), None)
