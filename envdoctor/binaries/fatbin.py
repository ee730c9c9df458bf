"""GPU code inside a compiled file: architectures of every fatbin container, read from its headers.

The ELF section `.nv_fatbin` is a sequence of containers. Header, `<IHHQ`: magic 0xBA55ED50, version, header size,
payload size. The payload is a sequence of entries: +0x00 kind u16 (1 PTX, 2 cubin), +0x04 header size u32, +0x08
payload size u64, +0x18 and +0x1A minor and major of the PTX ISA, +0x1C architecture u32, +0x28 flags u64. Headers of
compressed entries are readable. NVIDIA does not document the format. It was derived from files of `fatbinary` 12.8 to
13.5 and agrees with `cuobjdump --list-elf --list-ptx` on the wheels of torch, vLLM, xformers and bitsandbytes.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from envdoctor.binaries.elf import Buffer, Elf
from envdoctor.core.records import KernelCode

MAGIC = struct.pack("<I", 0xBA55ED50)
MAX_HEADERS = 1 << 17  # of one file; libtorch_cuda.so of torch 2.11 has 4,000
CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQ")
PTX, CUBIN = 1, 2
# sm_90a runs on exactly that GPU, sm_100f on its family. These are the bits that nvcc 13.5 sets.
ARCHITECTURE_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000

Code = tuple[str, int, int]  # "sm_90a" or "compute_80", and for PTX its ISA's major and minor


def read_kernel_code(elf: Elf) -> KernelCode | None:
    """GPU code of a compiled file; None if it has none."""
    return summarise(list(read_containers(elf)))


def read_containers(elf: Elf) -> Iterator[tuple[Code, ...]]:
    """The code in each container of a compiled file.

    `__nv_relfatbin` is ignored in linked files: its relocatable code is also in `.nv_fatbin`.
    """
    for name in (".nv_fatbin", "__nv_relfatbin") if elf.is_relocatable else (".nv_fatbin",):
        if found := elf.section(name):
            if isinstance(elf.data, mmap.mmap):
                elf.data.madvise(mmap.MADV_RANDOM)  # headers are megabytes apart: prevent read-ahead
            yield from scan_containers(elf.data, *found)


def scan_containers(data: Buffer, offset: int, size: int) -> Iterator[tuple[Code, ...]]:
    """The code in each container of a fatbin section."""
    end = min(offset + size, len(data))
    remaining = MAX_HEADERS
    while remaining > 0:
        offset = data.find(MAGIC, offset, end)  # containers are padded to 8 bytes
        if offset < 0 or offset + CONTAINER.size > end:
            return
        _, _, header, length = CONTAINER.unpack_from(data, offset)
        start = offset + max(header, CONTAINER.size)
        offset = min(start + length, end)
        codes = tuple(islice(_scan_entries(data, start, offset), remaining))
        remaining -= 1 + len(codes)
        yield codes


def _scan_entries(data: Buffer, offset: int, end: int) -> Iterator[Code]:
    while offset + 0x30 <= end:
        kind, _, header, length = ENTRY.unpack_from(data, offset)
        minor, major, architecture = struct.unpack_from("<HHI", data, offset + 0x18)
        flags = struct.unpack_from("<Q", data, offset + 0x28)[0]
        if kind in (PTX, CUBIN):
            suffix = "a" if flags & ARCHITECTURE_SPECIFIC else "f" if flags & FAMILY_SPECIFIC else ""
            prefix = "compute" if kind == PTX else "sm"
            yield f"{prefix}_{architecture}{suffix}", *((major, minor) if kind == PTX else (0, 0))
        if header < 0x30:
            return
        offset += header + length


def summarise(containers: list[tuple[Code, ...]]) -> KernelCode | None:
    """Summarise all containers of one file; None if all are empty."""
    counts = Counter(
        " ".join(sort_architectures({name for name, _, _ in container})) for container in containers if container
    )
    if not counts:
        return None
    names = {name for container in containers for name, _, _ in container}
    isa = max((major, minor) for container in containers for _, major, minor in container)
    return KernelCode(
        native=sort_architectures({name for name in names if name.startswith("sm_")}),
        ptx=sort_architectures({name for name in names if name.startswith("compute_")}),
        ptx_isa=f"{isa[0]}.{isa[1]}" if isa > (0, 0) else "",
        ptx_only=any("sm_" not in key for key in counts),
        containers=dict(counts.most_common()),
    )


def sort_architectures(names: set[str]) -> tuple[str, ...]:
    """Native code first, then by number: sm_80 sm_90a sm_100 compute_90."""
    return tuple(sorted(names, key=lambda name: (name[0] == "c", int(re.sub(r"\D", "", name)), name)))
