"""Parsers for package lists of pip, uv and conda, for `pip show`, and for single versions in text."""

from __future__ import annotations

import re
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.preprocess import extract_command
from envdoctor.reports.section import Line, Section, distribution_name, first_group, is_version

TAGGED = lazy_pattern(r"\[(pip\d?|conda|uv)\]\s+(.*)$")
PINNED = lazy_pattern(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,80})\s?(?:\[[\w,-]{1,60}\])?==\s?([\w.+!-]{1,60})\s?(?:;.{0,200}|#.{0,200})?$"
)
CONDA_EXPORT = lazy_pattern(r"([a-z0-9_][\w.-]{0,80})=(\d[^=\s]{0,40})=([\w.]{1,60})$")  # `conda list --export`
AT_URL = lazy_pattern(r"([A-Za-z0-9][A-Za-z0-9._-]{0,80}) @ (\S{4,400})$")
COLUMN = lazy_pattern(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,80})\s{2,60}(\d[\w.+!-]{0,60})(?:\s+(\S.{0,200}))?$")
SPACED = lazy_pattern(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,80})\s(\d[\w.+!-]{0,60})(?:\s+(\S.{0,200}))?$")
# `name : version` as FlashInfer prints it, and a row of a Markdown table. The version has a dot, unlike `gpus : 8`.
LABELED = lazy_pattern(
    r"([a-z0-9][a-z0-9._-]{1,80})\s{0,60}:\s{1,8}(\d[\w+!-]{0,20}\.[\w.+!-]{0,60})(?:\s+(\S.{0,200}))?$"
)
ROW = lazy_pattern(
    r"(?:\|\s*)?`?([A-Za-z0-9_][\w.-]{0,80})`?\s*\|\s*[`v]?(\d[\w+!-]{0,20}\.[\w.+!-]{0,60})`?\s*(?:\|(.{0,300}?))?\|?$"
)
TREE_ROW = lazy_pattern(  # of pipdeptree
    r"[\s│├└─+|-]{0,60}([A-Za-z0-9][\w.-]{0,80}) \[required: [^\]]{1,80}, installed: (\d[\w.+!-]{0,60})\]$"
)
LABELS = ":"  # the remaining text of an entry that LABELED matched
NOT_PACKAGES = frozenset({
    "python", "cuda", "cudnn", "nccl", "driver", "glibc", "libc", "os", "gcc", "nvcc", "kernel", "cmake", "rocm",
    "clang", "compute", "capability", "ubuntu", "conda", "docker", "nvidia-smi",
})  # fmt: skip
# Build strings of conda: `cuda126_py312h1763f6d_306`, `py3.10_cuda12.1_cudnn8.9.2_0`, `cpu_mkl_h0bb0d08_100`.
CONDA_BUILD = lazy_pattern(r"(?:py(?:pi|py|thon|\d)|\w+_\d+(?:\s|$)|h[0-9a-f]{7}_|(?:cuda|cpu)\w*_)")
CONDA_CUDA = lazy_pattern(r"cuda_?(\d{2})\.?(\d)")
HEADER = lazy_pattern(
    r"(?:Package\s+Version|# Name\s+Version|List of packages in environment|# packages in environment"
    r"|Name\s+Version\s+Build|\|?\s*(?:Package|Library|Name|Module|Dependency)\s*\|\s*Version\s*(?:\||$))"
)
LIST_COMMAND = lazy_pattern(
    r"(?:\S*python\S* -m )?(?:\S*/)?(?:uv )?(?:pip[\d.]{0,4} |(?:conda|mamba|micromamba|pixi) list)"
)
PAIR = lazy_pattern(
    r"[-*\u2022\u00b7\s]{0,6}[`*\"']{0,3}([A-Za-z][A-Za-z0-9._ -]{1,30}?)[`*\"']{0,3}\s?(?:[vV]ersion)?[`*\"']{0,3}"
    r"\s?(?::|==?|\s)\s?[`*\"']{0,3}v?(\d[\w.+!-]{0,60}?)[`*\"',;.]{0,3}"
    # a remark: `vllm 0.17.1 (failed to install)`
    r"(?: ?\((?!.{0,40}(?:\bnot?\b|n't|requir|need|latest|tested|recommend|work|fine))[a-zA-Z][a-zA-Z ,.!]{2,50}\))?$"
)
# A single line with the name and version of one of these packages counts as an installed version. Other names
# followed by a number are too common in prose.
KNOWN_PACKAGES = frozenset({
    "accelerate", "albucore", "albumentations", "altair", "anthropic", "asteroid-filterbanks", "auto-gptq",
    "auto-round", "autoawq", "autoawq-kernels", "axolotl", "basicsr", "bert-score", "bitsandbytes", "blis", "bokeh",
    "bottleneck", "causal-conv1d", "chex", "click", "codetiming", "colossalai", "compressed-tensors", "contourpy",
    "ctranslate2", "cucim-cu12", "cuda-bindings", "cuda-python", "cudf-cu12", "cudf-cu13", "cudf-polars-cu12",
    "cuml-cu12", "cupy-cuda110", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "dask-cuda", "dask-cudf-cu12",
    "datasets", "decord", "deep-ep", "deep-gemm", "deepspeed", "demucs", "depyf", "descript-audio-codec",
    "descript-audiotools", "detectron2", "dgl", "diffusers", "dill", "dm-control", "dm-haiku", "e3nn", "einops",
    "equinox", "evaluate", "exllamav2", "exllamav3", "faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12",
    "fastai", "fastapi", "faster-whisper", "fbgemm-gpu", "fla-core", "flagembedding", "flash-attn", "flash-attn-3",
    "flash-linear-attention", "flashinfer", "flashinfer-cubin", "flashinfer-jit-cache", "flashinfer-python", "flax",
    "fsspec", "g2p-en", "gcsfs", "gfpgan", "gguf", "google-api-core", "google-cloud-aiplatform",
    "googleapis-common-protos", "gptqmodel", "gradio", "gradio-client", "groq", "grpcio", "grpcio-reflection",
    "grpcio-status", "grpcio-tools", "gsplat", "gymnasium", "h5py", "haystack-ai", "hdbscan", "hf-xet", "httpx",
    "huggingface-hub", "humming-kernels", "hydra-core", "imgaug", "insightface", "invisible-watermark", "jax",
    "jax-cuda12-pjrt", "jax-cuda12-plugin", "jax-cuda13-pjrt", "jax-cuda13-plugin", "jaxlib", "jiwer", "jmp",
    "keras", "keras-hub", "keras-nlp", "kernels", "kfp", "kornia", "langchain", "langchain-community",
    "langchain-core", "langchain-huggingface", "langchain-openai", "langchain-text-splitters", "langgraph",
    "langgraph-checkpoint", "langgraph-prebuilt", "langgraph-sdk", "langsmith", "latex2sympy2-extended", "lerobot",
    "librosa", "liger-kernel", "lighteval", "lightgbm", "lightning", "lightning-thunder", "lightning-utilities",
    "litellm", "llama-cpp-python", "llama-index", "llama-index-core", "llama-index-embeddings-openai",
    "llama-index-llms-openai", "llamafactory", "llguidance", "llmcompressor", "llvmlite", "lm-eval",
    "lm-format-enforcer", "lmcache", "lmdeploy", "mamba-ssm", "math-verify", "matplotlib", "mediapipe",
    "megatron-core", "mistral-common", "mkl", "ml-dtypes", "mlflow", "mlflow-skinny", "mlflow-tracing", "mlx", "mmcv",
    "mmcv-full", "mmdet", "mmdet3d", "mmengine", "mmpose", "mmpretrain", "mmsegmentation", "modelscope", "moviepy",
    "ms-swift", "mteb", "multiprocess", "mxnet", "natten", "nccl4py", "nemo-toolkit", "nixl", "nltk", "numba",
    "numba-cuda", "numcodecs", "numexpr", "numpy", "nunchaku", "nvidia-cublas-cu11", "nvidia-cublas-cu12",
    "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu11",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base", "nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130",
    "nvidia-ml-py", "nvidia-modelopt", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nvjitlink-cu12",
    "nvidia-resiliency-ext", "omegaconf", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-directml",
    "onnxruntime-gpu", "onnxscript", "open-clip-torch", "openai", "openai-harmony", "opencv-contrib-python",
    "opencv-contrib-python-headless", "opencv-python", "opencv-python-headless", "openrlhf", "opentelemetry-proto",
    "opentelemetry-sdk", "optax", "optimum", "optimum-intel", "optimum-onnx", "optimum-quanto", "orbax-checkpoint",
    "outlines", "outlines-core", "packaging", "paddleocr", "paddlepaddle", "paddlepaddle-gpu", "paddlex", "pandas",
    "peft", "pillow", "proto-plus", "protobuf", "psutil", "pyannote-audio", "pyannote-core", "pyannote-database",
    "pyannote-metrics", "pyannote-pipeline", "pyarrow", "pybind11", "pycocotools", "pydantic", "pydantic-core",
    "pydantic-settings", "pyg-lib", "pylibcudf-cu12", "pylibraft-cu12", "pynndescent", "pynvml", "pyro-ppl",
    "pytorch-lightning", "pytorch-triton", "pytorch3d", "pywavelets", "pyworld", "quack-kernels", "qwen-vl-utils",
    "raft-dask-cu12", "ragas", "rapids-dask-dependency", "ray", "resampy", "rmm-cu12", "s3fs", "sacrebleu",
    "safetensors", "scikit-image", "scikit-learn", "scipy", "seaborn", "sentence-transformers", "sentencepiece",
    "setuptools", "sgl-kernel", "sglang", "sglang-kernel", "shapely", "skl2onnx", "skypilot", "smolagents", "spacy",
    "spacy-transformers", "spconv-cu118", "spconv-cu120", "spconv-cu121", "spconv-cu126", "sse-starlette",
    "starlette", "statsmodels", "streamlit", "swanlab", "tbparse", "tensorboard", "tensorboardx", "tensordict",
    "tensorflow", "tensorflow-cpu", "tensorflow-datasets", "tensorflow-gpu", "tensorflow-hub", "tensorflow-metadata",
    "tensorflow-probability", "tensorflow-text", "tensorrt", "tensorrt-cu12", "tensorrt-llm", "tensorstore",
    "tf-keras", "thinc", "tiktoken", "tilelang", "timm", "tokenizers", "torch", "torch-audiomentations",
    "torch-cluster", "torch-geometric", "torch-pitch-shift", "torch-scatter", "torch-sparse", "torch-spline-conv",
    "torch-tensorrt", "torchao", "torchaudio", "torchcodec", "torchdata", "torchdiffeq", "torchmetrics", "torchrl",
    "torchsde", "torchtext", "torchtune", "torchvision", "trackio", "transferqueue", "transformer-engine",
    "transformer-engine-cu12", "transformer-engine-cu13", "transformer-engine-jax", "transformer-engine-torch",
    "transformers", "triton", "triton-kernels", "triton-windows", "trl", "typer", "ucxx-cu12", "ultralytics",
    "umap-learn", "unsloth", "unsloth-zoo", "uvicorn", "vector-quantize-pytorch", "verl", "vllm", "vllm-flash-attn",
    "wandb", "webrtcvad", "whisperx", "x-transformers", "xarray", "xformers", "xfuser", "xgboost", "xgrammar",
    "xtuner", "zarr",
})  # fmt: skip
QUANTITY = lazy_pattern(r"\d{1,3}(?:px|gb|mb|gib|x|b|k)$", re.IGNORECASE)


