"""A SLURM cluster on this machine for tests: munged, slurmctld, and two slurmd as its nodes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "salloc", "sinfo")
NODES = ("n1", "n2")
# linuxproc tracks a job's processes without cgroups. A requeued job waits cred_expire seconds before it starts.
# KillWait is the time between SIGTERM at the time limit and SIGKILL.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=6
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
KillWait=20
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def skip_reason() -> str:
    """Return why a cluster cannot run here; empty where it can."""
    if "/usr/sbin" not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] += os.pathsep + "/usr/sbin"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"{', '.join(missing)} not installed: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "slurmctld and slurmd need root"


SKIP_REASON = skip_reason()
# Of each module with a cluster: a test is skipped before a stack is installed for it.
needs_slurm = pytest.mark.skipif(bool(SKIP_REASON), reason=SKIP_REASON or "available")


class Cluster:
    """The daemons of a cluster and commands that query it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "munge").chmod(0o711)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        ports, host = free_ports(len(NODES) + 1), socket.gethostname()
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN\n"
            for name, port in zip(NODES, ports[1:], strict=True)
        ]
        text = CONFIGURATION.format(host=host, port=ports[0], folder=self.folder)
        head, partition = text.splitlines(keepends=True)[:-1], text.splitlines(keepends=True)[-1]
        (self.folder / "slurm.conf").write_text("".join([*head, *lines, partition]))
        munge = self.folder / "munge"
        options = [
            f"--{name}={munge / name.partition('-')[0]}" for name in ("socket", "pid-file", "log-file", "seed-file")
        ]
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *options)
        wait_for((munge / "socket").exists, "munged's socket", 10)
        self._daemon("slurmctld", "-D")
        for name in NODES:
            self._daemon("slurmd", "-D", "-N", name)
        wait_for(
            lambda: self.run_command("sinfo", "-h", "-o", "%T %D").strip() == f"idle {len(NODES)}", "idle nodes", 30
        )

    def stop(self) -> None:
        self.run_command("scancel", "--full", "--signal=KILL", "--user=root")
        self.run_command("scancel", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _daemon(self, *argv: str) -> None:
        with (self.folder / f"{argv[0]}.out").open("ab") as log:
            environment = os.environ | self.variables
            self.daemons.append(subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env=environment))

    def run_command(self, *argv: str) -> str:
        done = subprocess.run(
            argv, capture_output=True, text=True, env=os.environ | self.variables, check=False, timeout=30
        )
        return done.stdout

    def job(self, number: str) -> dict[str, str]:
        """Return the fields of `scontrol show job`."""
        words = self.run_command("scontrol", "show", "job", number).split()
        return {key: value for key, equals, value in (word.partition("=") for word in words) if equals}

    def wait_for_end(self, number: str, seconds: float) -> str:
        """Wait until a job has ended and return its state."""
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_for(lambda: self.job(number).get("JobState") in ends, f"the end of job {number}", seconds)
        return self.job(number)["JobState"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for the tests of a module, which has the mark `needs_slurm`."""
    started = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


def wait_for(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Poll until a condition is true; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"no {what} within {seconds:.0f} s")
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Return ports that are not in use."""
    sockets = [socket.socket() for _ in range(count)]
    for item in sockets:
        item.bind(("127.0.0.1", 0))
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports
