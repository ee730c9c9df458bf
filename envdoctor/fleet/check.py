"""`envdoctor fleet check`: ask all nodes, keep what is compared of each, name the odd ones out."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from envdoctor.core import processes as process
from envdoctor.core.decoding import read_text
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.records import Record
from envdoctor.environment.find import resolve_python_argument
from envdoctor.fleet import reach
from envdoctor.fleet.compare import Tally
from envdoctor.fleet.facts import judge
from envdoctor.fleet.hostlist import parse_names
from envdoctor.fleet.recorded import read_answers, recorded_files, save_answer
from envdoctor.fleet.records import FleetChecked, How, NodeAnswer

HINT = "envdoctor fleet check --hosts node1,node2,node3"
MOST_PARALLEL = 256  # ssh processes at a time: each has some MiB
UP = re.compile(r"idle|alloc|mix|comp|resv", re.IGNORECASE)  # states of SLURM's nodes that a job can run on


class FleetRequest(Record, frozen=True, kw_only=True):
    """What `fleet check` was asked for."""

    hosts: str = ""
    hosts_file: str = ""
    slurm: bool = False
    nodelist: str = ""
    partition: str = ""
    ray: bool = False
    address: str = "auto"
    recorded: str = ""
    save: str = ""
    venv: str = ""
    python: str = ""
    command: str = "envdoctor"
    ssh_config: str = ""
    ray_python: str = ""
    hub: str = ""
    deadline: float = 60.0
    parallel: int = 32


def check(request: FleetRequest, on_answer: Callable[[str, int], None] = lambda *_: None) -> FleetChecked:
    """Query the nodes and compare them. `on_answer` is called with each node and the count."""
    how = way_of(request)
    question = question_of(request)
    tally = Tally(how, question.words)
    save = Path(request.save) if request.save else None
    began = time.monotonic()

    def take(answer: NodeAnswer) -> None:
        if save:
            save_answer(save, answer)
        tally.add(*judge(answer))
        on_answer(answer.node, len(tally.nodes))

    ask(how, request, question, take)
    findings = tally.findings()
    return FleetChecked(
        how=how,
        nodes=len(tally.nodes),
        answered=tally.answered,
        seconds=round(time.monotonic() - began, 1),
        common=dict(sorted(tally.common().items())),
        groups=tally.groups(),
        clocks=tally.clocks(),
        findings=findings,
    )


def way_of(request: FleetRequest) -> How:
    """The one way in which the nodes are asked; none or several are refused."""
    ways: dict[str, tuple[How, object]] = {
        "--hosts": ("ssh", request.hosts),
        "--hosts-file": ("ssh", request.hosts_file),
        "--slurm": ("slurm", request.slurm),
        "--ray": ("ray", request.ray),
        "--recorded": ("recorded", request.recorded),
    }
    given = [name for name, (_, value) in ways.items() if value]
    if len(given) != 1:
        seen = " beside ".join(given) or "no nodes are named"
        raise BadInput(seen, expected=f"one of {', '.join(ways)}", hint=HINT)
    if request.save and request.recorded:
        raise BadInput("--save beside --recorded", expected="--save with nodes that are asked", hint=HINT)
    how = ways[given[0]][0]
    of_others = {
        "--nodelist": ("slurm", request.nodelist),
        "--partition": ("slurm", request.partition),
        "--ray-python": ("ray", request.ray_python),
        "--address": ("ray", request.address != "auto"),
        "--ssh-config": ("ssh", request.ssh_config),
    }
    for name, (way, value) in of_others.items():
        if value and way != how:
            expected = f"{name} with {' or '.join(option for option, (its, _) in ways.items() if its == way)}"
            raise BadInput(f"{name} beside {given[0]}", expected=expected, hint=HINT)
    return how


def question_of(request: FleetRequest) -> reach.Question:
    """What each node is asked; bad numbers and words are refused before anything starts."""
    if not 1 <= request.deadline <= 3600:
        raise BadInput(f"--deadline {request.deadline:g}", expected="1 to 3600 seconds", hint=HINT)
    if not 1 <= request.parallel <= MOST_PARALLEL:
        raise BadInput(f"--parallel {request.parallel}", expected=f"1 to {MOST_PARALLEL}", hint=HINT)
    try:
        command = tuple(shlex.split(request.command))
    except ValueError as error:
        raise BadInput(
            f"--command {request.command}: {error}", expected="words as a shell has them", hint=HINT
        ) from None
    if not command:
        raise BadInput("--command is empty", expected="as: python3 -m envdoctor", hint=HINT)
    if request.venv and request.python:
        raise BadInput("both --venv and --python", expected="one of them", hint=HINT)
    if request.ssh_config and not Path(request.ssh_config).is_file():
        raise BadInput(f"--ssh-config {request.ssh_config} is no file", expected="a file as ~/.ssh/config", hint=HINT)
    arguments = ("--venv", request.venv) if request.venv else ("--python", request.python) if request.python else ()
    return reach.Question(
        command=command,
        arguments=arguments,
        deadline=request.deadline,
        parallel=request.parallel,
        hub=request.hub,
        ssh_config=request.ssh_config,
    )


def ask(how: How, request: FleetRequest, question: reach.Question, take: reach.Told) -> None:
    """Hand every node's answer to `take`."""
    import msgspec

    if how == "recorded":
        for answer in read_answers(recorded_files(request.recorded)):
            take(answer)
    elif how == "ray":
        named = request.ray_python and resolve_python_argument(request.ray_python, os.environ, hint=HINT)
        reach.ask_by_ray(str(named or sys.executable), request.address, question, take)
    elif how == "slurm":
        nodes, down = slurm_nodes(request.nodelist, request.partition)
        for node, state in down.items():
            words = f"SLURM says that it is {state}"
            take(NodeAnswer(node=node, failure="not listed", message=words))
        if nodes:
            asked = msgspec.structs.replace(question, peers=tuple(nodes))
            reach.ask_by_srun(nodes, srun_options(nodes, request.partition), asked, take)
    else:
        nodes = _named(request)
        asked = msgspec.structs.replace(question, peers=tuple(node.rpartition("@")[2] for node in nodes))
        reach.ask_by_ssh(nodes, asked, take)


