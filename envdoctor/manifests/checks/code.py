"""Checks on the guide's own Python: arguments that do not exist, and settings that quietly compute something else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.case import Case
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.rules.registry import Problem, rule

TRL = "https://huggingface.co/docs/trl/grpo_trainer"
_CALL = re.compile(r"\b(GRPOConfig|GRPOTrainer)\s*\(")
_LONGEST_CALL = 200  # lines
_MODEL = re.compile(r"gpt[-_]oss", re.IGNORECASE)
Argument = tuple[int, str, str, str]  # line, owner, name, value


def _arguments(case: Case) -> list[Argument]:
    """Keyword arguments of GRPOConfig and GRPOTrainer in the guide's code, with their lines."""
    return [each for code in case.guide.code for each in _in_lines(code.lines)]


def _in_lines(lines: tuple[tuple[int, str], ...]) -> Iterator[Argument]:
    for at, (_, text) in enumerate(lines):
        start = _CALL.search(text)
        if not start:
            continue
        depth, offset = 0, start.end() - 1
        for number, line in lines[at : at + _LONGEST_CALL]:
            depth_before = depth
            part = line[offset:].partition("#")[0]
            depth = (
                depth
                + part.count("(")
                + part.count("[")
                + part.count("{")
                - part.count(")")
                - part.count("]")
                - part.count("}")
            )
            if depth_before <= 1 or offset:
                for found in re.finditer(r"(?:^|[(,])\s*(\w+)\s*=(?!=)\s*([^,]{0,200})", part):
                    yield number, start[1], found[1], found[2].strip().rstrip(")").strip()
            offset = 0
            if depth <= 0:
                break


@rule("RUN070", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=TRL)
def argument_does_not_exist(case: Case) -> Iterator[Problem]:
    """GRPOConfig or GRPOTrainer is given an argument that this TRL does not know, or takes without any effect."""
    trl = case.version("trl")
    for line, owner, name, value in _arguments(case):
        for row in guide_tables().argument:
            if (row.owner, row.name) != (owner, name):
                continue
            absent = not row.absent or (bool(trl) and bool(satisfies(trl, row.absent)))
            silent = bool(row.silent and trl and satisfies(trl, row.silent))
            if not absent and not silent:
                continue
            which = f"TRL {trl}" if trl and row.absent else "any TRL" if not row.absent else f"TRL {trl}"
            does = "takes it and does nothing with it" if silent and not absent else "does not know it: TypeError"
            yield Problem(
                "error" if absent else "warning",
                f"{owner}({name}={value[:40]}): {which} {does}",
                (
                    guide_evidence(case, name, value[:80], line),
                    table_evidence(
                        f"{owner}.{name}",
                        f"absent in TRL {row.absent or 'of all versions'}",
                        "read in TRL's wheels 0.22.2, 0.23.1, 0.27.1, 1.16.0",
                        "2026-11-21",
                    ),
                ),
                f"Use {row.instead}.",
                line=line,
                cause="silent-wrong-result" if silent and not absent else "dependency-pin-violated",
            )


@rule("RUN071", kind="guide", severity="error", cause="library-too-old", url=TRL)
def loss_is_not_in_this_release(case: Case) -> Iterator[Problem]:
    """loss_type names a loss that the guide's TRL does not have yet."""
    trl = case.version("trl")
    for line, owner, name, value in _arguments(case):
        row = next((row for row in guide_tables().loss if row.name == value.strip("'\"")), None)
        if owner == "GRPOConfig" and name == "loss_type" and row and trl and satisfies(trl, f"<{row.first}"):
            yield Problem(
                "error",
                f"loss_type={value} came with TRL {row.first}; the guide has {trl}",
                (guide_evidence(case, name, value, line),),
                f'Use "dapo" or "dr_grpo", or TRL {row.first}.',
                (f"uv pip install 'trl>={row.first}'",),
                line=line,
            )


def _code_lines(case: Case) -> list[tuple[int, str]]:
    """Python code and commands of the guide."""
    code = [each for code in case.guide.code for each in code.lines]
    return code + [(command.line, str(command)) for command in case.guide.commands]


def _first(case: Case, pattern: str) -> tuple[int, str] | None:
    return next(
        ((line, text) for line, text in _code_lines(case) if re.search(pattern, text.partition("#")[0])), None
    )


@rule(
    "RUN072",
    kind="guide",
    severity="error",
    cause="silent-wrong-result",
    url="https://huggingface.co/docs/transformers/model_doc/gpt_oss",
)
def gpt_oss_loses_its_attention_sinks(case: Case) -> Iterator[Problem]:
    """gpt-oss under flash-attn 2 or 3 on transformers 4.55 to 4.57 drops the attention sinks without an error."""
    used = _first(case, r"flash_attention_[23]|ATTN_IMPL\w*\s*=\s*['\"]?flash")
    versions = (
        case.version("transformers"),
        *(each.packages["transformers"].version for each in case.repaired if "transformers" in each.packages),
    )
    version = next((each for each in versions if each and satisfies(each, ">=4.55,<5")), "")
    if (
        used
        and _first(case, _MODEL.pattern + "|GPT[-_]OSS|Gpt[-_]?Oss")
        and version
        and satisfies(version, ">=4.55,<5")
    ):
        yield Problem(
            "error",
            f"gpt-oss with flash attention on transformers {version}: the attention sinks are dropped without "
            f"an error",
            (
                guide_evidence(case, "attn_implementation", used[1].strip()[:100], used[0]),
                table_evidence(
                    "s_aux", "passed only if the function takes it", "source of transformers 4.57", "2026-11-21"
                ),
            ),
            'Train with attn_implementation="eager" or flex; kernels-community/vllm-flash-attn3 is forward only.',
            line=used[0],
        )


