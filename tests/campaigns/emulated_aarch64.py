"""Install an aarch64 profile on an emulated machine, and run there what needs no GPU.

    python tests/campaigns/emulated_aarch64.py DIRECTORY [--profile gh200-cu130] [--gpu gh200] [--qemu PATH]

qemu-user emulates the processor; a fake NVML library presents the GPU; no CUDA code runs. envdoctor, uv, the wheels,
the compiled files and the probes are those of aarch64. It needs root, Linux 6.7 or newer (a binfmt_misc of its own in
a user namespace, which other processes of the machine do not see), 25 GB, 40 minutes on two cores, and on Debian:

    apt-get install debootstrap gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

qemu 10.0 works; 7.2 of Debian 12 ends with a segmentation fault in torch. Results go to DIRECTORY/results.json.
"""

# ruff: noqa: E402  the imported modules are in the parent folder

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.fakenvml.fixture import HERE as FAKE_NVML
from support.paths import ROOT

from envdoctor.locking.uv import find_uv

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"  # glibc 2.36, Python 3.11
PACKAGES = "python3,python3-venv,python3-dev,ca-certificates,libgomp1,gcc,g++,libc6-dev"
# The header of a 64-bit ELF file for aarch64, as in Debian's /usr/lib/binfmt.d/qemu-aarch64.conf.
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
ENTER = """
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ":aarch64:M::$1:$2:$3:OCF" > /proc/sys/fs/binfmt_misc/register
mount --rbind /proc "$4/proc"; mount --rbind /dev "$4/dev"; root=$4; shift 4
exec chroot "$root" /usr/bin/env -i "$@"
"""
MIDR = "0x00000000410fd4f0"  # Neoverse V2, the processor of GH200; oneDNN reads it from sysfs
PATH = "/opt/tool/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DRIVER = {"driver_version": "580.95.05", "nvml_version": "13.580.95.05", "cuda": "13000"}
PROBES = ("torch_matmul", "transformers_generate", "peft_lora", "datasets_map")  # trl_grpo needs the driver's libcuda


def main() -> int:
    """Prepare the machine, run the commands and write what they returned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--profile", default="gh200-cu130")
    parser.add_argument("--gpu", default="gh200", choices=("gh200", "gb10"))
    parser.add_argument("--qemu", default=shutil.which("qemu-aarch64") or "qemu-aarch64")
    options = parser.parse_args()
    machine = Machine(options.directory.resolve(), options.gpu, Path(options.qemu).resolve())
    machine.prepare()
    venv = ("--venv", "/srv/venv")
    commands: list[tuple[str, ...]] = [
        ("check",),
        ("install", options.profile, *venv, "--python", "3.11"),
        ("check", *venv), ("archs", *venv), ("abi", *venv), ("load-test", *venv),
        *(("verify", *venv, "--only", probe) for probe in PROBES),
        ("export", options.profile, "--python", "3.11"),
    ]  # fmt: skip
    results = []
    for command in commands:
        results.append(machine.envdoctor(*command))
        (options.directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        print(f"{results[-1]['seconds']:6.0f} s, exit code {results[-1]['code']}: {' '.join(command)}", flush=True)
    return 0


class Machine:
    """A folder with Debian for aarch64, in which programs run under qemu."""

    def __init__(self, folder: Path, gpu: str, qemu: Path) -> None:
        self.folder, self.root, self.gpu, self.qemu = folder, folder / "root", gpu, qemu

    def prepare(self) -> None:
        """Unpack Debian, write the fake GPU and install envdoctor with uv for aarch64."""
        if not (self.root / "usr/bin/python3").exists():
            self._unpack()
        self._write_processor()
        self._write_fake_nvml()
        wheels = self.root / "opt/wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        subprocess.run([find_uv(), "build", "--wheel", "-q", "--out-dir", wheels, ROOT], check=True)
        (wheel,) = wheels.glob("*.whl")
        shutil.rmtree(self.root / "opt/tool", ignore_errors=True)
        self._run("python3", "-m", "venv", "/opt/tool")
        self._run("/opt/tool/bin/python", "-m", "pip", "install", "-q", f"/opt/wheels/{wheel.name}")

    def _unpack(self) -> None:
        """Unpack packages without their scripts, which need other users than root."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options = ["--arch=arm64", "--foreign", "--variant=minbase", f"--include={PACKAGES}"]
        subprocess.run(["debootstrap", *options, SUITE, self.root, MIRROR], check=True)
        for package in (self.root / "var/cache/apt/archives").glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, self.root], check=True)
            package.unlink()
        for name, program in (("cc", "gcc"), ("c++", "g++")):
            (self.root / "usr/bin" / name).symlink_to(program)
        for file in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            shutil.copy(Path("/") / file, self.root / file)
        self._run("ldconfig")

    def _write_processor(self) -> None:
        cpus = self.root / "sys/devices/system/cpu"
        for cpu in range(2):
            registers = cpus / f"cpu{cpu}/regs/identification"
            registers.mkdir(parents=True, exist_ok=True)
            (registers / "midr_el1").write_text(f"{MIDR}\n")
        for name in ("online", "possible", "present"):
            (cpus / name).write_text("0-1\n")

    def _write_fake_nvml(self) -> None:
        fake = self.root / "fake"
        fake.mkdir(exist_ok=True)
        flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-shared", "-fPIC", "-o", str(fake / "libnvidia-ml.so.1")]
        subprocess.run(["aarch64-linux-gnu-gcc", *flags, str(FAKE_NVML / "fakenvml.c")], check=True)
        text = (FAKE_NVML / f"{self.gpu}.ini").read_text()
        for key, value in DRIVER.items():
            text = re.sub(rf"(?m)^{key} = .*", f"{key} = {value}", text)
        (fake / "gpu.ini").write_text(text)

    def envdoctor(self, *words: str) -> dict[str, Any]:
        """Run envdoctor and return its exit code, seconds and the end of its output."""
        started = time.monotonic()
        done = self._run("envdoctor", *words, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        seconds = round(time.monotonic() - started, 1)
        return {"command": " ".join(words), "code": done.returncode, "seconds": seconds, "output": lines[-60:]}

    def _run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        variables = [
            "HOME=/root", f"PATH={PATH}", "LANG=C.UTF-8", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
            "LD_LIBRARY_PATH=/fake", "FAKE_NVML_CONFIG=/fake/gpu.ini", "QEMU_CPU=max,pauth-impdef=on",
        ]  # fmt: skip
        namespace = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
        inside: Sequence[str | Path] = [MAGIC, MASK, self.qemu, self.root, *variables, *words]
        return subprocess.run(
            [*namespace, "bash", "-ec", ENTER, "enter", *inside],
            check=check, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
