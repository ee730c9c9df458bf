"""The requirements of installed distributions, and those that are not satisfied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from envdoctor.core.record import Record
from envdoctor.core.records import OF_A_GUIDE, Distribution, Evidence, Stack
from envdoctor.knowledge.bounds import bounds_of_release
from envdoctor.knowledge.releases import (
    Requirement,
    has_conda_build,
    parse_requirement,
    releases_of,
    requirements_of_release,
)
from envdoctor.knowledge.versions import (
    is_local_build,
    is_prerelease,
    local_part,
    minor_of,
    public_part,
    satisfies,
    version_key,
)
from envdoctor.rules.facts import is_from_conda, is_from_report, is_without_cuda, torch_version

# Packages with one release for each torch release.
COMPANIONS = frozenset({"torchvision", "torchaudio", "torchao", "torchcodec", "torchtext"})
# Packages compiled for one torch release; another one causes undefined symbols.
COMPILED = frozenset({
    "xformers", "flash-attn", "flash-attn-3", "vllm-flash-attn", "sgl-kernel", "sglang-kernel", "causal-conv1d",
    "mamba-ssm", "apex", "transformer-engine-torch", "exllamav2", "auto-gptq", "autoawq-kernels", "fbgemm-gpu",
    "fbgemm-gpu-genai", "torch-scatter", "torch-sparse", "torch-cluster", "deep-ep", "deep-gemm", "flash-mla",
})  # fmt: skip
# Packages whose compiled code needs the torch that they require.
LINKED = COMPANIONS | COMPILED | {"vllm"}
# Packages for training and serving, whose violated requirements are reported as warnings or errors.
CORE = COMPANIONS | COMPILED | frozenset({
    "torch", "triton", "vllm", "sglang", "trl", "transformers", "tokenizers", "huggingface-hub", "accelerate", "peft",
    "datasets", "bitsandbytes", "liger-kernel", "kernels", "verl", "tensordict", "ray", "deepspeed", "unsloth",
    "unsloth-zoo", "compressed-tensors", "xgrammar", "outlines", "outlines-core", "llguidance", "lm-format-enforcer",
    "numba", "flashinfer-python", "mistral-common", "safetensors", "optimum", "lmdeploy", "llmcompressor", "openrlhf",
    "ms-swift", "llamafactory", "axolotl", "autoawq", "depyf", "gguf", "megatron-core", "sentence-transformers",
    "diffusers", "triton-windows", "whisperx",
})  # fmt: skip
# transformers checks these when it is imported and raises ImportError (transformers/dependency_versions_check.py).
CHECKED_AT_IMPORT = frozenset({
    "tqdm", "regex", "requests", "packaging", "filelock", "numpy", "tokenizers", "huggingface-hub", "safetensors",
    "accelerate", "pyyaml",
})  # fmt: skip

# Packages without a common name of which one is released for a version of the other.
DEVELOPED_TOGETHER = frozenset({
    ("faster-whisper", "ctranslate2"), ("llmcompressor", "compressed-tensors"), ("spacy", "thinc"),
    ("numba", "llvmlite"), ("albumentations", "albucore"), ("torchdata", "torch"),
    ("hydra-core", "omegaconf"), ("hydra-core", "antlr4-python3-runtime"), ("omegaconf", "antlr4-python3-runtime"),
})  # fmt: skip
KERNELS_OF_ENGINES = frozenset({("sglang", "sgl-kernel"), ("sglang", "sglang-kernel")})
# Names of packages that begin with these are not parts of one project.
COMMON_WORDS = frozenset({"torch", "nvidia", "google", "open", "python", "opentelemetry", "ray", "sentence"})


class Violation(Record, frozen=True):
    """A requirement that an installed version does not satisfy."""

    requirer: str
    requirer_version: str
    name: str
    specifier: str
    installed: str
    too_old: bool  # below the required range; otherwise above it or excluded

    def __str__(self) -> str:
        """The requirement and the installed version."""
        requirement = f"{self.requirer} {self.requirer_version} requires {self.name}{self.specifier}"
        return f"{requirement}, but {self.installed} is installed"

    @property
    def is_newer_than_tested(self) -> bool:
        """Whether an exact release is required, and a newer one of the same major version is installed.

        Not for packages of which one is compiled for the other: torch generates code for one release of triton.
        """
        if self.requirer == "torch" or (self.requirer in LINKED and self.name in LINKED) or self.is_in_one_project:
            return False
        required, installed = version_key(self._exact_release), version_key(self.installed)
        return bool(required and installed and installed > required and installed[0][0] == required[0][0])

    @property
    def is_in_one_project(self) -> bool:
        """Whether both are parts of one project, or developed together: jax and jaxlib, spaCy and thinc."""
        first = min(self.requirer, self.name, key=len).partition("-")[0]
        same_name = self.requirer.startswith(first) and self.name.startswith(first)
        return (self.requirer, self.name) in DEVELOPED_TOGETHER or (same_name and first not in COMMON_WORDS)

    @property
    def is_decisive(self) -> bool:
        """Whether it explains a failure by itself: parts of one project, or an older minor release than required.

        An exact version is that of a lock file of the project; it does not show which older ones have what is used.
        The kernels of an engine are developed with it, and have the operators of their release.
        """
        is_pin_of_a_lock = bool(self._exact_release) and (self.requirer, self.name) not in KERNELS_OF_ENGINES
        by_far = self.too_old and not is_pin_of_a_lock and not same_minor(self._least, self.installed)
        return self.is_in_one_project or by_far

    @property
    def _least(self) -> str:
        """The oldest version that is accepted; empty if there is none."""
        found = re.search(r"(?:>=?|==|~=)([^,*]+)", self.specifier)
        return found[1] if found else ""

    @property
    def is_later_patch(self) -> bool:
        """Whether an exact release is required, and a later patch release of it is installed."""
        required, installed = version_key(self._exact_release), version_key(public_part(self.installed))
        return bool(
            required and installed and installed > required and same_minor(self._exact_release, self.installed)
        )

    @property
    def is_exact(self) -> bool:
        """Whether one version is accepted."""
        return bool(self._exact_release)

    @property
    def _exact_release(self) -> str:
        """The only release that is accepted; empty for a range."""
        exact = re.fullmatch(r"===?([^*,]+)", self.specifier)
        return exact[1] if exact else ""


class Missing(Record, frozen=True):
    """A requirement whose package is not installed."""

    requirer: str
    name: str
    specifier: str


class Requirements(Record, frozen=True):
    """All requirements that are not satisfied."""

    violations: tuple[Violation, ...]
    missing: tuple[Missing, ...]
    undecided: tuple[Violation, ...] = ()  # of local builds, whose versions do not show what they are compatible with


UNKNOWN_VERSION = "0.0.0"  # a module without metadata: zmq of a Linux distribution
# The releases of `pytorch` on PyPI, which contain no torch; conda has no such release: both lists, 2026-11-26.
_EMPTY_PYTORCH = ("0.1.2", "1.0.2")
# Caches: several rules use the same environment in one run.
_last: list[tuple[Stack, Requirements]] = []
_last_versions: list[tuple[Stack, dict[str, str]]] = []


def requirements_of(stack: Stack) -> Requirements:
    """All unsatisfied requirements of the installed distributions."""
    if not (_last and _last[0][0] is stack):
        _last[:] = [(stack, _check_requirements(stack))]
    return _last[0][1]


def versions_of(stack: Stack) -> dict[str, str]:
    """Installed versions by name. torch's version is that of its build, which has the local part."""
    if not (_last_versions and _last_versions[0][0] is stack):
        _last_versions[:] = [(stack, _read_versions(stack))]
    return _last_versions[0][1]


