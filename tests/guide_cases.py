"""Small guides with one fault each: text, the rule that detects it, its line and its cause."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    text: str
    id: str
    line: int
    cause: str
    expected_text: str = ""  # part of the message or of the fix


def sh(*lines: str, title: str = "# H100") -> str:
    """A guide of one shell block; the first command is on line 3."""
    return "\n".join([title, "```bash", *lines, "```", ""])


def py(*lines: str, pins: str = "trl==0.23.1", title: str = "# H100") -> str:
    """A guide that installs pins (line 3) and shows Python, whose first line is 6."""
    return "\n".join([title, "```bash", f"pip install {pins}", "```", "```python", *lines, "```", ""])


ARM = "# GH200 (aarch64)"
PINS_128 = "torch==2.8.0 vllm==0.10.2 trl==0.23.1 transformers==4.57.1"
CU = "https://index.example/whl/"

FAULTS = [
    Fault(
        "trl that was never released", sh("pip install trl==0.23.9"), "RUN001", 3, "dependency-pin-violated", "0.23.1"
    ),
    Fault(
        "torchvision that was never released",
        sh("pip install torch==2.8.0 \\", "  torchvision==0.23.9"),
        "RUN001",
        4,
        "torch-companion-mismatch",
    ),
    Fault(
        "release that was yanked",
        sh("pip install transformers==4.57.0"),
        "RUN001",
        3,
        "dependency-pin-violated",
        "4.57.1",
    ),
    Fault(
        "vllm against its torch",
        sh("uv pip install torch==2.9.0 vllm==0.10.2"),
        "RUN002",
        3,
        "vllm-torch-mismatch",
        "torch==2.8.0",
    ),
    Fault(
        "torchvision of another torch",
        sh("pip install torch==2.5.1 torchvision==0.19.0"),
        "RUN002",
        3,
        "torch-companion-mismatch",
    ),
    Fault(
        "two pins of one package", sh("pip install 'numpy<2' 'numpy>=2.1'"), "RUN002", 3, "dependency-pin-violated"
    ),
    Fault(
        "the trap",
        sh('uv pip install "transformers>=4.57.1" trl==0.23.1 vllm==0.10.2'),
        "RUN003",
        3,
        "transformers-too-new",
        "==4.57.1",
    ),
    Fault(
        "no bound on transformers",
        sh("pip install torch==2.5.1", "pip install trl==0.22.2 transformers"),
        "RUN003",
        4,
        "transformers-too-new",
    ),
    Fault(
        "open peft bound is fine, transformers is not",
        sh("pip install 'peft<0.18' transformers"),
        "RUN003",
        3,
        "transformers-too-new",
    ),
    Fault(
        "kernels outside the window",
        sh("pip install transformers==4.57.1 'kernels>=0.9'"),
        "RUN003",
        3,
        "silent-slow-path",
        "kernels==",
    ),
    Fault(
        "hub upgraded beyond transformers 4",
        sh("pip install transformers==4.57.1", "pip install -U huggingface_hub"),
        "RUN003",
        4,
        "dependency-pin-violated",
        "0.36",
    ),
    Fault(
        "numpy upgraded beyond numba",
        sh(f"pip install {PINS_128}", "pip install -U numpy"),
        "RUN003",
        4,
        "dependency-pin-violated",
        "numpy==",
    ),
    Fault(
        "trl open beside vllm 0.10.2",
        sh("pip install vllm==0.10.2 trl 'transformers<5'"),
        "RUN003",
        3,
        "trl-vllm-range",
    ),
    Fault(
        "accelerate too old", sh("pip install transformers==4.56.2 accelerate==1.2.1"), "RUN004", 3, "library-too-old"
    ),
    Fault(
        "trl and transformers pinned apart",
        sh("pip install trl==0.23.1 transformers==5.2.0"),
        "RUN004",
        3,
        "transformers-too-new",
    ),
    Fault("python 3.8", sh("uv venv --python 3.8", "uv pip install torch==2.5.1"), "RUN005", 3, "python-unsupported"),
    Fault(
        "python 3.14 with vllm 0.10.2",
        sh("uv venv --python 3.14", "uv pip install vllm==0.10.2"),
        "RUN005",
        3,
        "python-unsupported",
    ),
    Fault(
        "vllm on arm too early", sh("pip install vllm==0.9.2", title=ARM), "RUN005", 3, "platform-no-wheel", "0.10.2"
    ),
    Fault(
        "old glibc",
        "```dockerfile\nFROM nvidia/cuda:12.9.0-devel-rockylinux8\nRUN pip install vllm==0.12.0\n```\n",
        "RUN005",
        3,
        "glibc-too-old",
        "2.31",
    ),
    Fault(
        "triton replaced",
        sh("pip install torch==2.5.1", 'pip install --upgrade "triton>=3.0.0"'),
        "RUN010",
        4,
        "dependency-pin-violated",
        "3.9.0",
    ),
    Fault(
        "torch upgraded",
        sh("uv pip install torch==2.8.0 --torch-backend=cu128", "pip install -U torch"),
        "RUN010",
        4,
        "dependency-pin-violated",
    ),
    Fault(
        "torch replaced by vllm",
        sh("pip install torch==2.9.1", "pip install vllm==0.10.2"),
        "RUN010",
        4,
        "vllm-torch-mismatch",
    ),
    Fault(
        "nightly replaced by the CPU build",
        sh(f"uv pip install --pre torch --index-url {CU}nightly/cu128", "uv pip install vllm==0.10.2", title=ARM),
        "RUN010",
        4,
        "torch-cpu-build",
    ),
    Fault(
        "torch of the container replaced",
        sh("docker run -it nvcr.io/nvidia/pytorch:24.10-py3", "pip install vllm==0.10.2"),
        "RUN010",
        4,
        "vllm-torch-mismatch",
    ),
    Fault("torch on arm", sh("pip install torch==2.8.0", title=ARM), "RUN011", 3, "torch-cpu-build", "12.9"),
    Fault("torch on arm through vllm", sh("uv pip install vllm==0.10.2", title=ARM), "RUN011", 3, "torch-cpu-build"),
    Fault(
        "nightly",
        sh(f"uv pip install --pre torch --index-url {CU}nightly/cu128"),
        "RUN012",
        3,
        "dependency-pin-violated",
    ),
    Fault(
        "config settings",
        sh(f"uv pip install {PINS_128} --config-settings vllm:torch-backend=auto"),
        "RUN020",
        3,
        "torch-cpu-build",
    ),
    Fault(
        "auto in a docker build",
        "```dockerfile\nFROM nvidia/cuda:12.8.0-devel-ubuntu22.04\nRUN uv pip install torch==2.8.0 "
        "--torch-backend=auto\n```",
        "RUN021",
        3,
        "torch-cpu-build",
    ),
    Fault(
        "auto on a login node",
        "# H100\nOn the login node:\n```bash\nuv pip install torch==2.8.0 --torch-backend=auto\n```\n",
        "RUN021",
        4,
        "torch-cpu-build",
    ),
    Fault("switch that nothing reads", sh("export TORCHINDUCTOR_DISABLE=1"), "RUN022", 3, "silent-slow-path"),
    Fault("switch before a command", sh("TORCHINDUCTOR_FUSE=0 python train.py"), "RUN022", 3, "silent-slow-path"),
    Fault(
        "switch in Python",
        py("import os", 'os.environ["TORCHINDUCTOR_DISABLE"] = "1"'),
        "RUN022",
        7,
        "silent-slow-path",
    ),
    Fault("bound without quotes", sh("pip install trl>=0.23"), "RUN023", 3, "dependency-pin-violated"),
    Fault(
        "wheel under another name",
        sh(
            "wget https://host.example/flash_attn_3-3.0.0b1-cp39-abi3-linux_aarch64.whl -O flash_attn_3.whl",
            title=ARM,
        ),
        "RUN030",
        3,
        "flash-attn-no-wheel",
    ),
    Fault(
        "wheel for another Python",
        sh(
            "uv venv --python 3.11",
            "uv pip install torch==2.8.0",
            "uv pip install https://host.example/flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        ),
        "RUN031",
        5,
        "python-unsupported",
    ),
    Fault(
        "wheel for another torch",
        sh(
            "pip install torch==2.5.1",
            "pip install https://host.example/flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        ),
        "RUN031",
        4,
        "torch-abi-mismatch",
    ),
    Fault(
        "wheel for the other ABI",
        sh(
            "pip install torch==2.5.1",
            "pip install https://host.example/flash_attn-2.8.3+cu12torch2.5cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        ),
        "RUN031",
        4,
        "torch-abi-mismatch",
    ),
    Fault(
        "wheel for another processor",
        sh(
            "pip install https://host.example/flash_attn_3-3.0.0b1-cp39-abi3-linux_x86_64.whl",
            title=ARM + " aarch64 aarch64",
        ),
        "RUN031",
        3,
        "platform-no-wheel",
    ),
    Fault(
        "wheel that the release lacks",
        sh(
            "pip install torch==2.10.0",
            "pip install https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/flash_attn-2.8.3+cu12torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
        ),
        "RUN032",
        4,
        "flash-attn-no-wheel",
    ),
    Fault(
        "flash-attn in isolation",
        sh("pip install torch==2.8.0", "pip install flash-attn==2.8.3"),
        "RUN040",
        4,
        "build-isolation-no-torch",
    ),
    Fault(
        "no setuptools in a uv venv",
        sh(
            "uv venv --python 3.11",
            "uv pip install torch==2.8.0",
            "uv pip install flash-attn==2.8.3 --no-build-isolation",
        ),
        "RUN041",
        5,
        "compiler-missing",
        "setuptools",
    ),
    Fault(
        "no torch before the build",
        sh(
            "uv venv --python 3.12",
            "uv pip install setuptools wheel packaging psutil ninja",
            "uv pip install flash-attn==2.8.3 --no-build-isolation",
        ),
        "RUN041",
        5,
        "build-isolation-no-torch",
        "torch",
    ),
    Fault(
        "flash-attn without a wheel",
        sh("pip install torch==2.11.0", "pip install flash-attn==2.8.3 --no-build-isolation"),
        "RUN042",
        4,
        "flash-attn-no-wheel",
    ),
    Fault(
        "runtime image",
        "```dockerfile\nFROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nRUN pip install "
        "git+https://github.com/Dao-AILab/flash-attention@v2.8.3 --no-build-isolation\n```",
        "RUN043",
        3,
        "cuda-home-missing",
    ),
    Fault(
        "MAX_JOBS",
        sh(
            "export CUDA_HOME=/usr/local/cuda-13.0",
            "pip install torch==2.11.0",
            "pip install flash-attn==2.8.3 --no-build-isolation",
        ),
        "RUN044",
        5,
        "host-oom-build",
    ),
    Fault(
        "kernels skipped",
        sh(
            "pip install torch==2.11.0",
            "FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE pip install flash-attn==2.8.3 --no-build-isolation",
        ),
        "RUN045",
        4,
        "flash-attn-no-wheel",
    ),
    Fault(
        "nvcc of apt",
        sh(
            "docker run -it ubuntu:22.04",
            "apt-get install -y nvidia-cuda-toolkit",
            "pip install torch==2.8.0",
            "pip install git+https://github.com/Dao-AILab/flash-attention@v2.8.3 --no-build-isolation",
        ),
        "RUN046",
        6,
        "nvcc-torch-mismatch",
    ),
    Fault(
        "NGC 24.10 as CUDA 12.8",
        sh("# CUDA 12.8", "docker pull nvcr.io/nvidia/pytorch:24.10-py3"),
        "RUN050",
        4,
        "driver-ptx-too-old",
        "25.01",
    ),
    Fault(
        "image that does not exist",
        sh("docker pull pytorch/pytorch:2.5.1-cuda12.8-cudnn9-devel"),
        "RUN050",
        3,
        "driver-ptx-too-old",
    ),
    Fault("CUDA 12.7", sh("docker pull nvidia/cuda:12.7.0-devel-ubuntu22.04"), "RUN050", 3, "driver-ptx-too-old"),
    Fault(
        "driver below CUDA 13",
        "| Driver | 570.148.08 |\n```bash\npip install torch==2.11.0\n```\n",
        "RUN051",
        3,
        "driver-too-old",
    ),
    Fault(
        "driver below vLLM's PTX",
        "| Treiber | 550.54.15 |\n```bash\npip install vllm==0.10.2 'transformers<5'\n```\n",
        "RUN051",
        3,
        "driver-ptx-too-old",
    ),
    Fault(
        "compat older than the driver",
        "| driver | 580.95.05 |\n```bash\napt-get install -y cuda-compat-12-8\n```\n",
        "RUN052",
        3,
        "cuda-compat-lib-conflict",
    ),
    Fault("apt toolkit", sh("sudo apt-get install -y nvidia-cuda-toolkit"), "RUN053", 3, "nvcc-torch-mismatch"),
    Fault(
        "no such build",
        sh(f"pip install torch==2.8.0 --index-url {CU}cu124"),
        "RUN054",
        3,
        "platform-no-wheel",
        "cu128",
    ),
    Fault(
        "no such build on arm",
        sh("uv pip install torch==2.8.0 --torch-backend=cu126", title=ARM),
        "RUN054",
        3,
        "platform-no-wheel",
        "cu129",
    ),
    Fault(
        "index hides PyPI",
        sh(f"pip install torch==2.5.1 transformers==4.56.2 --index-url {CU}cu124"),
        "RUN055",
        3,
        "dependency-pin-violated",
    ),
    Fault(
        "conda channel",
        sh("conda install pytorch=2.6.0 pytorch-cuda=12.4 -c pytorch -c nvidia"),
        "RUN056",
        3,
        "platform-no-wheel",
    ),
    Fault("cudatoolkit", sh("conda install pytorch cudatoolkit=11.8 -c pytorch"), "RUN056", 3, "platform-no-wheel"),
    Fault(
        "flash-attn 3", sh("pip install 'flash-attn>=3.0.0' --no-build-isolation"), "RUN060", 3, "flash-attn-no-wheel"
    ),
    Fault("flash-attn-3", sh("pip install flash_attn_3"), "RUN060", 3, "flash-attn-no-wheel"),
    Fault("triton-kernels", sh("uv pip install triton-kernels"), "RUN060", 3, "silent-slow-path"),
    Fault("pynvml", sh("pip install pynvml"), "RUN060", 3, "nvml-python-conflict"),
    Fault(
        "huggingface-cli",
        sh("pip install huggingface_hub", "huggingface-cli login"),
        "RUN061",
        4,
        "hub-auth",
        "hf auth login",
    ),
    Fault("token", sh("hf auth login --token hf_abcdefghijklmnopqrstuvwxyz0123"), "RUN062", 3, "hub-auth"),
    Fault(
        "repository without a tag",
        sh("pip install git+https://github.com/huggingface/trl.git"),
        "RUN063",
        3,
        "dependency-pin-violated",
    ),
    Fault(
        "verl's trainer is gone",
        sh("pip install verl==0.8.0", "torchrun -m verl.trainer.fsdp_sft_trainer"),
        "RUN064",
        4,
        "dependency-pin-violated",
    ),
    Fault(
        "verl's merger is not there yet",
        sh("pip install verl==0.3.0.post1", "python3 -m verl.model_merger merge"),
        "RUN064",
        4,
        "library-too-old",
    ),
    Fault(
        "examples of a wheel",
        sh("pip install verl==0.5.0", "bash examples/grpo_trainer/run_qwen2-7b.sh"),
        "RUN064",
        4,
        "library-too-old",
    ),
    Fault("import that proves nothing", sh('python -c "import flash_attn_3"'), "RUN065", 3, "silent-wrong-result"),
    Fault("bitsandbytes as a check", sh("python -m bitsandbytes"), "RUN065", 3, "silent-wrong-result"),
    Fault(
        "argument that never was",
        py("args = GRPOConfig(", "    max_new_tokens=256,", ")"),
        "RUN070",
        7,
        "dependency-pin-violated",
    ),
    Fault(
        "vllm_max_model_len",
        py('args = GRPOConfig(output_dir="x", vllm_max_model_len=4096)'),
        "RUN070",
        6,
        "dependency-pin-violated",
    ),
    Fault(
        "argument that came later",
        py("args = GRPOConfig(vllm_max_model_length=4096)"),
        "RUN070",
        6,
        "dependency-pin-violated",
    ),
    Fault(
        "argument that is gone",
        py("args = GRPOConfig(max_prompt_length=512)", pins="trl==1.16.0"),
        "RUN070",
        6,
        "dependency-pin-violated",
    ),
    Fault(
        "argument without effect",
        py("args = GRPOConfig(max_prompt_length=512)", pins="trl==0.27.1"),
        "RUN070",
        6,
        "silent-wrong-result",
    ),
    Fault(
        "tokenizer",
        py("trainer = GRPOTrainer(model=m,", "  tokenizer=tok)"),
        "RUN070",
        7,
        "dependency-pin-violated",
        "processing_class",
    ),
    Fault("loss of a later TRL", py('args = GRPOConfig(loss_type="cispo")'), "RUN071", 6, "library-too-old"),
    Fault(
        "sinks",
        py(
            'm = load("openai/gpt-oss-20b",',
            '  attn_implementation="flash_attention_3")',
            pins="transformers==4.57.1",
        ),
        "RUN072",
        7,
        "silent-wrong-result",
    ),
    Fault(
        "sleep mode",
        py("args = GRPOConfig(vllm_enable_sleep_mode=True)", pins="trl==0.27.1"),
        "RUN073",
        6,
        "silent-wrong-result",
    ),
    Fault(
        "liger with vllm",
        py("args = GRPOConfig(use_liger_loss=True, use_vllm=True)"),
        "RUN074",
        6,
        "silent-wrong-result",
    ),
    Fault(
        "liger without dapo",
        py("args = GRPOConfig(use_liger_loss=True)", pins="trl==0.23.1 liger-kernel==0.6.3"),
        "RUN074",
        6,
        "library-too-old",
    ),
    Fault(
        "4 bit on MXFP4",
        py('load("openai/gpt-oss-20b", BitsAndBytesConfig(load_in_4bit=True))'),
        "RUN075",
        6,
        "dependency-pin-violated",
    ),
    Fault(
        "old triton for MXFP4",
        py('load("openai/gpt-oss-20b")', pins="torch==2.5.1 'transformers==4.57.1' kernels==0.10.4"),
        "RUN075",
        3,
        "silent-slow-path",
    ),
    Fault(
        "dropout on experts",
        py("LoraConfig(target_parameters=[x], lora_dropout=0.05)"),
        "RUN076",
        6,
        "silent-wrong-result",
    ),
]
