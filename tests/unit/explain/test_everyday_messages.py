"""Messages of Kubernetes, Helm, Docker, Ray, MPI and package resolvers, and healthy texts that resemble them."""

from __future__ import annotations

import pytest
from support.explained import all_causes

from envdoctor.explain.calibration import UNDECIDED
from envdoctor.explain.outcome import states_no_failure

OLD_NUMPY = """RuntimeError: module compiled against API version 0xe but this version of numpy is 0xd
ImportError: numpy.core.multiarray failed to import
"""
SILENT = 0.4  # of a suggestion that a reader may ignore
SANDBOX = "  Warning  FailedCreatePodSandBox  30s (x4 over 2m)  kubelet  Failed to create pod sandbox: rpc error: "
NO_NVML = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."
NO_CLUSTER = 'Error: INSTALLATION FAILED: Kubernetes cluster unreachable: Get "http://localhost:8080/version"'
SINGLE_EQUALS = 'no such comparison operator "=", must be one of ~= == != <= >= < > ==='
POETRY = """Because no versions of torchaudio match >2.0.1+cu118,<3.0.0
 and torchaudio (2.0.1+cu118) depends on torch (2.0.0), torchaudio (>=2.0.1+cu118,<3.0.0) requires torch (2.0.0).
So, because stalp depends on both torch (^2.0.0+cu118) and torchaudio (^2.0.1+cu118), version solving failed.
"""
PDM = """Unable to find a resolution for torch
because of the following conflicts:
  torch==2.4.0 (from project)
  torch>=2.5 (from <Candidate vllm@0.6.4>)
"""
GCC_HEADER = """/usr/include/c++/7/tuple:502:1: error: body of constexpr function 'std::_TC<...>::
error: command '/usr/local/cuda/bin/nvcc' failed with exit status 1
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            '  Warning  FailedMount  2m  kubelet  MountVolume.SetUp failed for volume "c" : secret "hf" not found',
            "pod-not-running",
        ),
        ('Warning  FailedAttachVolume  2m  AttachVolume.Attach failed for volume "pvc-1"', "pod-not-running"),
        (
            SANDBOX + 'failed to setup network for sandbox "1a2b": plugin type="calico" failed (add)',
            "pod-not-running",
        ),
        (SANDBOX + 'failed to reserve sandbox name "trainer-0": name is reserved for "9c1"', "pod-not-running"),
        (SANDBOX + "nvidia-container-cli: initialization error: nvml error: driver not loaded", "driver-not-loaded"),
        ("Error: INSTALLATION FAILED: cannot re-use a name that is still in use", "name-in-use"),
        (f"{NO_CLUSTER}: dial tcp 127.0.0.1:8080: connect: connection refused", "node-unreachable"),
        ('Conflict. The container name "/vllm" is already in use by container "4a5ad6bf857f".', "name-in-use"),
        (
            "ray.exceptions.ObjectStoreFullError: Failed to put object ff in object store because it is full.",
            "host-oom-runtime",
        ),
        ("ray.exceptions.OutOfDiskError: Local disk is full. The local object store is full of objects", "disk-full"),
        ("but OMPI was not built with SLURM's PMI support and therefore cannot\nexecute.", "mpi-launch"),
        ("PMI2_Init failed to intialize.  Return code: 14", "mpi-launch"),
        ("[node001:94018] PMIX ERROR: NOT-FOUND in file ptl_usock.c at line 175", "mpi-launch"),
        ("mpirun has detected an attempt to run as root.", "mpi-launch"),
        ("sbatch: error: Batch job submission failed: Unspecified error", "job-rejected"),
        ('invalid mount config for type "bind": bind source path does not exist: /data/models', "file-system-fault"),
        (
            "couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor h100",
            "job-rejected",
        ),
        ("mkdir: cannot create directory '/home/ml/.cache': Permission denied", "directory-not-writable"),
        ("tar: model/config.json: Cannot open: Permission denied", "directory-not-writable"),
        ("wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", "network-failure"),
        (
            "('Connection broken: IncompleteRead(12345 bytes read)', IncompleteRead(12345 bytes read))",
            "network-failure",
        ),
        (
            "fatal: unable to access 'https://github.com/huggingface/trl.git/': Could not resolve host: github.com",
            "network-failure",
        ),
        ("bootstrap.cc:180 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8", "node-differs"),
        (
            "W dso_loader.cc:64] Could not load dynamic library 'cudart64_110.dll'; dlerror: not found",
            "cudart-missing",
        ),
        (POETRY, "dependency-pin-violated"),
        (PDM, "dependency-pin-violated"),
        (f"ERROR: Invalid requirement: 'torch=2.5.1': {SINGLE_EQUALS}", "requirement-not-valid"),
        (f"error: Failed to parse: `vllm=0.11.0`\n  cause: {SINGLE_EQUALS}", "requirement-not-valid"),
        (f"position 20\n  Caused by: {SINGLE_EQUALS}\naccelerate=1.2.1\n          ^^^^^^", "requirement-not-valid"),
        ("ERROR: Invalid requirement: 'numpy=1.26.4=py310hb13e2d6_0'", "release-not-on-index"),
        (f"{NO_NVML}\n5.15.153.1-microsoft-standard-WSL2", "libcuda-not-found"),
        (
            "ValueError: infer_schema(func): Parameter q has unsupported type torch.Tensor. The valid",
            "library-too-old",
        ),
        ("infer_schema(func): Parameter block_size has unsupported type list[int].", "vllm-torch-mismatch"),
        ("ImportError: cannot import name 'SeamlessM4TFeatureExtractor' from 'transformers'", "library-too-old"),
        ("ImportError: cannot import name 'ViTFeatureExtractor' from 'transformers'", "transformers-too-new"),
        ("SHM is small, it causes OSError: [Errno 28] No space left on device with 4 GPUs", "shm-too-small"),
        (GCC_HEADER, "gcc-too-new-for-nvcc"),
        ("import torchaudio\nOSError: libtorch_hip.so: cannot open shared object file", "torch-companion-mismatch"),
        ("ImportError: bitsandbytes is not supported on Windows", "bnb-no-cuda-binary"),
        ("Python backend stub fails: `GLIBC_2.36 not found`", "glibc-too-old"),
        (
            "ImportError: cannot import name 'has_collective_ops' from 'onnxruntime.capi._pybind_state'",
            "package-files-damaged",
        ),
    ],
)
def test_an_everyday_message_has_its_cause(text: str, cause: str) -> None:
    first = all_causes(text)[0] if "equire" not in text else max(all_causes(text), key=lambda each: each.score)
    assert first.cause == cause
    assert first.confidence > UNDECIDED


@pytest.mark.parametrize(
    "text",
    [
        "trainer-0                 0/1     ContainerCreating   0          47m",
        "Error: INSTALLATION FAILED: timed out waiting for the condition",
        SANDBOX + "code = DeadlineExceeded desc = context deadline exceeded",
    ],
)
def test_a_state_that_has_several_reasons_names_the_command_that_decides(text: str) -> None:
    first = all_causes(text)[0]
    assert (first.cause, first.undecided) == ("pod-not-running", True)
    assert first.find_out[0].command.startswith("kubectl")


@pytest.mark.parametrize(
    ("text", "cause", "program"),
    [
        (
            "[E ProcessGroupNCCL.cpp:1537] Some NCCL operations have failed or timed out.",
            "collective-stalled",
            "grep",
        ),
        ("RuntimeError: NCCL communicator was aborted on rank 3.", "collective-stalled", "grep"),
        ("'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'", "nvcc-torch-mismatch", "ds_report"),
        (
            "OSError: Error no file named model.safetensors found in directory /out/step-9.",
            "checkpoint-damaged",
            "ls",
        ),
    ],
)
def test_a_consequence_names_the_command_that_finds_its_reason(text: str, cause: str, program: str) -> None:
    first = all_causes(text)[0]
    assert (first.cause, first.undecided) == (cause, True)
    assert first.find_out[0].command.split()[0] == program


@pytest.mark.parametrize(
    "text",
    [
        "trainer-0                 0/1     ContainerCreating   0          12s",
        "NAME: gpu-operator\nLAST DEPLOYED: Fri Nov 27 14:38:56 2026\nSTATUS: deployed\nREVISION: 1",
        "(raylet) Spilled 12048 MiB, 24 objects, write throughput 812 MiB/s.",
        "srun: MPI types are...\nnone\npmi2\npmix",
        "mpirun --allow-run-as-root -np 8 ./all_reduce_perf -b 8 -e 128M\n# Out of bounds values : 0 OK",
        "Requirement already satisfied: torch==2.5.1 in ./venv/lib/python3.11/site-packages",
        "conda install pytorch=2.5.1 torchvision=0.20.1 -c pytorch",
        "mkdir: created directory '/home/ml/.cache'",
        "wandb: Tracking run with wandb version 0.19.1\nwandb: Run data is saved locally in /w/wandb/run-1",
        "NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\nNCCL INFO comm 0x5577 rank 0 nranks 16 - Init COMPLETE",
        "RuntimeError: Could not infer dtype of dict",
        "Using the cached version since x couldn't be found on the Hugging Face Hub (offline mode is enabled).",
        "error loading model: error loading model architecture: unknown model architecture: 'clip'",
        "Warning  FailedMount  23m  MountVolume.SetUp failed for volume\nNormal  Started  22m  Started container",
    ],
)
def test_a_healthy_text_has_no_cause(text: str) -> None:
    assert [each.cause for each in all_causes(text) if each.confidence >= SILENT] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "MIG mode is disabled",
        "Your quota of disk is 20 GB",
        "CUDA available: True",
        "Fabric manager is running.",
        "peer access is supported between GPU 0 and GPU 1",
        "The token has access to the gated repo.",
        "ECC is enabled, with 0 uncorrectable errors.",
        "The IOMMU is disabled, ACS too.",
        "Use srun --mpi=pmix with Open MPI 5.",
        "flash-attn has a wheel for torch 2.6 and Python 3.12.",
        "The model is gated and my account has access.",
    ],
)
def test_a_sentence_about_a_sound_state_is_not_similar_to_an_error(sentence: str) -> None:
    assert [each.cause for each in all_causes(sentence) if each.confidence >= SILENT] == []


@pytest.mark.parametrize(
    "text",
    [
        "the disk is full",
        "CUDA is not available",
        "torch.cuda.is_available() is False",
        "the GPU is lost",
        "cuda oom",
    ],
)
def test_a_sentence_about_a_failure_is_no_sound_state(text: str) -> None:
    assert not states_no_failure(text)


def test_a_command_for_the_platform_works_in_every_shell() -> None:
    (first, *_) = all_causes("PS C:\\proj> pip install triton\nERROR: No matching distribution found for triton")
    assert [remedy.commands for remedy in first.remedies] == [
        ('python -c "import platform; print(platform.python_version(), platform.platform())"',)
    ]


def test_a_misspelt_sub_command_resembles_no_other_program() -> None:
    text = (
        "usage: lmdeploy [-h] [-v] {lite,serve,list,check_env,chat} ...\n"
        "lmdeploy: error: argument command: invalid choice: 'check_en' (choose from 'lite', 'serve', 'check_env')\n"
    )
    assert not all_causes(text)


def test_a_build_without_nvcc_and_hipcc() -> None:
    found = all_causes("CMake Error at CMakeLists.txt:45 (message):\n  Neither CUDA nor HIP found")
    assert [each.cause for each in found] == ["cuda-home-missing"]


def test_ollama_names_its_library_after_the_devices() -> None:
    line = 'level=INFO source=gpu.go:560 msg="no nvidia devices detected" library=/usr/lib/libcuda.so.550.107.02'
    assert [each.cause for each in all_causes(line)] == ["no-nvidia-gpu"]
    assert all_causes(f"docker logs ollama\n{line}")[0].cause == "container-no-gpu"


def test_a_gpu_that_is_not_available_anymore_is_not_a_removed_name() -> None:
    found = all_causes("After installing pytorch 1.9.0 my GPU is not available anymore: is_available=False")
    assert "library-too-new" not in [each.cause for each in found]


@pytest.mark.parametrize(
    "text",
    [
        "Segmentation fault (core dumped)",
        "subprocess.CalledProcessError: Command 'train' died with <Signals.SIGSEGV: 11>.",
        "  exitcode  : -11 (pid: 6421)",
    ],
)
def test_a_crash_has_no_cause_but_commands_that_find_it(text: str) -> None:
    (cause,) = all_causes(text)
    assert cause.confidence < SILENT
    assert "faulthandler" in cause.find_out[0].command


@pytest.mark.parametrize(
    ("text", "cause", "least"),
    [
        (
            OLD_NUMPY,
            "library-too-old",
            0.9,
        ),
        (
            "GPU: NVIDIA GeForce RTX 4090\nRuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR",
            "gpu-arch-not-in-build",
            0.8,
        ),
        ("GLIBCXX_3.4.21 isnt found. I already conda installed libgcc.", "libstdcxx-too-old", 0.9),
        ("bin D:\\py39\\lib\\site-packages\\bitsandbytes\\libbitsandbytes_cpu.so", "bnb-no-cuda-binary", 0.6),
        ("RuntimeError: connect() timed out. Original timeout was 600000 ms.", "nccl-interface", 0),
        ("FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above", "cudnn-too-old", 0),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host-oom-runtime", 0),
    ],
)
def test_frequent_messages_of_libraries(text: str, cause: str, least: float) -> None:
    first = all_causes(text)[0]
    assert (first.cause, first.confidence >= least) == (cause, True)
    assert first.find_out or first.confidence > UNDECIDED


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("econml 0.6.1 has requirement sklearn~=0.21.0, but you'll have sklearn 0.22.1 which is incompatible.",
         "dependency-pin-violated"),  # pip up to 20.2
        ("[F] k2/csrc/eval.h:147: Check failed: e == cudaSuccess (98 vs. 0)  Error: invalid device function.",
         "ext-arch-not-in-build"),
        ("UserWarning: Can't initialize NVML\nRuntimeError: CUDA is required", "driver-not-loaded"),
        ("ImportError: IProgress not found. Please update jupyter and ipywidgets.", "wrong-python-env"),
    ],
)  # fmt: skip
def test_messages_with_other_words(text: str, cause: str) -> None:
    assert cause in [each.cause for each in all_causes(text) if each.confidence >= SILENT]


@pytest.mark.parametrize(
    "text",
    [
        "TqdmWarning: IProgress not found. Please update jupyter and ipywidgets.",
        "If you get `CUDA error: invalid device function` errors, the above might be the cause",
        "/home/u/.config/matplotlib is not a writable directory\nMatplotlib created a temporary cache directory",
    ],
)
def test_warnings_of_programs_that_continue(text: str) -> None:
    assert not [each for each in all_causes(text) if each.confidence >= SILENT]


def test_a_condition_of_an_image_on_the_brand_is_one_on_the_driver() -> None:
    text = "nvidia-container-cli: requirement error: unsatisfied condition: brand = tesla"
    assert all_causes(text)[0].fix.startswith("The image requires a newer CUDA, ")
