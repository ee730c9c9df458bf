"""A corrected environment of a guide as a profile in TOML."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, estimate_period_end

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
    wanted: str = ""  # the requirement as the guide has it; the version may change within it


def profile_toml(
    context: GuideContext, environment: CorrectedEnvironment, pins: list[PinnedRequirement], cuda: str
) -> str:
    """The corrected guide as a profile; empty if the guide installs nothing."""
    if not pins:
        return ""
    name = context.guide.name
    torch = environment.packages.get("torch")
    identifier = re.sub(r"[^A-Za-z0-9._-]+", "-", name.rpartition("/")[2].removesuffix(".md")).strip("-.") or "guide"
    period_end, glibc = estimate_period_end(environment.state), newest_glibc(environment, context.platform)
    python = environment.state.python or context.trace.python
    pythons = [python] if re.fullmatch(r"3\.\d+", python) else list(_DEFAULT_PYTHONS)
    lines = [
        "schema = 1", f"id = {_quoted(identifier[:60])}", f"title = {_quoted(f'The environment of {name}')}",
        f"summary = {_quoted('written by envdoctor audit, with exact pins')}", "preference = 0",
        *([f'exclude_newer = "{period_end}"'] if period_end != "9" and period_end < context.trace.today else []),
        "", "[when]", f'architectures = ["{context.platform}"]', f'glibc = "{glibc}"',
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


def newest_glibc(environment: CorrectedEnvironment, platform: str) -> str:
    """The newest glibc that a wheel of the environment requires."""
    versions = ["2.28"]
    for name, package in environment.packages.items():
        release = find_release(name, public_part(package.version))
        if release and platform in release.glibc:
            versions.append(release.glibc[platform])
    return max(versions, key=lambda version: int(version.partition(".")[2] or 0))


def _quoted(text: str) -> str:
    return json.dumps("".join(letter for letter in text if letter.isprintable())[:300], ensure_ascii=False)
