"""Exact versions in the remedies of findings: each one is applied, and all rules are evaluated again."""

from __future__ import annotations

import re
import time
from pathlib import Path
from random import Random

import pytest
from support.cases import each_case
from support.recorded_results import assert_as_recorded
from support.remedies import can_apply, commands_of, failures
from support.report_stack import make_machine, make_stack

from envdoctor.core.records import Distribution, Finding, Stack
from envdoctor.core.remedies import Install
from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.fix_records import Fix
from envdoctor.install.fix_search import Search, first_choices
from envdoctor.install.remedy_plan import fixable_findings
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import releases_of
from envdoctor.output.reporter import LazyReporter
from envdoctor.remedies import add_pinned_remedies, pin_remedies
from envdoctor.remedies.pins import VERSION_RULES
from envdoctor.remedies.simulate import stack_with
from envdoctor.rules import evaluate
from envdoctor.rules.known_breaks import known_breaks

MACHINE = make_machine(["NVIDIA H100 80GB HBM3"], driver="580.95.05")
# Environments without a problem.
OLD = """torch 2.4.1+cu121, torchvision 0.19.1, triton 3.0.0, transformers 4.45.2, tokenizers 0.20.3,
    accelerate 1.1.1, peft 0.13.2, datasets 3.1.0, huggingface-hub 0.25.2, numpy 1.26.4, pyarrow 18.1.0,
    bitsandbytes 0.45.5, setuptools 79.0.1"""
V4 = """torch 2.8.0+cu128, torchvision 0.23.0, torchaudio 2.8.0, triton 3.4.0, transformers 4.57.1, tokenizers 0.22.1,
    accelerate 1.11.0, peft 0.17.1, datasets 4.3.0, huggingface-hub 0.36.0, numpy 2.2.6, pyarrow 21.0.0,
    bitsandbytes 0.48.1, setuptools 79.0.1"""
V5 = """torch 2.11.0+cu130, torchvision 0.26.0, triton 3.6.0, transformers 5.17.0, tokenizers 0.23.1,
    accelerate 1.15.0, peft 0.21.0, datasets 4.8.0, huggingface-hub 1.31.0, numpy 2.2.6, pyarrow 21.0.0,
    bitsandbytes 0.50.2, setuptools 79.0.1"""


def stack_of(environment: str, changes: str = "", python: str = "3.12.11") -> Stack:
    """An environment with other versions of some packages; `-` removes one."""
    listed = dict(part.split() for part in ",".join(filter(None, (environment, changes))).split(","))
    listed = {name: version for name, version in listed.items() if version != "-"}
    cuda = re.search(r"\+cu(\d\d)(\d)", listed.get("torch", ""))
    return make_stack(
        listed.get("torch"), cuda=f"{cuda[1]}.{cuda[2]}" if cuda else None, packages=listed, python=python
    )


def pinned(stack: Stack, rule: str) -> Finding:
    """The finding of a rule with exact versions."""
    found = [each for each in pin_remedies(MACHINE, stack, evaluate(MACHINE, stack)) if each.id == rule]
    assert found, [f"{each.id}: {each.message}" for each in evaluate(MACHINE, stack)]
    return found[0]


@each_case("environment", [OLD, V4, V5])
def test_environments_are_clean_before_the_fault(environment: str) -> None:
    stack = stack_of(environment)
    assert {each.id: each.message for each in evaluate(MACHINE, stack) if each.status in ("error", "warning")} == {}