@rule(
    "RUN073",
    kind="guide",
    severity="error",
    cause="silent-wrong-result",
    url="https://github.com/huggingface/trl/issues/5312",
)
def sleep_mode_serves_the_initial_weights(case: Case) -> Iterator[Problem]:
    """vllm_enable_sleep_mode with TRL 0.27 to 1.9 generates from the initial checkpoint after each wake-up."""
    trl = case.version("trl")
    for line, owner, name, value in _arguments(case):
        if (
            owner == "GRPOConfig"
            and name == "vllm_enable_sleep_mode"
            and value == "True"
            and trl
            and satisfies(trl, ">=0.27,<1.10")
        ):
            yield Problem(
                "error",
                f"sleep mode of TRL {trl} reloads the initial checkpoint at every wake-up",
                (
                    guide_evidence(case, name, value, line),
                    table_evidence(
                        "sleep mode", "TRL 0.27 to 1.9", "vllm_generation.py in TRL's wheels", "2026-11-21"
                    ),
                ),
                "Leave it off, or use TRL 1.10 or newer.",
                ("uv pip install 'trl>=1.10'",),
                line=line,
            )


@rule(
    "RUN074",
    kind="guide",
    severity=("error", "warning"),
    cause="silent-wrong-result",
    url="https://github.com/huggingface/trl/releases",
)
def liger_loss_ignores_the_sampling_ratio(case: Case) -> Iterator[Problem]:
    """The Liger loss with vLLM ignores the importance-sampling ratio before TRL 0.29; before liger 0.6.4 it
    lacks dapo.
    """
    trl, liger = case.version("trl"), case.version("liger-kernel")
    given = {(owner, name): (line, value) for line, owner, name, value in _arguments(case)}
    line, value = given.get(("GRPOConfig", "use_liger_loss"), (0, ""))
    if not line and satisfies(trl, "==0.27.*"):
        line, value = given.get(("GRPOConfig", "use_liger_kernel"), (0, ""))
    if value != "True" or not trl:
        return
    if satisfies(trl, "<0.29") and given.get(("GRPOConfig", "use_vllm"), (0, ""))[1] == "True":
        yield Problem(
            "warning",
            f"the Liger loss of TRL {trl} ignores the importance-sampling ratio of vLLM's samples",
            (guide_evidence(case, "use_liger_loss", value, line),),
            "Leave it off with vLLM, or use TRL 0.29 and liger-kernel 0.7.",
            line=line,
        )
    loss = given.get(("GRPOConfig", "loss_type"), (0, '"dapo"'))[1].strip("'\"")
    if liger and satisfies(liger, "<0.6.4") and loss == "dapo":
        yield Problem(
            "error",
            f"the Liger loss of liger-kernel {liger} has no dapo, the loss of this run",
            (guide_evidence(case, "use_liger_loss", value, line),),
            "Use liger-kernel 0.6.4 or newer.",
            ("uv pip install 'liger-kernel>=0.6.4'",),
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
def mxfp4_checkpoint_is_handled_otherwise(case: Case) -> Iterator[Problem]:
    """gpt-oss comes in MXFP4: below Triton 3.4 it is dequantised to 39 GiB, and bitsandbytes' 4-bit refuses it."""
    if not _first(case, _MODEL.pattern) or _first(case, r"dequantize\s*=\s*True|-BF16|-bf16"):
        return
    used = _first(case, _MODEL.pattern)
    line = used[0] if used else 0
    triton = case.version("triton")
    bits = _first(case, r"load_in_4bit\s*=\s*True")
    if bits:
        yield Problem(
            "error",
            "bitsandbytes 4-bit on a gpt-oss checkpoint raises: it is MXFP4 already",
            (guide_evidence(case, "quantisation", bits[1].strip()[:80], bits[0]),),
            "Use Mxfp4Config(dequantize=True) for training, or a bf16 checkpoint.",
            line=bits[0],
            cause="dependency-pin-violated",
        )
    if triton and satisfies(triton, "<3.4"):
        chosen = next(each.state.packages["triton"] for each in case.repaired if "triton" in each.state.packages)
        yield Problem(
            "warning",
            f"gpt-oss keeps MXFP4 only with Triton 3.4; with {triton} it is dequantised: 39 GiB instead of 12.8",
            (guide_evidence(case, "triton", chosen.reason, chosen.line),),
            "Use torch 2.8 or newer, which brings Triton 3.4.",
            ("uv pip install torch==2.8.0 --torch-backend=cu128",),
            line=chosen.line or line,
        )


@rule(
    "RUN076",
    kind="guide",
    severity="error",
    cause="silent-wrong-result",
    url="https://github.com/huggingface/peft/releases/tag/v0.17.0",
)
def lora_does_not_reach_the_experts(case: Case) -> Iterator[Problem]:
    """target_parameters for gpt-oss's experts need PEFT 0.17 and no dropout."""
    targets = _first(case, r"target_parameters\s*=")
    dropout = _first(case, r"lora_dropout\s*=\s*0?\.\d*[1-9]")
    peft = case.version("peft")
    if not targets:
        return
    if dropout:
        yield Problem(
            "error",
            "lora_dropout with target_parameters: PEFT accepts no dropout there",
            (guide_evidence(case, "lora_dropout", dropout[1].strip()[:60], dropout[0]),),
            "Set lora_dropout=0.",
            line=dropout[0],
        )
    if peft and satisfies(peft, "<0.17"):
        yield Problem(
            "error",
            f"PEFT {peft} has no target_parameters",
            (guide_evidence(case, "target_parameters", targets[1].strip()[:60], targets[0]),),
            "Use PEFT 0.17 or newer.",
            ("uv pip install 'peft>=0.17'",),
            line=targets[0],
            cause="library-too-old",
        )
