"""Options that both fleet commands share."""

from __future__ import annotations

from typing import Annotated

from envdoctor.core.options import Option

HostsOption = Annotated[
    str, Option("--hosts", "Connect by ssh to node1,node2 or node[01-16].", "LIST", argument="HOSTS")
]
SlurmOption = Annotated[
    bool, Option("--slurm", "Use srun on the nodes of the allocation, or on all nodes that are up.")
]
NodelistOption = Annotated[str, Option("--nodelist", "With --slurm: use only these nodes.", "LIST")]
PartitionOption = Annotated[str, Option("--partition", "With --slurm: use this partition.", "NAME")]
SshConfigOption = Annotated[
    str, Option("--ssh-config", "The ssh configuration to use instead of ~/.ssh/config.", "FILE")
]