# torch with its companions.
T29 = "torch 2.9.0+cu128, torchvision 0.24.0, torchaudio 2.9.0, triton 3.5.0"
T291 = "torch 2.9.1+cu128, torchvision 0.24.1, torchaudio 2.9.1, triton 3.5.1"
T210 = "torch 2.10.0+cu128, torchvision 0.25.0, torchaudio 2.10.0, triton 3.6.0"
# A fault in such an environment: the rule, the changed versions, and the commands.
FAULTS = [
    ("HF001", V4, "trl 0.23.1, transformers 5.23.0, tokenizers 0.23.1, huggingface-hub 1.31.0, peft 0.18.1"),
    ("HF002", V4, "vllm 0.10.2, transformers 5.3.0, huggingface-hub 1.31.0, peft 0.18.1"),
    ("HF003", V4, "torch 2.7.0+cu126, torchvision 0.22.0, torchaudio 2.7.0, triton 3.3.0, vllm 0.9.2"),
    ("HF004", V5, "peft 0.17.1"),
    ("HF005", V5, "liger-kernel 0.6.3"),
    ("HF006", V4, "accelerate 1.1.1"),
    ("HF007", V5, "torchao 0.15.0"),
    ("HF008", V4, "torchao 0.3.1"),
    ("HF009", V5, "bitsandbytes 0.45.0, torch 2.8.0+cu128, torchvision 0.23.0, triton 3.4.0"),
    ("HF010", V4, "autoawq 0.2.9"),
    ("HF011", V4, "diffusers 0.25.1"),
    ("HF011", OLD, "diffusers 0.25.1, huggingface-hub 0.26.5"),
    ("HF012", V4, "sentence-transformers 2.2.2"),
    ("HF013", OLD, "transformers 4.52.4, tokenizers 0.21.4, huggingface-hub 0.34.4, accelerate 1.3.0"),
    ("HF015", V5, "transformers 5.10.2, torch 2.6.0+cu124, torchvision 0.21.0, triton 3.2.0, bitsandbytes 0.48.1"),
    ("HF033", OLD, "torch 2.1.0+cu118, torchvision 0.16.0, triton 2.1.0, transformers 4.55.4, tokenizers 0.21.4"),
    ("HF026", OLD, "torch 2.1.2+cu121, torchvision 0.16.2, triton 2.1.0, transformers 4.56.2, tokenizers 0.21.4"),
    ("HF027", OLD, "transformers 5.14.1, tokenizers 0.22.2, huggingface-hub 1.6.0, peft 0.21.0, bitsandbytes 0.48.1"),
    ("HF028", OLD, "torch 2.1.2+cu121, torchvision 0.16.2, triton 2.1.0, diffusers 0.36.0"),
    ("HF029", OLD, "diffusers 0.40.0"),
    ("HF030", OLD, "diffusers 0.42.1"),
    ("HF032", OLD, "trl 0.7.11, transformers 4.40.2, tokenizers 0.19.1, huggingface-hub 0.23.0"),
    ("HF031", OLD, "transformers 5.8.1, tokenizers 0.22.2, huggingface-hub 1.6.0, peft 0.21.0, bitsandbytes 0.48.1"),
    ("HF022", OLD, "transformers 4.42.4, tokenizers 0.19.1, peft 0.14.0, accelerate 0.30.0, numpy 1.26.4"),
    ("HF023", OLD, "transformers 4.37.2, tokenizers 0.15.2, accelerate 1.0.1, trl 0.8.6, peft 0.9.0, numpy 1.26.4"),
    ("HF024", OLD, "gradio 4.44.1, huggingface-hub 1.0.0"),
    ("HF025", OLD, "datasets 2.12.0, fsspec 2023.10.0"),
    ("PKG020", V4, "openai 1.8.0, httpx 0.28.1"),
    ("PKG077", V4, "gradio 5.20.0, huggingface-hub 1.3.0, transformers 5.5.0, tokenizers 0.22.2"),
    ("PKG078", OLD, "pillow 10.4.0, numpy 1.20.3"),
    ("PKG079", V4, "tensorflow-metadata 1.21.0, protobuf 4.25.9"),
    ("PKG080", OLD, "deepspeed 0.8.3, pydantic 2.10.6, torch 2.1.2, triton 2.1.0, torchvision 0.16.2"),
    ("PKG075", V4, "anthropic 0.34.2, httpx 0.28.1"),
    ("PKG076", V4, "groq 0.9.0, httpx 0.28.1"),
    ("PKG060", V4, "tensorboard 2.2.2, protobuf 5.29.6"),
    ("PKG061", V4, "tensorboardx 2.5, protobuf 5.29.6"),
    ("PKG062", V4, "wandb 0.12.11, protobuf 5.29.6"),
    ("PKG063", V4, "tensorflow 2.8.0, protobuf 5.29.6"),
    ("PKG064", V4, "onnx 1.11.0, protobuf 5.29.6"),
    ("PKG065", V4, "mlflow 1.24.0, protobuf 5.29.6"),
    ("PKG066", V4, "streamlit 1.8.1, protobuf 5.29.6"),
    ("PKG067", V4, "typer 0.12.5, click 8.2.1"),
    ("PKG068", V4, "g2p-en 2.1.0, nltk 3.9.1"),
    ("PKG021", V4, "librosa 0.9.2, setuptools 82.0.0"),
    ("PKG069", V4, "webrtcvad 2.0.10, setuptools 84.2.1"),
    ("PKG070", V4, "pyworld 0.3.5, setuptools 84.2.1"),
    ("PKG071", OLD, "dgl 2.1.0"),
    ("PKG072", OLD, "torch 1.10.1, torchvision 0.11.2, tensorboard 2.11.2, setuptools 60.9.3"),
    ("PKG073", V4, "pyarrow 26.0.1, numpy 1.26.4"),
    ("PKG074", OLD, "datasets 2.14.4, pyarrow 21.0.0"),
    ("PKG022", V4, "gradio 3.48.0, starlette 1.10.0"),
    ("PKG023", V4, "gradio 4.44.1, gradio-client 1.3.0, pydantic 2.13.5"),
    ("HF016", OLD, "trl 0.11.4, transformers 4.46.3"),
    ("HF019", V5, "trl 0.22.2, transformers 5.2.0, tokenizers 0.22.2"),
    ("HF018", V5, "trl 0.26.2, transformers 5.2.0, tokenizers 0.22.2"),
    ("HF020", V4, "kernels 0.13.0"),
    ("HF020", V5, "kernels 0.12.0"),
    ("BNB003", V4, "torch 2.6.0+cu124, torchvision 0.21.0, torchaudio 2.6.0, triton 3.2.0, bitsandbytes 0.44.1"),
    ("TRL001", V4, f"trl 0.23.1, vllm 0.12.0, {T29}"),
    ("TRL001", V4, f"trl 0.28.0, vllm 0.17.0, {T210}"),
    ("TRL002", V4, f"trl 1.5.0, vllm 0.17.0, {T210}, datasets 4.7.0"),
    ("TRL003", V4, "trl 0.23.1, liger-kernel 0.6.3, vllm 0.10.2"),
    ("TRL004", V4, "trl 0.23.1, liger-kernel 0.6.2"),
    ("TRL005", V4, "trl 0.22.2"),
    ("TRL006", V4, "peft 0.16.0, kernels 0.10.4"),
    ("DS001", OLD, "deepspeed 0.14.0"),
    ("DS002", OLD, "deepspeed 0.14.2, torch 2.4.0+cu121, torchvision 0.19.0, triton 3.0.0"),
    ("DS003", OLD, "deepspeed 0.14.3, numpy 2.0.0, torch 2.3.1, triton 2.3.1, torchvision 0.18.1"),
    ("RAY001", V4, "ray 2.48.0, click 8.3.1"),
    ("CUDNN001", V4, f"{T291}, timm 1.0.0, nvidia-cudnn-cu12 9.10.2.21"),
    ("CUDNN002", V4, f"{T291}, sglang 0.5.8, nvidia-cudnn-cu12 9.10.2.21"),
    ("CUDNN004", V4, f"{T29}, timm 1.0.0, nvidia-cudnn-cu12 9.16.0.29"),
    ("PKG014", OLD, "torch 2.2.2+cu121, torchvision 0.17.2, triton 2.2.0, setuptools 82.0.0"),
    ("PKG001", V4, "huggingface-hub 1.31.0"),
    ("PKG001", V4, "numba 0.61.2, numpy 2.3.1"),
    ("PKG001", V4, "vllm 0.10.2, xgrammar 0.1.10"),
    ("PKG001", V4, "torch 2.9.1+cu128, torchvision 0.24.1, torchaudio 2.9.1, triton 3.5.1, sglang 0.5.5.post3"),
    ("PKG002", V4, "torchvision 0.24.0"),
    ("PKG002", V4, "torch 2.9.0+cu128, triton 3.5.0"),
    ("PKG003", OLD, "vllm 0.6.3, torch 2.4.0+cu121, torchvision 0.19.0, numpy 2.0.2"),
    ("PKG004", V4, f"{T29}, vllm 0.12.0, transformers 5.3.0, huggingface-hub 1.31.0, peft 0.18.1"),
    ("PKG005", OLD, "vllm 0.6.3, torch 2.4.0+cu121, torchvision 0.19.0, transformers 4.40.1, tokenizers 0.19.1"),
    ("PKG006", V4, "xformers 0.0.33"),
    ("PKG006", OLD, "torch 2.5.1+cu121, torchvision 0.20.1, triton 3.1.0, xformers 0.0.29.post3"),
    ("PKG008", V5, "torch 2.2.0+cu121, torchvision 0.17.0, triton 2.2.0, bitsandbytes 0.48.1, numpy 1.26.4"),
    ("PKG008", V4, "accelerate 0.20.3"),
    ("HF017", OLD, "transformers 4.40.1, tokenizers 0.19.1, accelerate 0.25.0"),
    ("PKG012", V4, "flashinfer-python 0.5.3, flashinfer-cubin 0.5.2"),
    ("PKG013", V4, "pytorch-triton 3.4.0+gitae848267"),
    ("PKG043", V4, "mmdet 3.3.0, mmcv 2.2.0"),
    ("PKG044", V4, "mmdet 3.3.0, mmcv-full 1.7.1"),
    ("PKG045", V4, "pytorch-lightning 1.7.7, torchmetrics 1.4.0"),
    ("PKG051", V4, "lightning 2.2.1, setuptools 84.2.1"),
    ("PKG052", V4, "pytorch-lightning 2.0.9, setuptools 84.2.1"),
    ("PKG046", "torch 2.2.1+cu121", "nemo-toolkit 1.23.0, huggingface-hub 0.26.0"),
    ("PKG047", V4, "albumentations 1.4.15, albucore 0.0.17"),
    ("PKG048", "torch 2.2.1+cu121, torchvision 0.17.1", "basicsr 1.4.2"),
    ("VLLM001", V4, f"vllm 0.10.2, {T29}"),
    ("VLLM001", V4, "vllm 0.12.0"),
    ("VLLM003", V5, "vllm 0.21.0, torch 2.11.0+cu126"),
    ("VLLM003", V4, "torch 2.9.0+cpu, torchvision 0.24.0, torchaudio 2.9.0, triton -, vllm 0.12.0"),
    ("VLLM003", V5, "vllm 0.20.0+cu129"),
    ("VERL001", V4, f"{T29}, vllm 0.13.0, verl 0.7.0"),
]
PYTHONS = {"RAY001": "3.10.13"}


