"""Rules on the host's resources: locked memory, processes, memory of the cgroup, memory compared with the GPUs'."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.rules.facts import first_in_use, gpus_of
from envdoctor.rules.host_remedies import in_container_or_host, raise_limit
from envdoctor.rules.registry import Problem, evidence, rule

GIB = 1 << 30
LOCKED_MEMORY = 1 * GIB  # InfiniBand registers buffers; Linux's default of 64 KiB to 8 MiB is not enough
PROCESSES, WANTED_PROCESSES = 4096, 65536  # a Ray node and its workers with their threads
BUILD_MEMORY = 16 * GIB  # flash-attn: about 5 GiB per nvcc job
INFINIBAND = ("ib", "hsn", "mlx")
SLOW_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "9p")


@rule("HOST007", kind="machine", severity="warning", cause="ulimit-too-low")
def locked_memory_is_too_small_for_infiniband(machine: Machine) -> Iterator[Problem]:
    """The machine has InfiniBand, but the limit of locked memory is low: NCCL cannot register its buffers.

    "ibv_reg_mr failed: Cannot allocate memory", or "unhandled system error" in the first multi-node collective.

    Fix: set memlock to unlimited for the user, the container or the systemd unit that starts the job.

    References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
    """
    limit = machine.limits.locked_memory
    links = [name for name in machine.interfaces.value or () if name.startswith(INFINIBAND)]
    if limit.value is None or not links or not gpus_of(machine) or not 0 <= limit.value < LOCKED_MEMORY:
        return
    yield Problem(
        "warning",
        f"{limit.value >> 10} KiB of locked memory are allowed (ulimit -l); {', '.join(links[:4])} need it unlimited",
        (evidence("limits.locked_memory", limit), evidence("interfaces", machine.interfaces)),
        "Raise the limit for the process that starts the job.",
        in_container_or_host(machine, "--ulimit memlock=-1", "sudo prlimit --pid $$ --memlock=unlimited"),
    )


@rule("HOST008", kind="machine", severity="warning", cause="ulimit-too-low")
def process_limit_is_low(machine: Machine) -> Iterator[Problem]:
    """The limit of processes and threads is low: "Resource temporarily unavailable", "can't start new thread".

    Ray, data loaders and OpenBLAS start thousands of threads on a machine with many cores.

    Fix: raise the limit (`ulimit -u`, `docker run --ulimit nproc=65536`).

    References:
    https://docs.ray.io/en/latest/ray-core/configure.html
    """
    limit = machine.limits.processes
    if limit.value is not None and 0 <= limit.value < PROCESSES and gpus_of(machine):
        yield Problem(
            "warning",
            f"{limit.value} processes and threads are allowed (ulimit -u); {PROCESSES} or more are required",
            (evidence("limits.processes", limit),),
            "Raise the limit before a run.",
            in_container_or_host(
                machine,
                f"--ulimit nproc={WANTED_PROCESSES}",
                raise_limit(limit, "u", "nproc", WANTED_PROCESSES, PROCESSES),
            ),
        )


@rule("HOST009", kind="machine", severity="info", cause="host-oom-build")
def host_memory_is_small_for_a_build(machine: Machine) -> Iterator[Problem]:
    """Host memory is small for a source build of CUDA code: the kernel kills the compiler without a message.

    nvcc needs about 5 GiB per job for flash-attn, multiplied by NVCC_THREADS. The cgroup limit applies. The rule
    reports this only if nvcc is installed.

    Fix: set MAX_JOBS according to the memory, or install a wheel.

    References:
    https://github.com/Dao-AILab/flash-attention#installation-and-features
    """
    memory = host_memory(machine)
    if memory and memory < BUILD_MEMORY and gpus_of(machine) and machine.cuda.nvcc.value:
        jobs = max(1, memory // (5 * GIB))
        yield Problem(
            "info",
            f"{memory / GIB:.0f} GiB of host memory: enough for {jobs} compiler job{'s' if jobs > 1 else ''}",
            (
                evidence("memory.total", machine.memory.total),
                evidence("memory.cgroup_limit", machine.memory.cgroup_limit),
            ),
            "Limit the number of jobs before a source build.",
            steps(shell_command("export MAX_JOBS={}", jobs), "export NVCC_THREADS=1"),
        )


@rule("HOST010", kind="environment", severity="info", cause="gpu-oom")
def host_memory_is_smaller_than_the_gpus(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """Host memory is smaller than the GPUs' memory: the weights of a sleeping vLLM may not fit.

    A trainer that shares its GPUs with vLLM (TRL, verl) uses sleep mode. At level 1 the weights are moved to host
    memory. The cgroup limit applies.

    Fix: use sleep level 2 (weights are loaded again), a smaller model, or more memory.

    References:
    https://docs.vllm.ai/en/latest/features/sleep_mode/
    """
    memory = host_memory(machine)
    on_gpus = sum(gpu.memory_total.value or 0 for gpu in gpus_of(machine))
    if memory and memory < on_gpus and first_in_use(stack, "vllm") and first_in_use(stack, "trl", "verl", "openrlhf"):
        yield Problem(
            "info",
            f"{memory / GIB:.0f} GiB of host memory, {on_gpus / GIB:.0f} GiB on the GPUs",
            (
                evidence("memory.total", machine.memory.total),
                evidence("memory.cgroup_limit", machine.memory.cgroup_limit),
            ),
            "If vLLM uses sleep mode, use level 2, which keeps no weights in host memory.",
            steps("free -g"),
        )


@rule("HOST011", kind="environment", severity="info", cause="silent-slow-path")
def hub_cache_is_on_a_network_file_system(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The cache of the Hugging Face Hub, with the model weights, is on a slow network file system.

    Every process then reads the weights over the network at every start. Loading takes minutes and can be mistaken
    for a hang. This applies to NFS, SMB, sshfs and the Windows drives of WSL, not to parallel file systems (Lustre,
    GPFS, BeeGFS).

    Fix: set HF_HOME to a local disk with enough space for the models.

    References:
    https://docs.vllm.ai/en/latest/usage/troubleshooting.html#hangs-loading-a-model
    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    place = (machine.storage.places.value or {}).get("hf cache")
    used = gpus_of(machine) and first_in_use(stack, "vllm", "sglang", "transformers")
    if place and place.kind in SLOW_FILE_SYSTEMS and used:
        yield Problem(
            "info",
            f"models are cached in {place.path}, which is on {place.kind}",
            (evidence("storage.places", machine.storage.places),),
            "If loading is slow, set HF_HOME to a directory on a local disk.",
            steps("df -hl"),
        )


def host_memory(machine: Machine) -> int | None:
    """The usable host memory: the smaller of total memory and the cgroup limit."""
    sizes = [size for size in (machine.memory.total.value, machine.memory.cgroup_limit.value) if size]
    return min(sizes, default=None)