def parse_tagged_packages(lines: list[Line], kind: str) -> Section:
    """Parse the package list of collect_env: `[pip3] torch==2.4.0`, `[conda] pytorch   2.1.0   py3.10_cuda12.1_0`."""
    section = Section(kind)
    for line in lines:
        match = TAGGED.match(line.text) if line.text[0] == "[" else None
        if not match:
            continue
        section.consumed.add(line.number)
        if match[1] == "conda":
            add_conda_package(section, match[2].split())
        elif pinned := PINNED.match(match[2]) or SPACED.match(match[2]) or COLUMN.match(match[2]):
            section.add_distribution(pinned[1], pinned[2])
    return section


def add_conda_package(section: Section, words: list[str]) -> bool:
    """Record name, version, build and channel. Packages of the channel `pypi` were installed by pip."""
    if len(words) < 2:
        return False
    from_pip = "pypi" in words[2:]
    if not is_version(words[1]):  # `[conda] Could not collect`
        return False
    section.set_fact("stack.kind", "conda", "conda lists packages")
    if words[0] == "python":
        section.set_fact("stack.python_version", words[1])
    if words[0] in ("pytorch", "libtorch") and not from_pip and len(words) > 2:
        if cuda := CONDA_CUDA.search(words[2]):
            section.set_fact("stack.torch.cuda", f"{cuda[1]}.{cuda[2]}", f"conda build {words[2]}")
        elif re.search(r"(?:^|_)cpu(?:_|$)", words[2]):
            section.set_absent("stack.torch.cuda", f"a build without CUDA (conda build {words[2]})")
    channel = " conda-forge" if "conda-forge" in words[2:] else ""  # the source is that of an installed environment
    return section.add_distribution(words[0], words[1], "pip" if from_pip else f"conda{channel}")


