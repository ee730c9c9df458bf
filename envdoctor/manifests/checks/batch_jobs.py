"""Checks on batch jobs of SLURM and on the launch of their processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.manifests.checks.evidence import guide_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.inputs.batch_jobs import directives, is_batch_job
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

SBATCH = "https://slurm.schedmd.com/sbatch.html#SECTION_DESCRIPTION"
TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_NODES = re.compile(r"(?:--nodes[= ]|-N ?)(\d+)(?:-\d+)?(?=\s|$)")
_RENDEZVOUS = re.compile(r"--rdzv[-_](?:endpoint|backend)\b")
_STATED_NODES = re.compile(r"--nnodes\b|--standalone\b")


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


def _starts_torchrun(command: Command) -> bool:
    is_module = "torch.distributed.run" in command.words or "torch.distributed.launch" in command.words
    return command.name == "srun" and (is_module or any(word.endswith("torchrun") for word in command.words))


def _nodes_of_step(command: Command) -> int:
    """The number of nodes that srun itself states; 0 for those of the job."""
    options = " ".join(command.words[1:]).partition("torchrun")[0]
    found = _NODES.search(options)
    return int(found[1]) if found else 0
