"""Parser for the JetPack and L4T releases of a Jetson, which give its kernel."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.section import Line, Section

# Kernels of L4T and of the JetPack that contains it: docs.nvidia.com/jetson/archives (read on 2026-11-28).
KERNELS_OF_L4T = {"32": "4.9-tegra", "34": "5.10-tegra", "35": "5.10-tegra", "36": "5.15-tegra", "38": "6.8-tegra"}
KERNELS_OF_JETPACK = {"4": "4.9-tegra", "5": "5.10-tegra", "6": "5.15-tegra", "7": "6.8-tegra"}
KEYS_OF_L4T = frozenset({"l4t", "l4t version", "l4t release"})
KEYS_OF_JETPACK = frozenset({"jetpack", "jetpack version", "jetpack release"})
RELEASE_FILE = lazy_pattern(r"# R(\d{2}) \(release\), REVISION: \d")  # of /etc/nv_tegra_release
L4T = lazy_pattern(r"(?:L4T )?R?(\d{2})(?:\.\d|\s|$)")
JETPACK = lazy_pattern(r"(?:JetPack )?v?(\d)(?:\.\d|\s|$)", re.IGNORECASE)

IN_A_SENTENCE = lazy_pattern(r"(?i)\b(?:on|with|using|for|and|my|have|has|is) jetpack[ v]{1,2}(\d)\.\d(?:\.\d)?\b")


def parse_jetson(lines: list[Line]) -> Section | None:
    """Parse entries such as `L4T Release: R35.4.1` and `JetPack: 6.2`, and the file /etc/nv_tegra_release."""
    section = Section("JetPack")
    kernels = set()
    for line in lines:
        kernel = _kernel(line)
        if kernel:
            kernels.add(kernel)
            section.consumed.add(line.number)
    kernels = kernels or {
        KERNELS_OF_JETPACK.get(match[1], "") for line in lines for match in IN_A_SENTENCE.finditer(line.text[:400])
    } - {""}
    if len(kernels) != 1:  # none, or a comparison
        return None
    section.set_fact("system.kernel", kernels.pop(), "by the release of JetPack or L4T")
    section.set_fact("system.architecture", "aarch64")
    return section


def _kernel(line: Line) -> str:
    if match := RELEASE_FILE.match(line.text):
        return KERNELS_OF_L4T.get(match[1], "")
    if line.key in KEYS_OF_L4T and (match := L4T.match(line.value)):
        return KERNELS_OF_L4T.get(match[1], "")
    if line.key in KEYS_OF_JETPACK and (match := JETPACK.match(line.value)):
        return KERNELS_OF_JETPACK.get(match[1], "")
    return ""