CONDA_DIST = lazy_pattern(r"([a-z0-9_][\w.-]{0,80})-(\d[\w.!+]{0,40})-([\w.]{1,60})$")
CONDA_JSON_KEYS = frozenset(
    {"base_url", "build_number", "build_string", "channel", "dist_name", "name", "platform", "version"}
)


def parse_conda_json(lines: list[Line]) -> Section | None:
    """Parse `conda list --json`, whose `dist_name` has the name, the version and the build.

    ```
    "channel": "conda-forge",
    "dist_name": "pytorch-2.6.0-cuda126_py311_h0_200",
    ```
    """
    section = Section("conda list")
    for line in lines:
        match = CONDA_DIST.match(line.value) if line.key == "dist_name" else None
        if match:
            add_conda_package(section, [match[1], match[2], match[3], match[3].partition("_")[0]])
    if section.distributions:
        section.consumed.update(line.number for line in lines if line.key in CONDA_JSON_KEYS)
    return section if section.distributions else None


def parse_package_lists(lines: list[Line]) -> list[Section]:
    """Parse `name==version` lists and the tables of pip, uv and conda.

    A list follows a command or a header. Without one, `_add_run` decides by length and package names.

    ```
    $ uv pip list                        $ pip freeze              # packages in environment at /opt/conda:
    Using Python 3.12.3 environment at   accelerate==1.11.0        # Name      Version   Build   Channel
    Package      Version                 flash_attn @ file:///...  torch       2.7.0     pypi_0  pypi
    ------------ -------
    ```
    """
    sections: dict[str, Section] = {}
    current = ""  # kind of the list, from the last command or header
    run: list[tuple[Line, str, str, str]] = []
    for line in [*lines, Line(-1, ".")]:
        new_kind = list_kind(line.text)
        entry = None if new_kind else _parse_entry(line.text, current)
        if entry and line.number >= 0:
            run.append((line, *entry))
            continue
        _add_run(sections, run, current)
        run = []
        if new_kind:
            current = current if (new_kind, current) == ("pip list", "uv pip list") else new_kind  # its header
            section = sections.setdefault(current, Section(current))
            section.consumed.add(line.number)
        elif _is_list_decoration(line.text):
            current = _record_uv_environment(sections, current, line)
        else:
            current = ""
    return [section for section in sections.values() if section.distributions]


