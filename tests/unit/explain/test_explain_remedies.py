"""Remedies of the tables: every notation is bounded, no value is invented, exact commands for real texts."""

from __future__ import annotations

import io
import re

from support.cases import each_case
from support.explained import explain_text
from support.remedies import commands_of
from support.report_stack import make_machine, torch_stack

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import Install, UserCommand, parse_step
from envdoctor.explain import explain
from envdoctor.explain.placeholders import (
    NEWER_TRANSFORMERS,
    PLACEHOLDER,
    bounded,
    distribution_of,
    fill_remedies,
    text_values,
)
from envdoctor.explain.rank import Cause
from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.remedies import pin_remedies
from envdoctor.rules import evaluate

H100 = make_machine(["NVIDIA H100 80GB HBM3"], driver="575.57.08", driver_cuda="12.9")
HARMLESS_INSTALLERS = ("conda ", "pdm ", "envdoctor ", "python -m ipykernel ")
# Values of the placeholders that are not versions.
VALUES = {"torch_set": "torch==2.8.0 torchvision==0.23.0 --torch-backend=cu128 --reinstall-package torchvision",
          "newer_transformers": NEWER_TRANSFORMERS}  # fmt: skip
NUMPY = ("uv pip show numpy", "uv pip install 'numpy>=1.26,<2'")
NOTATIONS = [
    (name, line)
    for name, notation in (
        *((symptom.id, symptom.remedies or ()) for symptom in symptom_table().symptoms),
        *((cause.slug, cause.remedies) for cause in causes().values()),
    )
    for remedy in notation
    for line in ([remedy] if isinstance(remedy, str) else remedy)
]


def sample_value(placeholder: re.Match[str]) -> str:
    version = "a==1" if re.search("pin$|vllm$|requirements?$", placeholder[1]) else "12"
    return VALUES.get(placeholder[1], version)


def first_cause(text: str, machine: Machine | None = None, stack: Stack | None = None) -> Cause:
    return explain_text(text, machine, stack).causes[0]


def test_every_notation_is_bounded_and_has_no_default() -> None:
    """No `pip install`, no upgrade without versions, no removal by a pattern, and no value that is only a guess."""
    assert len(NOTATIONS) > 250
    for name, line in NOTATIONS:
        assert "{" not in PLACEHOLDER.sub(lambda match: "" if match[2] is None else "{", line), (name, line)
        step = parse_step(PLACEHOLDER.sub(sample_value, line))
        if isinstance(step, Install) and "{requested}" not in line:  # the release is that of the message
            assert all(re.search("==|<|~=", package) for package in step.packages), (name, line)
        elif isinstance(step, UserCommand) and not line.startswith(HARMLESS_INSTALLERS):
            assert not re.search(r"\binstall\b|--upgrade|^export ", line), (name, line)
        assert not re.search(r"(?<!-)\brm\b|rmmod|&& sudo|;.*sudo", line), (name, line)


def test_a_reboot_is_never_the_first_step_or_the_first_alternative() -> None:
    for notation in (
        *(row.remedies or () for row in symptom_table().symptoms),
        *(c.remedies for c in causes().values()),
    ):
        lines = [line for remedy in notation for line in ([remedy] if isinstance(remedy, str) else remedy)]
        assert not lines or "reboot" not in lines[0], lines


TAGS = (
    "hint: You require CPython 3.11 (`cp311`), but we only found wheels for `a` (v1) "
    "with the following Python ABI tags: "
)

NO_TORCH = "ERROR: Could not find a version that satisfies the requirement {} (from versions: {})"


