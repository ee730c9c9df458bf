"""Parsers for pasted text: collect_env and similar reports, nvidia-smi, package lists, and the logs around them.

`parse_report` returns the same records as the detection on a live machine. The source of each fact starts with
`report`.
"""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Machine, Stack
from envdoctor.core.side_lines import without_warning_of_source
from envdoctor.reports.assemble import build_machine, build_stack
from envdoctor.reports.build_details import parse_build_details, parse_detectron2
from envdoctor.reports.clusters import parse_kubernetes_node, parse_kubernetes_pod, parse_ray_status, parse_slurm
from envdoctor.reports.collect_env import parse_collect_env
from envdoctor.reports.command_output import (
    parse_disk_and_memory,
    parse_issue_form,
    parse_nvcc,
    parse_system_commands,
    parse_ulimit,
)
from envdoctor.reports.conda_plans import parse_conda_environment, parse_conda_plan
from envdoctor.reports.container_images import parse_container_images
from envdoctor.reports.contradictions import find_contradictions
from envdoctor.reports.driver_state import parse_driver_state
from envdoctor.reports.env_vars import parse_container_signs, parse_env_vars
from envdoctor.reports.form_fields import parse_form_fields
from envdoctor.reports.gpu_memory import parse_gpu_memory
from envdoctor.reports.gpus import parse_gpu_list, parse_topology
from envdoctor.reports.handwritten import parse_handwritten
from envdoctor.reports.installs import parse_install_commands, parse_installs
from envdoctor.reports.jetson import parse_jetson
from envdoctor.reports.log_messages import find_libraries_in_use, parse_log_messages
from envdoctor.reports.nvidia_smi import parse_kernel_log, parse_nvidia_smi_errors, parse_nvidia_smi_table
from envdoctor.reports.nvidia_smi_listing import parse_nvidia_smi_csv, parse_nvidia_smi_listing
from envdoctor.reports.other_tools import (
    parse_amd_tools,
    parse_comfyui_log,
    parse_dcgmi,
    parse_device_lists,
    parse_gpustat,
    parse_lspci,
)
from envdoctor.reports.package_lists import (
    list_kind,
    parse_conda_json,
    parse_lock_entries,
    parse_package_lists,
    parse_pip_show,
    parse_tagged_packages,
    parse_version_pairs,
)
from envdoctor.reports.preprocess import clean_text, extract_command, split_lines
from envdoctor.reports.python_output import parse_python_output
from envdoctor.reports.quotas import parse_quotas
from envdoctor.reports.section import Line, Section
from envdoctor.reports.sentences import find_failing_libraries, parse_sentences
from envdoctor.reports.several import SingleReport, separate_reports
from envdoctor.reports.spellings import has_further_fact, with_usual_spellings
from envdoctor.reports.startup_banners import parse_startup_banners
from envdoctor.reports.tool_reports import (
    parse_colossalai,
    parse_ds_report,
    parse_env_list,
    parse_flashinfer_config,
    parse_sglang_check_env,
    parse_xformers_info,
)
from envdoctor.reports.ultralytics import parse_ultralytics
from envdoctor.reports.unfold import unfold_lines

__all__ = ["Report", "has_no_facts", "parse_report"]

# Sections of these kinds do not make a text a report: they occur in any log.
WEAK_KINDS = frozenset({
    "log lines", "signs of a container", "notes", "package versions", "container image", "sentences",
    "install commands",
})  # fmt: skip
# Parsers that take a line for the first fact in it: `Environment: Ubuntu 20.04, nvcc 11.3, torch 2.0.1+cu117`.
CLAIM_WHOLE_LINES = frozenset({"handwritten list", "nvcc --version"})
CHECKBOX = lazy_pattern(r"\s{0,4}[-*] \[[ xX]\] ")
LIST_SEPARATOR = lazy_pattern(r"[,;] ")
SEVERAL = 2
REPORT_COMMANDS = (
    "nvidia-smi", "pip list", "pip freeze", "pip show", "pip3 ", "uv pip", "conda list", "nvcc", "uname",
    "collect_env", "accelerate env", "transformers-cli env", "transformers env", "trl env", "ds_report", "check_env",
    "os-release", "ldd --version", "ulimit", "df -h", "free -", "env |", "printenv", "/proc/driver/nvidia",
)  # fmt: skip
MAX_LOG_CHARACTERS = 1 << 20  # log messages are searched in this much text; logs repeat what they report
LIBRARY_OF_REPORT = {
    "collect_env (vLLM)": "vllm", "sglang check_env": "sglang", "ds_report": "deepspeed", "trl env": "trl",
}  # fmt: skip