def list_kind(text: str) -> str:
    """The kind of list that a command or header starts; empty if it starts none."""
    if HEADER.match(text):
        if "Kind" in text and "Build" in text:
            return "pixi list"
        return "conda list" if "Build" in text or text.startswith("#") else "pip list"
    if not ("pip" in text or any(f"{name} list" in text for name in ("conda", "mamba", "pixi"))):
        return ""
    command = extract_command(text) or text
    if not LIST_COMMAND.match(command) or len(command) > 200:
        return ""
    if match := re.search(r"(conda|mamba|pixi) list", command):
        return "pixi list" if match[1] == "pixi" else "conda list"
    uv = "uv " if command.startswith("uv ") else ""
    verb = next((verb for verb in ("freeze", "list") if verb in command.split()), "")
    return f"{uv}pip {verb}" if verb else ""


def _parse_entry(text: str, current: str) -> tuple[str, str, str] | None:
    """Name, version and remaining text of one line of a list. The remaining text of a pin is `==`."""
    if len(text) > 600:
        return None
    if match := PINNED.match(text) or TREE_ROW.match(text) or CONDA_EXPORT.match(text):
        return match[1], match[2], f"{match[3]} conda" if match.re.pattern == CONDA_EXPORT.pattern else "=="
    if match := AT_URL.match(text):
        wheel = first_group(r"/[A-Za-z0-9_.]{1,80}?-(\d[\w.+!%]{0,60}?)-(?:py|cp)\d[^/]{0,120}\.whl", match[2])
        return match[1], wheel.replace("%2B", "+"), "=="
    # The second pattern is for tables whose padding was trimmed.
    if match := COLUMN.match(text) or (SPACED.match(text) if current.endswith("list") else None):
        return match[1], match[2], match[3] or ""
    row = ROW.match(text) if "|" in text else None
    match = row or LABELED.match(text)
    if match and (current or match[1].lower() not in NOT_PACKAGES) and is_version(match[2]):
        return match[1], match[2], (match[3] or "").replace("|", " ") if row else LABELS
    return (text.rpartition("#egg=")[2], "", "==") if text.startswith("-e ") and "#egg=" in text else None