@each_case(("rule", "environment", "changes"), FAULTS, ids=[f"{rule}-{changes}" for rule, _, changes in FAULTS])
def test_exact_versions_cure_the_finding_and_cause_no_error(rule: str, environment: str, changes: str) -> None:
    stack = stack_of(environment, changes, PYTHONS.get(rule, "3.12.11"))
    finding = pinned(stack, rule)
    assert finding.remedies
    assert failures(MACHINE, stack, finding) == []
    for remedy in filter(can_apply, finding.remedies):
        for step in remedy.steps:
            assert not isinstance(step, Install) or all("==" in package for package in step.packages), remedy.commands


def test_commands_are_as_recorded() -> None:
    """The commands of all faults. A change of the tables or of a rule shows here."""
    results = {
        f"{rule} {' '.join(changes.split())}": list(
            commands_of(pinned(stack_of(environment, changes, PYTHONS.get(rule, "3.12.11")), rule))
        )
        for rule, environment, changes in FAULTS
    }
    assert_as_recorded("pinned_remedies", results)


def test_requirements_of_an_extra_go_with_an_older_release() -> None:
    """sglang 0.4.10 names torch and transformers only in its extra for the runtime: they move with it."""
    changes = "torch 2.9.1+cu128, torchvision 0.24.1, torchaudio 2.9.1, triton 3.5.1, sglang 0.5.5.post3"
    first, *others = commands_of(pinned(stack_of(V4, changes), "PKG001"))
    assert "torch==2.8.0" in first
    assert [("torch==2.7.1" in each, "transformers==4.54.1" in each) for each in others if "sglang" in each] == [
        (True, True)
    ]