def _read_versions(stack: Stack) -> dict[str, str]:
    distributions = stack.distributions.value or {}
    versions = {name: package.version for name, package in distributions.items() if package.version}
    if versions.get("pytorch", _EMPTY_PYTORCH[0]) not in _EMPTY_PYTORCH:  # conda's name
        versions.setdefault("torch", versions["pytorch"])
    if torch_version(stack):
        versions["torch"] = torch_version(stack)
    return versions


def version_evidence(stack: Stack, *names: str) -> tuple[Evidence, ...]:
    """Installed versions as evidence."""
    versions = versions_of(stack)
    source = stack.distributions.source
    return tuple(Evidence(name, versions[name], source) for name in names if name in versions)


def same_minor(left: str, right: str) -> bool:
    """Whether two versions share their first two numbers."""
    return bool(minor_of(left)) and minor_of(left) == minor_of(right)


def specifiers_for(stack: Stack, name: str) -> dict[str, str]:
    """The specifiers for a package by the distribution that requires it."""
    return {
        distribution.name: found.specifier
        for distribution in (stack.distributions.value or {}).values()
        for found in map(parse_requirement, _requirement_lines(distribution, stack))
        if found and found.name == name and found.specifier
    }


def agreed_range(stack: Stack, name: str) -> tuple[str, bool]:
    """One specifier that satisfies all requirements of a package, and whether they agree."""
    wanted = sorted({part for specifier in specifiers_for(stack, name).values() for part in specifier.split(",")})
    pins = [part[2:] for part in wanted if re.fullmatch(r"==[^*]+", part)]
    lines = {part for part in wanted if part.endswith(".*")}  # `==2.2.*` is within `>=2.0.1`
    if not pins and len(lines) == 1 and satisfies(f"{min(lines)[2:-2]}.0", ",".join(wanted)) is not False:
        return min(lines), True
    tightest = _tightest(wanted)
    least = re.match(r">=([^,]+)", tightest)
    possible = pins or ([least[1]] if least else [])
    agree = all(satisfies(version, ",".join(wanted)) is not False for version in possible)
    return (f"=={pins[0]}" if pins else tightest), agree


