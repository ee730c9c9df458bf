"""Home directories that a user of a container lacks, and runtimes of containers without NVIDIA's tools."""

from __future__ import annotations

from support.cases import each_case
from support.explained import first_cause

CACHE = "There was a problem when trying to write in your cache folder ({}). You should set the environment variable"
NO_CPU_BNB = "UserWarning: The installed version of bitsandbytes was compiled without GPU support. 8-bit optimizers"
NO_DRIVER = "CUDA SETUP: WARNING! libcuda.so not found! Do you have a CUDA driver installed?\n"
NO_CLI = 'exec: "/usr/bin/nvidia-container-cli": stat /usr/bin/nvidia-container-cli: no such file or directory'


@each_case(
    ("text", "cause"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/home/triton-server'", "directory-not-writable"),
        ("`PermissionError: [Errno 13] Permission denied: '/home/app`", "directory-not-writable"),
        ("PermissionError: [Errno 13] Permission denied: '/nonexistent'", "directory-not-writable"),
        (CACHE.format("/nonexistent/.cache/huggingface/hub"), "directory-not-writable"),
        (CACHE.format("/workspace/.cache/huggingface/transformers/"), "directory-not-writable"),
        (f"FATAL:   container creation failed: {NO_CLI}", "container-no-gpu"),
        (NO_DRIVER + NO_CPU_BNB, "libcuda-not-found"),
        (NO_CPU_BNB, "bnb-no-cuda-binary"),
    ],
)
def test_messages_have_their_cause(text: str, cause: str) -> None:
    assert first_cause(text) == cause


@each_case(
    "text",
    [
        "The home directory /home/ml is on the file server.",
        "nvidia-container-cli --version prints cli-version: 1.17.4",
        "HF_HOME is /data/huggingface, and the cache folder has 120 GiB free.",
        "INFO:    Setting --writable-tmpfs (required by nvidia-container-cli)",
    ],
)
def test_healthy_lines_have_none(text: str) -> None:
    assert first_cause(text) is None