def test_releases_with_unknown_requirements_are_no_remedy() -> None:
    """transformers 4.33 is older than the table of requirements; the releases in it decide which one is proposed."""
    changes = "transformers 4.57.1, trl 0.11.0, peft 0.12.0, accelerate 0.30.0, huggingface-hub 1.5.0"
    commands = commands_of(pinned(stack_of("torch 2.9.1+cu128, tokenizers 0.21.0", changes), "HF016"))
    versions = [version for command in commands for version in re.findall(r"transformers==(\S+)", command)]
    assert versions
    assert [version for version in versions if version not in releases_of("transformers")] == []


def test_every_known_break_is_applied() -> None:
    rules = {rule for rule, _, _ in FAULTS}
    assert [row.id for row in known_breaks() if row.remedies and row.id not in rules] == []


def test_a_conflict_without_a_common_version_changes_the_requirers() -> None:
    """vLLM and a package that pins another transformers: no version of transformers satisfies both."""
    other = Distribution(name="compressed-tensors", version="0.9.0", requires=("transformers==4.50.0",))
    listed = {"vllm": "0.12.0", "transformers": "4.57.1", "torch": "2.9.0+cu128"}
    stack = make_stack("2.9.0+cu128", cuda="12.8", packages=listed, distributions=(other,))
    finding = pinned(stack, "PKG004")
    assert "No version of transformers" in finding.fix
    assert failures(MACHINE, stack, finding) == []


