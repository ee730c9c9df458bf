"""What was asked of a launcher, what the place offers, and what would be started."""

from __future__ import annotations

import shlex
from typing import Literal

from envdoctor.core.records import Record

Launcher = Literal["local", "torchrun", "accelerate", "ray", "slurm"]
LAUNCHERS: tuple[Launcher, ...] = ("local", "torchrun", "accelerate", "ray", "slurm")


class JobOptions(Record, frozen=True):
    """What a SLURM job is asked for beside nodes and GPUs."""

    partition: str = ""
    time: str = ""
    nodelist: str = ""
    account: str = ""
    modules: tuple[str, ...] = ()
    container: str = ""
    options: tuple[str, ...] = ()  # KEY=VALUE of sbatch, any of them

    @property
    def any(self) -> bool:
        """Whether something was asked for."""
        return self != JobOptions()


class Ask(Record, frozen=True):
    """How a run is to be started; 0 and empty: not said."""

    launcher: str = ""
    nodes: int = 0
    gpus: int = 0  # a node
    interface: str = ""
    job: JobOptions = JobOptions()

    def named(self) -> dict[str, object]:
        """By the options of the command line; several of one as a tuple."""
        whole = {name: getattr(self, name) for name in ("launcher", "gpus", "nodes", "interface")}
        job = {name: getattr(self.job, name) for name in ("partition", "time", "nodelist", "account", "container")}
        return whole | job | {"module": self.job.modules, "slurm-option": self.job.options}


class Allocation(Record, frozen=True):
    """The SLURM allocation that this process runs in."""

    job: str
    nodes: int
    first: str  # address of its first node
    gpus: int  # a node; 0: none, or not told
    names: tuple[str, ...] = ()  # of its nodes, the first one first


class NodeKind(Record, frozen=True):
    """What a partition's nodes have."""

    partition: str
    gpus: int
    cpus: int


class Disk(Record, frozen=True):
    """A place for large files (bytes)."""

    path: str
    free: int


class Situation(Record, frozen=True, kw_only=True):
    """What this machine and its scheduler offer."""

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
    kinds: tuple[NodeKind, ...] = ()
    slurm: bool = False  # sbatch is here
    home: Disk | None = None
    disks: tuple[Disk, ...] = ()


class Work(Record, frozen=True, kw_only=True):
    """The run that is to be started."""

    directory: str
    recipe: str
    engine: str
    settings: dict[str, object]
    python: str
    program: tuple[str, ...]  # the trainer and its arguments, without the interpreter and --resume
    node_program: str  # node.py
    resume: str = ""
    environment: dict[str, str] = {}  # of the profile
    folders: tuple[str, ...] = ()  # that a container has to see

    @property
    def on_ray(self) -> bool:
        """Whether Ray starts its processes: verl's supervised trainer is torchrun's."""
        return self.engine == "verl" and self.settings.get("task") != "sft"


class Variable(Record, frozen=True):
    """An environment variable for the run and why; no value: it is taken away."""

    name: str
    value: str | None
    reason: str

    @property
    def line(self) -> str:
        """As a person would write it into a script."""
        done = f"unset {self.name}" if self.value is None else f"export {self.name}={shlex.quote(self.value)}"
        return f"{done}  # {self.reason}"


class Launch(Record, frozen=True, kw_only=True):
    """What would run, exactly."""

    launcher: Launcher
    nodes: int
    processes: int  # a node
    command: tuple[str, ...]  # that is started here
    environment: tuple[Variable, ...] = ()
    limits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: dict[str, str] = {}  # into the run's folder, by name
    elsewhere: tuple[str, ...] = ()  # to be started on each further node
    submits: bool = False  # the command hands a job to SLURM and ends
