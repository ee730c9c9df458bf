"""The cause of a violated requirement, and how much it matters."""

from __future__ import annotations

from envdoctor.core.records import Status
from envdoctor.knowledge.bounds import has_bounds
from envdoctor.knowledge.releases import numpy2_releases
from envdoctor.knowledge.versions import satisfies, version_key
from envdoctor.rules.requirements import (
    CHECKED_AT_IMPORT,
    COMPANIONS,
    COMPILED,
    CORE,
    Violation,
    same_minor,
)

# Bounds on these are precautions; other versions work as well.
UNIMPORTANT = frozenset({"setuptools", "fsspec", "packaging", "wheel", "ninja", "cmake", "typing-extensions"})
# An old version of these causes ImportError or AttributeError in the packages that use them.
LIBRARIES = frozenset({"torch", "transformers", "accelerate", "peft", "trl", "datasets", "bitsandbytes", "diffusers"})

# Upper bounds on these name the newest release that was tested; most packages run with the next one as well.
OFTEN_EXCEEDED = frozenset({
    "anthropic", "click", "dill", "fastapi", "google-api-core", "googleapis-common-protos", "grpcio",
    "grpcio-status", "h5py", "hf-xet", "httpx", "imageio", "kubernetes", "litellm", "matplotlib", "mcp",
    "multiprocess", "nltk", "openai", "pandas", "protobuf", "scipy", "sentencepiece", "starlette", "tensorboard",
    "tiktoken", "uvicorn", "wandb",
})  # fmt: skip
# Requirements that lock files of projects override (1,801 frozen sets, 2026-11-26), or whose bound is a precaution.
VIOLATED_IN_USE = frozenset({("megatron-core", "numpy"), ("datasets", "fsspec"), ("open-clip-torch", "timm")})
# Compiled with NumPy, in addition to the rows of companions.toml; others are Python code.
COMPILED_WITH_NUMPY = frozenset({
    "blis", "jaxlib", "numba", "opencv-contrib-python", "opencv-contrib-python-headless", "spacy", "tensorflow-cpu",
    "tensorflow-text", "tensorstore",
})  # fmt: skip
# With code that protoc generated, by releases up to 3 in older ones.
WITH_PROTOC_CODE = frozenset({"tensorflow", "tensorflow-cpu", "tensorboard", "tensorflow-metadata"})
# Without their compiled code the packages that import them run: decoding fails, or quantized models.
NEEDED_BY_FEATURES = frozenset({"torchcodec", "auto-gptq", "autoawq-kernels"})
# Compared with the installed version when the first package is imported, which fails outside of the range.
CHECKED_BY = {
    "transformers": CHECKED_AT_IMPORT,
    "numba": frozenset({"numpy"}),
    "transformer-engine": frozenset({"transformer-engine-cu12", "transformer-engine-cu13"}),
}


def cause_of(violation: Violation, versions: dict[str, str]) -> str:
    """The most specific cause of a violated requirement."""
    name = violation.name
    if name == "torch":
        return _cause_of_torch(violation, versions)
    if name in COMPANIONS and name != "torchao":  # torchao runs with other releases of torch, without its kernels
        return "torch-companion-mismatch"
    if name.startswith("nvidia-nccl"):
        return "nccl-lib-mismatch"
    if name == "transformers":
        return "library-too-old" if violation.too_old else "transformers-too-new"
    if name == "numpy" and not violation.too_old and _excludes_numpy_2(violation):
        return "numpy2-abi"
    return "library-too-old" if violation.too_old and name in LIBRARIES else "dependency-pin-violated"


def _cause_of_torch(violation: Violation, versions: dict[str, str]) -> str:
    if violation.requirer == "vllm":
        return "vllm-torch-mismatch"
    if violation.requirer in COMPANIONS:
        return "torch-companion-mismatch"
    if violation.requirer in COMPILED:
        return "torch-abi-mismatch"
    if violation.requirer == "triton-windows":
        return "dependency-pin-violated"
    if "vllm" in versions:
        return "vllm-torch-mismatch"
    return "library-too-old" if violation.too_old else "dependency-pin-violated"


def _excludes_numpy_2(violation: Violation) -> bool:
    return satisfies("2.0.0", violation.specifier) is False and satisfies(violation.installed, ">=2.0.0a1") is True


def severity_of(violation: Violation) -> Status:
    """Error if the import or the start fails, warning for what is used with a GPU, else info."""
    requirer, name = violation.requirer, violation.name
    if (requirer, name) in VIOLATED_IN_USE:
        return "info"
    if name in CHECKED_BY.get(requirer, frozenset()):
        return "error"
    if name == "torch" and requirer in COMPANIONS | COMPILED | {"vllm"}:
        bound = violation.specifier.lstrip("=<>~!").split(",")[0]
        return "warning" if requirer in NEEDED_BY_FEATURES or same_minor(bound, violation.installed) else "error"
    if name == "transformers" and requirer in CORE:
        return "error" if violation.too_old or _other_major(violation) else "warning"
    return "warning" if _is_reported(violation) else "info"


def _is_reported(violation: Violation) -> bool:
    requirer, name = violation.requirer, violation.name
    if name.startswith("nvidia-"):
        return violation.too_old and name.startswith("nvidia-nccl")
    if name in UNIMPORTANT or name.startswith("opentelemetry-"):
        return False
    if name == "numpy" and not violation.too_old and not _excludes_numpy_2(violation):
        return False  # `<2.4` is a precaution; numba, which compares the versions, is in CHECKED_BY
    return requirer in CORE or (has_bounds(requirer) and _can_matter(violation))


def _can_matter(violation: Violation) -> bool:
    """Whether a requirement of a package that is no part of training or serving explains a failure.

    protobuf 4 rejects the code of older releases of protoc, which TensorFlow contains: `Descriptors cannot be created
    directly`. Other bounds on protobuf, and lower bounds on NumPy, name the releases that were tested.
    """
    requirer, name = violation.requirer, violation.name
    if name == "numpy":
        return not violation.too_old and (
            requirer in COMPILED_WITH_NUMPY or any(row.package == requirer for row in numpy2_releases())
        )
    if name == "protobuf":
        rejected = satisfies("4.0", violation.specifier) is False and satisfies(violation.installed, ">=4") is True
        return requirer in WITH_PROTOC_CODE and (rejected or violation.too_old)
    if name == "keras":
        return violation.too_old  # TensorFlow 2.15 and older work with Keras 3, which its guide installs after them
    return name not in OFTEN_EXCEEDED or (violation.too_old and not violation.is_exact)


def _other_major(violation: Violation) -> bool:
    have = version_key(violation.installed)
    limit = version_key(violation.specifier.rpartition("<")[2].lstrip("="))
    return bool(have and limit and have[0][0] >= limit[0][0] and limit[1] == (4, 0) and len(limit[0]) == 1)
