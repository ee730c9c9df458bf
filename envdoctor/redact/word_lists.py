"""Word lists for the classification of names of settings, accounts and sites.

They are Python because every command that prints the name of a secret needs them: tomllib takes 3 ms.
"""

from __future__ import annotations

from functools import cache

LISTS = {
    # Common accounts, directories below /home and host names that identify no person, and common words.
    "common": """
    admin administrator ai anaconda3 app appuser azureuser build centos cloud coder codespace conda container cpu
    cuda data debian default dev developer dgx docker ec2-user fedora gcpuser git github gpu guest home host
    hostname jetson jovyan kernel lib linux llm local localhost localdomain lost+found main master me mambauser
    miniconda miniconda3 ml model models mpi mpiuser n/a node node0 nobody none notebook null nvidia opc opt pod
    projects public python python3 ray redhat rocky root runner server shared sky slurm software src sysadmin system
    tensorflow test tester tmp torch train trainer ubuntu unknown user username users usr venv vllm vm vscode work
    worker workspace wsl xxx xxxx your_name yourname
    """,
    # Parts of the name of a secret.
    "secret_parts": "password passwd passphrase secret secrets credential credentials apikey apitoken",
    # Words before "key" in the name of a secret.
    "keys": "api access secret private ssh auth account encryption signing license storage subscription deploy",
    # Words before "token" in names that are no secrets: special tokens of a model, and token counts.
    "no_tokens": """
    pad eos bos unk sep cls mask image video audio vision box tool stop special per next new last first num max min
    each every single additional extra think begin start end prompt text sot eot bad good this the a one total decode
    eod fim prefix suffix middle separator boi eoi fake row col end_of sample batch generated input output unexpected
    """,
    # Everyday words that are also names of settings: their values are only redacted if they look sensitive.
    "everyday": "token host user login auth cookie entity serial bearer node",
    # Complete names, in lower case with _ between their parts.
    "hosts": """
    host hostname nodename nodelist node_name node_list master_addr master_address slurm_nodelist slurm_job_nodelist
    slurm_step_nodelist slurmd_nodename slurm_submit_host slurm_srun_comm_host slurm_topology_addr ray_address
    slurm_launch_node_ipaddr slurm_cluster_name head_node head_node_ip computer computername node_ip server_host
    tpu_worker_hostnames
    """,
    "users": "user username user_name logname login sudo_user slurm_job_user usermail",
    "names": """
    run_name job_name jobname experiment_name hub_model_id wandb_entity wandb_project wandb_name wandb_run_name
    wandb_run_id wandb_run_group wandb_group wandb_username wandb_notes wandb_tags wandb_job_name slurm_job_name
    slurm_job_account slurm_account entity mlflow_experiment_name mlflow_run_name comet_project_name
    comet_workspace trackio_space_id clearml_project clearml_task neptune_project tensorboard_run
    """,
    "serials": "serial serial_number serialnumber board_serial product_serial chassis_serial_number sn",
    "machines": "machine_id machineid boot_id host_id hostid system_uuid product_uuid",
    # Every name of a sensitive value contains one of these words; texts are searched for them.
    "triggers": """
    token passw passphrase _pass pwd secret credential key auth cookie jwt bearer accesssignature host node _addr
    user logname login entity wandb_ jobname _name account _pat serial machine boot_id uuid hub_model_id comet_
    trackio_ clearml_ neptune_ tensorboard_
    """,
    # Those of them that the names of secrets contain.
    "secret_triggers": """
    token passw passphrase _pass pwd secret credential key auth cookie jwt bearer accesssignature _pat
    """,
    # Public sites, with all subdomains. The sites of Python, its packages and PyTorch match py*.org.
    "sites": """
    github.com githubusercontent.com githubassets.com github.io ghcr.io gitlab.com bitbucket.com huggingface.co hf.co
    nvidia.com nvcr.io anaconda.com anaconda.org conda.io conda-forge.org prefix.dev docker.com docker.io quay.io
    readthedocs.io readthedocs.org rtfd.io vllm.ai wandb.ai google.com googleapis.com goo.gl ubuntu.com debian.org
    kernel.org gnu.org llvm.org apache.org microsoft.com aka.ms windows.net intel.com amd.com arxiv.org openai.com
    modelscope.cn ray.io deepspeed.ai lightning.ai stackoverflow.com w3.org json-schema.org oasis-open.org astral.sh
    triton-lang.org numpy.org scipy.org cmake.org schedmd.com redhat.com fedoraproject.org sourceforge.net
    pybind11.com medium.com reddit.com pydantic.dev rust-lang.org localhost
    """,
    # Top-level domains of full host names.
    "domains": """
    com net org edu gov mil local internal intranet lan corp localdomain cluster cloud home arpa example test invalid
    de fr uk ch nl cn jp kr se fi dk pl ca ru br eu es tw sg au
    """,
    # Values of envdoctor's own records, which are never redacted, even if a user has such a name.
    "ours": """
    known absent unreadable ok info warning error unknown skipped crashed compute graphics mps passed failed
    unavailable hung no-result garbage completed venv conda system override report default (set) (empty)
    """,
}


@cache
def word_list(name: str) -> frozenset[str]:
    """The words of one list."""
    return frozenset(LISTS[name].split())
