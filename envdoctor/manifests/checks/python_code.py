"""Checks on the Python code of a guide: unknown arguments, and settings that silently change the result."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.guides import ReplacedArgument, guide_tables, inherited_arguments
from envdoctor.knowledge.names import compared_wheels, find_member, single_period
from envdoctor.knowledge.releases import releases_that_pin
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.checks.accepting_releases import release_that_accepts_all
from envdoctor.manifests.checks.arguments import Argument, arguments
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import imports_of_guide
from envdoctor.manifests.patched_classes import PATCHING, is_accepted_by_patch
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import bounded

TRL = "https://huggingface.co/docs/trl/grpo_trainer"
_QUOTES = "'\""
_GPT_OSS = lazy_pattern(r"gpt[-_ ]?oss", re.IGNORECASE)  # gpt-oss-20b, gptoss20b, GptOss


@rule("RUN070", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=TRL)
def argument_is_unknown_or_ignored(context: GuideContext) -> Iterator[Problem]:
    """A class of TRL, PEFT or transformers is called with an argument that its release refuses or ignores."""
    trl = context.version("trl")
    found_arguments = arguments(context)
    with_args = {each.owner for each in found_arguments if each.name == "args"}
    for argument in found_arguments:
        line, owner, name, value = argument
        if _unsloth_passes_it(context, argument, owner in with_args):
            continue
        row = next((row for row in guide_tables().argument if (row.owner, row.name) == (owner, name)), None)
        if row and trl and row.ignored and satisfies(trl, row.ignored):
            yield Problem(
                "warning",
                f"{owner}({name}={value[:40]}): TRL {trl} accepts and ignores it",
                (
                    guide_evidence(context, name, value[:80], line),
                    _table(f"{owner}.{name}", f"TRL {row.ignored}", "trl"),
                ),
                _advice(row, trl),
                line=line,
                cause="silent-wrong-result",
            )
        elif row and not find_member("arguments", owner, name):
            yield Problem(
                "error",
                f"{owner}({name}={value[:40]}): no TRL release accepts it (TypeError)",
                (
                    guide_evidence(context, name, value[:80], line),
                    _table(f"{owner}.{name}", "in no TRL release", "trl"),
                ),
                _advice(row, trl),
                line=line,
            )
        elif found := _missing_member(context, argument, row):
            yield found


def _unsloth_passes_it(context: GuideContext, argument: Argument, has_args: bool) -> bool:
    """Whether unsloth, imported before, accepts an argument in place of TRL."""
    if not any(each.top == PATCHING and each.line < argument.line for each in imports_of_guide(context)):
        return False
    return is_accepted_by_patch(argument.owner, argument.name, has_config=has_args)


def _advice(row: ReplacedArgument, trl: str) -> str:
    """What to use for an argument, and from which release on where the guide's release is older or unknown."""
    span = single_period(find_member("arguments", row.owner, row.replacement))
    since = ""
    if (
        span
        and span.first
        and not (trl and span.can_be_in(trl))
        and row.replacement not in inherited_arguments("trl")
    ):
        since = f" (TRL {span.first} or newer)"
    return f"Use {row.replacement or row.instead}{since}."


def _table(fact: str, value: str, package: str) -> Evidence:
    """A row of a package's table of names as evidence."""
    return table_evidence(fact, value, *compared_wheels(package))


def _missing_member(context: GuideContext, argument: Argument, row: ReplacedArgument | None) -> Problem | None:
    """An argument that other releases of the library have, but not the one that the guide installs."""
    line, owner, name, value = argument
    span = single_period(find_member("arguments", owner, name))
    version = context.version(span.package) if span else ""
    if not span or not version or span.can_be_in(version) or name in inherited_arguments(span.package):
        return None
    releases = span.in_words
    accepting = "" if span.first or row else release_that_accepts_all(context, span.package)
    pin = f"{span.package}=={accepting}" if accepting else ""
    in_range = f">={span.first}" if span.first else f"<={span.last}"
    return Problem(
        "error",
        f"{owner}({name}={value[:40]}): {span.package} {version} does not accept it, {releases} do (TypeError)",
        (guide_evidence(context, name, value[:80], line), _table(f"{owner}.{name}", releases, span.package)),
        _advice(row, version) if row else f"Leave it out, or use {pin or f'{span.package}{in_range}'}.",
        install_step(pin or f"{span.package}{bounded(in_range)}") if pin or (span.first and not row) else (),
        line=line,
    )


