"""Which names, arguments and attributes a release of a library has, read from its sources without importing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.package_index.public_names import FUNCTION, arguments_of_function, module_names, parse_source

# Folders whose classes change with each model or are used by the library itself only: their names are read, not their
# members.
WITHOUT_MEMBERS = (
    "models/", "tests/", "commands/", "cli/", "experimental/",
    "model_executor/", "third_party/", "benchmarks/", "kernels/", "vllm_flash_attn/", "parser/", "tool_parsers/",
    "reasoning/", "distributed/", "v1/attention/", "attention/", "compilation/", "temporary_patches/",
    "mlx/", "_vendored/", "speculative/", "fused_losses/", "diffusion_studio/", "flex_attention/", "stubs/",
)  # fmt: skip
WITHOUT_MEMBERS_OF = {
    "torch": (
        "_", "testing/", "ao/", "quantization/", "onnx/", "jit/", "fx/", "package/", "masked/", "export/", "contrib/",
        "utils/hipify/", "utils/benchmark/", "utils/_", "utils/model_dump/", "nn/quantized/", "nn/intrinsic/",
        "nn/qat/", "nn/quantizable/", "distributed/_", "distributed/elastic/", "distributed/rpc/",
        "distributed/pipelining/", "numa/", "headeronly/", "profiler/_", "cuda/_", "mps/", "mtia/", "xpu/",
        "sparse/_", "func/", "functional.py",
    ),
    "ray": (
        "_", "dashboard/", "rllib/", "autoscaler/", "thirdparty_files/", "core/", "scripts/", "serve/", "llm/",
        "experimental/", "internal/", "cloudpickle/", "cluster_utils.py", "tests/", "job_submission/", "workflow/",
        "data/_internal/", "train/_internal/", "train/v2/_internal/", "tune/execution/", "air/_internal/",
    ),
    "deepspeed": (
        "inference/", "model_implementations/", "module_inject/", "nebula/", "accelerator/", "autotuning/", "ops/",
        "compression/", "elasticity/", "launcher/", "nvme/", "compile/", "linear/", "checkpoint/",
        "runtime/swap_tensor/",
    ),
}  # fmt: skip
# In addition to the package's own `__init__.py`: the modules whose `__init__.py` lists what other projects use.
EXPORTING = {
    "torch": (
        "amp", "autograd", "cuda", "cuda/amp", "distributed", "distributed/checkpoint", "distributed/fsdp",
        "distributed/tensor", "distributed/tensor/parallel", "distributed/optim", "nn", "nn/attention", "nn/modules",
        "nn/parallel", "nn/utils", "optim", "profiler", "utils", "utils/data", "utils/checkpoint.py",
        "optim/lr_scheduler.py", "distributed/device_mesh.py", "distributed/distributed_c10d.py", "serialization.py",
    ),
    "ray": ("air", "data", "train", "train/torch", "train/huggingface", "train/huggingface/transformers", "tune",
            "util"),
}  # fmt: skip
# Classes and functions that other projects call although no `__init__.py` exports them.
ALSO_PUBLIC = {
    "vllm": {
        "serve_http", "OpenAIServing", "OpenAIServingChat", "OpenAIServingCompletion", "OpenAIServingModels",
        "OpenAIServingEmbedding", "Worker", "WorkerBase", "GPUModelRunner", "ModelConfig", "LoRARequest",
        "StructuredOutputsParams", "GuidedDecodingParams", "AsyncLLM",
    },
}  # fmt: skip
# Fields whose trainer refuses each text with which it does not compare them. Others are compared in part only.
COMPARED = ("GRPOConfig.loss_type",)
QUOTED = lazy_pattern(r'"([A-Za-z_]\w*)"')  # of _import_structure and __all__
WITHOUT_PRIVATE_NAMES = ("vllm", "torch", "ray", "deepspeed")  # thousands, which only the package itself imports
ALL = lazy_pattern(r"^__all__ = \[([^\]]*)\]", re.MULTILINE)
# Definitions of model files: parsing thousands of them takes minutes. All TensorFlow and Flax classes were removed.
DEFINITION = lazy_pattern(r"^(?:class|(?:async )?def) (?!TF[A-Z]|Flax)(\w+)", re.MULTILINE)


class Members(Record, frozen=True):
    """What one release has. An attribute in `partial` is missing from some instances."""

    names: frozenset[str]
    model_names: frozenset[str]  # only those that were removed are in a table: each release adds hundreds
    arguments: frozenset[str]
    values: frozenset[str]  # a text with which a trainer compares a field: "GRPOConfig.loss_type=cispo"
    attributes: frozenset[str]
    partial: frozenset[str]
    exported: frozenset[str]
    bases: dict[str, list[str]]
    unparsed: tuple[str, ...] = ()  # files that this interpreter cannot parse


def read_members(package: str, files: Iterable[tuple[str, str]]) -> Members:
    """The members in source files, given with their paths in the package: `trainer/grpo_config.py`."""
    reader = _Reader(package)
    for path, text in sorted(files):
        reader.read(path, text)
    return reader.result()


class _Reader:
    """Collects the members of one release."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.names: set[str] = set()
        self.model_names: set[str] = set()
        self.arguments: set[str] = set()
        self.exported: set[str] = set()
        self.bases: dict[str, list[str]] = {}
        self.unparsed: list[str] = []
        self._classes: dict[str, ast.ClassDef] = {}

    def read(self, path: str, text: str) -> None:
        name = path.rpartition("/")[2]
        if name.startswith("dummy_"):  # stand-ins with the same names, for a missing torch
            return
        if path == "__init__.py" or path.removesuffix("/__init__.py") in EXPORTING.get(self.package, ()):
            self.exported |= set(re.findall(r"\w+", text))
        if path.startswith(WITHOUT_MEMBERS_OF.get(self.package, WITHOUT_MEMBERS)) and path != "__init__.py":
            self.model_names |= set(DEFINITION.findall(text))
            # transformers 5 exports aliases and mappings: `BartTokenizer = RobertaTokenizer`.
            self.model_names |= {name for exported in ALL.findall(text) for name in QUOTED.findall(exported)}
            return
        tree = parse_source(text)
        if tree is None:
            self.unparsed.append(path)
            return
        self.names |= set(module_names(tree, self.package))
        if name == "__init__.py":
            self.names |= set(QUOTED.findall(text))
        self._add_members(tree)

    def _add_members(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self._classes[node.name] = node
                self.bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            elif isinstance(node, FUNCTION) and not node.name.startswith("_"):
                self.arguments |= {f"{node.name}.{argument}" for argument in arguments_of_function(node)}

    def result(self) -> Members:
        """What the files that were read define."""
        attributes = self._of_classes(_attributes_of_class)
        values = (
            f"{field}={value}"
            for name, node in self._classes.items()
            for attribute, value in _compared(node)
            if (field := f"{name.removesuffix('Trainer')}Config.{attribute}") in COMPARED
        )
        is_hidden = (lambda name: name.startswith("_")) if self.package in WITHOUT_PRIVATE_NAMES else lambda _: False
        return Members(
            names=frozenset(name for name in self.names if not is_hidden(name)),
            model_names=frozenset(name for name in self.model_names if not is_hidden(name)),
            arguments=frozenset(self.arguments) | self._of_classes(_arguments_of_class),
            values=frozenset(values),
            attributes=attributes,
            partial=attributes - self._of_classes(_attributes_of_every_instance),
            exported=frozenset(self.exported),
            bases=self.bases,
            unparsed=tuple(self.unparsed),
        )

    def _of_classes(self, members: Callable[[ast.ClassDef], Iterable[str]]) -> frozenset[str]:
        return frozenset(
            f"{name}.{member}" for name in self._classes for member in self._inherited(name, members, ())
        )

    def _inherited(
        self, name: str, members: Callable[[ast.ClassDef], Iterable[str]], seen: tuple[str, ...]
    ) -> set[str]:
        node = self._classes.get(name)
        if node is None or name in seen:
            return set()
        found = set(members(node))
        for base in self.bases[name]:
            found |= self._inherited(base, members, (*seen, name))
        return found


def _arguments_of_class(node: ast.ClassDef) -> Iterator[str]:
    """Of `__init__` or the fields of a dataclass, and `method.argument` of each public method."""
    for each in node.body:
        if isinstance(each, FUNCTION):
            if each.name == "__init__":
                yield from arguments_of_function(each)
            elif not each.name.startswith("__"):
                yield from (f"{each.name}.{argument}" for argument in arguments_of_function(each))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id


def _attributes_of_class(node: ast.ClassDef) -> Iterator[str]:
    """Methods, fields, and what methods assign to `self`."""
    for each in node.body:
        if isinstance(each, FUNCTION):
            yield each.name
            yield from _assigned_to_self(ast.walk(each), _own_name(each))
        elif isinstance(each, ast.AnnAssign | ast.Assign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _attributes_of_every_instance(node: ast.ClassDef) -> Iterator[str]:
    """Methods, fields, and what `__init__` assigns to `self` in every case."""
    is_dataclass = bool(node.decorator_list)  # it sets its fields; in another class `x: int` only states a type
    for each in node.body:
        if isinstance(each, FUNCTION):
            yield each.name
            if each.name == "__init__":
                yield from _always_assigned(each.body, _own_name(each))
        elif isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and (each.value or is_dataclass):
            yield each.target.id


def _compared(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The attributes of `self` or of its arguments that are compared with texts, and each text."""
    for each in ast.walk(node):
        if not isinstance(each, ast.Compare) or not isinstance(each.left, ast.Attribute):
            continue
        for constant in (part for right in each.comparators for part in ast.walk(right)):
            if (
                isinstance(constant, ast.Constant)
                and isinstance(constant.value, str)
                and constant.value.isidentifier()
            ):
                yield each.left.attr, constant.value


def _own_name(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The name of the first argument, usually `self`."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    return arguments[0].arg if arguments else ""


def _assigned_to_self(nodes: Iterable[ast.AST], own_name: str) -> Iterator[str]:
    for each in nodes:
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield from [each.attr] if isinstance(each.value, ast.Name) and each.value.id == own_name else []


def _always_assigned(body: list[ast.stmt], own_name: str) -> set[str]:
    """The attributes that each path through these statements sets. A path that raises sets nothing and ends."""
    found: set[str] = set()
    for each in body:
        if isinstance(each, ast.Return):
            break
        if isinstance(each, ast.If):
            branches = [branch for branch in (each.body, each.orelse) if not _raises(branch)]
            found |= (
                set.intersection(*(_always_assigned(branch, own_name) for branch in branches)) if branches else set()
            )
        elif isinstance(each, ast.With):
            found |= _always_assigned(each.body, own_name)
        elif isinstance(each, ast.Try):
            parts = [
                each.body + each.orelse,
                *(handler.body for handler in each.handlers if not _raises(handler.body)),
            ]
            found |= set.intersection(*(_always_assigned(part, own_name) for part in parts))
            found |= _always_assigned(each.finalbody, own_name)
        elif isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign):
            found |= set(_assigned_to_self(ast.walk(each), own_name))
    return found


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(each, ast.Raise) for each in body)
