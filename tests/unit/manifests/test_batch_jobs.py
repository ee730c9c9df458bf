"""Batch jobs of SLURM and scripts that install nothing."""

from __future__ import annotations

import pytest
from support.cases import each_case

from envdoctor.commands.audit_file import AuditResult, audit_text
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.resolution.step import NoSolver

HEADER = "#!/bin/bash\n#SBATCH --nodes=2\n"
ELASTIC = "--nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint $head:29500 train.py"
JOBS: dict[str, tuple[str, list[tuple[str, int]]]] = {
    "no interpreter": ("# license\n#!/bin/bash\n#SBATCH --nodes=1\npython train.py\n", [("RUN130", 2)]),
    "no interpreter at all": ("#SBATCH --nodes=1\npython train.py\n", [("RUN130", 1)]),
    "an interpreter": (f"{HEADER}srun python train.py\n", []),
    "one node": (f"#!/bin/bash\n#SBATCH -N 1\nsrun torchrun {ELASTIC}\n", []),
    "torchrun without its nodes": (f"{HEADER}srun torchrun {ELASTIC}\n", [("RUN131", 3)]),
    "the module without its nodes": (f"{HEADER}srun python -m torch.distributed.run {ELASTIC}\n", [("RUN131", 3)]),
    "torchrun with its nodes": (f"{HEADER}srun torchrun --nnodes=2 {ELASTIC}\n", []),
    "a step on one node": (f"{HEADER}srun --nodes=1 torchrun {ELASTIC}\n", []),
    "torchrun without srun": (f"{HEADER}torchrun {ELASTIC}\n", []),
}


CPUS = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --cpus-per-task=16\n"
STEPS: dict[str, tuple[str, list[int]]] = {
    "torchrun": (f"{CPUS}srun torchrun --nnodes=2 train.py\n", [4]),
    "a wrapper": (f"{CPUS}OMP_NUM_THREADS=2 poetry run srun python train.py\n", [4]),
    "the short form": (f"{CPUS.replace('--cpus-per-task=', '-c ')}srun python train.py\n", [4]),
    "one CPU": (f"{CPUS.replace('16', '1')}srun python train.py\n", []),
    "an option of srun": (f"{CPUS}srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py\n", []),
    "the short option of srun": (f"{CPUS}srun -c 16 python train.py\n", []),
    "a variable of srun": (f"{CPUS}export SRUN_CPUS_PER_TASK=16\nsrun python train.py\n", []),
    "no step": (f"{CPUS}python train.py\n", []),
    "another program": (f"{CPUS}srun hostname\npython train.py\n", []),
}


@each_case("name", [*STEPS])
def test_srun_does_not_inherit_the_cpus_per_task(name: str) -> None:
    text, expected = STEPS[name]
    assert [each.line for each in _audit(text).findings if each.id == "RUN187"] == expected


def _audit(text: str, name: str = "job.sh") -> AuditResult:
    return audit_text(text, name, None, NoSolver()).result


@each_case("name", [*JOBS])
def test_a_batch_job(name: str) -> None:
    text, expected = JOBS[name]
    assert [(each.id, each.line) for each in _audit(text).findings if each.status == "error"] == expected


def test_a_script_without_packages_states_what_was_not_read() -> None:
    result = _audit("#!/bin/bash\nmodule load cuda/12.4\nexport NCCL_DEBUG=INFO\ntorchrun train.py\n")
    assert (result.coverage.packages, result.coverage.judged > 0) == (0, True)
    assert any(each.startswith("the packages: the script installs none") for each in result.coverage.unread)


def test_a_script_without_a_launch_is_refused() -> None:
    with pytest.raises(NothingToAudit):
        _audit("#!/bin/bash\necho done\n")


def test_a_guide_with_a_batch_job_needs_no_interpreter() -> None:
    guide = (
        "# Run\n\n```bash\npip install torch==2.6.0\n```\n\n```bash\n#SBATCH --nodes=2\nsrun python train.py\n```\n"
    )
    assert [each for each in _audit(guide, "README.md").findings if each.id == "RUN130"] == []
