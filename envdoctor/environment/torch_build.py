"""The build of the installed torch: version.py, symbols in libc10.so, GPU code in libtorch_cuda.so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from envdoctor.binaries.elf import ElfError, open_elf
from envdoctor.binaries.fatbin import sort_architectures
from envdoctor.core.files import read_file_text
from envdoctor.core.records import Fact, KernelCode, TorchBuild, absent, known, unreadable

# c10::detail::torchCheckFail, which TORCH_CHECK calls: in every torch since 1.8, with the old or the new std::string.
CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRK"
NEW_ABI_STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD_ABI_STRING = "Ss"


def read_torch_build(folder: Path, version: str, code: Mapping[str, KernelCode]) -> TorchBuild:
    """The build of the torch in a package directory. `code`: the GPU code of its libraries by file name."""
    file = folder / "torch/version.py"
    try:
        values = parse_version_file(read_file_text(file))
    except OSError as error:
        return TorchBuild(
            version=known(version, str(folder)),
            cuda=unreadable(str(file), error.strerror or str(error)),
            hip=unreadable(str(file), error.strerror or str(error)),
            cxx11_abi=_read_abi(folder / "torch/lib/libc10.so"),
            architectures=_architectures(folder, code),
        )
    return TorchBuild(
        version=known(values.get("__version__") or version, str(file)),
        cuda=_fact(values.get("cuda"), file),
        hip=_fact(values.get("hip"), file),
        cxx11_abi=_read_abi(folder / "torch/lib/libc10.so"),
        architectures=_architectures(folder, code),
    )


def parse_version_file(text: str) -> dict[str, str | None]:
    """Values of torch/version.py: `__version__ = '2.8.0+cu128'`, `cuda: Optional[str] = '12.8'`, `hip = None`."""
    lines = re.findall(r"^(\w+)(?::[^=\n]*)?\s*=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|None)\s*$", text, re.MULTILINE)
    return {name: single or double or None for name, single, double in lines}


def _fact(value: str | None, file: Path) -> Fact[str]:
    return known(value, str(file)) if value else absent(str(file))


def _read_abi(library: Path) -> Fact[bool]:
    """Whether torch's interface uses the std::string of the new C++ ABI."""
    try:
        with open_elf(library) as elf:
            for string, is_new in ((NEW_ABI_STRING, True), (OLD_ABI_STRING, False)):
                if elf.defines(CHECK_FAIL + string):
                    return known(is_new, f"{library}: torchCheckFail")
    except ElfError as error:
        return unreadable(str(library), str(error))
    return unreadable(str(library), "it does not define c10::detail::torchCheckFail")


def _architectures(folder: Path, code: Mapping[str, KernelCode]) -> Fact[tuple[str, ...]]:
    """Architectures that at least half of torch's fatbin containers have code for.

    A single kernel is not support: torch 2.8 has 393 containers with sm_70 to sm_120, but sm_90a in 4 and sm_89 in 1.
    """
    source = f"{folder}/torch/lib/libtorch_cuda.so"
    containers = [
        (names.split(), count)
        for name, kernel_code in code.items()
        if re.fullmatch(r"libtorch_(cuda|hip)(_cu|_cpp)?\.so", name)
        for names, count in kernel_code.containers.items()
    ]
    total = sum(count for _, count in containers)
    if not total:
        return absent(source)
    counts = {name: 0 for names, _ in containers for name in names}
    for names, count in containers:
        for name in names:
            counts[name] += count
    supported = sort_architectures({name for name, count in counts.items() if count * 2 >= total})
    partial = sort_architectures(set(counts) - set(supported))
    note = ", ".join(f"{name} in {counts[name]} of {total} containers" for name in partial)
    return known(supported, source, f"only some kernels: {note}" if note else "")
