"""What the environment and the run determine about GRPOConfig's fields."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass

from checks.fsdp import MINIMUM_VERSIONS
from packaging.version import Version
from trl_config.optimizers import find_packages


@dataclass(frozen=True)
class InstalledVersions:
    """The installed TRL and the fields of its GRPOConfig; Liger and the other packages that fields depend on."""

    trl: Version
    fields: frozenset[str]
    liger: Version | None = None
    liger_minimum: Version | None = None  # that this TRL requires
    optimizers: frozenset[str] = frozenset()  # of transformers; empty: unknown
    packages: frozenset[str] = frozenset()  # of those that optimizers need
    versions: Mapping[str, Version | None] = dataclasses.field(default_factory=dict)  # for FSDP, and vLLM's

    @classmethod
    def detect(cls, config: type) -> InstalledVersions:
        """The versions of this environment; `config` is GRPOConfig."""

        def version_of(name: str) -> Version | None:
            try:
                return Version(importlib.metadata.version(name))
            except importlib.metadata.PackageNotFoundError:
                return None

        from transformers.training_args import OptimizerNames
        from trl import import_utils

        return cls(
            Version(importlib.metadata.version("trl")),
            frozenset(field.name for field in dataclasses.fields(config)),
            version_of("liger-kernel"),
            Version(getattr(import_utils, "LIGER_KERNEL_MIN_VERSION", "0")),
            frozenset(str(name.value) for name in OptimizerNames),
            find_packages(),
            {name: version_of(name) for name in (*MINIMUM_VERSIONS, "vllm")},
        )

    def version(self, library: str) -> Version | None:
        """The installed version of TRL or of a library in `versions`; None: not installed, or unknown."""
        return self.trl if library == "trl" else self.versions.get(library)

    def has(self, field: str) -> bool:
        """Whether this GRPOConfig has the field."""
        return field in self.fields


@dataclass(frozen=True)
class RunContext:
    """Facts of the run that GRPOConfig depends on; lengths in tokens."""

    output: str
    device: str
    ranks: int
    # Known when the model is loaded:
    autocast: str = ""  # "", bfloat16 or float16
    longest_prompt: int = 1
    completion: int = 1
    vllm_share: float = 0.0
