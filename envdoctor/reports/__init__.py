"""Reads what people paste: reports of collect_env and its kin, nvidia-smi, package lists, logs around them.

`parse_report` gives the same records as a live machine, each fact with a source that starts with `report`.
"""

from __future__ import annotations

from envdoctor.core.records import Machine, Record, Stack
from envdoctor.reports.assemble import build_machine, build_stack
from envdoctor.reports.collect_env import parse_collect_env
from envdoctor.reports.commands import parse_limits, parse_notes, parse_nvcc, parse_python, parse_room, parse_system
from envdoctor.reports.environment import parse_container, parse_environment
from envdoctor.reports.gpus import parse_gpu_list, parse_topology
from envdoctor.reports.handwritten import parse_written
from envdoctor.reports.layout import clean_text, command_of, split_lines
from envdoctor.reports.messages import find_uses, parse_messages
from envdoctor.reports.nvidia_smi import parse_failures, parse_kernel_log, parse_table
from envdoctor.reports.nvidia_smi_query import parse_csv, parse_query
from envdoctor.reports.packages import parse_lists, parse_pairs, parse_show, parse_tagged
from envdoctor.reports.section import Line, Said
from envdoctor.reports.tools import parse_ds_report, parse_env_list, parse_sglang, parse_xformers_info

__all__ = ["Report", "parse_report", "says_nothing"]

# Facts from these do not make a text a report: they may stand in any log.
UNNAMED = frozenset({"log lines", "signs of a container", "notes", "package versions"})
COMMANDS = (
    "nvidia-smi", "pip list", "pip freeze", "pip show", "pip3 ", "uv pip", "conda list", "nvcc", "uname",
    "collect_env", "accelerate env", "transformers-cli env", "transformers env", "trl env", "ds_report", "check_env",
    "os-release", "ldd --version", "ulimit", "df -h", "free -", "env |", "printenv", "/proc/driver/nvidia",
)  # fmt: skip
MESSAGE_CHARACTERS = 1 << 20  # of the text without prefixes: what a log names, it names more than once


class Report(Record, frozen=True):
    """A paste as records. `kinds` is what was recognised in it; `errors` the lines that belong to none of these."""

    machine: Machine
    stack: Stack
    kinds: tuple[str, ...]
    errors: str


def parse_report(text: str) -> Report:
    """A pasted text of any mixture of reports and logs. Never raises; a text with nothing in it has no `kinds`."""
    raw = clean_text(text).split("\n")
    lines = split_lines(raw)
    said = _read(lines, "\n".join(raw))
    kinds = tuple(dict.fromkeys(each.kind for each in said if each.kind not in UNNAMED))
    origin = "report: " + ", ".join(kinds) if kinds else "report"
    return Report(
        machine=build_machine(said, origin),
        stack=build_stack(said, _uses(said, lines), origin),
        kinds=kinds,
        errors=_leftovers(raw, lines, said),
    )


def says_nothing(report: Report) -> bool:
    """Whether a report gives no fact, as a letter does."""
    blank = parse_report("")
    return (report.machine, report.stack) == (blank.machine, blank.stack)


def _read(lines: list[Line], text: str) -> list[Said]:
    """What every parser read, the best source of a fact first: torch's own words before lists, lists before prose."""
    plain = "\n".join(line.text for line in lines)[:MESSAGE_CHARACTERS]
    collected = parse_collect_env(lines)
    tagged = parse_tagged(lines, collected.kind if collected else "collect_env (PyTorch)")
    sglang = parse_sglang(lines)
    table = parse_table(lines)
    owner = collected or sglang
    found: list[Said | None] = [
        collected,
        tagged if tagged.lines else None,
        sglang,
        parse_gpu_list(lines, owner.kind if owner else "nvidia-smi -L"),
        parse_env_list(lines),
        parse_ds_report(lines),
        parse_xformers_info(lines),
        table,
        parse_query(lines),
        parse_csv(lines),
        parse_failures(lines),
        parse_kernel_log(lines),
        parse_topology(lines),
        parse_python(lines),
        parse_nvcc(lines),
        parse_system(lines),
        parse_limits(lines),
        parse_room(lines),
        parse_environment(lines),
        parse_container(text),
        parse_show(lines),
        *parse_lists(lines),
        parse_messages(plain),
    ]
    taken = set().union(*(each.lines for each in found if each))
    found += [parse_written(lines, taken), parse_pairs(lines), parse_notes(lines)]
    return [each for each in found if each and (each.lines or each.facts or each.gpus or each.distributions)]


def _uses(said: list[Said], lines: list[Line]) -> tuple[str, ...]:
    """Libraries in use: who prints vLLM's collect_env has vLLM, even where its version line was cut off."""
    plain = "\n".join(line.text for line in lines)[:MESSAGE_CHARACTERS]
    kinds = {"collect_env (vLLM)": "vllm", "sglang check_env": "sglang", "ds_report": "deepspeed", "trl env": "trl"}
    return tuple(sorted({*find_uses(plain), *(kinds[each.kind] for each in said if each.kind in kinds)}))


def _leftovers(raw: list[str], lines: list[Line], said: list[Said]) -> str:
    """The lines that no parser took, in their order, without fences and the commands that made the reports."""
    taken = set().union(*(each.lines for each in said)) if said else set()
    for line in lines:
        if line.number not in taken and _is_frame(line.text):
            taken.add(line.number)
    left = [text for number, text in enumerate(raw) if number not in taken and text and not text.isspace()]
    return "\n".join(left)


def _is_frame(text: str) -> bool:
    """Fences, rules, and commands like `$ nvidia-smi` whose output was read."""
    if text.startswith(("```", "Copy-and-paste the text below", "Copy-paste the following")) and len(text) < 120:
        return True
    if len(text) < 160 and any(command in text for command in COMMANDS):
        return any(command in command_of(text) for command in COMMANDS)
    if len(text) < 160 and text.endswith(("collect_env.py", "torch.utils.collect_env")):
        return True
    return len(text) > 2 and not text.strip("-=+|*_ ")
