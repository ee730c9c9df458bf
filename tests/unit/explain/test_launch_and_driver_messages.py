"""Messages of launchers, schedulers, solvers and driver libraries, as their users paste them, and sound ones."""

from __future__ import annotations

from support.cases import each_case
from support.explained import first_cause

OLD_DRIVER = "driver-too-old"
SOLVER = "error    libmamba Could not solve for environment specs\n"
NVRTC = "cupy.cuda.compiler.CompileException: nvrtc: error: invalid value for --gpu-architecture (-arch)"


WANTED = "ERROR: Could not find a version that satisfies the requirement {}"
CONFLICT = "alignscore 0.1.3 requires transformers{}, but you have transformers {} which is incompatible."


@each_case(
    ("text", "cause"),
    [
        (
            'error="symbol lookup failed: /usr/lib64/libcuda.so.460.106.00: undefined symbol: cuCtxCreate_v3"',
            OLD_DRIVER,
        ),
        ("AttributeError: /lib/x86_64-linux-gnu/libcuda.so.1: undefined symbol: cuMemCreate", OLD_DRIVER),
        ("OSError: /usr/lib/wsl/lib/libcuda.so.1: undefined symbol: cuDeviceGetUuid_v2", OLD_DRIVER),
        (
            "slurmstepd: error: *** STEP 60.0 ON g01 CANCELLED AT 2024-08-12T02:06:12 DUE TO JOB REQUEUE ***",
            "ended-from-outside",
        ),
        (
            "There are not enough slots available in the system to satisfy the 4\nslots: ./pw.x",
            "mpi-launch",
        ),
        (
            SOLVER + "  └─ rapids =25.2 * is not installable because there are no viable options",
            "dependency-pin-violated",
        ),
        (SOLVER + "  └─ foo 9.9** does not exist (perhaps a typo or a missing channel).", "release-not-on-index"),
        ("GTX 1080\n" + NVRTC, "gpu-arch-dropped"),
        ("GPU 0: Tesla V100-SXM2-16GB\n" + NVRTC, "gpu-arch-dropped"),
        ("NVIDIA GeForce RTX 5090\n" + NVRTC, "gpu-arch-not-in-build"),
        ("GPU 0: Tesla P100\nGPU 1: RTX 5090\n" + NVRTC, "gpu-arch-not-in-build"),
        (NVRTC, "gpu-arch-not-in-build"),
        (
            "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file",
            "libcuda-not-found",
        ),
        ("kernel version 525.60.13 does not match DSO version 535.54.3", "nvml-driver-library-mismatch"),
        ("| CUDAExecutionProvider | **ABSENT** |", "ext-cpu-build"),
        (WANTED.format("triton==2.0.0.dev20221103 (from versions: 2.0.0, 2.1.0)"), "release-not-on-index"),
        (WANTED.format("jax==0.4.1.dev20230101 (from versions: 0.4.1, 0.4.2)"), "release-not-on-index"),
        (CONFLICT.format("<5,>=4.20.1", "4.16.2"), "dependency-pin-violated"),
        (CONFLICT.format("<4.50,>=4.40", "4.39.0"), "dependency-pin-violated"),
        (CONFLICT.format("<5,>=4.20.1", "5.0.0"), "transformers-too-new"),
        (CONFLICT.format("==4.31.0", "4.57.1"), "transformers-too-new"),
    ],
)
def test_a_message_has_its_cause(text: str, cause: str) -> None:
    assert first_cause(text) == cause


@each_case(
    "text",
    [
        'msg="found libcuda" library=/usr/lib64/libcuda.so.550.54.15\nmsg="inference compute" library=cuda',
        "submitit INFO (2025-07-12) - Requeued job 60601445 (3 remaining timeouts)",
        "#SBATCH --requeue\nJob 7133 was queued again and started on n018",
        "mpirun -np 4 ./pw.x: 4 slots of host n01 are in use",
        "libmamba: all requested packages already installed",
        "kernel version 535.54.3 matches DSO version 535.54.3",
        "| CUDAExecutionProvider | present |",
        "nvrtc options: --gpu-architecture=compute_61 on GTX 1080, compiled in 0.4 s",
    ],
)
def test_a_sound_message_has_no_cause(text: str) -> None:
    assert first_cause(text) is None
