"""Exact requirements that correct a guide, and a profile in TOML that contains them."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.published import find_release, published_releases, releases_in_range
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, estimate_period_end
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import aarch64_build

# Packages that do not belong in a working environment -> their replacements; empty to omit them. flash-attn has no
# wheel on PyPI, so a resolver cannot read its dependencies.
_REPLACEMENTS = {"pynvml": "nvidia-ml-py", "flash-attn-3": "", "triton-kernels": "", "flash-attn": ""}
_PROBES = {
    "transformers": "transformers_generate", "trl": "trl_grpo", "peft": "peft_lora", "datasets": "datasets_map",
    "bitsandbytes": "bitsandbytes_nf4",
}  # fmt: skip
_DEFAULT_PYTHONS = ("3.12", "3.11")


class PinnedRequirement(NamedTuple):
    """A requirement with its reason and a URL about it."""

    spec: str
    why: str = ""
    url: str = ""


def corrected_pins(context: GuideContext) -> list[PinnedRequirement]:
    """Exact requirements of the main environment."""
    environment = main_environment(context)
    if environment is None:
        return []
    changes = {change.package.name: change for change in environment.all_pins if change.version}
    pins: list[PinnedRequirement] = []
    for name, package in environment.packages.items():
        if name not in environment.state.requested and name not in changes:
            continue
        spec = _requirement_text(name, package, context)
        if spec:
            violation = changes[name].violation if name in changes else None
            why, url = (violation.problem.message, violation.rule.url) if violation else ("", "")
            pins.append(PinnedRequirement(spec, why, url))
    return pins + _setuptools_pin(environment)


def main_environment(context: GuideContext) -> CorrectedEnvironment | None:
    """The environment with torch, else the one with the most packages."""
    return max(
        context.environments,
        key=lambda environment: ("torch" in environment.state.packages, len(environment.packages)),
        default=None,
    )


def _requirement_text(name: str, package: ResolvedPackage, context: GuideContext) -> str:
    """The requirement for a package; empty to omit the package."""
    replacement = _REPLACEMENTS.get(name, name)
    if not replacement or package.wheel or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", replacement):
        return ""
    if replacement != name:
        return replacement
    version = public_part(package.version)
    if is_prerelease(version) or not published_releases(name):
        return _normalized(f"{name}{package.specifier}") if package.specifier else name
    if find_release(name, version) is None:
        releases = releases_in_range(name, "", context.trace.today)
        version = releases[0].version if releases else version
    return _normalized(f"{name}=={version}")


def _normalized(text: str) -> str:
    try:
        return str(Requirement(text))
    except InvalidRequirement:
        return ""


def _setuptools_pin(environment: CorrectedEnvironment) -> list[PinnedRequirement]:
    """triton 3.1 imports setuptools, but torch 2.5 requires setuptools on Python 3.12 and newer only."""
    triton = environment.packages.get("triton")
    if triton and satisfies(triton.version, "<3.2") and "setuptools" not in environment.packages:
        why = f"triton {triton.version} imports it; torch requires it from Python 3.12 on only"
        return [PinnedRequirement("setuptools<80", why)]
    return []


def profile_toml(context: GuideContext, pins: list[PinnedRequirement], name: str) -> str:
    """The corrected guide as a profile; empty if the guide installs nothing."""
    environment = main_environment(context)
    if environment is None or not pins:
        return ""
    torch = environment.packages.get("torch")
    cuda = _cuda_build(context, torch)
    identifier = re.sub(r"[^A-Za-z0-9._-]+", "-", name.rpartition("/")[2].removesuffix(".md")).strip("-.") or "guide"
    period_end = estimate_period_end(environment.state)
    python = environment.state.python
    pythons = [python] if re.fullmatch(r"3\.\d+", python) else list(_DEFAULT_PYTHONS)
    lines = [
        "schema = 1", f"id = {_quoted(identifier[:60])}", f"title = {_quoted(f'The environment of {name}')}",
        f"summary = {_quoted('written by envdoctor audit, with exact pins')}", "preference = 0",
        *([f'exclude_newer = "{period_end}"'] if period_end != "9" and period_end < context.trace.today else []),
        "", "[when]", f'architectures = ["{context.platform}"]', f'glibc = "{_glibc(environment, context.platform)}"',
        "disk_gb = 20.0",
        *(["gpus = 1", 'compute_capability = "8.0"'] if cuda else []),
        "", "[python]", f"versions = [{', '.join(map(_quoted, pythons))}]",
        *(["", "[cuda]", f'build = "{cuda}"'] if cuda else []), "",
    ]  # fmt: skip
    for pin in pins:
        lines += ["[[requirements]]", f"spec = {_quoted(pin.spec)}"]
        lines += [f"why = {_quoted(pin.why)}"] if pin.why else []
        lines += [f"url = {_quoted(pin.url)}"] if pin.url else []
        lines.append("")
    lines += ["[[sources]]", 'kind = "configured"', ""]
    if torch:
        backend = f"cu{cuda.replace('.', '')}" if cuda else "cpu"
        lines += ["[[sources]]", 'kind = "torch-index"', f'backend = "{backend}"', ""]
    probes = ["torch_matmul", *(["cuda_matmul", "sdpa", "triton_jit"] if cuda else [])]
    probes += [probe for package, probe in _PROBES.items() if package in environment.packages]
    lines += ["[verify]", f"required = [{', '.join(map(_quoted, probes))}]", "", "[train]", 'recipe = "sort"', ""]
    return "\n".join(lines)


def _cuda_build(context: GuideContext, torch: ResolvedPackage | None) -> str:
    """The CUDA version of the torch build. If the guide gets the CPU build of PyPI, that of the PyTorch index."""
    if torch is None:
        return ""
    cuda = torch.cuda
    if cuda == "cpu" and not torch.origin.startswith("the PyTorch"):
        is_arm = context.platform == "aarch64"
        build = aarch64_build(torch.version, context.trace.driver, context.version("vllm")) if is_arm else None
        cuda = build.cuda if build else ""
    return cuda if cuda in cuda_releases() else ""


def _glibc(environment: CorrectedEnvironment, platform: str) -> str:
    """The newest glibc that a wheel of the environment requires."""
    versions = ["2.28"]
    for name, package in environment.packages.items():
        release = find_release(name, public_part(package.version))
        if release and platform in release.glibc:
            versions.append(release.glibc[platform])
    return max(versions, key=lambda version: int(version.partition(".")[2] or 0))


def _quoted(text: str) -> str:
    return json.dumps("".join(letter for letter in text if letter.isprintable())[:300], ensure_ascii=False)
