"""Findings on a pasted report that explain a failure, as notes if the text reports none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.rules.engine_pins import ENGINES
from envdoctor.rules.known_breaks import known_breaks
from envdoctor.rules.requirements import requirements_of

if TYPE_CHECKING:
    from envdoctor.reports import Report

# A warning that reports a failure.
FAILURE = (
    r"[a-z]Error\b|\bError \d|\b[Ff]ail(?:ed|ure)\b|\bERROR\b|is_available\(\).{0,20}False|UnspecifiedPlatform"
    r"|devices to be zero|Invoking ptxas|[Cc]onnection refused|\bcan't load\b|\btim(?:es|ed) out\b"
    r"|CUDA initialization: |: -\d{1,3} \([A-Z]|(?<!may )(?<!can )(?<!might )(?<!could )\bhangs\b"
)
# In a text that has none of these, nothing failed.
SIGN_OF_FAILURE = lazy_pattern(
    rf"{FAILURE}|Traceback|[Ee]xception\b|undefined symbol|[Ss]egmentation|core dumped"
    r"|(?i:\b(?:crash|hang|broke|abort|fails|no(?:t| longer) work|cannot|can't|unable|does not start))"
    r"|(?i:n't (?:work|start)|\bwrong (?:result|output)|\bskipping import\b|\bincompatible\b)"
    r"|(?i:(?<!pip )(?<!pip3 )\bfreezes?\b)"
    r"|(?i:\bstuck\b|\bdies\b|\berrors? out\b|\b(?:refuse[sd] to|wo ?n[o']t|does ?n[o']t|do ?n[o']t)"
    r" (?:start|load|run|connect|import|install|build|compile|initiali[sz]e|launch)\b)"
    r"|报错|失败|不支持|不在支持列表|用不了|无法(?:启动|加载|导入|安装)|エラー|失敗|動かない"
)
# A text that shows the error itself; its frames and messages name the packages that take part in it.
SHOWN_ERROR = lazy_pattern(
    r"Traceback \(most recent call last\)|(?m:^\W{0,8}(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b: )"
)
LINE_OF_ERROR = lazy_pattern(
    r"(?:Error|Exception)\b|\bFile \"|undefined symbol|\bimport \w|[/\\](?:site|dist)-packages[/\\]"
)
# How a package fails that was compiled for another torch: when its library is loaded, or before a message.
LOAD_FAILURE = lazy_pattern(
    r"undefined symbol|\b(?:Import|ModuleNotFound|OS)Error\b|DLL load failed|cannot open shared object|operator \w+::"
    r"|[Cc]ould(?:n't| not) load|[Ss]egmentation fault|core dumped|SIGSEGV|\bABI\b"
)
# What vLLM prints, or where it fails, after its compiled modules were loaded and have run.
ON_THE_GPU = (
    r"Avg (?:prompt|generation) throughput|# (?:GPU|CUDA) blocks: [1-9]|Graph capturing finished"
    r"|(?:Loading model weights|Model loading) took \d|CUDA out of memory"
    r"|[/\\]gpu_(?:executor|worker|model_runner)\.py\"?, line \d+,"
    r" in (?:determine_\w+|execute_model|profile_run|_dummy_run)\b"
)
GPU_RAN = lazy_pattern(ON_THE_GPU)
ENGINE_RAN = lazy_pattern(
    rf"{ON_THE_GPU}|Extension modules:[^\n]{{0,4000}}\btorch\._C\b|\(RayWorkerWrapper pid="
    r"|[/\\]vllm[/\\]model_executor[/\\]models[/\\]\w+\.py\"?, line \d+, in (?:forward|_process_\w+|load_weights)\b"
)
# What a sentence about a program that runs has.
RESULTS = lazy_pattern(r"(?i)\b(?:throughput|latency|ttft|tpot|tokens?/s|returns|responses?|generates|generated)\b")
# The CPU was selected, or the program is none of torch.
FOR_CPU = lazy_pattern(
    r"(?i:\bcpu[- ]only (?:server|machine|box|node|instance|host|vm|laptop|computer|cluster)\b)"
    r"|Dockerfile\.cpu|--device[ =]cpu\b|VLLM_TARGET_DEVICE=cpu|VLLM_CPU_\w+=|\bllama_model_load|\bllm_load_"
    r"|\bcpu_(?:executor|worker|model_runner)\.py"
)
MISSING_OPERATOR = lazy_pattern(r"_OpNamespace|vllm\._C\b|no kernel image")
NEED_NO_TORCH = frozenset({"PY001", "PY003"})
NEED_A_LOAD_FAILURE = frozenset({"VLLM001", "VLLM002", "VLLM003", "PY005", "PKG005"}) | NEED_NO_TORCH
NEED_A_GPU_FAILURE = frozenset({"DRV007", "DRV008"})
NEED_A_GPU = NEED_A_GPU_FAILURE | {"TORCH003", "VLLM005", "EXT007"}
COMPILED_FOR_ONE_TORCH = frozenset({"FA001", "PKG002"})
ERROR_NAMED = lazy_pattern(r"\b[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit|Iteration)\b")
# A remark that the environment is in use.
WORKS = lazy_pattern(
    r"(?i)\b(?:works?|runs?|serves?|answers?|trains?|training) (?:\w+ ){0,2}(?:fine|great|well|ok|correctly)\b"
)
FOUR_WORDS = lazy_pattern(r"[^\W\d_]{2,}(?: [^\W\d_]+){3}")  # a question, a wish
SENTENCE = lazy_pattern(r"(?:\b[a-z]{2,}\b[ ,:;]+){4}")
# Somebody who lists so few packages reports a combination, and one who lists so many reports all that is installed.
SHORT_LIST, COMPLETE_LIST = 4, 40
# Longest list of which a decisive pair is reported although the text reports no failure.
LIST_OF_A_PAIR = 16
LIST_OF_A_MODULE = 8  # of which two packages with one module are: InvokeAI's lock file has both of ONNX Runtime
QUANTIZATION_KERNELS = frozenset({"auto-gptq", "autoawq-kernels"})  # whose symbols were compared with torch's
SAME_MODULE = frozenset({"PKG041", "PKG042"})
RANGE_OF_TRANSFORMERS = "PKG004"
ENGINE_PINS = "PKG050"
DECLARED_RANGES = "PKG001"  # a package outside a range that another one declares, neither compiled for the other
# Findings on vLLM next to another torch, or another torchvision, than it was compiled for.
COMPILED_FOR = frozenset({"VLLM001", "PKG002"})
# Warnings on versions that installers, or the libraries themselves, accept with a warning: TRL prints one next to
# another vLLM, torchao uses its Python code, ONNX Runtime the CPU. Projects override declared ranges and run.
ACCEPTED_VERSIONS = frozenset({
    "PKG001", "PKG002", "PKG003", "PKG004", "PKG005", "PKG006", "PKG008", "PKG010", "PKG013", "TRL001", "VLLM001",
    "FA001", "MKL001", "PKG030", "PKG041", "PKG042", "PKG050", "EXT007",
})  # fmt: skip
# Of these, on wheels of PyPI without the libraries, or the code for the GPU, that the machine has.
WHEELS = frozenset({"PKG030", "EXT007"})
# A warning on what a program need not use either: FlashAttention on an older GPU.
SLOW_IN_USE = frozenset({"VLLM005"})
# True for the wheel on PyPI; a build of another origin can have the same version, and then the program works.
OF_OTHER_ORIGIN = frozenset({"VLLM003", "FA001"})
NEED_OWN_FAILURE = frozenset({"TRL001"})  # explain no failure of other packages
# Findings on what a program need not use: a training with LoRA, with the Trainer or in 8 bits, and a second copy of
# NCCL or NVML. Projects run vLLM 0.17 to 0.19 with transformers 5, which is outside of its range.
FAILS_IN_USE = frozenset({
    "HF006", "HF007", "HF017", "BNB001", "BNB003", "PKG004", "PKG008", "PKG010", "NCCL001", "NVML001",
})  # fmt: skip
# Libraries that a training program imports only if its settings select them.
OPTIONAL_PACKAGES = frozenset({"deepspeed", "vllm", "bitsandbytes", "xformers", "apex", "unsloth", "ray"})
PTX_NEEDED = "TORCH005"
# Findings that are possible next to a working program, with what a text about their failure names.
NEED_OWN_WORDS = {
    "NVML001": lazy_pattern(r"(?i)nvml|platform|device type|nvidia-ml"),
    "HOST001": lazy_pattern(r"(?i)nccl|shm|shared memory|bus error|dataloader|torch|vllm|sglang|worker"),
}
STARTED = lazy_pattern(r"(?i)\b(?:starts?|started|running) (?:successfully|normally)\b|Avg generation throughput")
OF_A_KERNEL = lazy_pattern(r"CUDA|cuda|PTX|toolchain|kernel|core dumped|[Ss]egmentation|signal")


def without_blame(finding: Finding, reports: Sequence[Report], errors: str) -> Finding:
    """The finding, as `info` if it is possible next to a working program and the text reports no failure."""
    if finding.status not in ("error", "warning"):
        return finding
    number = max(len(each.stack.distributions.value or {}) for each in reports)
    for note in (
        _on_loaded_packages(finding, errors),
        _on_engine_that_ran(finding, errors),
        _on_another_subject(finding, errors),
        _on_tested_releases(finding, reports, errors, number),
        _on_versions(finding, reports, errors, number),
        _on_unused_code(finding, errors),
        _on_exclusive_gpu(finding, errors),
    ):
        if note:
            return note
    return finding


def _on_loaded_packages(finding: Finding, errors: str) -> Finding | None:
    """A note on a package for another torch, if the text shows an error that is none of loading it."""
    if finding.id not in COMPILED_FOR_ONE_TORCH or not SHOWN_ERROR.search(errors) or LOAD_FAILURE.search(errors):
        return None
    if not ERROR_NAMED.search(errors):
        return None  # a traceback that is cut before its error
    packages = {each.fact for each in finding.evidence} - {"torch"}
    return None if _takes_part(packages, errors) else as_note(finding, "one of these packages fails")


def _on_engine_that_ran(finding: Finding, errors: str) -> Finding | None:
    """A note on an engine that could not be loaded, or on a missing GPU, if the text shows that it ran there.

    Its build is of another origin then, and a report without torch or GPU is one of another environment.
    """
    if (finding.id in NEED_A_GPU_FAILURE and GPU_RAN.search(errors)) or (
        finding.id in NEED_A_GPU and FOR_CPU.search(errors)
    ):
        return as_note(finding, "the program finds no GPU")
    if finding.id in NEED_NO_TORCH and ENGINE_RAN.search(errors):
        return as_note(finding, "the program is started with this Python")
    if finding.id not in NEED_A_LOAD_FAILURE or LOAD_FAILURE.search(errors) or MISSING_OPERATOR.search(errors):
        return None
    ran = ENGINE_RAN.search(errors) or (
        SENTENCE.search(errors) and RESULTS.search(errors) and not SIGN_OF_FAILURE.search(errors)
    )
    return as_note(finding, "the package fails to load") if ran else None


def _on_another_subject(finding: Finding, errors: str) -> Finding | None:
    """A note on what fails with words of its own, if the text is about another subject."""
    words = NEED_OWN_WORDS.get(finding.id)
    if not words or words.search(errors) or not (SENTENCE.search(errors) or SHOWN_ERROR.search(errors)):
        return None
    return as_note(finding, "the text is about it")


def _on_exclusive_gpu(finding: Finding, errors: str) -> Finding | None:
    """A note on a GPU for one process, which clusters select for their jobs, if the text reports no failure."""
    if finding.id != "GPU005" or finding.status != "warning" or SIGN_OF_FAILURE.search(errors):
        return None
    return as_note(finding, "several processes use the GPU")


def _takes_part(packages: Iterable[str], errors: str) -> bool:
    """Whether the text names one of the packages; if it shows the error itself, in the lines of that error."""
    lines = errors.split("\n")
    if SHOWN_ERROR.search(errors):
        lines = [line for line in lines if LINE_OF_ERROR.search(line)]
    named = re.compile(_any_name(packages))
    return any(named.search(line) for line in lines)


def _on_tested_releases(finding: Finding, reports: Sequence[Report], errors: str, number: int) -> Finding | None:
    """A note on an exact requirement with a newer version of the package.

    Projects require the release that they were tested with, and their own images have newer ones. Such a requirement
    is a fact; it explains a failure if the text reports one of the two packages. The same applies to a later patch
    release of torch than the one that vLLM was compiled for, if CUDA works or the text reports no failure.
    """
    if (
        finding.id not in (DECLARED_RANGES, RANGE_OF_TRANSFORMERS, *COMPILED_FOR)
        or finding.status != "warning"
        or not finding.evidence
    ):
        return None
    package = finding.evidence[0].fact
    violations = [
        each
        for report in reports
        for each in requirements_of(report.stack).violations
        if each.name == package and str(each) in finding.message
    ]
    failed = SIGN_OF_FAILURE.search(errors)
    if finding.id in COMPILED_FOR:
        has_cuda = all(report.stack.cuda_available.value for report in reports)
        no_pair = number > SHORT_LIST or FOUR_WORDS.search(errors) is not None
        works = has_cuda or WORKS.search(errors) is not None or (no_pair and not failed)
        is_harmless = works and all(each.is_later_patch and each.requirer == "vllm" for each in violations)
    else:
        is_harmless = all(each.is_newer_than_tested for each in violations)
    if not violations or not is_harmless:
        return None
    names = {package} - {"torch"}  # which is in nearly every traceback, as is the program that requires the package
    if not SHOWN_ERROR.search(errors):
        names |= {each.requirer for each in violations}
    if failed and names and _takes_part(names, errors):
        return None
    return as_note(finding, "it fails")


def _on_versions(finding: Finding, reports: Sequence[Report], errors: str, number: int) -> Finding | None:
    """A note on versions outside of a declared range, or on a function that fails only if it is called."""
    packages = {each.fact for each in finding.evidence} - {"torch"}
    unneeded = finding.id == "VLLM001" and finding.status == "warning" and not packages & ENGINES.keys()
    if finding.id == ENGINE_PINS or unneeded:  # the engine is in every traceback; a mere list shows what is installed
        packages -= ENGINES.keys()
        if not (SENTENCE.search(errors) or SHOWN_ERROR.search(errors) or SIGN_OF_FAILURE.search(errors)):
            return None
    if unneeded and not _takes_part(["vllm"], errors):
        return as_note(finding, "vLLM itself is used")
    compiled = (
        finding.id == DECLARED_RANGES and "triton" in packages
    )  # torch generates code for one release of triton
    is_break = any(row.id == finding.id for row in known_breaks())
    accepted = finding.status == "warning" and finding.id in ACCEPTED_VERSIONS and not compiled
    unused = finding.id in FAILS_IN_USE or (finding.status == "warning" and (is_break or finding.id in SLOW_IN_USE))
    failed = SIGN_OF_FAILURE.search(errors)
    works = WORKS.search(errors) is not None
    if finding.id in OF_OTHER_ORIGIN:  # a report on a library that finds the GPU, and a remark on something else
        works = works or bool(all(each.stack.cuda_available.value for each in reports) and FOUR_WORDS.search(errors))
    if (finding.id in OF_OTHER_ORIGIN or accepted or unused) and works and not failed:
        return as_note(finding, "one of these packages fails")
    if not (accepted and number > _longest_list(finding, reports)) and not (unused and number >= COMPLETE_LIST):
        return None
    named = bool(packages) and _takes_part(packages, errors)
    if failed and (named or not (finding.id in NEED_OWN_FAILURE or SHOWN_ERROR.search(errors))):
        return None
    return as_note(finding, "one of these packages fails")


def _longest_list(finding: Finding, reports: Sequence[Report]) -> int:
    """The longest list of which the finding is reported although the text reports no failure.

    It is longer for parts of one project, and for a package that is too old by far.
    """
    if finding.id in SAME_MODULE:
        return LIST_OF_A_MODULE
    violations = [
        each
        for report in reports
        for each in requirements_of(report.stack).violations
        if str(each) in finding.message
    ]
    decisive = any(
        each.requirer in QUANTIZATION_KERNELS or (finding.id == DECLARED_RANGES and each.is_decisive)
        for each in violations
    )
    return LIST_OF_A_PAIR if decisive or finding.id in WHEELS else SHORT_LIST


def _on_unused_code(finding: Finding, errors: str) -> Finding | None:
    """A note on code that the text does not use: an installed package need not be imported.

    A program imports DeepSpeed or vLLM only if its settings select them, and a few kernels of vLLM need PTX: both
    matter if something failed. A report without a sentence does not show whether something failed.
    """
    if finding.id == PTX_NEEDED and (
        STARTED.search(errors) or (SHOWN_ERROR.search(errors) and not OF_A_KERNEL.search(errors))
    ):
        return as_note(finding, "a kernel fails")
    if not (SENTENCE.search(errors) or WORKS.search(errors)) or SIGN_OF_FAILURE.search(errors):
        return None
    if finding.id == PTX_NEEDED:
        return as_note(finding, "a kernel fails")
    row = next((row for row in known_breaks() if row.id == finding.id), None)
    used = {condition.partition(" ")[0] for condition in row.when} & OPTIONAL_PACKAGES if row else set()
    if not used or re.search(_any_name(used), errors):
        return None
    return as_note(finding, f"{min(used)} is used")


def as_note(finding: Finding, unless: str) -> Finding:
    """The finding as `info`: it explains a failure, and the text reports none."""
    return msgspec.structs.replace(finding, status="info", fix=f"No action needed unless {unless}. {finding.fix}")


def _any_name(names: Iterable[str]) -> str:
    """A pattern for packages and their modules: flash-attn, flash_attn."""
    return "(?i)" + "|".join(re.escape(name).replace(r"\-", "[-_]") for name in names)