def _add_run(sections: dict[str, Section], run: list[tuple[Line, str, str, str]], current: str) -> None:
    """Add consecutive entries if they form a list: after a command, or with enough entries and a known package."""
    if not run:
        return
    known_count = sum(
        1 for _, name, version, _ in run if distribution_name(name) in KNOWN_PACKAGES and is_version(version)
    )
    min_entries = 2 if run[0][3] == "==" else 3
    is_table = known_count and run[0][3] not in ("==", LABELS)
    if (not current or run[0][3] == LABELS) and not (len(run) >= min_entries and known_count) and not is_table:
        return
    kind = current or _kind_of_run([details for *_, details in run])
    section = sections.setdefault(kind, Section(kind))
    for line, name, version, details in run:
        if kind in ("conda list", "pixi list"):
            add_conda_package(section, [name, version, *details.split()])
        else:
            section.add_distribution(name, version)
        section.consumed.add(line.number)


def _kind_of_run(details: list[str]) -> str:
    """The kind of a list without command and header, from the texts after the versions."""
    if details[0] == "==":
        return "pip freeze"
    if any(re.search(r"iB\s+(?:conda|pypi)\b", each) for each in details):
        return "pixi list"
    is_conda = any(CONDA_BUILD.match(each) or each.endswith(" conda") for each in details)
    return "conda list" if is_conda else "pip list"


def _is_list_decoration(text: str) -> bool:
    """Whether a line may occur inside a list: rules, comments, code fences, notices of pip."""
    return (
        not text.strip("-= `~|:").removeprefix("Channel").strip("-= `~|:")
        or text[0] == "#"
        or text.startswith(
            ("-e ", "Using Python", "Using CPython", "WARNING:", "[notice]", "DEPRECATION:", "warning:")
        )
    )


def _record_uv_environment(sections: dict[str, Section], current: str, line: Line) -> str:
    """uv names its environment: `Using Python 3.11.13 environment at: /home/user/nano`. Returns the kind of list."""
    if version := first_group(r"^Using (?:C?Python) (\d\.\d{1,2}\.\d{1,2})", line.text):
        current = current or "uv pip list"
        section = sections.setdefault(current, Section(current))
        section.set_fact("stack.python_version", version)
        section.set_fact("stack.python", first_group(r"environment at:? ([^\s|]\S{0,200})$", line.text))
    if current in sections:
        sections[current].consumed.add(line.number)
    return current