def _named(request: FleetRequest) -> list[str]:
    """The hosts of --hosts, or of a file: one or several a line, `#` begins a comment."""
    if request.hosts:
        return parse_names(request.hosts, where="--hosts")
    what = "a file that names nodes, one a line"
    text = read_text(Path(request.hosts_file), what=what, hint=HINT)
    return parse_names(re.sub(r"#.*", "", text), where=request.hosts_file)


def slurm_nodes(nodelist: str, partition: str) -> tuple[list[str], dict[str, str]]:
    """The nodes to ask, and those that no task can be sent to with their state.

    Of --nodelist, of the allocation that this runs in (SLURM_JOB_NODELIST), or all that sinfo knows.
    """
    allocated = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST") or ""
    wanted = nodelist or allocated
    names = parse_names(wanted, where="--nodelist" if nodelist else "SLURM_JOB_NODELIST") if wanted else []
    if names and allocated:
        return names, {}
    options = [
        *([f"--partition={partition}"] if partition else []),
        *([f"--nodes={','.join(names)}"] if names else []),
    ]
    done = process.run(["sinfo", "--noheader", "--Node", "--format=%N %T", *options], deadline=30)
    if not done.ok:
        raise EnvdoctorError(
            f"sinfo {done.ending}: {done.output.strip()[-300:]}",
            expected="a SLURM whose controller answers",
            hint="sinfo, or name the machines with --hosts",
        )
    states = parse_sinfo(done.output)
    down = {node: state for node, state in states.items() if not UP.match(state)}
    down |= {name: "unknown to it" for name in names if name not in states}
    return [node for node in names or states if node in states and node not in down], down


def parse_sinfo(text: str) -> dict[str, str]:
    """States by node, of lines such as `node01 idle`, `node02 down*`; a node of two partitions comes twice."""
    lines = (line.split() for line in text.splitlines())
    return {fields[0]: fields[1] for fields in lines if len(fields) == 2}


def srun_options(nodes: list[str], partition: str) -> list[str]:
    """What srun needs to reach these nodes; within an allocation its step lies over the one that runs."""
    return [f"--nodelist={','.join(nodes)}", *([f"--partition={partition}"] if partition else [])]