def _tightest(parts: Iterable[str]) -> str:
    """The clauses of a specifier without those that others imply: `>=1.31.0,<2.0`."""
    lower: list[str] = []
    upper: list[str] = []
    others: list[str] = []
    for part in parts:
        (lower if part.startswith(">") else upper if part.startswith("<") else others).append(part)
    by_version = lambda part: version_key(part.strip("<>=")) or ((0,), (0, 0), 0, 0)  # noqa: E731
    return ",".join([*sorted(lower, key=by_version)[-1:], *others, *sorted(upper, key=by_version)[:1]])


def bounded(specifier: str) -> str:
    """The specifier or requirement with an upper bound: below the next major version of its lower bound."""
    least = re.search(r">=?(\d+)(?:\.(\d+))?", specifier)
    if not least or re.search(r"<|==|~=", specifier):
        return specifier
    limit = f"{int(least[1]) + 1}" if least[1] != "0" else f"0.{int(least[2] or 0) + 1}"
    return f"{specifier},<{limit}"


def between(releases: Sequence[str]) -> str:
    """The specifier from the oldest to the newest of these releases, newest first: `>=0.27.0,<=1.6.0`."""
    return f"=={releases[0]}" if len(releases) == 1 else f">={releases[-1]},<={releases[0]}"


def _check_requirements(stack: Stack) -> Requirements:
    distributions = stack.distributions.value or {}
    versions = versions_of(stack)
    violations: list[Violation] = []
    missing = []
    undecided: list[Violation] = []
    for distribution in distributions.values():
        lines = _requirement_lines(distribution, stack)
        for required in _applicable(lines, versions, stack.python_version.value or ""):
            present = versions.get(required.name)
            if present is None:
                missing.append(Missing(distribution.name, required.name, required.specifier))
            elif required.specifier and present != UNKNOWN_VERSION and _is_outside(present, required.specifier):
                if _built_together(distribution, distributions.get(required.name), present, required.specifier):
                    continue
                if required.name == "torch" and _may_be_of_conda(distribution, present):
                    continue
                if required.name == "triton" and _is_later_build(present, required.specifier):
                    continue
                old = is_below(present, required.specifier)
                violation = Violation(
                    distribution.name, distribution.version, required.name, required.specifier, present, old
                )
                (undecided if _is_undecidable(violation) else violations).append(violation)
    return Requirements(
        tuple(dict.fromkeys(violations)), tuple(dict.fromkeys(missing)), tuple(dict.fromkeys(undecided))
    )


def _applicable(lines: Iterable[str], versions: dict[str, str], python: str) -> Iterator[Requirement]:
    """The requirements in these lines for a Python.

    If the Python is not known, those for a part of the Pythons are left out where the installed version satisfies
    one of them; one represents the others where it satisfies none.
    """
    groups: dict[str, list[Requirement]] = {}
    for line in lines:
        if (required := parse_requirement(line)) and required.applies_to(python):
            groups.setdefault(required.name, []).append(required)
    for name, group in groups.items():
        if python or not any(each.python for each in group):
            yield from group
        elif name not in versions or all(_is_outside(versions[name], each.specifier) for each in group):
            yield group[0]