@each_case(
    ("text", "commands"),
    [
        (TAGS + "`cp37m`, `cp38`, `cp39`, `cp310`", ["uv venv --python 3.10 .venv-3.10"]),
        (TAGS + "`cp36m`, `cp37m`", []),  # uv has no Python below 3.8
        (
            "ERROR: Package 'verl' requires a different Python: 3.8.10 not in '>=3.10'",
            ["uv venv --python 3.12 .venv-3.12"],
        ),
        (
            "ERROR: Package 'a' requires a different Python: 3.12.3 not in '<3.11,>=3.8'",
            ["uv venv --python 3.10 .venv-3.10"],
        ),
        ("ERROR: Package 'a' requires a different Python: 3.12.3 not in '<3.8'", []),
        (
            "  - pytorch==1.9.0 -> python[version='>=3.8,<3.9.0a0|>=3.9,<3.10.0a0']",
            ["conda create --name env-3.9 python=3.9"],
        ),
        (NO_TORCH.format("torch==2.1.2 (from llava)", "2.2.0, 2.3.1"), ["uv venv --python 3.11 .venv-3.11"]),
        (
            NO_TORCH.format("torch==2.9.0 (from -r r.txt (line 3))", "2.0.0, 2.8.0"),
            ["uv venv --python 3.12 .venv-3.12"],
        ),
        (NO_TORCH.format("torch==1.9.0", "1.11.0, 1.13.1"), []),  # no Python of that release is recorded
        (NO_TORCH.format("torch==2.4.1", "2.1.0, 2.2.2"), ['python -c "import platform; print(platform.machine())"']),
        (
            "  - package vllm-0.6.0 requires python >=3.10,<3.11.0a0, but none of the providers can be installed",
            ["conda create --name env-3.10 python=3.10"],
        ),
    ],
)
def test_the_python_of_a_command_is_one_that_the_message_permits(text: str, commands: list[str]) -> None:
    assert list(commands_of(first_cause(text))) == commands


@each_case(
    ("notation", "values", "commands"),
    [
        ((("nvidia-smi -L", "sudo nvidia-smi --gpu-reset -i {bus_id}"),), {}, ["nvidia-smi -L"]),
        ((("nvidia-smi -L", "sudo nvidia-smi --gpu-reset -i {bus_id}"),), {"bus_id": "0000:4f:00.0"},
         ["nvidia-smi -L", "sudo nvidia-smi --gpu-reset -i 0000:4f:00.0"]),
        ((("uv pip uninstall a", "uv pip install {pin}"),), {}, []),  # without the second step the first does harm
        (("uv pip install {pin}",), {"pin": "a==1 b==2 --torch-backend=cu128"},
         ["uv pip install a==1 b==2 --torch-backend=cu128"]),
        (("ls -l {program}",), {"program": "/a/b;reboot"}, []),  # a log does not add a command to a remedy
        (("ls -l {program}",), {"program": "$(reboot)"}, []),
        (("uv pip install '{name}'",), {"name": "--index-url=x"}, []),
        (("uv pip install '{name}'",), {"name": "a' b"}, []),
        ((NUMPY,), {}, list(NUMPY)),
        ((NUMPY,), {"numpy": "1.26.4"}, ["uv pip show numpy"]),
        ((NUMPY,), {"numpy": "2.3.4"},
         list(NUMPY)),
        (("uname -m", ("uname -m", "uv pip install {pin}")), {}, ["uname -m"]),
    ],
)  # fmt: skip
def test_a_remedy_ends_before_an_unknown_value(
    notation: tuple[str | tuple[str, ...], ...], values: dict[str, str], commands: list[str]
) -> None:
    assert [each for remedy in fill_remedies(notation, values) for each in remedy.commands] == commands


@each_case(
    ("cause", "installed", "is_left"),
    [
        ("library-too-old", "4.50.0", True),
        ("library-too-old", "4.57.6", False),
        ("library-too-old", "5.2.0", False),  # the command would install an older one
        ("transformers-too-new", "5.2.0", True),
        ("transformers-too-new", "4.40.1", False),  # and here a newer one
        ("", "4.40.1", True),
    ],
)
def test_a_remedy_moves_a_package_in_the_direction_of_its_cause(cause: str, installed: str, *, is_left: bool) -> None:
    found = fill_remedies(("uv pip install 'transformers>=4.56,<5'",), {"transformers": installed}, cause)
    assert bool(found) == is_left


@each_case(
    ("requirement", "with_bound"),
    [
        ("huggingface-hub>=0.34.0,<1.0", "huggingface-hub>=0.34.0,<1.0"),
        ("xgrammar==0.1.11", "xgrammar==0.1.11"),
        ("numba>=0.61", "numba>=0.61,<1"),
        ("protobuf!=4.21.0,>=3.20.3", "protobuf!=4.21.0,>=3.20.3,<4"),
        ("fsspec[http]<=2025.3.0", "fsspec[http]<=2025.3.0"),
        ("tokenizers", ""),
        ("torch==2.4.0", ""),  # other packages are compiled for the installed torch
        ("vllm>=0.6", ""),
        ("package@https://host/file.whl", ""),
    ],
)
def test_a_requirement_of_a_text_gets_an_upper_bound(requirement: str, with_bound: str) -> None:
    assert bounded(requirement) == with_bound
    assert text_values({"requirement": f"{requirement},"}, {})["requirement"] == requirement


