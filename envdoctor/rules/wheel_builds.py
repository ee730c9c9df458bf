"""Rule on packages whose version, wheel or index names the torch that they were built for."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.versions import local_part, major_minor, minor_of, public_part
from envdoctor.rules.facts import torch_cuda
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import version_evidence, versions_of
from envdoctor.rules.torch_install import rebuild

# `torch2.8` of flash-attn, `pt25` of PyTorch Geometric, `torch250` of NATTEN, `torch-2.5.0` of an index.
TORCH_OF_BUILD = lazy_pattern(
    r"torch-?(?P<dotted>\d\.\d{1,2})|(?:torch(?P<patch>\d{3,4})|pt(?P<minor>\d{2,3}))(?!\d)"
)
CUDA_OF_BUILD = lazy_pattern(r"cu(\d{2})")
ABI_OF_BUILD = lazy_pattern(r"cxx11abi(true|false)")
NOT_COMPILED_FOR_TORCH = frozenset({"torch", "torch-geometric"})  # the latter is pure Python, in such an index
# FlashInfer's wheels for torch 2.4 run with 2.5, which SGLang 0.4.0 to 0.4.2 require next to them:
# github.com/flashinfer-ai/flashinfer/issues/689 (2026-11-26). Those for 2.5 do not run with 2.6: issues/771.
COMPATIBLE = {("flashinfer", "2.4", "2.5"), ("flashinfer-python", "2.4", "2.5")}


@rule("FA001", kind="environment", severity=("error", "warning"), cause="torch-abi-mismatch")
def wheel_is_for_another_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A compiled wheel, of flash-attn for example, was built for another torch, CUDA or C++ ABI.

    Its name, its version or the address of its index contains the versions: `+cu12torch2.8cxx11abiTRUE` of
    flash-attn, `+pt25cu124` of PyTorch Geometric, `flashinfer.ai/whl/cu121/torch2.3`. With any other torch the import
    fails with `undefined symbol: _ZN3c10...`. Upgrading torch after the package has the same effect. A wheel for
    torch 2.10 can run with a newer one: NVIDIA's NeMo RL installs flash-attn for 2.10 with 2.11 (2026-08-20).

    Fix: install the wheel for the installed torch, or rebuild without the cached wheel.

    References:
    https://github.com/Dao-AILab/flash-attention/releases
    https://github.com/Dao-AILab/flash-attention/issues/1832
    https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html
    """
    torch = versions_of(stack).get("torch", "")
    if not torch:
        return
    for name, package in (stack.distributions.value or {}).items():
        labels = (local_part(package.version), package.source.lower())
        label = next((text for text in labels if TORCH_OF_BUILD.search(text)), "")
        difference = _difference(label, torch, torch_cuda(stack), _abi(stack))
        compatible = (name, _torch_of(label), minor_of(torch)) in COMPATIBLE
        if not difference or compatible or name in NOT_COMPILED_FOR_TORCH:
            continue
        release = public_part(package.version)
        again = rebuild(name, release) if release else ""
        yield Problem(
            "warning" if _may_run(label, torch) else "error",
            f"{name} {release}".rstrip() + f" was built for {difference}; torch {torch} is installed",
            (*version_evidence(stack, "torch"), Evidence(name, label, stack.distributions.source)),
            f"Install the {name} wheel for torch {minor_of(torch)}, or rebuild it."
            if again
            else f"Remove it, and install a {name} wheel built for torch {minor_of(torch)} if you need it.",
            steps(again or shell_command("uv pip uninstall {}", name)),
        )


def _may_run(label: str, torch: str) -> bool:
    """Whether the wheel is for torch 2.10 or newer, and the installed torch is newer."""
    built_for = _torch_of(label)
    return bool(built_for) and (2, 10) <= major_minor(built_for) < major_minor(torch)


def _abi(stack: Stack) -> bool | None:
    build = stack.torch.value
    return build.cxx11_abi.value if build else None


def _difference(label: str, torch: str, cuda: str, abi: bool | None) -> str:
    """The part of `cu12torch2.8cxx11abitrue` that differs from the installed torch; empty if none does."""
    built_for = _torch_of(label)
    major, new_abi = CUDA_OF_BUILD.search(label), ABI_OF_BUILD.search(label)
    if built_for and built_for != minor_of(torch):
        return f"torch {built_for}"
    if major and cuda and major[1] != cuda.partition(".")[0]:
        return f"CUDA {major[1]}, torch for CUDA {cuda}"
    if new_abi and abi is not None and (new_abi[1] == "true") != abi:
        return f"the {'new' if new_abi[1] == 'true' else 'old'} C++ ABI, torch with the other one"
    return ""


def _torch_of(label: str) -> str:
    """The torch release of a label: 2.5 of `torch2.5`, `pt25` and `torch250`."""
    match = TORCH_OF_BUILD.search(label)
    if not match or match["dotted"]:
        return match["dotted"] if match else ""
    digits = match["minor"] or match["patch"][:-1]
    return f"{digits[0]}.{digits[1:]}"
