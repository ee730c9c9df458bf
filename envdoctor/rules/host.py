"""Rules on the host: memory, disk, limits, compilers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from envdoctor.core.records import Machine
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.rules.facts import is_reported, require_value
from envdoctor.rules.host_remedies import in_container_or_host, install_packages, raise_limit
from envdoctor.rules.registry import Problem, evidence, rule

GIB = 1 << 30
SHM_BYTES = 1 * GIB  # Docker's default is 64 MiB; NCCL and data-loader workers need more
OPEN_FILES, WANTED_FILES = 1024, 65536  # Linux's default; Ray and data loaders fail with less
DIRECTORY_VARIABLES = {"hf cache": "HF_HOME", "uv cache": "UV_CACHE_DIR", "tmp": "TMPDIR"}
DISK_ERROR, DISK_WARNING = 1 * GIB, 5 * GIB


@rule("HOST001", kind="machine", severity=("error", "warning", "info"), cause="shm-too-small")
def shared_memory_is_small(machine: Machine) -> Iterator[Problem]:
    """/dev/shm is smaller than NCCL and data-loader workers need, which causes bus errors during a run.

    Fix: `--shm-size` or `--ipc=host` for containers, a memory-backed emptyDir in Kubernetes.

    References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory
    """
    shm = (require_value("storage", machine.storage.places) or {}).get("shm")
    if shm and shm.total < SHM_BYTES:
        several = len(machine.gpus.value or ()) > 1
        yield Problem(
            "error" if several else "warning" if machine.gpus.value else "info",
            f"/dev/shm has {shm.total / (1 << 20):.0f} MiB; 1024 MiB are required",
            (evidence("storage.places", machine.storage.places),),
            "Start the container with more shared memory, or remount it.",
            in_container_or_host(machine, "--shm-size=16g", "sudo mount -o remount,size=16G /dev/shm"),
        )


@rule("HOST002", kind="machine", severity="warning", cause="ulimit-too-low", url="")
def open_files_limit_is_low(machine: Machine) -> Iterator[Problem]:
    """The limit of open files is lower than Linux's default. Ray, vLLM's server and data loaders exceed it.

    Fix: `ulimit -n 65536` before the run.

    References:
    https://docs.ray.io/en/latest/ray-core/configure.html
    """
    limit = require_value("limits.open_files", machine.limits.open_files)
    if limit is not None and 0 <= limit < OPEN_FILES:
        yield Problem(
            "warning",
            f"{limit} open files are allowed (ulimit -n); {OPEN_FILES} or more are required",
            (evidence("limits.open_files", machine.limits.open_files),),
            "Raise the limit in the shell before a run.",
            steps(raise_limit(machine.limits.open_files, "n", "nofile", WANTED_FILES, OPEN_FILES)),
        )


@rule("HOST003", kind="machine", severity=("error", "warning"), cause="disk-full", url="")
def disk_is_nearly_full(machine: Machine) -> Iterator[Problem]:
    """A filesystem for installations, caches or checkpoints is almost full.

    Fix: free disk space, or move HF_HOME, UV_CACHE_DIR and TMPDIR to a larger disk.

    References:
    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    for role, place in (require_value("storage", machine.storage.places) or {}).items():
        if role == "shm" or place.free >= DISK_WARNING:
            continue
        variable = DIRECTORY_VARIABLES.get(role)
        yield Problem(
            "error" if place.free < DISK_ERROR else "warning",
            f"{place.free / GIB:.1f} GiB free for {role} ({place.path})",
            (evidence("storage.places", machine.storage.places),),
            "Free disk space" + (f", or set {variable} to a directory on a larger disk." if variable else "."),
            (
                *(steps("uv cache prune") if role == "uv cache" else ()),
                *steps("df -h", f"du -xh --max-depth=2 {_quoted(place.path)} | sort -h | tail"),
            ),
        )


@rule("HOST004", kind="machine", severity=("warning", "info"), cause="compiler-missing")
def compiler_is_missing(machine: Machine) -> Iterator[Problem]:
    """No C compiler is installed. Triton and torch.compile build a small launcher at run time and fail without one.

    Fix: install a C compiler from the distribution or conda-forge.

    References:
    https://github.com/apple/ml-cross-entropy/issues/5
    """
    if machine.cuda.compiler.state == "absent" and (machine.gpus.value or not is_reported(machine.cuda.compiler)):
        yield Problem(
            "warning" if machine.gpus.value and not is_reported(machine.cuda.compiler) else "info",
            "no C compiler (cc, gcc or clang) on PATH",
            (evidence("cuda.compiler", machine.cuda.compiler),),
            "Install a C compiler.",
            either(*install_packages(machine, "build-essential", "gcc gcc-c++")),
        )


@rule("HOST005", kind="machine", severity="warning", cause="python-headers-missing")
def python_headers_are_missing(machine: Machine) -> Iterator[Problem]:
    """No installed Python has its headers (Python.h). Triton compiles its launcher with them.

    Fix: install the -dev package, or a Python from uv, which includes the headers.

    References:
    https://github.com/vllm-project/vllm/issues/27890
    """
    pythons = require_value("pythons", machine.pythons) or ()
    if pythons and machine.gpus.value and not any(python.headers for python in pythons):
        version = pythons[0].version
        yield Problem(
            "warning",
            "no installed Python has Python.h: " + ", ".join(f"{p.path} ({p.version})" for p in pythons[:3]),
            (evidence("pythons", machine.pythons),),
            "Install the headers, or a Python from uv, which includes them.",
            either(
                *install_packages(machine, f"python{version}-dev", f"python{version}-devel"),
                shell_command("uv python install {}", version),
            ),
        )


@rule("HOST006", kind="machine", severity="warning", cause="cuda-home-missing", url="")
def cuda_home_has_no_nvcc(machine: Machine) -> Iterator[Problem]:
    """CUDA_HOME is set to a directory without nvcc, so every source build of a CUDA extension fails.

    Fix: set CUDA_HOME to a toolkit with nvcc, or unset it.

    References:
    https://docs.pytorch.org/docs/stable/cpp_extension.html
    """
    home, nvcc = machine.cuda.cuda_home, machine.cuda.nvcc
    toolkit = (nvcc.value or "").removesuffix("/bin/nvcc") if "cuda" in (nvcc.value or "") else ""
    if home.value and nvcc.state != "unreadable" and not (nvcc.value or "").startswith(home.value.rstrip("/") + "/"):
        yield Problem(
            "warning",
            f"CUDA_HOME is {home.value}, but nvcc is {nvcc.value or 'not installed'}",
            (evidence("cuda.cuda_home", home), evidence("cuda.nvcc", nvcc)),
            f"Set CUDA_HOME to {toolkit or 'the toolkit that contains nvcc'}, or unset it; wheels do not need it.",
            either(*([shell_command("export CUDA_HOME={}", toolkit)] if toolkit else []), "unset CUDA_HOME"),
        )


def _quoted(path: str) -> str:
    """A path for a shell, with `~` for the home directory left to it."""
    return f"~{shlex.quote(path[1:]) if path[1:] else ''}" if path.startswith("~") else shlex.quote(path)
