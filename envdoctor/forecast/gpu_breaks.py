"""GPU code that a release no longer has for a GPU: by the tables for torch, else from files that are small enough."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envdoctor.binaries.elf import Elf, ElfError
from envdoctor.binaries.fatbin import read_kernel_code
from envdoctor.core.records import Evidence, KernelCode
from envdoctor.download.http_client import RequestFailed
from envdoctor.forecast.records import Break
from envdoctor.forecast.wheels import Pin, Wheels
from envdoctor.knowledge.architectures import Capability, runs_as_ptx, runs_native
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.kernel_files import MAIN_FILES
from envdoctor.knowledge.torch_builds import known_build
from envdoctor.knowledge.versions import minor_of, public_part
from envdoctor.package_index.remote_wheel import RemoteWheel

FILE_BYTES = 24 << 20  # of a compressed member; libraries of vLLM have hundreds
WHEEL_BYTES = 64 << 20
UNPACKED_BYTES = 256 << 20
PATTERNS = {**MAIN_FILES, "bitsandbytes": r"bitsandbytes/libbitsandbytes_cuda\d+\.so$"}


class GpuJudge:
    """Judges upgrades of packages with GPU code for one compute capability."""

    def __init__(self, wheels: Wheels, capability: Capability | None, architecture: str) -> None:
        self.wheels, self.capability, self.architecture = wheels, capability, architecture
        self._read: dict[Pin, dict[str, KernelCode | None] | None] = {}

    def judge(self, versions: Mapping[str, str], pin: Pin) -> Iterator[Break]:
        """The GPU code that the locked release has for the GPU, and the new one has not."""
        locked = Pin(pin.name, versions[pin.name])
        if self.capability is None or not (pin.name in PATTERNS or pin.name == "torch"):
            return
        before, after = self._runs(locked), self._runs(pin)
        name = f"sm_{self.capability[0]}{self.capability[1]}"
        if before is None or after is None:
            return
        if before[0] and not after[0]:
            yield Break(
                kind="gpu-code",
                package=pin.name,
                locked=locked.version,
                release=pin.version,
                day=self.wheels.day(pin),
                user=pin.name,
                message=f"has no code for {name}, which {locked} has",
                evidence=(before[1], after[1]),
            )

    def _runs(self, pin: Pin) -> tuple[bool, Evidence] | None:
        """Whether a release has code for the GPU, and the evidence; None if it is not known."""
        assert self.capability
        if pin.name == "torch":
            cuda = cuda_on_pypi(public_part(pin.version), self.architecture)
            build = known_build(minor_of(pin.version), cuda, self.architecture) if cuda else None
            if build is None:
                self.wheels.add_unread(str(pin), "the tables do not have the GPU code of this build")
                return None
            names = (*build.architectures, *build.ptx)
            shown = Evidence(f"GPU code of {pin}", " ".join(names), f"torch_builds.toml, CUDA {cuda}")
            return self._fits(build.architectures, build.ptx), shown
        if pin not in self._read:
            self._read[pin] = self._read_files(pin)
        files = self._read[pin]
        codes = {name: code for name, code in (files or {}).items() if code}
        if not codes:
            return None
        fits = {name: self._fits(code.native, code.ptx) for name, code in codes.items()}
        # bitsandbytes has one library for each CUDA version, and loads one of them.
        is_selective = pin.name == "bitsandbytes"
        result = any(fits.values()) if is_selective else all(fits.values())
        name = next((name for name, fit in fits.items() if fit == result), next(iter(fits)))
        shown = Evidence(f"GPU code of {pin}", " ".join((*codes[name].native, *codes[name].ptx)), name)
        return result, shown

    def _fits(self, native: tuple[str, ...], ptx: tuple[str, ...]) -> bool:
        assert self.capability
        return runs_native(native, self.capability) or runs_as_ptx(ptx, self.capability)

    def _read_files(self, pin: Pin) -> dict[str, KernelCode | None] | None:
        """The GPU code by file of a wheel; None if it could not be read."""
        file = self.wheels.fitting_wheel(pin)
        if file is None:
            return None
        try:
            wheel = RemoteWheel(self.wheels.client, file, limit=WHEEL_BYTES)
            paths = [path for path in wheel.members if re.search(PATTERNS[pin.name], path)]
            large = [path for path in paths if wheel.members[path].compress_size > FILE_BYTES]
            total = sum(wheel.members[path].compress_size for path in paths)
            if not paths or large or total > WHEEL_BYTES:
                size = f"{total >> 20} MiB to download" if paths else "no file with a known name"
                self.wheels.add_unread(str(pin), f"its GPU code was not read: {size}")
                return None
            wheel.request(paths)
            return {path: _kernel_code(wheel.read(path, limit=UNPACKED_BYTES)) for path in paths}
        except RequestFailed as failure:
            self.wheels.add_unread(str(pin), f"its GPU code: {failure.reason}", is_failed=True)
            return None


def _kernel_code(data: bytes) -> KernelCode | None:
    try:
        return read_kernel_code(Elf(data))
    except ElfError:
        return None
