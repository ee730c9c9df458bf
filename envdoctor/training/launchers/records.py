"""Records of the launchers: the requested options, the machine's context, the run, and the resulting launch."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

from envdoctor.core.options import Option
from envdoctor.core.record import Record

Launcher = Literal["local", "torchrun", "accelerate", "ray", "slurm"]
LAUNCHERS: tuple[Launcher, ...] = ("local", "torchrun", "accelerate", "ray", "slurm")


class JobOptions(Record, frozen=True):
    """Options of a SLURM job besides nodes and GPUs."""

    partition: Annotated[str, Option("--partition", "Partition of the SLURM job.", "NAME")] = ""
    time: Annotated[str, Option("--time", "Time limit of the SLURM job.", "D-HH:MM:SS")] = ""
    nodelist: Annotated[str, Option("--nodelist", "Nodes of the SLURM job.", "NODES")] = ""
    account: Annotated[str, Option("--account", "Account of the SLURM job.", "NAME")] = ""
    modules: Annotated[
        tuple[str, ...], Option("--module", "Module to load in the SLURM job, such as hpcx; repeatable.", "NAME")
    ] = ()
    container: Annotated[
        str,
        Option("--container", "Container of the SLURM job: a .sif for apptainer, else for pyxis.", "IMAGE"),
    ] = ""
    options: Annotated[
        tuple[str, ...], Option("--slurm-option", "Any other option of sbatch, such as qos=high.", "KEY=VALUE")
    ] = ()

    @property
    def is_set(self) -> bool:
        """Whether any option was given."""
        return self != JobOptions()


class LaunchOptions(Record, frozen=True):
    """How to start a run, from the command line; 0 or empty: not given."""

    launcher: Annotated[str, Option("--launcher", "local, torchrun, accelerate, ray or slurm.", "NAME")] = ""
    gpus: Annotated[
        int, Option("--gpus", "GPUs per node; default with a launcher: all.", "N", minimum=0, maximum=1024)
    ] = 0
    nodes: Annotated[
        int, Option("--nodes", "Number of nodes; default in an allocation: all.", "N", minimum=0, maximum=100_000)
    ] = 0
    interface: Annotated[str, Option("--interface", "The network interface for communication.", "NAME")] = ""
    job: JobOptions = JobOptions()

    def arguments(self) -> dict[str, object]:
        """Return the values by the names of their command-line options; a repeatable option as a tuple."""
        launch = {name: getattr(self, name) for name in ("launcher", "gpus", "nodes", "interface")}
        job = {name: getattr(self.job, name) for name in ("partition", "time", "nodelist", "account", "container")}
        return launch | job | {"module": self.job.modules, "slurm-option": self.job.options}


class Allocation(Record, frozen=True):
    """The SLURM allocation in which this process runs."""

    job: str
    nodes: int
    first: str  # address of the first node
    gpus: int  # per node; 0: none, or not reported
    names: tuple[str, ...] = ()  # of the nodes, in SLURM's order


class Partition(Record, frozen=True):
    """A SLURM partition and what each of its nodes has."""

    name: str
    gpus: int
    cpus: int


class Disk(Record, frozen=True):
    """A directory for large files and its free bytes."""

    path: str
    free: int


class LaunchContext(Record, frozen=True, kw_only=True):
    """This machine and its scheduler, as far as the launchers need them."""

    host: str
    address: str  # of this machine on the chosen interface
    interface: str
    interface_reason: str
    infiniband: tuple[str, ...]
    cores: int
    gpus: int
    environ: dict[str, str]
    limits: tuple[str, ...]  # ulimit lines, each with its reason
    allocation: Allocation | None = None
    partitions: tuple[Partition, ...] = ()
    slurm: bool = False  # sbatch is on PATH
    home: Disk | None = None
    disks: tuple[Disk, ...] = ()


class RunSpec(Record, frozen=True, kw_only=True):
    """The run to start."""

    directory: str
    recipe: str
    engine: str
    settings: dict[str, object]
    python: str
    program: tuple[str, ...]  # the trainer and its arguments, without the interpreter and --resume
    node_program: str  # path of node.py
    resume: str = ""
    environment: dict[str, str] = {}  # variables of the profile
    folders: tuple[str, ...] = ()  # to mount into a container

    @property
    def on_ray(self) -> bool:
        """Whether Ray starts the processes. verl's supervised trainer uses torchrun instead."""
        return self.engine == "verl" and self.settings.get("task") != "sft"


class Variable(Record, frozen=True):
    """An environment variable of the run and its reason; without a value it is unset."""

    name: str
    value: str | None
    reason: str

    @property
    def line(self) -> str:
        """The variable as a line of a shell script."""
        command = f"unset {self.name}" if self.value is None else f"export {self.name}={shlex.quote(self.value)}"
        return f"{command}  # {self.reason}"


class Launch(Record, frozen=True, kw_only=True):
    """The command that starts a run, with its environment and files."""

    launcher: Launcher
    nodes: int
    processes: int  # per node
    command: tuple[str, ...]  # started on this machine
    environment: tuple[Variable, ...] = ()
    limits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: dict[str, str] = {}  # written into the run directory: content by name
    other_nodes: tuple[str, ...] = ()  # command lines to start on each other node
    submits: bool = False  # the command submits a job to SLURM and ends
