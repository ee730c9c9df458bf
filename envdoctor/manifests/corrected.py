"""What a guide should have pinned: requirements that work together, and a profile in TOML."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.published import find_release, published_releases, releases_in_range
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.case import Case, Repaired
from envdoctor.manifests.choose import Chosen
from envdoctor.manifests.judge import period_of
from envdoctor.manifests.sources import arm_build

# Names that are no part of a sound stack, and what stands for them. flash-attn is left out, too: it has no wheel
# on PyPI,
# so no resolver can even read what it requires.
_INSTEAD = {"pynvml": "nvidia-ml-py", "flash-attn-3": "", "triton-kernels": ""}
_PROBES = {
    "transformers": "transformers_generate", "trl": "trl_grpo", "peft": "peft_lora", "datasets": "datasets_map",
    "bitsandbytes": "bitsandbytes_nf4",
}  # fmt: skip
_DEFAULT_PYTHONS = ("3.12", "3.11")


class Pinned(NamedTuple):
    """A requirement, why it is what it is, and a page about it."""

    spec: str
    why: str = ""
    url: str = ""


def corrected_pins(case: Case) -> list[Pinned]:
    """Exact requirements of the environment that holds most of the guide's packages."""
    where = main_environment(case)
    if where is None:
        return []
    reasons = {each.culprit.name: each for each in where.all_pins if each.version}
    found: list[Pinned] = []
    for name in where.packages:
        chosen = where.packages[name]
        if name not in where.state.asked and name not in reasons:
            continue
        spec = _spec(name, chosen, case)
        if spec:
            change = reasons.get(name)
            why = change.verdict.problem.message if change else ""
            found.append(Pinned(spec, why, change.verdict.rule.url if change else ""))
    return found + _setuptools(where)


def main_environment(case: Case) -> Repaired | None:
    """The environment with torch in it, else the fullest one."""
    return max(case.repaired, key=lambda each: ("torch" in each.state.packages, len(each.packages)), default=None)


def _spec(name: str, chosen: Chosen, case: Case) -> str:
    instead = _INSTEAD.get(name, name)
    if not instead or instead == "flash-attn" or chosen.label or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", instead):
        return ""
    version = public_part(chosen.version)
    if instead != name or is_prerelease(version) or not published_releases(instead):
        return instead if instead != name or not chosen.specifier else _parsed(f"{instead}{chosen.specifier}")
    if find_release(instead, version) is None:
        rows = releases_in_range(instead, "", case.journey.today)
        version = rows[0].version if rows else version
    return _parsed(f"{instead}=={version}")


def _parsed(text: str) -> str:
    try:
        return str(Requirement(text))
    except InvalidRequirement:
        return ""


def _setuptools(where: Repaired) -> list[Pinned]:
    """triton 3.1 imports setuptools, which torch 2.5 requires on Python 3.12 and newer only."""
    triton = where.packages.get("triton")
    if triton and satisfies(triton.version, "<3.2") and "setuptools" not in where.packages:
        return [
            Pinned("setuptools<80", f"triton {triton.version} imports it; torch requires it from Python 3.12 on only")
        ]
    return []


def profile_toml(case: Case, pins: list[Pinned], name: str) -> str:
    """The corrected guide as a profile; empty where it installs nothing."""
    where = main_environment(case)
    if where is None or not pins:
        return ""
    torch = where.packages.get("torch")
    cuda = _cuda(case, torch)
    identifier = re.sub(r"[^A-Za-z0-9._-]+", "-", name.rpartition("/")[2].removesuffix(".md")).strip("-.") or "guide"
    period = period_of(where.state)
    pythons = [where.state.python] if re.fullmatch(r"3\.\d+", where.state.python) else list(_DEFAULT_PYTHONS)
    lines = [
        "schema = 1", f"id = {_quoted(identifier[:60])}", f"title = {_quoted(f'The stack of {name}')}",
        f"summary = {_quoted('made by envdoctor audit; every pin is exact')}", "preference = 0",
        *([f'exclude_newer = "{period}"'] if period != "9" and period < case.journey.today else []),
        "", "[when]", f'architectures = ["{case.platform}"]', f'glibc = "{_glibc(where, case.platform)}"',
        "disk_gb = 20.0",
        *(["gpus = 1", 'compute_capability = "8.0"'] if cuda else []),
        "", "[python]", f"versions = [{', '.join(map(_quoted, pythons))}]",
        *(["", "[cuda]", f'build = "{cuda}"'] if cuda else []), "",
    ]  # fmt: skip
    for spec, why, url in pins:
        lines += ["[[requirements]]", f"spec = {_quoted(spec)}"]
        lines += [f"why = {_quoted(why)}"] if why else []
        lines += [f"url = {_quoted(url)}"] if url else []
        lines.append("")
    lines += ["[[sources]]", 'kind = "configured"', ""]
    if torch:
        backend = f"cu{cuda.replace('.', '')}" if cuda else "cpu"
        lines += ["[[sources]]", 'kind = "torch-index"', f'backend = "{backend}"', ""]
    probes = ["torch_matmul", *(["cuda_matmul", "sdpa", "triton_jit"] if cuda else [])]
    probes += [probe for package, probe in _PROBES.items() if package in where.packages]
    lines += ["[verify]", f"required = [{', '.join(map(_quoted, probes))}]", "", "[train]", 'recipe = "sort"', ""]
    return "\n".join(lines)


def _cuda(case: Case, torch: Chosen | None) -> str:
    """The CUDA build to ask for; where the guide ends up with the CPU build, the one that the PyTorch index has."""
    if torch is None:
        return ""
    if torch.cuda == "cpu" and not torch.origin.startswith("the PyTorch"):
        arm = case.platform == "aarch64"
        build = arm_build(torch.version, case.journey.driver, case.version("vllm")) if arm else None
        return build.cuda if build and build.cuda in cuda_releases() else ""
    return torch.cuda if torch.cuda in cuda_releases() else ""


def _glibc(where: Repaired, platform: str) -> str:
    """The newest glibc that a wheel of the stack asks for."""
    least = ["2.28"]
    for name, each in where.packages.items():
        row = find_release(name, public_part(each.version))
        if row and platform in row.glibc:
            least.append(row.glibc[platform])
    return max(least, key=lambda text: int(text.partition(".")[2] or 0))


def _quoted(text: str) -> str:
    return json.dumps("".join(letter for letter in text if letter.isprintable())[:300], ensure_ascii=False)