def _built_together(one: Distribution, other: Distribution | None, version: str, specifier: str) -> bool:
    """Whether both are of conda, which builds them for each other and compares them, unlike the wheels on PyPI.

    conda-forge builds torchvision 0.22.0 with torch 2.7.1, and 0.24.0 with 2.8.0 (locks of
    aws/sagemaker-distribution, 2026-04-22); their metadata names the torch of PyPI's wheels.
    """
    if not other or one.requires or not (is_from_conda(one) and is_from_conda(other)):
        return False
    if not releases_of(one.name):
        return True  # the requirements of conda's builds decide, which are not in the tables
    bound = re.fullmatch(r"==([\d.]+)", specifier)
    if not bound:
        return False
    return same_minor(bound[1], version) or other.source.endswith(" conda-forge")


def _may_be_of_conda(distribution: Distribution, torch: str) -> bool:
    """Whether conda has the release for the installed torch as well. METADATA, which a report lacks, decides.

    A torch of the PyTorch index (`1.12.1+cu113`) is not of conda.
    """
    is_of_index = local_part(torch).startswith("cu")
    return (
        not distribution.requires
        and not is_of_index
        and has_conda_build(distribution.name, distribution.version, torch)
    )


def _is_later_build(version: str, specifier: str) -> bool:
    """Whether a version is a later build of a required release, as triton-windows has them: `3.6.0.post26`."""
    release, _, build = version.partition(".post")
    return build.isdecimal() and satisfies(release, specifier) is True


def _is_undecidable(violation: Violation) -> bool:
    """Whether one of two packages that are compiled for each other is no release, so that they may fit.

    A local build, a nightly or a release candidate of torch, triton, torchvision, xformers and others.
    """
    linked = violation.name == "torch" and violation.requirer in LINKED
    with_triton = violation.name in ("triton", "pytorch-triton") and violation.requirer == "torch"
    compiled = violation.name in COMPANIONS | COMPILED
    versions = (violation.installed, violation.requirer_version)
    return (linked or with_triton or compiled) and any(map(_is_no_release, versions))


def _is_no_release(version: str) -> bool:
    return is_local_build(version) or is_prerelease(version)


def _requirement_lines(distribution: Distribution, stack: Stack) -> Iterable[str]:
    """The lines of METADATA; of a package in a list those of the tables of its releases.

    bounds/ is for pasted lists of installed packages: the versions of a guide are chosen by requires/ alone, and in a
    lock the absence of a package is no fault if only bounds/ names it.
    """
    if distribution.requires:
        return distribution.requires
    is_pasted = is_from_report(stack) and stack.origin != OF_A_GUIDE
    lines = _lines_of_tables(distribution.name, distribution.version, with_bounds=is_pasted)
    # Only the builds for CUDA need them.
    if is_pasted and distribution.name == "torch" and is_without_cuda(stack):
        return [line for line in lines if not line.startswith(("triton", "nvidia-"))]
    return lines


@cache
def _lines_of_tables(name: str, version: str, *, with_bounds: bool) -> tuple[str, ...]:
    known = requirements_of_release(name, version)
    if not with_bounds or (not known and public_part(version) in releases_of(name)):
        return known  # empty for a build for another device
    named = {found.name for found in map(parse_requirement, known) if found}
    more = ((line, parse_requirement(line)) for line in bounds_of_release(name, version))
    return (*known, *(line for line, found in more if found and found.name not in named))


def _is_outside(version: str, specifier: str) -> bool:
    inside = satisfies(version, specifier)
    if inside is False and is_prerelease(version) and "+" in version:
        # NVIDIA's containers have versions such as 2.5.0a0+e000cf0ad9, which are close to 2.5.0.
        base = re.sub(r"(a|b|rc|\.?dev)\d*$", "", public_part(version))
        return satisfies(base, specifier) is False
    return inside is False


def is_below(version: str, specifier: str) -> bool:
    """Whether a version is older than all that a specifier accepts."""
    key = version_key(version)
    for operator, bound in re.findall(r"(>=|>|~=|==)\s*([^,*\s]+)", specifier):
        limit = version_key(bound.rstrip("."))
        if key and limit and key < limit and not (operator == "==" and "*" in specifier and key[0] >= limit[0]):
            return True
    return False


def group_by_package(violations: Iterable[Violation]) -> Iterator[tuple[str, list[Violation]]]:
    """Violations by the required package."""
    groups: dict[str, list[Violation]] = {}
    for violation in violations:
        groups.setdefault(violation.name, []).append(violation)
    yield from groups.items()
