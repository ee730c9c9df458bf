"""The build of torch that fits the machine of a guide: its driver and its GPUs."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.core.records import Machine
from envdoctor.knowledge.architectures import Capability, capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import oldest_driver
from envdoctor.knowledge.gpus import compute_capability
from envdoctor.knowledge.torch_builds import KnownBuild, known_builds, torch_releases
from envdoctor.knowledge.versions import dotted_numbers, major_minor, minor_of
from envdoctor.manifests.guide import Guide
from envdoctor.resolution.torch_sources import torch_has_build


class BuildTarget(NamedTuple):
    """What decides which build of torch runs: empty fields are unknown, and exclude no build."""

    platform: str
    driver: str = ""
    capabilities: tuple[Capability, ...] = ()

    def __str__(self) -> str:
        """The driver and the GPUs in words."""
        gpus = " and ".join(f"{major}.{minor}" for major, minor in self.capabilities)
        parts = [f"driver {self.driver}" if self.driver else "", f"compute capability {gpus}" if gpus else ""]
        return " and ".join(part for part in parts if part)

    def runs(self, build: KnownBuild) -> bool:
        """Whether the driver supports the CUDA version of a build, and the build has code for the GPUs."""
        if not self._supports(build.cuda):
            return False
        return all(runs_native(build.architectures, gpu) or runs_as_ptx(build.ptx, gpu) for gpu in self.capabilities)

    def _supports(self, cuda: str) -> bool:
        """Whether the driver supports a CUDA version; an unknown driver supports all."""
        driver, oldest = dotted_numbers(self.driver), oldest_driver(cuda)
        return not driver or driver >= oldest[: len(driver)]

    def fitting_cuda(self, version: str, cuda: str) -> str:
        """The CUDA version of the build to use of a release: `cuda` if it fits, else the newest; empty without one.

        A release that is not in the table keeps its build.
        """
        builds = self._builds(minor_of(version))
        if not builds or not str(self):
            return cuda
        if cuda != "cpu" and torch_has_build(version, cuda, self.platform) is None and self._supports(cuda):
            return cuda  # a build that the table does not have: its GPUs are unknown
        fitting = [build.cuda for build in builds if self.runs(build)]
        return cuda if cuda in fitting else max(fitting, key=major_minor, default="")

    def older_releases(self, version: str) -> list[str]:
        """The releases with a fitting build that are older than `version`, newest first: one for each line."""
        lines = list(torch_releases().values())
        older = [row for row in lines if dotted_numbers(row.torch) < dotted_numbers(minor_of(version))]
        fitting = [row.latest for row in older if any(map(self.runs, self._builds(row.torch)))]
        return sorted(fitting, key=dotted_numbers, reverse=True)

    def _builds(self, torch: str) -> list[KnownBuild]:
        return [row for row in known_builds() if row.torch == torch and row.platform == self.platform]


def target_of(guide: Guide, machine: Machine | None, platform: str, driver: str) -> BuildTarget:
    """The target of a guide: the GPUs of the machine, else the one that the guide names."""
    gpus = (machine.gpus.value or ()) if machine else ()
    capabilities = tuple(dict.fromkeys(each for gpu in gpus if (each := capability_of(gpu))))
    stated = compute_capability(guide.stated_machine.gpu) if guide.stated_machine.gpu and not machine else None
    return BuildTarget(platform, driver, capabilities or ((major_minor(stated),) if stated else ()))
