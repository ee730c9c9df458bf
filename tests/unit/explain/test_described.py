"""Causes that a sentence describes in words, without a message of a program."""

from __future__ import annotations

import io

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.explain import explain
from envdoctor.explain.calibration import UNDECIDED
from envdoctor.explain.described import described_symptom, descriptions
from envdoctor.knowledge.causes import causes
from envdoctor.reports import parse_report


@each_case(
    ("cause", "text"),
    [
        ("torch-cpu-build", "So the script took the cpu variant of PyTorch and the GPU of the node is not found."),
        ("torch-cpu-build", "the environment file pulls pytorch from conda-forge as a cpu build, GPU stays at 0 %"),
        ("driver-too-old", "turns out the host driver is too old for the CUDA 12.8 build of torch"),
        ("driver-too-old", "the installed NVIDIA driver is older than what CUDA 12.8 needs"),
        ("driver-ptx-too-old", "the driver cannot compile the PTX of this wheel"),
        ("gpu-arch-not-in-build", "torch was built without sm_120, so nothing runs on the 5090"),
        ("gpu-arch-not-in-build", "the stable torch does not include sm_120, my RTX 5070 is unusable"),
        ("gpu-arch-not-in-build", "The Pytorch doesn't support sm_120, which I need on this host"),
        ("gpu-arch-not-in-build", "我的显卡是RTX 5090 当前torch版本不支持sm_120 训练直接报错"),
        ("gpu-arch-dropped", "the torch of this image does not support my GTX 1060 any longer"),
        ("gpu-arch-dropped", "newer torch dropped support for my GTX 1080, no kernels any more"),
        ("gpu-arch-dropped", "since 2.8 torch wheels come without sm_61, P40 users are out"),
        ("ext-arch-not-in-build", "flash-attn was compiled only for sm_80, our card is sm_90"),
        ("ext-arch-not-in-build", "our apex wheel contains sm_80 only, on the H100 the fused kernels are missing"),
        ("gpu-unsupported-by-library", "flash attention 2 refuses my Turing card"),
        ("gpu-unsupported-by-library", "the marlin kernel requires Ampere, we only have V100"),
        ("dtype-unsupported-gpu", "bf16 is not possible on the V100, training in bf16 crashes"),
        ("dtype-unsupported-gpu", "bfloat16 isn't supported by my T4 so training aborts"),
        ("torch-companion-mismatch", "torchvision was built for another torch than the one installed"),
        ("torch-companion-mismatch", "after updating torch, torchaudio is still the old one and import crashes"),
        ("torch-abi-mismatch", "flash-attn was compiled against an older torch and now has an undefined symbol"),
        (
            "torch-abi-mismatch",
            "rebuilt env with new torch but kept the old flash_attn wheel: undefined symbol at import",
        ),
        ("vllm-torch-mismatch", "something replaced the torch that vllm was built with, and vllm does not start"),
        ("vllm-torch-mismatch", "upgrading torch broke vllm, its extension no longer loads"),
        ("numpy2-abi", "numpy got upgraded to 2.x and the extension compiled with numpy 1 crashes"),
        ("numpy2-abi", "a package compiled for numpy 1.x crashes with numpy 2.1"),
        ("nvcc-torch-mismatch", "system nvcc is 11.8 while torch was compiled with 12.4, the extension build fails"),
        ("nvcc-torch-mismatch", "CUDA 12.6 is what nvcc reports, torch wants 11.8, building the ops fails"),
        ("nvcc-too-old", "my nvcc 12.1 does not know sm_120 and the build stops"),
        ("cuda-home-missing", "there is no CUDA toolkit in the runtime image, so the extension cannot be built"),
        ("cuda-home-missing", "the build wants CUDA_HOME but there is only the driver, no toolkit on this machine"),
        ("gcc-too-new-for-nvcc", "gcc 13 is too new for CUDA 11.8, nvcc refuses it"),
        ("gcc-too-new-for-nvcc", "nvcc of CUDA 12.1 rejects my gcc 14"),
        ("compiler-missing", "triton finds no C compiler in the slim container"),
        ("compiler-missing", "torch.compile dies because gcc isn't in the image"),
        ("python-headers-missing", "python3.11-dev is missing, so triton cannot compile its launcher"),
        ("python-headers-missing", "Triton's compile step needs Python.h which is not on the box"),
        ("python-unsupported", "there is no torch wheel for Python 3.14 yet, pip finds nothing"),
        ("python-unsupported", "No vLLM wheel exists for my Python 3.14"),
        ("platform-no-wheel", "there are no aarch64 wheels of xformers, pip starts to compile"),
        ("platform-no-wheel", "bitsandbytes has no wheel for linux aarch64 in this version, pip fails"),
        ("glibc-too-old", "CentOS 7's glibc is too old for the manylinux_2_28 wheel"),
        ("glibc-too-old", "the wheel needs glibc 2.28 and our RHEL 7 nodes have 2.17, import fails"),
        ("libstdcxx-too-old", "the system libstdc++ lacks GLIBCXX_3.4.32"),
        ("container-no-gpu", "I forgot --gpus all and the container sees no GPU"),
        ("container-no-gpu", "compose file has no device reservation and torch inside the container reports False"),
        ("driver-not-loaded", "after the kernel update the nvidia module is not loaded any more"),
        ("driver-not-loaded", "DKMS did not rebuild the module for the new kernel, so nvidia-smi does not work"),
        (
            "nvml-driver-library-mismatch",
            "unattended-upgrades updated the driver, the old kernel module is still loaded, nvidia-smi fails",
        ),
        ("fabric-manager", "fabric manager is not running on the HGX, CUDA does not initialize"),
        ("fabric-manager", "nvidia-fabricmanager died on the H100 node and CUDA init fails with 802"),
        ("mig-or-compute-mode", "MIG is on but no instance was created, torch sees nothing"),
        ("mig-or-compute-mode", "someone enabled MIG without creating an instance, jobs see no device"),
        ("ecc-or-xid", "GPU 3 fell off the bus during training"),
        ("ecc-or-xid", "one A100 reports uncorrectable ECC errors and every job on that GPU aborts"),
        ("nccl-p2p-blocked", "with ACS enabled peer to peer between the cards hangs"),
        ("nccl-p2p-blocked", "all_reduce hangs between the two 4090s as P2P doesn't work on this board"),
        ("nccl-interface", "NCCL picked docker0 and the nodes cannot reach each other"),
        ("nccl-interface", "NCCL takes the wifi interface wlan0 instead of the ethernet, ranks time out"),
        ("shm-too-small", "docker gives only 64 MB of shared memory and the dataloader workers die"),
        ("shm-too-small", "/dev/shm in the pod is just 64M, workers die with bus error"),
        ("ulimit-too-low", "too many open files, ulimit -n is 1024, the loader crashes"),
        ("gpu-oom", "the 7B model does not fit into 16 GB and CUDA runs out of memory"),
        ("gpu-oom", "with batch size 8 the training runs out of VRAM on my 12 GB card"),
        ("host-oom-build", "the flash-attn build eats all RAM and gets killed"),
        ("host-oom-build", "compiling vllm from source uses up all 32 GB RAM and the machine freezes"),
        ("host-oom-runtime", "the OOM killer ended the trainer, the node ran out of RAM"),
        ("host-oom-runtime", "loading the checkpoint takes more RAM than the node has and the process is killed"),
        ("disk-full", "the disk is full, the checkpoint could not be written"),
        ("disk-full", "no space left on the partition, saving the checkpoint fails"),
        ("hub-auth", "the model is gated and I was not logged in, 401"),
        ("hub-auth", "I get 403 for the gated Llama repo, my HF token has no access"),
        ("hub-offline", "compute nodes have no internet, the model cannot be downloaded from the hub"),
        ("hub-offline", "our cluster is air-gapped so from_pretrained cannot reach Hugging Face"),
        (
            "cuda-lib-shadowed",
            "LD_LIBRARY_PATH points to the system's libcublas which gets loaded before torch's, undefined symbol",
        ),
        ("cuda-lib-shadowed", "module load cuda puts an old libcublas in LD_LIBRARY_PATH, torch crashes at matmul"),
        ("bnb-no-cuda-binary", "bitsandbytes ships no binary for CUDA 13.0 in my version, 4-bit fails"),
        ("bnb-no-cuda-binary", "my bitsandbytes has no binary for cuda 12.8 and refuses to load"),
        ("cudart-missing", "vllm wants libcudart.so.12 but only CUDA 13 is there"),
        ("vllm-cuda-variant", "the default vllm wheel is for CUDA 12 but our torch is cu130, import fails"),
        ("library-too-old", "my transformers is too old for Qwen3, the model type is not recognized"),
        ("library-too-old", "installed transformers doesn't know gemma3 yet, loading the model fails"),
        ("transformers-too-new", "transformers 5 broke vllm 0.9, it does not start"),
        ("transformers-too-new", "with transformers v5 my old peft crashes on import"),
        ("dependency-pin-violated", "huggingface-hub 1.0 is too new for this transformers, import fails"),
        ("dependency-pin-violated", "tokenizers 0.22 conflicts with transformers 4.40, import fails"),
        ("wrong-python-env", "pip installed into the system python, not into my venv, import torch fails"),
        ("cuda-device-selection", "CUDA_VISIBLE_DEVICES is set to a GPU that does not exist, torch finds none"),
        ("libcuda-not-found", "triton cannot find libcuda.so although nvidia-smi works"),
        ("no-nvidia-gpu", "the laptop has only an Intel GPU, CUDA isn't available"),
        ("flash-attn-no-wheel", "flash attn 2.8.3 has no prebuilt wheel for torch 2.10, so pip compiles"),
        ("flash-attn-no-wheel", "但是对于flash attn 2.8.3版本没有看到可以支持torch2.10.0的编译包"),
        ("wsl-no-pinned-memory", "pinned memory cannot be used in WSL, vllm stops"),
    ],
)
def test_a_description_names_its_cause(cause: str, text: str) -> None:
    assert [symptom.cause for symptom in described_symptom(text)] == [cause]