@each_case(
    ("name", "distribution"),
    [
        ("flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so", "flash-attn"),
        ("/v/site-packages/selective_scan_cuda.cpython-311.so", "mamba-ssm"),
        ("sgl-kernel", "sgl-kernel"),
        ("common_ops", ""),
        ("_ext", ""),
        ("flash_attn_3_cuda", ""),  # not the distribution flash-attn; flash-attn-3 on the index is empty
        ("apex_C", ""),  # apex on the index is an unrelated project
    ],
)
def test_distribution_of_a_file(name: str, distribution: str) -> None:
    assert distribution_of(name) == distribution


@each_case(
    ("text", "machine", "stack", "commands"),
    [
        (
            "NVRM: Xid (PCI:0000:4f:00): 79, pid=1, GPU has fallen off the bus.", None, None,
            ["nvidia-smi -q -d ECC,ROW_REMAPPER", "journalctl -k | grep -i xid | tail",
             "sudo nvidia-smi --gpu-reset -i 0000:4f:00.0"],
        ),
        (
            "RuntimeError: CUDA error: uncorrectable ECC error encountered", None, None,
            ["nvidia-smi -q -d ECC,ROW_REMAPPER", "journalctl -k | grep -i xid | tail"],
        ),
        (
            "Error 802: system not yet initialized", H100, None,
            ["systemctl status nvidia-fabricmanager", "sudo systemctl enable --now nvidia-fabricmanager",
             "nvidia-smi -q | grep -A2 Fabric", "cat /proc/driver/nvidia/version",
             "sudo apt-get install -y 'nvidia-fabricmanager-575=575.57.08-*'",
             "sudo systemctl enable --now nvidia-fabricmanager"],
        ),
        (
            "Error 802: system not yet initialized", None, None,
            ["systemctl status nvidia-fabricmanager", "sudo systemctl enable --now nvidia-fabricmanager",
             "nvidia-smi -q | grep -A2 Fabric", "cat /proc/driver/nvidia/version"],
        ),
        ("ImportError: /v/_ext.cpython-310.so: undefined symbol: _ZN3c104cuda9SetDeviceEi", None, None,
         ["envdoctor abi"]),
        (
            "ImportError: libcudart.so.12: cannot open shared object file", None, None,
            ["find / -name 'libcudart.so.12*' 2>/dev/null", "uv pip install 'nvidia-cuda-runtime-cu12>=12,<13'"],
        ),
        ("ImportError: libcudnn.so.9: cannot open shared object file", None, None,
         ["find / -name 'libcudnn.so.9*' 2>/dev/null"]),
        (
            "ImportError: libcudnn.so.9: cannot open shared object file", None, torch_stack("2.9.1+cu130"),
            ["find / -name 'libcudnn.so.9*' 2>/dev/null", "uv pip install 'nvidia-cudnn-cu13>=9,<10'"],
        ),
        ("torch.AcceleratorError: the provided PTX was compiled with an unsupported toolchain.", None, None,
         ["nvidia-smi --query-gpu=name,driver_version --format=csv", "nvidia-smi | grep 'CUDA Version'"]),
        ("ValueError: No available memory for the cache blocks.", None, None,
         ["nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
          "nvidia-smi --query-gpu=pci.bus_id,memory.total,memory.used --format=csv"]),
        (
            "xFormers was built for: PyTorch 2.6.0+cu124 with CUDA None (you have 2.5.1+cu121)", None, None,
            ["python -m xformers.info", "uv pip install xformers==0.0.29.post1"],
        ),
        (
            "torchvision 0.19.0+cu121 requires torch==2.4.0, but you have torch 2.5.1 which is incompatible.",
            None, None, ["uv pip list | grep -iE '^torch'", "uv pip install torchvision==0.20.1"],
        ),
        (
            "vllm 0.6.3 requires torch==2.4.0, but you have torch 2.2.0 which is incompatible.", None, None,
            ["uv pip install vllm==0.6.3", "uv pip check"],
        ),
        (
            "vllm 0.7.3 requires xgrammar==0.1.11, but you have xgrammar 0.1.15 which is incompatible.", None, None,
            ["uv pip install xgrammar==0.1.11", "uv pip check"],
        ),
        (  # one installation for all conflicts of a text, because one alone breaks the next
            (
                "vllm 0.8.5 requires tokenizers>=0.21.1, but you have tokenizers 0.20.3 which is incompatible.\n"
                "vllm 0.8.5 requires compressed-tensors==0.9.3, but you have compressed-tensors 0.8.0.\n"
            ),
            None, None,
            ["uv pip install 'tokenizers>=0.21.1,<1' compressed-tensors==0.9.3", "uv pip check"],
        ),
        (
            "vllm 0.7.3 requires torch==2.5.1, but you have torch 2.6.0a0+df5bbc09d1.nv24.12 which is incompatible.",
            None, None, [],  # in NVIDIA's image a wheel of the index would replace its torch
        ),
        (
            "UserWarning: TRL currently only supports vLLM version `0.10.2`. You have version 0.12.0 installed.",
            None, None, ["uv pip show trl vllm", "uv pip install vllm==0.10.2", "uv pip check"],
        ),
        (
            "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error", None, None,
            ["nvidia-smi -q -d ECC,ROW_REMAPPER", "journalctl -k | grep -i xid | tail",
             "sudo nvidia-smi --gpu-reset -i 0000:41:00.0"],
        ),
        ("RuntimeError: [sgl_kernel] CRITICAL: Could not load any common_ops library", None, None,
         ["uv pip show sglang sgl-kernel torch", "nvidia-smi --query-gpu=name,compute_cap --format=csv"]),
        ("AssertionError: Torch not compiled with CUDA enabled", None, None,
         ["nvidia-smi --query-gpu=name,driver_version --format=csv", "envdoctor check"]),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11060).", None, None,
         ["nvidia-smi | grep 'CUDA Version'", "envdoctor check"]),
    ],
)  # fmt: skip
def test_commands_for_a_text(text: str, machine: Machine | None, stack: Stack | None, commands: list[str]) -> None:
    assert list(commands_of(first_cause(text, machine, stack))) == commands


