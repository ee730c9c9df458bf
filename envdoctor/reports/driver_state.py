"""Parser for what Linux tools print about the NVIDIA driver: lsmod, modinfo, dkms, dpkg, lspci -k and file names."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.preprocess import extract_command
from envdoctor.reports.section import Line, Section

VERSION = r"(\d{3}\.\d{2,3}(?:\.\d{2})?)"
# Versions of the installed libraries: packages of Debian and Ubuntu, rpm, and names of files.
LIBRARY = lazy_pattern(
    rf"^ii\s+(?:libnvidia-compute|nvidia-utils|libcuda1|libnvidia-ml)\S*\s+{VERSION}"
    rf"|\b(?:nvidia-driver-cuda-libs|nvidia-driver-libs|xorg-x11-drv-nvidia-cuda-libs|libnvidia-ml)-(?:\d:)?{VERSION}-"
    rf"|\blib(?:cuda|nvidia-ml)\.so\.{VERSION}\b"
)
MODULE_LIST = lazy_pattern(r"lsmod\b.{0,40}\bnvidia\b")
MODULE_ROW = lazy_pattern(r"nvidia(?:_uvm|_drm|_modeset|_fs|_peermem)?\s+\d{4,9}\s+\d")
DKMS = lazy_pattern(rf"nvidia[\w-]{{0,20}}[/,] ?{VERSION}, (\d\.\d{{1,3}}[\w.+-]{{1,60}}), \w{{3,8}}: (\w+)")
KERNEL = lazy_pattern(r"(?:Linux \S{1,64} )?(\d\.\d{1,3}\.\d{1,3}-[\w.+-]{1,60})(?: #\d|$)")
# The same in a sentence: `lsmod | grep nvidia prints nothing`.
NO_MODULE = lazy_pattern(
    r"lsmod \| grep (?:-i )?nvidia[`'\"]?\s{0,2}(?:prints|shows|gives|returns|is|->|=>|:)?\s{0,2}"
    r"\(?(?:nothing|empty|no output)"
)
NOT_LOADED = "NVML error 9: Driver Not Loaded"


def parse_driver_state(lines: list[Line]) -> Section | None:
    """Parse the state of the kernel module and the version of the driver's libraries.

    ```
    ii  libnvidia-compute-535:amd64   535.183.01-0ubuntu0.22.04.1   amd64   NVIDIA libcompute package
    $ lsmod | grep nvidia
    nvidia/550.144.03, 6.8.0-78-generic, x86_64: installed
        Kernel driver in use: nouveau
    ```
    """
    section = Section("driver state")
    built: set[str] = set()  # kernels for which DKMS has installed the module
    kernel = ""
    listing = False  # the line above is `lsmod | grep nvidia`
    of_package = False  # the last command lists cuda-compat, which is loaded instead of the driver's libraries
    loaded = missing = False
    for line in lines:
        text = line.text
        loaded |= bool(MODULE_ROW.match(text))
        missing |= bool(NO_MODULE.search(text))
        missing |= listing and not MODULE_ROW.match(text)
        listing = bool(MODULE_LIST.search(text)) and bool(extract_command(text) or text.startswith("lsmod"))
        if command := extract_command(text):
            of_package = "compat" in command
        if match := DKMS.match(text):
            built |= {match[2]} if match[3] == "installed" else {""}
        elif "compat" not in text and not of_package and (library := LIBRARY.search(text)):
            section.set_fact("driver.library", next(group for group in library.groups() if group))
        elif line.key == "kernel driver in use" and line.value == "nouveau":
            missing = True
        elif match := KERNEL.match(text):
            kernel = kernel or match[1]
        elif not (line.key == "kernel driver in use" or MODULE_ROW.match(text)):
            continue
        section.consumed.add(line.number)
    if missing and not loaded:
        section.set_unreadable("gpus", f"{NOT_LOADED} (no nvidia module is loaded)")
    elif built and kernel and kernel not in built and not loaded:
        section.set_unreadable("gpus", f"{NOT_LOADED} (DKMS has no module for kernel {kernel})")
    section.set_fact("system.kernel", kernel)
    return section if section.facts else None