def parse_pip_show(lines: list[Line]) -> Section | None:
    """Parse `pip show`: blocks that begin with `Name: torch` and `Version: 2.4.0+cu121`."""
    section = Section("pip show")
    name, name_line = "", 0
    for line in lines:
        if command := SHOW_COMMAND.search(line.text):  # its output may be filtered: `pip show torch | grep Version`
            name, name_line = command[1], line.number
        elif line.key == "name" and re.fullmatch(r"[A-Za-z0-9][\w.-]{0,80}", line.value):
            name, name_line = line.value, line.number
        elif name and line.key == "version" and line.number - name_line < 4:
            if section.add_distribution(name, line.value.split(" ")[0]):
                section.consumed.update((name_line, line.number))
        elif name and line.key in SHOW_KEYS and line.number - name_line < 20:
            if name_line in section.consumed:
                section.consumed.add(line.number)
                if line.key == "location":
                    version = first_group(r"/python(3\.\d{1,2})/(?:site|dist)-packages", line.value)
                    section.set_fact("stack.python_version", version, "from a path")
        elif line.text != "---" and line.key not in SHOW_KEYS:
            name = ""
    return section if section.distributions else None


LOCKED_NAME, LOCKED_VERSION = (
    lazy_pattern(r'name = "([\w.-]{2,60})"$'),
    lazy_pattern(r'version = "(\d[\w.+!]{0,40})"$'),
)


def parse_lock_entries(lines: list[Line]) -> Section | None:
    """Parse entries of uv.lock and poetry.lock: `name = "torch"`, then `version = "2.6.0+cpu"`.

    A package with several versions has one for each platform; which one is installed is unknown.
    """
    section = Section("lock entries of pip")
    for line, following in pairwise(lines):
        name, version = LOCKED_NAME.match(line.text), LOCKED_VERSION.match(following.text)
        if name and version and section.add_distribution(name[1], version[1]):
            section.consumed |= {line.number, following.number}
    for several in [name for name, versions in section.versions.items() if len(set(versions)) > 1]:
        section.remove_distribution(several)
    return section if section.distributions else None


SHOW_COMMAND = lazy_pattern(r"\bpip\d? show ([A-Za-z][\w.-]{1,60})(?=\s*(?:$|\||2>|\)))")
SHOW_KEYS = frozenset({
    "summary", "home-page", "author", "author-email", "license", "location", "requires", "required-by",
    "editable project location", "license-expression",
})  # fmt: skip


def parse_version_pairs(lines: list[Line]) -> Section | None:
    """Parse known packages with versions: `torch: 2.3.0`, `- flash-attn 2.5.7`, `vllm 0.6.3, torch 2.4.0`."""
    section = Section("package versions")
    for line in lines:
        text = line.text
        if len(text) > 160 or not any(character.isdigit() for character in text):
            continue
        parts = [part for part in re.split(r"[,;|] ?", text) if part.strip()] if len(text) < 120 else [text]
        pairs = [PAIR.match(part) for part in parts[:12]]
        if not all(pairs):
            continue
        known_pairs = [
            (pair[1], pair[2])
            for pair in pairs
            if pair and distribution_name(_strip_version_word(pair[1])) in KNOWN_PACKAGES
        ]
        if not known_pairs or (len(parts) == 1 and "==" in text):
            continue
        for name, version in known_pairs:
            is_release = "." in version and not QUANTITY.match(version)
            added = is_release and section.add_distribution(_strip_version_word(name), version)
            if added and len(known_pairs) == len(pairs):  # else the line names a GPU or a driver as well
                section.consumed.add(line.number)
    return section if section.distributions else None


def _strip_version_word(name: str) -> str:
    return re.sub(r"\s*(?:version|__version__|\.version)$", "", name.strip(), flags=re.IGNORECASE)