@each_case(
    "text",
    [
        "Is torch a CPU build on this machine?",
        "If torch is a CPU build, install it again from the index for CUDA.",
        "Add a check for drivers that are too old for CUDA 13.",
        "torch is a CUDA build, driver 580, everything works.",
        "CPU-only CI runner, no GPU by intent.",
        "You exceeded your current quota, please check your plan.",
        "Dependabot will resolve any conflicts with this PR as long as you don't alter it.",
        "The CPU build of torch worked again after the upgrade, fixed by the new index.",
        "Half of the 16 GB of VRAM of the GPU is used, so this does not seem to be an OOM issue.",
    ],
)
def test_other_sentences_name_none(text: str) -> None:
    assert not described_symptom(text)


def test_every_description_has_known_names() -> None:
    concepts, rows = descriptions()
    assert {name for row in rows for name in row.concepts} == concepts.keys()
    assert {row.cause for row in rows} <= causes().keys()


def test_a_description_is_a_suggestion_and_a_message_has_precedence() -> None:
    described = explain(io.BytesIO(b"So the script took the cpu variant of PyTorch on the GPU node.")).causes
    assert [cause.cause for cause in described] == ["torch-cpu-build"]
    assert described[0].similar
    assert described[0].confidence < UNDECIDED
    message = b"The cpu variant of PyTorch it is.\nnvcc fatal   : Unsupported gpu architecture 'compute_120'"
    assert "torch-cpu-build" not in {cause.cause for cause in explain(io.BytesIO(message)).causes}


def test_a_description_in_a_report_is_a_warning() -> None:
    report = parse_report("- OS: Ubuntu 22.04\n- Python: 3.11.9\n\nThe build script took the cpu variant of PyTorch.")
    found = [(each.cause, each.status) for each in diagnose_report(report)]
    assert ("torch-cpu-build", "warning") in found
