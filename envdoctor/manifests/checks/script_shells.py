"""Checks on scripts and cells: their line ends, assignments, and options of launchers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

INTERPRETER = "https://www.gnu.org/software/bash/manual/html_node/Shell-Scripts.html"
ASSIGNMENTS = "https://www.gnu.org/software/bash/manual/html_node/Shell-Parameters.html"
MAGICS = "https://ipython.readthedocs.io/en/stable/interactive/reference.html#system-shell-access"
LAUNCH = "https://docs.pytorch.org/docs/stable/elastic/run.html"
CURL = "https://curl.se/docs/manpage.html#-O"
WALRUS = "https://docs.python.org/3/reference/expressions.html#assignment-expressions"
_BASH = lazy_pattern(r"#!\s*\S*/(?:env\s+)?(?:ba|z|k)?sh\b")
_CELL_COMMAND = lazy_pattern(r"\s*!\s*((?:(?:cd|export|source|\.)\s+[^&|;]+|conda activate\s.*))$")
_LAUNCHERS = {
    "torchrun": ("--nproc", "--nnodes", "--node-rank", "--node_rank", "--rdzv", "--master_addr", "--master_port",
                 "--standalone"),
    "accelerate": ("--num_processes", "--num_machines", "--machine_rank", "--main_process_port", "--multi_gpu"),
}  # fmt: skip


@rule("RUN158", kind="guide", severity="error", cause="program-not-executable", url=INTERPRETER)
def script_has_line_ends_of_windows(context: GuideContext) -> Iterator[Problem]:
    r"""The lines of a script end with CR LF: the kernel finds no interpreter `/bin/bash\r`."""
    lines = context.guide.lines
    if lines and _BASH.match(lines[0]) and lines[0].endswith("\r"):
        yield Problem(
            "error",
            "the lines of this script end with CR LF, so that its interpreter is not found",
            (guide_evidence(context, "first line", repr(lines[0])[1:-1], 1),),
            "Convert the file with dos2unix, or store it with `*.sh text eol=lf` in .gitattributes.",
            line=1,
        )


@rule("RUN160", kind="guide", severity="error", cause="program-not-executable", url=ASSIGNMENTS)
def assignment_contains_blanks(context: GuideContext) -> Iterator[Problem]:
    """`NAME = value` runs a program NAME, and `CUDA_VISIBLE_DEVICES=0, 1 python` a program `1`."""
    for command in context.guide.commands:
        words = command.words[1:] if command.name == "export" else command.words
        has_blank = len(words) > 1 and re.fullmatch(r"[A-Z][A-Z0-9_]+", words[0]) and words[1] == "="
        name, value = command.assignments[-1] if command.assignments else ("", "")
        is_cut = name == "CUDA_VISIBLE_DEVICES" and value.endswith(",") and re.match(r"\d", command.name)
        if has_blank or is_cut:
            yield Problem(
                "error",
                f"`{command}` assigns nothing: an assignment must not contain blanks",
                command_evidence(context, command),
                "Remove the blanks around `=` and after commas.",
                line=command.line,
            )


@rule("RUN161", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=LAUNCH)
def option_of_launcher_follows_the_script(context: GuideContext) -> Iterator[Problem]:
    """torchrun and `accelerate launch` pass what follows the script to it, and start a file, not `python`."""
    for command in map(unwrap, context.guide.commands):
        words = command.words[1:] if command.name == "torchrun" else command.words[2:]
        if command.name not in _LAUNCHERS or (command.name == "accelerate" and command.words[1:2] != ("launch",)):
            continue
        script = next((n for n, word in enumerate(words) if word.endswith(".py")), None)
        if script is None:
            continue
        before, after = words[:script], words[script + 1 :]
        late = next((word for word in after if word.startswith(_LAUNCHERS[command.name])), "")
        if before[-1:] and re.fullmatch(r"python3?", before[-1]):
            yield _launch(context, command, "error", f"starts a file named {before[-1]}", f"Remove {before[-1]}.")
        elif before[-1:] == ("-m",):
            module = words[script].removesuffix(".py").replace("/", ".")
            yield _launch(context, command, "error", f"finds no module {words[script]}", f"Use -m {module}.")
        elif late and not any(word.startswith(late.partition("=")[0]) for word in before):
            yield _launch(
                context, command, "warning", f"passes {late} to {words[script]}, and does not read it",
                f"Write {late} before {words[script]}.",
            )  # fmt: skip


def _launch(context: GuideContext, command: Command, status: str, problem: str, fix: str) -> Problem:
    return Problem(
        "error" if status == "error" else "warning",
        f"{command.name} {problem}",
        command_evidence(context, command),
        fix,
        line=command.line,
    )


@rule("RUN164", kind="guide", severity="warning", cause="wrong-python-env", url=MAGICS)
def line_of_cell_has_a_shell_of_its_own(context: GuideContext) -> Iterator[Problem]:
    """Each `!` line of a notebook runs in a shell of its own: `!cd`, `!export` and an activation have no effect."""
    for block in context.guide.blocks:
        for number, text in block.lines if block.language == "python" else ():
            if match := _CELL_COMMAND.match(text):
                is_cd = match[1].startswith("cd")
                instead = "%cd" if is_cd else "%env, or one %%bash cell,"
                yield Problem(
                    "warning",
                    f"`!{match[1].strip()}` has no effect on the next line: each ! line has a shell of its own",
                    (guide_evidence(context, "command", text.strip(), number),),
                    f"Use {instead} instead.",
                    line=number,
                )


@rule("RUN165", kind="guide", severity="warning", cause="silent-wrong-result", url=WALRUS)
def condition_assigns_a_constant(context: GuideContext) -> Iterator[Problem]:
    """`if NAME := "value":` assigns and is always true; a comparison is `==`."""
    for block in context.guide.blocks:
        if block.language != "python" or ":=" not in block.text:
            continue
        for line, name, value in _constant_conditions(block.lines):
            yield Problem(
                "warning",
                f"`if {name} := {value!r}` assigns {name}, and the branch is always taken",
                (guide_evidence(context, "code", context.guide.lines[line - 1].strip()[:120], line),),
                f"Use == to compare {name}.",
                line=line,
            )


def _constant_conditions(lines: tuple[Line, ...]) -> Iterator[tuple[int, str, object]]:
    code = "\n".join(re.sub(r"^(\s*)[!%].*", r"\1pass", text) for _, text in lines)
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        test = node.test if isinstance(node, ast.If | ast.While) else None
        if isinstance(test, ast.NamedExpr) and isinstance(test.value, ast.Constant) and test.value.value:
            yield lines[test.lineno - 1][0], test.target.id, test.value.value


@rule("RUN170", kind="guide", severity="warning", cause="dependency-pin-violated", url=CURL)
def curl_names_two_files_for_one_address(context: GuideContext) -> Iterator[Problem]:
    """curl uses one of -O and -o for each address, in their order: after -O, the path of -o has no effect."""
    for command in map(unwrap, context.guide.commands):
        if command.name != "curl":
            continue
        names = [n for n, word in enumerate(command.words) if _is_output(word)]
        addresses = [word for word in command.words if "://" in word]
        is_path_lost = bool(names) and not re.search(r"o$|--output$", command.words[names[0]])
        if len(names) > len(addresses) == 1 and is_path_lost:
            second = " ".join(command.words[names[1] : names[1] + 2])
            yield Problem(
                "warning",
                f"`{second}` has no effect: curl has one address here, and uses -O, which stands first",
                command_evidence(context, command),
                "Keep -o with the path, and remove -O.",
                line=command.line,
            )


def _is_output(word: str) -> bool:
    return word in ("--output", "--remote-name") or bool(re.fullmatch(r"-[a-zA-Z]*[oO]", word))