class Report(Record, frozen=True):
    """A pasted text as records. `kinds` names the reports found in it; `errors` holds the lines outside of them."""

    machine: Machine
    stack: Stack
    kinds: tuple[str, ...]
    errors: str
    contradictions: tuple[str, ...] = ()  # facts with two values
    notes: tuple[str, ...] = ()  # about several reports in the text
    name: str = ""  # of a text with several reports: "torch 2.8.0+cu128 (line 15)"
    later: tuple[Report, ...] = ()  # the other reports of the text, which have no errors of their own
    left_out: int = 0  # reports after the last one that was read


def parse_report(text: str) -> Report:
    """Parse any mixture of reports and logs. Never raises; `kinds` is empty if the text contains no report."""
    raw = unfold_lines(without_warning_of_source(clean_text(text)).split("\n"))
    separated = separate_reports(with_usual_spellings(split_lines(raw)))
    first, *later = [_parse_single(report, "\n".join(raw)) for report in separated.reports]
    kinds = tuple(dict.fromkeys(section.kind for section in first.sections if section.kind not in WEAK_KINDS))
    return Report(
        machine=first.machine,
        stack=first.stack,
        kinds=kinds,
        errors=_unconsumed_text(raw, separated.reports[0].lines, first.sections, separated.omitted),
        contradictions=first.contradictions,
        notes=(separated.note,) if separated.note else (),
        name=separated.reports[0].name,
        left_out=separated.left_out,
        later=tuple(
            Report(parsed.machine, parsed.stack, kinds, "", contradictions=parsed.contradictions, name=report.name)
            for parsed, report in zip(later, separated.reports[1:], strict=True)
        ),
    )


class ParsedReport(NamedTuple):
    """The sections of one report and the records that they make."""

    sections: list[Section]
    machine: Machine
    stack: Stack
    contradictions: tuple[str, ...]


def _parse_single(report: SingleReport, text: str) -> ParsedReport:
    log = "\n".join(line.text for line in report.lines)[:MAX_LOG_CHARACTERS]
    sections = _parse_sections(report.lines, text, log)
    kinds = dict.fromkeys(section.kind for section in sections if section.kind not in WEAK_KINDS)
    origin = "report: " + ", ".join(kinds) if kinds else "report"
    machine = build_machine(sections, origin)
    stack = build_stack(sections, _libraries_in_use(sections, log), machine)
    return ParsedReport(sections, machine, stack, find_contradictions(report.lines, sections))


def has_no_facts(report: Report) -> bool:
    """Whether a report contains no fact at all."""
    empty = parse_report("")
    return (report.machine, report.stack) == (empty.machine, empty.stack)


