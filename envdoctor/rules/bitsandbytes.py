"""The release of bitsandbytes whose native libraries fit a build of torch."""

from __future__ import annotations

from envdoctor.core.records import Machine, Stack
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import bitsandbytes_libraries, required_specifier
from envdoctor.knowledge.versions import minor_of, public_part, satisfies
from envdoctor.rules.torch_install import platform_of


def bitsandbytes_release(machine: Machine, stack: Stack, torch: str, cuda: str) -> str:
    """The newest bitsandbytes with a native library for a CUDA version, for this torch and Python; empty if none."""
    for row in reversed(bitsandbytes_libraries()):
        for version in reversed(row.versions):
            published = find_release("bitsandbytes", version)
            usable = published is None or published.has_wheel(
                platform_of(machine), minor_of(stack.python_version.value or ""), machine.system.glibc.value or ""
            )
            accepts = satisfies(torch, required_specifier("bitsandbytes", version, "torch") or ">=0")
            if usable and accepts and loads_cuda(version, cuda, row.x86_64):
                return version
    return ""


def loads_cuda(bitsandbytes: str, cuda: str, available: tuple[str, ...], *, forced: bool = False) -> bool:
    """Whether a release of bitsandbytes with these native libraries loads one for a CUDA version of torch."""
    same_major = satisfies(public_part(bitsandbytes), ">=0.50") and not forced
    return cuda in available or (
        bool(same_major) and cuda.partition(".")[0] in {x.partition(".")[0] for x in available}
    )
