"""Rules on TRL, transformers, kernels and verl, and the versions that they require."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.records import Machine, Stack, Status
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.releases import (
    optional_specifier,
    releases_of,
    releases_that_accept,
    required_specifier,
    version_range,
)
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.rules.facts import gpus_of
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import between, version_evidence, versions_of


@rule("TRL001", kind="environment", severity=("error", "warning"), cause="trl-vllm-range")
def vllm_is_outside_what_trl_supports(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """The installed vLLM is outside the range that the installed TRL supports.

    TRL declares the range in its `vllm` extra, which installers check only for `trl[vllm]`, and prints a warning at
    import. With other versions trainers fail on names that vLLM moved. TRL 0.18 to 0.26 with vLLM 0.12 or newer
    cannot import `GuidedDecodingParams`, which disables GRPO, RLOO and OnlineDPO; in TRL 0.16 and 0.17 it affects
    only the server.

    Fix: install a vLLM inside the range, or a TRL whose range includes the installed vLLM.

    References:
    https://huggingface.co/docs/trl/vllm_integration
    https://github.com/huggingface/trl/issues/4617
    https://github.com/vllm-project/vllm/pull/29326
    """
    versions = versions_of(stack)
    trl, vllm = versions.get("trl", ""), versions.get("vllm", "")
    if not trl or not vllm or is_prerelease(vllm):
        return
    specifier = optional_specifier("trl", trl, "vllm")
    # The import is in trl/trainer/grpo_trainer.py from v0.18.0 to v0.26.2 and in trl/scripts/vllm_serve.py from
    # v0.16.0 on. From v0.27.0 on it is conditional.
    renamed = satisfies(public_part(trl), ">=0.16,<0.27") and satisfies(public_part(vllm), ">=0.12")
    fails = renamed and satisfies(public_part(trl), ">=0.18")
    if renamed and "<" not in specifier and not specifier.startswith("=="):  # no upper bound, although it fails
        specifier = ",".join(part for part in (specifier, "<0.12") if part)
    if not specifier or satisfies(public_part(vllm), specifier) is not False:
        return
    trl_releases = [
        release
        for release in releases_that_accept("trl", "vllm", public_part(vllm))
        if "<" in optional_specifier("trl", release, "vllm")  # a range without an upper bound is not a promise
    ]
    vllm_releases = [release for release in releases_of("vllm") if satisfies(release, specifier)]
    trl_fix = f", or TRL {version_range(trl_releases)} for vLLM {public_part(vllm)}" if trl_releases else ""
    commands = (
        [shell_command("uv pip install 'vllm{}' --torch-backend=auto", between(vllm_releases))]
        if vllm_releases
        else []
    )
    commands += [shell_command("uv pip install 'trl{}'", between(trl_releases))] if trl_releases else []
    yield Problem(
        "error" if fails else "warning",
        f"TRL {trl} supports vLLM {specifier}, but {vllm} is installed",
        version_evidence(stack, "trl", "vllm"),
        f"Install vLLM {_releases(specifier, vllm_releases)}{trl_fix}.",
        either(*commands),
    )


def _releases(specifier: str, releases: Sequence[str]) -> str:
    """A range with its newest release; the release itself if it is the only one."""
    if specifier.startswith("==") and len(releases) == 1:
        return releases[0]
    return f"{specifier} (newest: {releases[0]})" if releases else specifier


@rule("HF020", kind="environment", severity=("error", "warning"), cause="silent-slow-path")
def kernels_is_unsupported_by_transformers(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """`kernels` is outside the range of versions that the installed transformers accepts.

    transformers 5.15 and newer ignores the package if its version is outside the range in its `kernels` extra,
    without an error. MXFP4 checkpoints (gpt-oss) are dequantized to bfloat16, which takes 39 instead of 12.8 GiB, and
    attention from the kernels hub is not used. transformers 4.57 works with kernels 0.9 to 0.12 and fails at import
    with 0.13.

    Fix: install a `kernels` inside the range, or a transformers whose range includes the newest `kernels`.

    References:
    https://github.com/huggingface/transformers/blob/main/setup.py
    https://github.com/huggingface/kernels
    """
    versions = versions_of(stack)
    kernels, transformers = versions.get("kernels", ""), public_part(versions.get("transformers", ""))
    if not kernels or not transformers:
        return
    status: Status = "warning"
    if satisfies(transformers, "==4.57.*"):
        accepted = ">=0.9,<0.13"
        status = "error" if satisfies(kernels, "==0.13.*") else "warning"
    elif satisfies(transformers, ">=5.15"):
        accepted = optional_specifier("transformers", transformers, "kernels")
    else:
        return
    if not accepted or satisfies(public_part(kernels), accepted) is not False:
        return
    releases = [row for row in releases_that_accept("transformers", "kernels", kernels) if satisfies(row, ">=5.15")]
    effect = "fails at import" if status == "error" else "ignores the package: MXFP4 is dequantized without an error"
    yield Problem(
        status,
        f"transformers {transformers} accepts kernels {accepted}; with {kernels} it {effect}",
        version_evidence(stack, "transformers", "kernels"),
        f"Install kernels {accepted}"
        + (f", or transformers {version_range(releases)} for kernels {kernels}" if releases else "")
        + ".",
        either(
            shell_command("uv pip install 'kernels{}'", accepted),
            *((shell_command("uv pip install transformers=={}", releases[0]),) if releases else ()),
        ),
    )


@rule("HF021", kind="environment", severity="info", cause="silent-slow-path")
def mxfp4_would_be_dequantized(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """Triton is older than 3.4 or the GPU older than Turing: transformers dequantizes MXFP4 checkpoints.

    transformers 4.55 and newer loads gpt-oss as MXFP4 only with Triton 3.4, `kernels` and compute capability 7.5.
    Otherwise it converts the weights to bfloat16 (39 GiB instead of 12.8 for the 20B model) and logs one line.
    `Mxfp4Config(dequantize=True)`, which training uses, needs none of them.

    Fix: if MXFP4 is needed, install torch 2.8 or newer, which includes Triton 3.4.

    References:
    https://huggingface.co/docs/transformers/quantization/mxfp4
    """
    versions = versions_of(stack)
    if "kernels" not in versions or not satisfies(versions.get("transformers", ""), ">=4.55"):
        return
    old_gpu = any((capability_of(gpu) or (99, 0)) < (7, 5) for gpu in gpus_of(machine))
    if satisfies(versions.get("triton", ""), "<3.4") or old_gpu:
        yield Problem(
            "info",
            "MXFP4 checkpoints would be dequantized to bfloat16: "
            + (
                "the compute capability is below 7.5"
                if old_gpu
                else f"Triton is {versions['triton']}, 3.4 is required"
            ),
            version_evidence(stack, "transformers", "triton", "kernels"),
            "To load gpt-oss in MXFP4, use torch 2.8 or newer and a GPU from Turing on.",
            (),
        )


@rule("VERL001", kind="environment", severity=("warning", "info"), cause="dependency-pin-violated")
def vllm_is_outside_verls_range(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """The installed vLLM is outside the range in verl's `vllm` extra.

    verl uses internals of vLLM (weight loading, executors) that change between releases. Newer vLLM releases often
    work before the extra allows them, so this is not an error. Old releases of verl do not support vLLM's V1 engine
    at all.

    Fix: install a vLLM in the range of the extra, or use the image that verl publishes for its release.

    References:
    https://verl.readthedocs.io/en/latest/start/install.html
    https://github.com/volcengine/verl/blob/main/setup.py
    """
    versions = versions_of(stack)
    verl, vllm = versions.get("verl", ""), public_part(versions.get("vllm", ""))
    specifier = optional_specifier("verl", verl, "vllm") if verl else ""
    if not vllm or not specifier or specifier.startswith("==") or satisfies(vllm, specifier) is not False:
        return
    old_verl = satisfies(verl, "<0.4") and satisfies(vllm, ">=0.11")
    yield Problem(
        "warning" if old_verl else "info",
        f"the vllm extra of verl {verl} requires vLLM {specifier}; {vllm} is installed",
        version_evidence(stack, "verl", "vllm"),
        f"Install vLLM {specifier}, or a newer verl.",
        steps(shell_command("uv pip install 'verl=={}' 'vllm{}' --torch-backend=auto", verl, specifier)),
    )


@rule("PKG012", kind="environment", severity="error", cause="dependency-pin-violated")
def flashinfer_parts_differ(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """flashinfer-python and its binary packages have different versions.

    `flashinfer-cubin` and `flashinfer-jit-cache` must have the version of `flashinfer-python`. Otherwise the import
    raises `flashinfer-cubin version (...) does not match flashinfer version (...)`, and vLLM or SGLang does not
    start.

    Fix: install all of them in one version.

    References:
    https://docs.flashinfer.ai/installation.html
    """
    versions = versions_of(stack)
    base = public_part(versions.get("flashinfer-python", ""))
    for name in ("flashinfer-cubin", "flashinfer-jit-cache"):
        if base and name in versions and public_part(versions[name]) != base:
            yield Problem(
                "error",
                f"{name} {versions[name]} does not match flashinfer-python {base}",
                version_evidence(stack, "flashinfer-python", name),
                "Install both in one version.",
                steps(shell_command("uv pip install flashinfer-python=={} {}=={}", base, name, base)),
            )


SAME_TRITON = ("triton", "pytorch-triton", "triton-nightly", "pytorch-triton-rocm", "triton-windows")


@rule(
    "PKG013",
    kind="environment",
    severity="warning",
    cause="dependency-pin-violated",
    url="https://github.com/triton-lang/triton",
)
def triton_is_installed_under_two_names(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """Two packages that contain the module `triton` are installed: triton, pytorch-triton, triton-nightly.

    They overwrite each other's files. The result is a mixture, or another version than torch requires, and
    torch.compile or vLLM's kernels fail on missing names.

    Fix: remove both and reinstall the one that torch requires.

    References:
    https://github.com/pytorch/pytorch/blob/main/RELEASE.md
    """
    versions = versions_of(stack)
    names = [name for name in SAME_TRITON if name in versions]
    if len(names) > 1 and "pytorch-triton-rocm" not in names:  # the ROCm images of vLLM build triton over it
        torch = versions.get("torch", "")
        pin = required_specifier("torch", torch, "triton") or f"=={versions['triton']}" if "triton" in names else ""
        from_pypi = bool(pin) and not is_prerelease(torch)
        yield Problem(
            "warning",
            f"{' and '.join(f'{name} {versions[name]}' for name in names)} both contain the module triton",
            version_evidence(stack, "torch", *names),
            f"Remove them and install triton{pin}, which torch {torch} requires."
            if from_pypi
            else f"Remove them and install the one that torch {torch} requires from the index of torch.",
            steps(shell_command("uv pip uninstall {}", names), shell_command("uv pip install 'triton{}'", pin))
            if from_pypi
            else (),
        )