# A second problem of the package that a remedy changes: the environment, the rule, and its first remedy.
H100_STACK = """torch 2.11.0+cu130, torchvision 0.26.0, torchaudio 2.11.0, triton 3.6.0, vllm 0.26.0, trl 1.16.0,
    transformers 5.17.0, tokenizers 0.23.1, huggingface-hub 1.31.0, accelerate 1.15.0, peft 0.21.0, numpy 2.2.6,
    bitsandbytes 0.50.2, setuptools 79.0.1"""
SECOND_PROBLEMS = [
    (V5, "bitsandbytes 0.43.1", "BNB003", ["bitsandbytes==0.48.2"]),  # transformers 5 requires 0.46.1, CUDA 13 0.48
    (V4, "accelerate 0.20.3", "PKG008", ["accelerate==1.4.0"]),  # transformers 4.57 passes an argument of 1.3
    (V5, "trl 0.23.1", "HF001", ["trl==0.29.1"]),  # not TRL 0.28, whose GRPO trainer does not import either
    (V5, "trl 0.11.0", "HF016", ["trl==0.29.1"]),
    (H100_STACK, "torch 2.4.1+cu121", "HF013", ["torch==2.11.0"]),  # not the oldest one that HF013 accepts
    (H100_STACK, "torch 2.10.0+cu128", "VLLM003", ["torch==2.11.0"]),  # not 2.10 for CUDA 13, which vLLM rejects
    (H100_STACK, "trl 0.11.0", "HF016", ["trl==1.16.0"]),  # not TRL 0.12, which needs transformers 4
]


@each_case(("environment", "changes", "rule", "packages"), SECOND_PROBLEMS)
def test_a_remedy_leaves_no_other_error_on_its_packages(
    environment: str, changes: str, rule: str, packages: list[str]
) -> None:
    stack = stack_of(environment, changes)
    (step,) = pinned(stack, rule).remedies[0].steps
    assert isinstance(step, Install)
    assert list(step.packages) == packages
    after = stack_with(MACHINE, stack, [step])
    assert after
    assert [f"{each.id} {each.message}" for each in evaluate(MACHINE, after) if each.status == "error"] == []


def test_torchaudio_is_of_the_release_of_torch() -> None:
    """torchaudio 2.11 requires no torch, but the index of another torch does not have it."""
    changes = "torch 2.5.1+cu124, torchvision 0.20.1, torchaudio 2.8.0, triton 3.1.0, vllm 0.6.6, transformers 4.57.1"
    for finding in pin_remedies(MACHINE, stack_of(V4, changes), evaluate(MACHINE, stack_of(V4, changes))):
        for command in commands_of(finding):
            releases = [re.search(rf"\b{name}==(\d+\.\d+)", command) for name in ("torch", "torchaudio")]
            if all(releases):
                assert len({found[1] for found in releases if found}) == 1, command