@rule("RUN071", kind="guide", severity="error", cause="library-too-old", url=TRL)
def loss_type_does_not_exist_in_this_release(context: GuideContext) -> Iterator[Problem]:
    """loss_type names a loss that was added in a later TRL release than the one in the guide."""
    trl = context.version("trl")
    for line, owner, name, value in arguments(context):
        span = single_period(find_member("values", owner, f"{name}={value.strip(_QUOTES)}"))
        if span and trl and not span.can_be_in(trl):
            yield Problem(
                "error",
                f"{name}={value} was added in TRL {span.first}; the guide installs {trl}",
                (guide_evidence(context, name, value, line), _table(f"{name}={value}", f"TRL {span.first}..", "trl")),
                f'Use "grpo" or "dr_grpo", or TRL {span.first}.',
                steps(shell_command("uv pip install 'trl{}'", bounded(f">={span.first}"))),
                line=line,
            )


def _companions(context: GuideContext, torch: str) -> list[str]:
    """A release of torch, with those of torchvision and torchaudio for it if the guide installs them."""
    names = [name for name in ("torchvision", "torchaudio") if context.version(name)]
    return [f"torch=={torch}", *(f"{name}=={releases_that_pin(name, 'torch', torch)[0]}" for name in names)]


def _first(context: GuideContext, pattern: str) -> tuple[int, str] | None:
    lines = [line for block in context.guide.python_blocks for line in block]
    lines += [(command.line, command.text) for command in context.guide.commands]
    return next(((line, text) for line, text in lines if re.search(pattern, text.partition("#")[0])), None)


@rule(
    "RUN072",
    kind="guide",
    severity="error",
    cause="silent-wrong-result",
    url="https://huggingface.co/docs/transformers/model_doc/gpt_oss",
)
def flash_attention_drops_the_attention_sinks_of_gpt_oss(context: GuideContext) -> Iterator[Problem]:
    """With FlashAttention 2 or 3, transformers 4.55 to 4.57 silently drops the attention sinks of gpt-oss."""
    used = _first(context, r"flash_attention_[23]|ATTN_IMPL\w*\s*=\s*['\"]?flash")
    versions = (
        context.version("transformers"),
        *(
            environment.packages["transformers"].version
            for environment in context.environments
            if "transformers" in environment.packages
        ),
    )
    version = next((version for version in versions if version and satisfies(version, ">=4.55,<5")), "")
    if used and version and _first(context, f"(?i){_GPT_OSS.pattern}"):
        yield Problem(
            "error",
            f"gpt-oss with FlashAttention on transformers {version}: the attention sinks are silently dropped",
            (
                guide_evidence(context, "attn_implementation", used[1].strip()[:100], used[0]),
                table_evidence(
                    "s_aux", "passed only if the function takes it", "source of transformers 4.57", "2026-11-21"
                ),
            ),
            'Train with attn_implementation="eager" or flex. '
            "kernels-community/vllm-flash-attn3 has no backward pass.",
            line=used[0],
        )


@rule(
    "RUN073",
    kind="guide",
    severity="error",
    cause="silent-wrong-result",
    url="https://github.com/huggingface/trl/issues/5312",
)
def sleep_mode_generates_with_the_initial_weights(context: GuideContext) -> Iterator[Problem]:
    """With vllm_enable_sleep_mode, TRL 0.26 to 1.9 reloads the initial checkpoint at every wake-up of vLLM."""
    trl = context.version("trl")
    for line, owner, name, value in arguments(context):
        if (
            owner == "GRPOConfig"
            and name == "vllm_enable_sleep_mode"
            and value == "True"
            and trl
            and satisfies(trl, ">=0.26,<1.10")
        ):
            yield Problem(
                "error",
                f"sleep mode of TRL {trl} reloads the initial checkpoint at every wake-up",
                (
                    guide_evidence(context, name, value, line),
                    table_evidence("sleep mode", "TRL 0.26 to 1.9", "reload_weights in TRL's wheels", "2026-11-26"),
                ),
                "Do not set it, or use TRL 1.10 or newer.",
                steps("uv pip install 'trl>=1.10,<1.11'"),
                line=line,
            )


def _line_and_value(argument: Argument | None) -> tuple[int, str]:
    return (argument.line, argument.value) if argument else (0, "")


