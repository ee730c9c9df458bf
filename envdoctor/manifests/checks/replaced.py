"""Checks on what a later step does to what an earlier one chose."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.torch_builds import install_command, known_builds, torch_releases
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.case import Case
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.choose import Chosen
from envdoctor.manifests.journey import Installed
from envdoctor.manifests.sources import arm_build, source_of
from envdoctor.rules.registry import Problem, rule

ARM_TORCH = "https://github.com/pytorch/pytorch/issues/160162"
UV_TORCH = "https://docs.astral.sh/uv/guides/integration/pytorch/"
_FAMILY = ("torch", "torchvision", "torchaudio", "triton")
_LIBRARIES = (
    "vllm",
    "transformers",
    "trl",
    "peft",
    "numpy",
    "xformers",
    "flash-attn",
    "accelerate",
    "huggingface-hub",
)


@rule("RUN010", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=UV_TORCH)
def later_step_replaces_what_an_earlier_one_chose(case: Case) -> Iterator[Problem]:
    """A later installation moves torch, triton or another pinned package, with exit code 0 and without a word.

    What was compiled for the earlier torch then misses symbols; a CUDA build may become another CUDA or the CPU one.
    """
    for done in case.journey.installed:
        for name in (*_FAMILY, *_LIBRARIES):
            old, new = done.before.packages.get(name), done.after.packages.get(name)
            if old and new and new is not old and _is_moved(name, old, new, done):
                yield _moved(case, done, old, new)


def _is_moved(name: str, old: Chosen, new: Chosen, done: Installed) -> bool:
    if new.label or old.label or not old.version or not new.version:
        return False
    if name == "torch" and old.cuda not in ("", "cpu") and new.cuda == "cpu":
        return True
    same = public_part(old.version) == public_part(new.version)
    if same or (old.line == new.line and old.reason == new.reason):
        return False
    decided = old.pinned or old.origin != "PyPI" or (bool(old.specifier) and not _keeps(old, new))
    if name in _FAMILY:
        return decided or (name != "torch" and "torch" in done.before.packages) or name == "torch"
    return decided and not new.pinned


def _keeps(old: Chosen, new: Chosen) -> bool:
    return satisfies(public_part(new.version), old.specifier) is not False


def _moved(case: Case, done: Installed, old: Chosen, new: Chosen) -> Problem:
    line = line_of(case, new.line or done.step.line, new.reason if not new.reason.startswith("required") else "")
    to_cpu = old.name == "torch" and old.cuda not in ("", "cpu") and new.cuda == "cpu"
    quiet = new.pinned and not to_cpu and old.origin == "PyPI"
    by = f"`{new.reason}`" if not new.reason.startswith("required") else f"what is {new.reason}"
    kept = (
        f"{old.name}=={public_part(old.version)}" if not is_prerelease(old.version) else f"{old.name} {old.version}"
    )
    users = "vllm" in done.after.packages
    return Problem(
        "warning" if quiet or (old.name not in _FAMILY) else "error",
        f"{by} replaces {_shown(old)} of line {old.line} by {_shown(new)}",
        (
            guide_evidence(case, old.name, f"{old.reason} ({old.origin})", old.line),
            guide_evidence(case, new.name, done.step.command, done.step.line),
        ),
        f"Install both in one command with {kept}, or give the later step a constraint file with {kept}.",
        (f"uv pip install {done_names(done)} '{kept}'",) if not is_prerelease(old.version) else (),
        line=line,
        cause="torch-cpu-build" if to_cpu else "vllm-torch-mismatch" if old.name == "torch" and users else "",
    )


def done_names(done: Installed) -> str:
    """What the step asks for, as words of a command."""
    return " ".join(f"'{each.text}'" for each in done.step.wanted[:6])


def _shown(each: Chosen) -> str:
    build = {"": "", "cpu": " for the CPU"}.get(each.cuda, f" for CUDA {each.cuda}")
    origin = "" if each.origin == "PyPI" else f" from {each.origin}"
    return f"{each.name} {each.version}{build}{origin}"


@rule("RUN011", kind="guide", severity="error", cause="torch-cpu-build", url=ARM_TORCH)
def torch_on_arm_is_the_cpu_build(case: Case) -> Iterator[Problem]:
    """On aarch64, PyPI's torch is a CPU build up to 2.10; what needs libtorch_cuda.so then fails.

    vLLM, FlashAttention and bitsandbytes install beside it without a complaint.
    """
    if case.platform != "aarch64":
        return
    for done in case.journey.installed:
        old, new = done.before.packages.get("torch"), done.choice.picks.get("torch")
        same = old and new and (old.version, old.cuda) == (new.version, new.cuda)
        if not new or same or new.cuda != "cpu" or source_of(done.step).backend.startswith("cpu"):
            continue
        row = next(
            (row for row in reversed(guide_tables().pypi_torch) if satisfies(new.version, f">={row.first}")), None
        )
        build = arm_build(new.version, case.journey.driver, case.version("vllm"))
        latest = torch_releases()[build.torch].latest if build else ""
        command = (
            install_command(build).replace(latest, public_part(new.version))
            if build
            else "uv pip install 'torch>=2.11'"
        )
        line = line_of(case, new.line, new.reason if not new.reason.startswith("required") else "")
        yield Problem(
            "error",
            f"torch {new.version} from PyPI is a CPU build on aarch64 (`{new.reason}`); CUDA builds there begin "
            f"with 2.11",
            (
                guide_evidence(case, "torch", new.reason, line),
                table_evidence("torch on PyPI, aarch64", "cpu", row.source if row else "", row.date if row else ""),
            ),
            "Take torch from the PyTorch index first"
            + (f" (CUDA {build.cuda})" if build else "")
            + ", and keep it in every later step; or move to torch 2.11 or newer, whose PyPI wheel has CUDA.",
            (command,),
            line=line,
        )


@rule(
    "RUN012",
    kind="guide",
    severity="warning",
    cause="dependency-pin-violated",
    url="https://pytorch.org/get-started/locally/",
)
def nightly_build_is_another_one_each_day(case: Case) -> Iterator[Problem]:
    """A nightly torch is not what the guide was written with, and those of its day are no longer there."""
    for done in case.journey.installed:
        source = source_of(done.step)
        each = next((each for each in done.step.wanted if each.name == "torch"), None)
        if not each or not (source.nightly or "dev" in each.specifier):
            continue
        line = line_of(case, done.step.line, each.text)
        build = [
            row
            for row in known_builds()
            if row.platform == case.platform and (not source.cuda or row.cuda == source.cuda)
        ]
        stable = torch_releases()[build[-1].torch].latest if build else ""
        yield Problem(
            "warning",
            f"`{done.step.command[:120]}` installs today's nightly build; nightly builds are kept for some "
            f"weeks only",
            (guide_evidence(case, "torch", str(source), line),),
            f"Take a release: torch {stable} has a build for this processor and CUDA."
            if stable
            else "Take a release.",
            (install_command(build[-1]),) if build else (),
            line=line,
        )