FIRST = [
    ("trl 0.11.0", ["trl==1.16.0"]),  # not two releases of TRL, one for each of two findings
    ("peft 0.12.0", []),  # only an extra of TRL requires a newer one
    ("accelerate 0.20.3, numpy 1.16.6", ["accelerate==1.10.1", "numpy==1.26.4"]),
]


@each_case(("changes", "packages"), FIRST)
def test_fix_applies_the_fewest_remedies_first(changes: str, packages: list[str]) -> None:
    stack = stack_of(H100_STACK, changes)
    chosen = fixable_findings(add_pinned_remedies(MACHINE, stack, evaluate(MACHINE, stack)))
    choices = first_choices(MACHINE, stack, chosen)
    steps = [step for fixable, choice in choices for step in fixable.alternatives[choice].steps]
    assert sorted(name for step in steps for name in step.packages) == packages


def test_the_search_of_fix_begins_with_the_remedy_that_leaves_the_fewest_problems() -> None:
    stack = stack_of(H100_STACK, "trl 0.11.0")
    found = add_pinned_remedies(MACHINE, stack, evaluate(MACHINE, stack))
    chosen = fixable_findings(found)
    fix = Fix(
        Path(), EnvironmentPaths(Path("v")), MACHINE, stack, found, chosen, (), (), False, Path(), LazyReporter()
    )
    candidate = Search(found, stack).next_candidate(fix)
    assert candidate
    fixable, choice = candidate
    assert [step.packages for step in fixable.alternatives[choice].steps] == [("trl==1.16.0",)]


def test_findings_of_machines_and_rocm_stay() -> None:
    assert pin_remedies(MACHINE, None, evaluate(MACHINE)) == evaluate(MACHINE)
    rocm = make_stack(
        "2.8.0+rocm6.4", hip="6.4", packages={"torch": "2.8.0+rocm6.4", "peft": "0.17.1", "transformers": "5.2.0"}
    )
    assert pin_remedies(MACHINE, rocm, evaluate(MACHINE, rocm)) == evaluate(MACHINE, rocm)


def test_time_with_many_findings() -> None:
    """Ten problems in one environment take 0.1 s."""
    changes = "trl 0.23.1, transformers 5.23.0, vllm 0.10.2, liger-kernel 0.6.3, kernels 0.10.4, xgrammar 0.1.10"
    stack = stack_of(V4, f"{changes}, diffusers 0.25.1, numba 0.61.2, numpy 2.3.1, torchvision 0.24.0")
    findings = evaluate(MACHINE, stack)
    start = time.process_time()
    assert len(pin_remedies(MACHINE, stack, findings)) == len(findings) >= 10
    assert time.process_time() - start < 3  # for a busy machine


@pytest.mark.long
def test_random_environments() -> None:
    """Other releases of one to three packages. At most one finding in a hundred has no remedy."""
    random, findings, without = Random(20261123), 0, 0
    names = (
        "transformers", "trl", "peft", "accelerate", "datasets", "huggingface-hub", "tokenizers", "numpy",
        "bitsandbytes", "liger-kernel", "kernels", "torchvision", "torchaudio", "xformers", "numba", "ray",
    )  # fmt: skip
    for _ in range(1000):
        chosen = random.sample(names, random.choice((1, 1, 2, 3)))
        changes = [f"{name} {random.choice(releases_in_range(name, '')[:40]).version}" for name in chosen]
        stack = stack_of(random.choice((OLD, V4, V5)), ", ".join(changes))
        found = [
            each
            for each in pin_remedies(MACHINE, stack, evaluate(MACHINE, stack))
            if each.id.startswith(VERSION_RULES) and each.status in ("error", "warning")
        ]
        for finding in found:
            if sum(each.id == finding.id for each in found) == 1:  # `failures` compares the ids of findings
                findings += 1
                without += not finding.remedies
                assert [each for each in failures(MACHINE, stack, finding) if "less important" not in each] == []
    assert findings > 500
    assert without <= findings / 100
