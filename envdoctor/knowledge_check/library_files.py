"""Compares the native libraries that wheels contain or require with the tables: bitsandbytes, NVIDIA's for torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.http_client import HttpClient
from envdoctor.environment.markers import Markers
from envdoctor.knowledge_check.records import Drift
from envdoctor.package_index.remote_wheel import RemoteWheel
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.wheel_metadata import Metadata

_BITSANDBYTES = lazy_pattern(r"bitsandbytes/libbitsandbytes_cuda(\d+)(\d)\.so")
_NVIDIA = lazy_pattern(r"(nvidia-[\w-]+|cuda-toolkit)(?:\[[^\]]*\])?\s*\(?(==[\w.]+)")


def read_cuda_versions(client: HttpClient, file: File) -> tuple[str, ...]:
    """The CUDA versions of the libraries in a wheel of bitsandbytes, by its list of members. Raises RequestFailed."""
    found = filter(None, map(_BITSANDBYTES.fullmatch, RemoteWheel(client, file).members))
    return tuple(sorted({f"{match[1]}.{match[2]}" for match in found}))


def compare_cuda_versions(
    version: str, expected: Iterable[str], observed: Iterable[str], file: File
) -> Iterator[Drift]:
    """Compare the CUDA versions of one release."""
    table, wheel = " ".join(sorted(expected)), " ".join(sorted(observed))
    if table != wheel:
        yield Drift(f"bitsandbytes {version}", "CUDA libraries", table, wheel or "none", file.name)


def compare_torch_libraries(version: str, expected: Iterable[str], metadata: Metadata) -> Iterator[Drift]:
    """Compare NVIDIA's packages in the requirements of a torch wheel for Linux on x86_64."""
    lines = Markers("3.12", "x86_64").applicable(metadata.requires)
    observed = {match[1] + match[2] for line in lines if (match := _NVIDIA.match(line))}
    for library in sorted(set(expected) ^ observed):
        states = ("required", "not required") if library in observed else ("not required", "required")
        yield Drift(f"torch {version}", library, states[1], states[0], metadata.file)