def _parse_sections(lines: list[Line], text: str, log: str) -> list[Section]:
    """The sections of all parsers in order of precedence: torch's own report, then lists, then hand-written text."""
    collect_env = parse_collect_env(lines)
    tagged = parse_tagged_packages(lines, collect_env.kind if collect_env else "collect_env (PyTorch)")
    sglang = parse_sglang_check_env(lines)
    table = parse_nvidia_smi_table(lines)
    owner = collect_env or sglang
    sections: list[Section | None] = [
        collect_env,
        tagged if tagged.consumed else None,
        sglang,
        parse_detectron2(lines),
        parse_build_details(lines),
        parse_gpu_list(lines, owner.kind if owner else "nvidia-smi -L"),
        parse_env_list(lines),
        parse_ds_report(lines),
        parse_xformers_info(lines),
        parse_flashinfer_config(lines),
        table,
        parse_nvidia_smi_listing(lines),
        parse_nvidia_smi_csv(lines),
        parse_nvidia_smi_errors(lines),
        parse_kernel_log(lines),
        parse_driver_state(lines),
        parse_topology(lines),
        parse_python_output(lines),
        parse_nvcc(lines),
        parse_system_commands(lines),
        parse_ulimit(lines),
        parse_disk_and_memory(lines),
        parse_quotas(lines),
        parse_env_vars(lines),
        parse_container_signs(text),
        parse_pip_show(lines),
        parse_lock_entries(lines),
        parse_conda_json(lines),
        parse_conda_plan(lines),
        parse_conda_environment(lines),
        *parse_package_lists(lines),
        parse_installs(lines),
        parse_dcgmi(lines),
        parse_device_lists(lines),
        parse_gpustat(lines),
        parse_comfyui_log(lines),
        parse_ultralytics(lines),
        parse_form_fields(lines),
        parse_colossalai(lines),
        parse_jetson(lines),
        parse_lspci(lines),
        parse_kubernetes_node(lines),
        parse_kubernetes_pod(lines),
        parse_slurm(lines),
        parse_ray_status(lines),
        parse_amd_tools(lines),
        parse_startup_banners(lines),
        parse_log_messages(log),
    ]
    consumed = set().union(*(section.consumed for section in sections if section))
    sections += [parse_handwritten(lines, consumed), parse_version_pairs(lines), parse_issue_form(lines)]
    lists_packages = any(section and section.distributions for section in sections)
    of_commands = [parse_container_images(lines), parse_install_commands(lines, lists_packages=lists_packages)]
    if any(line.text.startswith("RUN ") for line in lines):
        of_commands.reverse()  # what a Dockerfile installs replaces what its base image contains
    sections += of_commands
    _release_lists_of_facts(lines, [section for section in sections if section])
    consumed = set().union(*(section.consumed for section in sections if section))
    consumed -= {line.number for line in lines if list_kind(line.text)}  # `pip list on Windows 11 with an RTX 3080:`
    sections.append(parse_sentences(lines, consumed))
    if any(section.gpus for section in sections if section):
        sections.append(parse_gpu_memory(lines))
    return [
        section
        for section in sections
        if section and (section.consumed or section.facts or section.gpus or section.distributions)
    ]


def _release_lists_of_facts(lines: list[Line], sections: list[Section]) -> None:
    """Return the lines to the other parsers that hold more facts than the one for which they were consumed."""
    with_several = {line.number for line in lines if has_further_fact(line.value)}
    lists = {
        line.number
        for line in lines
        if len(LIST_SEPARATOR.findall(line.text)) >= SEVERAL and "compilation tools" not in line.text
    }
    for section in sections:
        if section.kind in CLAIM_WHOLE_LINES:
            section.consumed -= lists | with_several
        elif section.kind == "notes":
            section.consumed -= with_several


def _libraries_in_use(sections: list[Section], log: str) -> tuple[str, ...]:
    """Libraries in use. vLLM's collect_env shows that vLLM is in use even if its version line is missing."""
    of_reports = {LIBRARY_OF_REPORT[section.kind] for section in sections if section.kind in LIBRARY_OF_REPORT}
    facts = (section.facts.get("stack.requested") for section in sections)
    requested = {name for fact in facts if fact for name in fact.value or ()}
    return tuple(sorted({*find_libraries_in_use(log), *find_failing_libraries(log), *of_reports, *requested}))


VALUE_IS_EXCEPTION = lazy_pattern(r": .{0,60}\b[A-Z]\w{2,30}Error\(['\"]")  # in the output of cupy.show_config()


def _unconsumed_text(raw: list[str], lines: list[Line], sections: list[Section], omitted: set[int]) -> str:
    """The lines that no parser consumed, or whose value is an exception, in order.

    They have no code fences and none of the commands that printed the reports.
    """
    consumed = omitted.union(*(section.consumed for section in sections))
    consumed -= {line.number for line in lines if VALUE_IS_EXCEPTION.search(line.text)}
    consumed.update(line.number for line in lines if _is_decoration(line.text))
    return "\n".join(
        text for number, text in enumerate(raw) if number not in consumed and text and not text.isspace()
    )


def _is_decoration(text: str) -> bool:
    """Whether a line is a code fence, a horizontal rule, a checkbox, or a command such as `$ nvidia-smi`.

    The checkboxes of issue forms report no failure: `I have searched related issues but cannot get help`.
    """
    if CHECKBOX.match(text):
        return True
    if text.startswith(("```", "Copy-and-paste the text below", "Copy-paste the following")) and len(text) < 120:
        return True
    if len(text) < 160 and any(command in text for command in REPORT_COMMANDS):
        return any(command in extract_command(text) for command in REPORT_COMMANDS)
    if len(text) < 160 and text.endswith(("collect_env.py", "torch.utils.collect_env")):
        return True
    return len(text) > 2 and not text.strip("-=+|*_ ")
