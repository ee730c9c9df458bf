"""Findings on a pasted report: of the rules on its facts, and of its error lines."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

import msgspec

from envdoctor.commands.report_driver import findings_on_default_driver
from envdoctor.commands.report_evidence import finding_of_text, findings_of_evidence
from envdoctor.commands.report_notes import FAILURE, SIGN_OF_FAILURE, as_note, without_blame
from envdoctor.commands.report_systems import for_system
from envdoctor.commands.report_texts import is_solved, without_other_releases
from envdoctor.commands.rule_filter import TEXT_PREFIX
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.rules import evaluate
from envdoctor.rules.driver_remedies import container_of, start_container_with_gpus
from envdoctor.rules.facts import torch_cuda
from envdoctor.rules.toolchain import compiles_cuda_code
from envdoctor.rules.torch_build import has_code_for_every_gpu

if TYPE_CHECKING:
    from envdoctor.explain import Cause
    from envdoctor.reports import Report

# Causes whose lines, if they do not decide, are as often those of a faulty program, a request or another Python.
OFTEN_OF_ANOTHER_CAUSE = frozenset({
    "collective-stalled", "device-side-assert", "ecc-or-xid", "gpu-oom", "hub-auth", "illegal-memory-access",
    "network-failure", "no-nvidia-gpu", "platform-no-wheel", "service-auth",
})  # fmt: skip
# Minimum score of a cause found in the lines of a report, by the status of the finding.
ERROR_SCORE, WARNING_SCORE = 0.6, 0.3
NEAR_CERTAIN = 0.8  # from this score on, lines that are mere warnings are not downgraded to info
# These packages are installed from wheels.
OF_WHEELS = r"(?:torch(?:vision|audio)?|transformers|accelerate|datasets|diffusers|peft|trl|numpy|tensorflow|jax)"
# These compare nvcc with torch, the GPU, gcc and CUDA_HOME. Nothing runs nvcc unless CUDA code is compiled.
COMPILER_RULES = frozenset({"CUDA001", "CUDA002", "CUDA003", "HOST006"})
SIGN_OF_BUILD = lazy_pattern(
    r"(?i:\bbuild\w{0,4}\b|\bbuilt (?!with:|for|in)|\b(?:to|while|when|not|cannot) compil"
    r"|compil\w{1,5} (?:fail|error|it\b)|from source|\bninja\b|setup\.py|extension|编译|コンパイル)"
    r"|\bnvcc (?:fatal|error)|cpp_extension|CUDA_HOME|\bmake\b"
    rf"|pip3? install(?![,.;:)\]]|`|(?: -\S+)* {OF_WHEELS}(?![\w-]))"
    r"|\bflashinfer\.jit: (?:Prebuilt kernels not found|Loading JIT ops)"
)
MAX_CONTEXT = 200  # lines
# Clauses of a description, each compared with the known messages if nothing else explains the report.
CLAUSES = lazy_pattern(r"(?<=[^.][.!?])\s+|;\s*|\s(?:-+>|=>|\u2192|\u2014)\s|[\u3002\uff1b]")
FEWEST, MAX_CLAUSE, MAX_CLAUSES, MAX_CLAUSES_LENGTH = 12, 200, 40, 2000
WORDS = lazy_pattern(
    r"(?:[^\W\d_]{2,}[\W\d_]+){2}[^\W\d_]{2}|[\u3040-\u9fff]"
)  # more than `AssertionError`, `glibc=2.39`
SHELL_LINE = lazy_pattern(r"\\$|&&|^\s*(?:[$#] |\[ |export )")  # a command of the text, not its error
OPTIONAL_LIBRARY = lazy_pattern(r"Could not load dynamic library 'libnvinfer")  # TensorFlow tries it on each start
FORM_PROMPT = lazy_pattern(  # of an issue form, which names what to enter: `OS (e.g. Linux):`
    r"请(?:您)?(?:提供|问您|填写|描述|在此|粘贴)"
    r"|(?i:^\W{0,6}please (?:provide|describe|fill|paste|specify|list|tell)\b)"
    r"|(?i:\(e\.g\.?,? [^()]{2,60}\)\W{0,3}$)"
)
EXCEPTION = lazy_pattern(r"\b\w+(?:Error|Exception)\b.*")
# An extension of ComfyUI about itself: `[Crystools ERROR] pynvml is not installed`. The program continues without it.
COMFYUI = "ComfyUI log"
OF_AN_EXTENSION = lazy_pattern(r"\W{0,3}(?:\[[\d :.-]{8,30}\] )?\[[A-Z][\w .-]{2,40}\]:? ")
LEAST_WEIGHT, LEAST_WEIGHT_ALONE = 30, 38  # of a clause with and without a sign of a failure; 50 for an equal text
ARCHITECTURE_CAUSES = {"gpu-arch-not-in-build", "gpu-arch-dropped"}
EXTENSION = "ext-arch-not-in-build"
# What a program reports that sees neither GPU nor driver.
NO_GPU_SEEN = frozenset({
    "bnb-no-cuda-binary", "driver-not-loaded", "no-nvidia-gpu", "nvml-python-conflict", "torch-cpu-build",
})  # fmt: skip
CONTAINER = "container-no-gpu"
# A line that torch finds no GPU is a guess without the build of torch.
GUESS = ("torch-cpu-build", "warning")
LEAST_SCORE_ALONE = 0.45  # of the line of a warning that alone explains a failure


def diagnose_report(report: Report) -> list[Finding]:
    """Findings of the rules on a report's facts, and of its error lines where no rule covers the cause.

    Of several reports in one text each is judged. A finding names its report, unless all of them have it.
    """
    from envdoctor.core.side_lines import without_notes
    from envdoctor.explain import explain

    report = msgspec.structs.replace(report, errors=without_other_releases(without_notes(report.errors), report))
    reports = (report, *report.later)
    findings = _findings_of_each(reports)
    findings = [without_blame(each, reports, report.errors) for each in findings]
    if not SIGN_OF_BUILD.search(report.errors) and not any(compiles_cuda_code(each.stack) for each in reports):
        findings = [
            as_note(each, "CUDA code is compiled") if each.id in COMPILER_RULES - _certain_rules(reports) else each
            for each in findings
        ]
    rule_causes = {finding.cause for finding in findings if finding.status in ("error", "warning")}
    context = _context(report)
    text = "\n".join([report.errors, *context])
    explained = explain(io.BytesIO(text.encode() if report.errors.strip() else b""))
    causes = explained.causes
    # A description in words counts only if nothing else is found: `_similar_errors` reports it.
    described = _described_causes(report) if any(cause.similar for cause in causes) else set()
    similar = _similar_causes(report) if any(cause.similar for cause in causes) else set()
    causes = tuple(cause for cause in causes if not cause.similar or cause.cause in similar)
    from_lines = [
        Finding(
            f"{TEXT_PREFIX}{cause.cause}",
            cause.cause,
            "info" if _is_of_an_extension(cause, report) else _status_of_lines(cause),
            cause.lines[0],
            fix=cause.fix,
            remedies=cause.remedies,
            url=cause.url,
        )
        for cause in causes
        if cause.lines
        and cause.cause not in described
        and cause.lines[0] not in context
        and cause.score >= WARNING_SCORE
        and not _is_refuted_guess(cause, report)
        and not _is_covered_by_rules(cause.cause, rule_causes, report)
    ]
    mapped = [for_system(_of_container(finding, report), report.machine) for finding in from_lines]
    from_lines = list({(finding.id, finding.message): finding for finding in mapped}.values())
    from_lines += _of_nodes(report, {finding.cause for finding in (*from_lines, *findings)})
    from_lines += _without_code(causes, {finding.cause for finding in (*from_lines, *findings)}, report)
    if not _blamed(from_lines, findings):
        from_lines += findings_of_evidence(report)
    if _blamed(from_lines, findings) <= {GUESS} and (driver := list(findings_on_default_driver(report))):
        from_lines = [*(each for each in from_lines if (each.cause, each.status) != GUESS), *driver]
    if _blamed(from_lines, findings) <= {GUESS}:
        improbable = {cause.cause for cause in causes if cause.score < WARNING_SCORE and not cause.similar}
        from_lines += _similar_errors(report, {each.cause for each in (*from_lines, *findings)} | improbable)
    if not _blamed(from_lines, findings):
        from_lines = _with_only_explanation(from_lines, causes, report)
    if is_solved(report.errors):
        from_lines = [as_note(each, "it occurs again") for each in from_lines]
    from_lines += _of_program(explained.program_errors, context)
    return sorted([*from_lines, *findings], key=lambda finding: finding.status != "error")


def _of_program(errors: Sequence[Cause], context: Sequence[str]) -> list[Finding]:
    """The first error of the program in the text. It is a note, since the environment is not its reason."""
    return [
        Finding(f"{TEXT_PREFIX}{each.cause}", each.cause, "info", each.lines[0], fix=each.fix, url=each.url)
        for each in errors[:1]
        if each.lines and each.lines[0] not in context and each.score >= ERROR_SCORE
    ]


def _certain_rules(reports: Sequence[Report]) -> set[str]:
    """The rule on the host compiler, if a text names it next to nvcc and no torch: it is about a build."""
    from envdoctor.reports.unlabeled_cuda import NEXT_TO_GCC

    is_certain = all(
        each.stack.torch.state == "unreadable" and each.machine.cuda.nvcc_version.note != NEXT_TO_GCC
        for each in reports
    )
    return {"CUDA003"} if is_certain else set()


def _blamed(*findings: Sequence[Finding]) -> set[tuple[str, str]]:
    """The causes of the errors and warnings, with their status."""
    return {(each.cause, each.status) for each in chain(*findings) if each.status in ("error", "warning")}


def _with_only_explanation(found: list[Finding], causes: Sequence[Cause], report: Report) -> list[Finding]:
    """The findings; the one of a mere warning line is a warning if the text reports a failure in other lines."""
    from envdoctor.explain.outcome import WARNING_LINE

    lines = [line for line in report.errors.split("\n") if not WARNING_LINE.search(line)]
    strong = {
        cause.cause
        for cause in causes
        if cause.score >= LEAST_SCORE_ALONE
        and not cause.undecided
        and not _is_of_an_extension(cause, report)
        and not all("deprecated" in line for line in cause.lines)
    }
    first = next((each for each in found if each.status == "info" and each.cause in strong), None)
    if not first or not SIGN_OF_FAILURE.search("\n".join(lines)):
        return found
    return [msgspec.structs.replace(each, status="warning") if each is first else each for each in found]


def _described_causes(report: Report) -> set[str]:
    from envdoctor.explain.described import described_symptom

    return {symptom.cause for symptom in described_symptom(report.errors)}


def _similar_causes(report: Report) -> set[str]:
    """The causes to which the error lines are similar, without the words of the facts next to them."""
    from envdoctor.explain.similar import similar_symptoms

    return {symptom.cause for symptom in similar_symptoms(report.errors)}


def _of_nodes(report: Report, named: set[str]) -> list[Finding]:
    """The finding on nodes for which the text states different versions, if something failed."""
    from envdoctor.reports.nodes import differing_versions

    differing = differing_versions(report.errors) if SIGN_OF_FAILURE.search(report.errors) else {}
    if not differing:
        return []
    with_ray = differing.keys() & {"ray", "python"} and re.search(r"\bray\b", report.errors)
    cause = "ray-version-mismatch" if with_ray else "nccl-lib-mismatch" if "nccl" in differing else "node-differs"
    message = "; ".join(
        f"{name}: " + ", ".join(f"{version} on {node}" for node, version in nodes.items())
        for name, nodes in differing.items()
    )
    return [] if cause in named else [finding_of_text(cause, "warning", message)]


def _of_container(finding: Finding, report: Report) -> Finding:
    """The finding that a program sees no GPU, with its reason if the container was started without one."""
    from envdoctor.reports.container_images import WITHOUT_GPUS

    if finding.cause not in NO_GPU_SEEN or report.machine.system.container.note not in WITHOUT_GPUS:
        return finding
    start = start_container_with_gpus(container_of(report.machine))
    return finding_of_text(CONTAINER, "error", finding.message, start)


def _without_code(causes: Sequence[Cause], named: set[str], report: Report) -> list[Finding]:
    """The finding on an extension for "no kernel image" if torch has code for every GPU and no cause is reported.

    Where torch itself names the GPU, it is one that the facts of the report do not have.
    """
    shown = next((each for each in causes if each.cause in ARCHITECTURE_CAUSES and each.lines), None)
    reports = (report, *report.later)
    if not shown or named & {*ARCHITECTURE_CAUSES, EXTENSION} or shown.score < WARNING_SCORE:
        return []
    if not all(has_code_for_every_gpu(each.machine, each.stack) for each in reports):
        return []
    is_of_torch = "current PyTorch install" in shown.lines[0]
    return [finding_of_text(shown.cause if is_of_torch else EXTENSION, "error", shown.lines[0])]


def _similar_errors(report: Report, named: set[str]) -> list[Finding]:
    """The cause of the clause that is most similar to a known error: people shorten the message in a description."""
    from envdoctor.explain.described import POSSIBLE_REASONS, described_symptom
    from envdoctor.explain.outcome import WARNING_LINE
    from envdoctor.explain.scan import PREFIX
    from envdoctor.explain.similar import similar_symptoms, words_of
    from envdoctor.knowledge.causes import causes

    clauses = [
        exception[0] if (exception := EXCEPTION.search(clause)) else clause.strip()
        for line in report.errors.split("\n")[:MAX_CONTEXT]
        if not WARNING_LINE.search(line)
        and not SHELL_LINE.search(line)
        and not line.startswith(("from ", "import "))
        and "%|" not in line
        and not line.startswith("NOTE:")  # no progress bar
        and not POSSIBLE_REASONS.search(line)
        and not FORM_PROMPT.search(line)
        and not OPTIONAL_LIBRARY.search(line)
        and not (COMFYUI in report.kinds and OF_AN_EXTENSION.match(line))
        for clause in CLAUSES.split(PREFIX.sub("", line[:MAX_CLAUSES_LENGTH], count=1))
        if FEWEST <= len(clause) <= MAX_CLAUSE
    ]
    clauses = [clause for clause in clauses if WORDS.search(clause) and len(words_of(clause)) != 1]
    found = {
        symptom: hit.text
        for clause in clauses[:MAX_CLAUSES]
        for symptom, hit in list(similar_symptoms(clause).items())[:1]
        if symptom.weight >= (LEAST_WEIGHT if SIGN_OF_FAILURE.search(clause) else LEAST_WEIGHT_ALONE)
    }
    if {symptom.cause for symptom in found} <= {GUESS[0]}:
        found = {symptom: hit.text for symptom, hit in described_symptom(report.errors).items()} or found
    best = max(found, key=lambda symptom: symptom.weight, default=None)
    if best is None or best.cause in named or causes()[best.cause].program_error:
        return []
    return [finding_of_text(best.cause, "warning", found[best])]


def _context(report: Report) -> list[str]:
    """What the error lines refer to, from the facts: symptoms depend on the libraries, the GPU and the system."""
    system = report.machine.system
    gpus = report.machine.gpus.value or ()
    facts = [system.kernel, system.architecture, *(gpu.name for gpu in gpus)]
    torch = report.stack.torch.value
    packages = (report.stack.distributions.value or {}).values()
    lines = [
        *(str(fact.value) for fact in facts if fact.value),
        *(f"capability {gpu.compute_capability.value}" for gpu in gpus if gpu.compute_capability.value),
        *(f"MIG {gpu.mig.note}" for gpu in gpus if gpu.mig.value and gpu.mig.note),
        *((torch.cuda.note,) if torch and torch.cuda.state == "absent" else ()),
        *(f"{each.name}=={each.version}" for each in packages),
    ]
    return list(dict.fromkeys(lines))[:MAX_CONTEXT]


def _findings_of_each(reports: Sequence[Report]) -> list[Finding]:
    evaluated = [evaluate_with_versions(report.machine, report.stack) for report in reports]
    found: dict[tuple[str, str], Finding] = {}
    for report, findings in zip(reports, evaluated, strict=True):
        for finding in findings:
            key = (finding.id, finding.message)
            in_all = all(key in {(each.id, each.message) for each in others} for others in evaluated)
            message = finding.message if in_all else f"{report.name}: {finding.message}"
            found.setdefault((finding.id, message), msgspec.structs.replace(finding, message=message))
    return list(found.values())


def _is_covered_by_rules(cause: str, rule_causes: set[str], report: Report) -> bool:
    """Whether the rules report this cause, or can distinguish it from a cause with the same error line.

    "no kernel image" is printed for a GPU that is too new, for one that is too old, and for an extension.
    The facts distinguish these cases.
    """
    if cause == "ext-arch-not-in-build" and rule_causes & ARCHITECTURE_CAUSES:
        return True
    if cause == "gpu-unsupported-by-library" and "nvcc-too-old" in rule_causes:  # FlashInfer's line for both
        return True
    if cause == "driver-not-loaded" and CONTAINER in rule_causes:  # "is_available() is False" for both
        return True
    if cause not in ARCHITECTURE_CAUSES:
        return cause in rule_causes
    return bool(rule_causes & ARCHITECTURE_CAUSES) or all(
        has_code_for_every_gpu(each.machine, each.stack) for each in (report, *report.later)
    )


def _is_refuted_guess(cause: Cause, report: Report) -> bool:
    """Whether a line that programs print for several reasons means a CPU build, and torch is a CUDA build."""
    builds = [torch_cuda(each.stack) for each in (report, *report.later)]
    return cause.cause == "torch-cpu-build" and cause.score < ERROR_SCORE and all(builds)


def _is_of_an_extension(cause: Cause, report: Report) -> bool:
    """Whether the lines of a cause are those of extensions of ComfyUI about themselves, and their commands."""
    own = [line for line in cause.lines if " pip install " not in line]
    return COMFYUI in report.kinds and bool(own) and all(map(OF_AN_EXTENSION.match, own))


def _status_of_lines(cause: Cause) -> Literal["error", "warning", "info"]:
    """The status of a cause that only the lines of a report show.

    Libraries warn at import about optional features. Such a warning is info unless it reports a failure or the
    score is near certain. A deprecated feature still works. Lines that leave several causes of the environment are a
    warning; those that a faulty program prints as well blame none. A library that states a fall-back continues.
    """
    from envdoctor.explain.outcome import FALLBACK_LINE, WARNING_LINE

    if all(FALLBACK_LINE.search(line) and not re.search(FAILURE, line) for line in cause.lines):
        return "info"
    quiet = all(WARNING_LINE.search(line) and not re.search(FAILURE, line) for line in cause.lines)
    if cause.undecided:
        return "info" if quiet or cause.cause in OFTEN_OF_ANOTHER_CAUSE else "warning"
    deprecated = all("deprecated" in line for line in cause.lines)
    if quiet and (deprecated or cause.score < NEAR_CERTAIN):
        return "info"
    return "error" if cause.score >= ERROR_SCORE else "warning"


def evaluate_with_versions(machine: Machine, stack: Stack | None) -> list[Finding]:
    """The findings; the remedies of those on an environment have exact versions."""
    findings = evaluate(machine, stack)
    if stack is None:
        return findings
    from envdoctor.remedies import pin_remedies

    return pin_remedies(machine, stack, findings)