@rule(
    "RUN074",
    kind="guide",
    severity=("error", "warning"),
    cause="silent-wrong-result",
    url="https://github.com/huggingface/trl/releases",
)
def liger_loss_ignores_the_importance_sampling_ratio(context: GuideContext) -> Iterator[Problem]:
    """Before TRL 0.29 the Liger loss ignores vLLM's importance-sampling ratio. Before liger 0.6.4 it lacks dapo."""
    trl, liger = context.version("trl"), context.version("liger-kernel")
    config = {argument.name: argument for argument in arguments(context) if argument.owner == "GRPOConfig"}
    line, value = _line_and_value(config.get("use_liger_loss"))
    if not line and satisfies(trl, "==0.27.*"):
        line, value = _line_and_value(config.get("use_liger_kernel"))
    if value != "True" or not trl:
        return
    if satisfies(trl, "<0.29") and _line_and_value(config.get("use_vllm"))[1] == "True":
        yield Problem(
            "warning",
            f"the Liger loss of TRL {trl} ignores the importance-sampling ratio of vLLM's samples",
            (guide_evidence(context, "use_liger_loss", value, line),),
            "Do not set it with vLLM, or use TRL 0.29 and liger-kernel 0.7.",
            line=line,
        )
    loss = (_line_and_value(config.get("loss_type"))[1] or "dapo").strip("'\"")
    if liger and satisfies(liger, "<0.6.4") and loss == "dapo":
        yield Problem(
            "error",
            f"liger-kernel {liger} does not implement the loss dapo, which this run uses",
            (guide_evidence(context, "use_liger_loss", value, line),),
            "Use liger-kernel 0.6.4 or newer.",
            steps("uv pip install 'liger-kernel>=0.6.4,<0.7'"),
            line=line,
            cause="library-too-old",
        )


@rule(
    "RUN075",
    kind="guide",
    severity=("error", "warning"),
    cause="silent-slow-path",
    url="https://huggingface.co/docs/transformers/quantization/mxfp4",
)
def mxfp4_checkpoint_is_dequantized_or_rejected(context: GuideContext) -> Iterator[Problem]:
    """gpt-oss is stored in MXFP4: bitsandbytes 4-bit rejects it, and Triton before 3.4 lacks it."""
    used = _first(context, f"(?i){_GPT_OSS.pattern}")
    if not used or _first(context, r"dequantize\s*=\s*True|-BF16|-bf16"):
        return
    triton = context.version("triton")
    quantization = _first(context, r"load_in_4bit['\"]?\s*[=: ]\s*[Tt]rue")
    if quantization:
        yield Problem(
            "error",
            "bitsandbytes 4-bit rejects a gpt-oss checkpoint, because it is already quantized to MXFP4",
            (guide_evidence(context, "quantization", quantization[1].strip()[:80], quantization[0]),),
            "Use Mxfp4Config(dequantize=True) for training, or a bf16 checkpoint.",
            line=quantization[0],
            cause="dependency-pin-violated",
        )
    if triton and satisfies(triton, "<3.4"):
        package = next(
            environment.state.packages["triton"]
            for environment in context.environments
            if "triton" in environment.state.packages
        )
        yield Problem(
            "warning",
            f"Triton {triton} does not support MXFP4: gpt-oss is dequantized and takes 39 GiB instead of 12.8",
            (guide_evidence(context, "triton", package.reason, package.line),),
            "Use torch 2.8 or newer, which requires Triton 3.4.",
            install_step(*_companions(context, "2.8.0"), backend="cu128"),
            line=package.line or used[0],
        )


@rule(
    "RUN076",
    kind="guide",
    severity="error",
    cause="silent-wrong-result",
    url="https://github.com/huggingface/peft/releases/tag/v0.17.0",
)
def lora_of_expert_layers_is_not_supported(context: GuideContext) -> Iterator[Problem]:
    """target_parameters, which selects the expert layers of gpt-oss, needs PEFT 0.17 or newer and no dropout."""
    targets = _first(context, r"target_parameters\s*=")
    dropout = _first(context, r"lora_dropout\s*=\s*0?\.\d*[1-9]")
    peft = context.version("peft")
    if not targets:
        return
    if dropout:
        yield Problem(
            "error",
            "lora_dropout with target_parameters: PEFT does not support dropout for parameters",
            (guide_evidence(context, "lora_dropout", dropout[1].strip()[:60], dropout[0]),),
            "Set lora_dropout=0.",
            line=dropout[0],
        )
    if peft and satisfies(peft, "<0.17"):
        yield Problem(
            "error",
            f"PEFT {peft} does not have target_parameters",
            (guide_evidence(context, "target_parameters", targets[1].strip()[:60], targets[0]),),
            "Use PEFT 0.17 or newer.",
            steps("uv pip install 'peft>=0.17,<0.18'"),
            line=targets[0],
            cause="library-too-old",
        )
