"""Checks on batch jobs of SLURM and on the launch of their processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import guide_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.inputs.batch_jobs import directives, is_batch_job
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

SBATCH = "https://slurm.schedmd.com/sbatch.html#SECTION_DESCRIPTION"
TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_NODES = lazy_pattern(r"(?:--nodes[= ]|-N ?)(\d+)(?:-\d+)?(?=\s|$)")
_OUTPUT = lazy_pattern(r"(?:--output|--error|-o|-e)(?:[= ]\s*)[\"']?([^\s\"'#]+)")
_CPUS = lazy_pattern(r"(?:--cpus-per-task[= ]|-c ?)(\d+)(?=\s|$)")
_STATES_CPUS = lazy_pattern(r"--cpus-per-task|-c\d*$|--cpu[-_]bind=(?:none|no)|--exclusive$|--exact$")
_RENDEZVOUS = lazy_pattern(r"--rdzv[-_](?:endpoint|backend)\b")
_STATED_NODES = lazy_pattern(r"--nnodes\b|--standalone\b")


@rule("RUN130", kind="guide", severity="error", cause="program-not-executable", url=SBATCH)
def batch_script_has_no_interpreter(context: GuideContext) -> Iterator[Problem]:
    """The first line of a batch script is not `#!` with an interpreter, so that sbatch refuses the file.

    A comment, a license or an empty line above `#!` is enough.
    """
    lines = context.guide.lines
    if not is_batch_job(context.guide) or lines[0].startswith("#!"):
        return
    later = next((number for number, text in enumerate(lines, 1) if text.startswith("#!")), 0)
    yield Problem(
        "error",
        "sbatch refuses this file: its first line must be `#!` with an interpreter"
        + (f", which is on line {later}" if later else ""),
        (guide_evidence(context, "first line", lines[0][:80] or "(empty)", 1),),
        f"Move line {later} to the top." if later else "Add `#!/bin/bash` as the first line.",
        line=later or 1,
    )


@rule("RUN131", kind="guide", severity="error", cause="collective-stalled", url=TORCHRUN)
def torchrun_expects_one_node(context: GuideContext) -> Iterator[Problem]:
    """srun starts torchrun on several nodes, and --nnodes is missing: its default is one node (1:1).

    The rendezvous is complete with the first node, so that the other nodes do not take part.
    """
    found = ((line, _NODES.search(text)) for line, text in directives(context.guide))
    stated = next(((line, int(match[1])) for line, match in found if match), (0, 0))
    for command in context.guide.commands:
        own = _nodes_of_step(command)
        line, nodes = (command.line, own) if own else stated
        is_elastic = _RENDEZVOUS.search(command.text) and not _STATED_NODES.search(command.text)
        if nodes > 1 and is_elastic and _starts_torchrun(command):
            yield Problem(
                "error",
                f"torchrun without --nnodes expects one node, and srun starts it on {nodes}: the others are not "
                "admitted",
                (
                    guide_evidence(context, "nodes", str(nodes), line),
                    guide_evidence(context, "torchrun", str(command), command.line),
                ),
                f"Add --nnodes {nodes} to torchrun.",
                line=command.line,
            )


@rule("RUN162", kind="guide", severity=("warning", "info"), cause="dependency-pin-violated", url=SBATCH)
def folder_of_job_output_is_created_by_the_job(context: GuideContext) -> Iterator[Problem]:
    """SLURM opens the file of --output before the script runs: a job ends at once if its folder does not exist.

    A warning if the script itself creates the folder, which is too late; otherwise a note.
    """
    if not is_batch_job(context.guide):
        return
    text = "\n".join(each.text for each in context.guide.commands if each.name == "mkdir")
    found = ((line, _OUTPUT.search(each)) for line, each in directives(context.guide))
    outputs = [(line, match[1]) for line, match in found if match and "%" not in match[1].rpartition("/")[0]]
    seen: set[str] = set()
    for line, path in outputs:
        folder = path.rpartition("/")[0]
        if not folder or folder in seen or folder.startswith(("/dev", "/tmp")):
            continue
        seen.add(folder)
        is_late = bool(re.search(rf"(?<![\w./-])(?:\./)?{re.escape(folder.removeprefix('./'))}/?(?![\w/.-])", text))
        yield Problem(
            "warning" if is_late else "info",
            f"SLURM opens {path} before the script runs: the job fails without output if {folder} does not exist",
            (guide_evidence(context, "output", path, line),),
            f"Create the folder before the submission: mkdir -p {folder}.",
            line=line,
        )


@rule("RUN163", kind="guide", severity="warning", cause="dependency-pin-violated", url=SBATCH)
def directive_of_sbatch_is_not_read(context: GuideContext) -> Iterator[Problem]:
    """sbatch reads its directives up to the first command, and expands no shell variable in them."""
    if not is_batch_job(context.guide):
        return
    lines = context.guide.lines
    first = next((n for n, text in enumerate(lines, 1) if text.strip() and not text.lstrip().startswith("#")), 0)
    for line, text in directives(context.guide):
        variable = re.search(r"=?(\$\{?\w+\}?)", text.partition(" #")[0])
        is_late = first and line > first
        if is_late or variable:
            reason = f"the command of line {first} is above it" if is_late else "sbatch expands no variable"
            yield Problem(
                "warning",
                f"`{text.strip()}` has no effect: {reason}" if is_late else f"`{text.strip()}`: {reason}",
                (guide_evidence(context, "directive", text.strip(), line),),
                "Move it above the first command." if is_late else "State the value, or pass the option to sbatch.",
                line=line,
            )


@rule(
    "RUN187",
    kind="guide",
    severity="warning",
    cause="silent-slow-path",
    url=f"{SBATCH.partition('#')[0]}#OPT_cpus-per-task",
)
def step_does_not_inherit_its_cpus(context: GuideContext) -> Iterator[Problem]:
    """From Slurm 22.05 on, srun does not inherit --cpus-per-task of the job: each task can get one CPU.

    Data loaders and the processes of torchrun share it. SRUN_CPUS_PER_TASK, or --cpus-per-task of srun, states it.
    """
    if not is_batch_job(context.guide) or any("SRUN_CPUS_PER_TASK" in text for text in context.guide.lines):
        return
    found = [(line, match[1]) for line, text in directives(context.guide) if (match := _CPUS.search(text))]
    line, stated = found[-1] if found else (0, "1")
    for command in context.guide.commands if int(stated) > 1 else ():
        inner = command.words[command.words.index("srun") :] if "srun" in command.words else ()
        is_python = any(re.search(r"python|torchrun|accelerate|deepspeed", word) for word in inner)
        if is_python and not any(_STATES_CPUS.match(word) for word in inner):
            yield Problem(
                "warning",
                f"srun does not inherit the {stated} CPUs per task of line {line} from Slurm 22.05 on: a task can "
                "get one CPU",
                (
                    guide_evidence(context, "directive", context.guide.lines[line - 1].strip(), line),
                    guide_evidence(context, "command", str(command), command.line),
                ),
                "Add --cpus-per-task=$SLURM_CPUS_PER_TASK to srun, or export SRUN_CPUS_PER_TASK before it.",
                line=command.line,
            )
            return


def _starts_torchrun(command: Command) -> bool:
    is_module = "torch.distributed.run" in command.words or "torch.distributed.launch" in command.words
    return command.name == "srun" and (is_module or any(word.endswith("torchrun") for word in command.words))


def _nodes_of_step(command: Command) -> int:
    """The number of nodes that srun itself states; 0 for those of the job."""
    options = " ".join(command.words[1:]).partition("torchrun")[0]
    found = _NODES.search(options)
    return int(found[1]) if found else 0