def test_texts_name_what_is_known() -> None:
    old = first_cause("RuntimeError: The NVIDIA driver on your system is too old (found version 11060).")
    assert "The driver supports only CUDA 11.6," in old.fix
    conflict = first_cause("Error 804: forward compatibility was attempted on non supported HW")
    port = first_cause("WARNING: Port 8000 is already in use")
    assert port.fix.startswith("Port 8000 is in use")
    assert "804" in conflict.title + conflict.fix
    launch = first_cause("RuntimeError: CUDA error: unspecified launch failure")
    assert "Replace" not in launch.fix


def test_the_companions_of_torch_are_installed_again() -> None:
    """The remedy, applied to the environment, leaves no finding of this cause."""
    stack = torch_stack(
        "2.8.0+cu128", packages={"torch": "2.8.0+cu128", "torchvision": "0.21.0", "torchaudio": "2.6.0"}
    )
    cause = first_cause("RuntimeError: operator torchvision::nms does not exist", H100, stack)
    assert cause.findings
    install = next(step for remedy in cause.remedies for step in remedy.steps if isinstance(step, Install))
    pins = dict(package.split("==") for package in install.packages)
    changed = torch_stack("2.8.0+cu128", packages=pins | {"torch": "2.8.0+cu128"})
    assert pins.keys() <= {"torch", "torchvision", "torchaudio"}
    assert not [each for each in evaluate(H100, changed) if each.cause == cause.cause and each.status == "error"]


def test_installs_name_the_environment_that_was_given() -> None:
    from msgspec.structs import replace
    from support.report_stack import reported

    stack = replace(torch_stack("2.5.1"), python=reported("/venv/bin/python"))
    text = "vllm 0.7.3 requires xgrammar==0.1.11, but you have xgrammar 0.1.15 which is incompatible."
    assert commands_of(first_cause(text, None, stack))[0].startswith("uv pip install --python /venv/bin/python ")


def test_findings_get_exact_versions() -> None:
    """`explain --venv` uses the search of check: packages that belong together change together."""
    installed = {"vllm": "0.10.2", "transformers": "5.1.0", "trl": "0.23.1", "torch": "2.8.0"}
    stack = torch_stack("2.8.0+cu128", packages=installed)
    text = b"AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended."
    cause = explain(io.BytesIO(text), H100, stack, pin=pin_remedies).causes[0]
    install = next(step for remedy in cause.remedies for step in remedy.steps if isinstance(step, Install))
    assert cause.cause == "transformers-too-new"
    assert cause.findings
    assert all("==" in package for package in install.packages)
