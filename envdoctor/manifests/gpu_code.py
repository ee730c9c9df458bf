"""The GPU architectures that the setup.py of a project gives to nvcc for an extension of torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern

_CUDA_EXTENSION = lazy_pattern(r"\bCUDAExtension\(")
# `-gencode arch=compute_80,code=sm_80`, `code=\"sm_80,compute_80\"`, `code=[sm_80,compute_80]`, and `-arch=sm_80`.
_CODE = lazy_pattern(r"arch=(compute_\d+[af]?),\s*code=[\\\"'\[]*((?:(?:sm|compute)_\d+[af]?,?)+)")
_ARCH = lazy_pattern(r"(?:-arch|--gpu-architecture)[= ]((?:sm|compute)_\d+[af]?)")
# The build reads the architectures from a variable, the GPU or torch, or computes the flags.
_COMPUTED = lazy_pattern(
    r"TORCH_CUDA_ARCH_LIST|CUDA_ARCH\w*[\"']|get_arch_list|get_device_capability|get_device_properties|nvidia-smi"
    r"|arch=(?:native|all)|arch=(?:compute_|sm_)?[{%\"']"
)


class GpuCode(NamedTuple):
    """What the flags compile: native code `sm_80` and PTX `compute_80`, with the line of the first flag."""

    names: tuple[str, ...]
    line: int
    targets: tuple[str, ...] = ()  # `compute_80` of the flags that no condition guards


def gpu_code_of_setup(text: str) -> GpuCode | None:
    """The code that the flags of a setup.py name; None if it names none, or computes the flags.

    torch.utils.cpp_extension adds no architecture to flags that name one.
    """
    if not _CUDA_EXTENSION.search(text) or _COMPUTED.search(text):
        return None
    try:
        tree = ast.parse(text)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        flags = [*_flags(tree, used, is_certain=True)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = tuple(dict.fromkeys(name for flag in flags for name in flag.names))
    targets = tuple(dict.fromkeys(name for flag in flags for name in flag.targets))
    return GpuCode(names, flags[0].line, targets) if flags else None


def _flags(node: ast.AST, used: set[str], *, is_certain: bool) -> Iterator[GpuCode]:
    """The flags of a part of the file. Those of a function that nothing calls are not certain either."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        for target, code in _CODE.findall(node.value):
            yield GpuCode(tuple(filter(None, code.split(","))), node.lineno, (target,) if is_certain else ())
        for name in _ARCH.findall(node.value):  # nvcc adds PTX of the same architecture
            target = name.replace("sm_", "compute_")
            yield GpuCode((name, target), node.lineno, (target,) if is_certain else ())
    is_guarded = isinstance(node, ast.If | ast.IfExp | ast.Try | ast.For | ast.While | ast.comprehension)
    is_unused = isinstance(node, ast.FunctionDef) and node.name not in used
    for child in ast.iter_child_nodes(node):
        yield from _flags(child, used, is_certain=is_certain and not is_guarded and not is_unused)
