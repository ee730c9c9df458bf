"""Remedies for limits, toolkits, system packages and variables: applied where no root is needed, else their text."""

from __future__ import annotations

import subprocess

import msgspec
from support.cases import each_case
from support.machines import H100X8
from support.remedies import apply_variables, commands_of
from support.report_stack import (
    file_stack,
    local_machine,
    make_gpu,
    make_machine,
    make_toolkit,
    torch_stack,
    with_variables,
)

from envdoctor.core.records import Extension, Finding, Limits, Machine, Stack, absent, known, unreadable
from envdoctor.core.remedies import SystemPackages
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.rules import evaluate

H100, V100, RTX5090 = "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", "NVIDIA GeForce RTX 5090"
UBUNTU, ROCKY = "system.os=Ubuntu 22.04.3 LTS", "system.os=Rocky Linux 9.4 (Blue Onyx)"


def found(identifier: str, machine: Machine, stack: Stack | None = None) -> Finding:
    return next(finding for finding in evaluate(machine, stack) if finding.id == identifier)


def remedies(finding: Finding) -> list[tuple[str, ...]]:
    return [remedy.commands for remedy in finding.remedies]


def with_limits(machine: Machine, hard: str, **limits: int) -> Machine:
    ample = {"open_files": 65536, "processes": 100000, "locked_memory": -1, "stack": -1} | limits
    facts = {name: known(size, "getrlimit", f"hard limit {hard}") for name, size in ample.items()}
    return msgspec.structs.replace(machine, limits=Limits(**facts))


@each_case(
    ("soft", "hard", "command"),
    [
        (256, "unlimited", "ulimit -n 65536"),
        (256, "2000", "ulimit -n 2000"),
        (256, "512", "sudo prlimit --pid $$ --nofile=65536"),
    ],
)
def test_a_soft_limit_is_raised_up_to_the_hard_one(soft: int, hard: str, command: str) -> None:
    machine = with_limits(read_recorded(H100X8), hard, open_files=soft)
    assert remedies(found("HOST002", machine)) == [(command,)]
    if command.startswith("ulimit") and hard != "unlimited":
        script = f"ulimit -Hn {hard}; ulimit -Sn {soft}; {command} && ulimit -n"
        assert (
            subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == f"{hard}\n"
        )


@each_case(
    ("container", "shm", "memory", "processes"),
    [
        (
            known("docker", "/.dockerenv"),
            [("docker run --shm-size=16g ...",)],
            [("docker run --ulimit memlock=-1 ...",)],
            [("docker run --ulimit nproc=65536 ...",)],
        ),
        (
            absent("/proc/1/cgroup"),
            [("sudo mount -o remount,size=16G /dev/shm",)],
            [("sudo prlimit --pid $$ --memlock=unlimited",)],
            [("ulimit -u 65536",)],
        ),
        (
            unreadable("/proc/1/cgroup", "Permission denied"),
            [("docker run --shm-size=16g ...",), ("sudo mount -o remount,size=16G /dev/shm",)],
            [("docker run --ulimit memlock=-1 ...",), ("sudo prlimit --pid $$ --memlock=unlimited",)],
            [("docker run --ulimit nproc=65536 ...",), ("ulimit -u 65536",)],
        ),
    ],
)
def test_a_container_gets_its_limits_at_its_start(
    container: object, shm: object, memory: object, processes: object
) -> None:
    small = '{"shm": {"path": "/dev/shm", "total": 67108864, "free": 67108864}}'
    machine = override(read_recorded(H100X8), [f"storage.places={small}", 'interfaces=["ib0", "lo"]'])
    machine = with_limits(machine, "unlimited", locked_memory=65536, processes=1024)
    system = msgspec.structs.replace(machine.system, container=container)
    machine = msgspec.structs.replace(machine, system=system)
    assert [remedies(found(rule, machine)) for rule in ("HOST001", "HOST007", "HOST008")] == [shm, memory, processes]


@each_case(
    ("identifier", "gpu", "nvcc", "torch", "installed"),
    [
        ("CUDA001", H100, "11.8.89", "2.8.0+cu128", "12.8"),
        ("CUDA002", RTX5090, "12.6.85", "2.8.0+cu128", "12.8"),
        ("CUDA002", RTX5090, "12.6.85", "2.9.0+cu130", "13.0"),
        ("CUDA002", V100, "13.0.88", "2.8.0+cu126", "12.6"),  # not the oldest toolkit that supports the GPU
        ("CUDA004", H100, "", "2.8.0+cu128", "12.8"),
    ],
)
def test_the_installed_toolkit_fits_torch_and_the_gpu(
    identifier: str, gpu: str, nvcc: str, torch: str, installed: str
) -> None:
    cuda = make_toolkit(nvcc="/usr/local/cuda/bin/nvcc", nvcc_version=nvcc) if nvcc else make_toolkit()
    machine, stack = local_machine([gpu], cuda=cuda), file_stack(torch, {"deepspeed": "0.18.1"})
    for system, install in ((UBUNTU, "apt-get"), (ROCKY, "dnf")):
        machine = override(machine, [system])
        package = f"cuda-toolkit-{installed.replace('.', '-')}"
        home = f"/usr/local/cuda-{installed}"
        assert remedies(found(identifier, machine, stack)) == [
            ("ls -d /usr/local/cuda*", f"sudo {install} install -y {package}", f"export CUDA_HOME={home}")
        ]
    after = make_toolkit(nvcc=f"{home}/bin/nvcc", nvcc_version=installed, cuda_home=home)
    fixed = msgspec.structs.replace(machine, cuda=after)
    assert [each.id for each in evaluate(fixed, stack) if each.id.startswith("CUDA")] == []


def test_gcc_for_nvcc_is_the_one_of_the_distribution() -> None:
    toolkit = make_toolkit(nvcc="/usr/local/cuda/bin/nvcc", nvcc_version="12.3.107", compiler="gcc 13.3.0")
    machine, stack = local_machine([H100], cuda=toolkit), file_stack(packages={"deepspeed": "0.18.1"})
    assert remedies(found("CUDA003", override(machine, [UBUNTU]), stack)) == [
        ("sudo apt-get install -y gcc-12 g++-12", "export CC=gcc-12", "export CXX=g++-12",
         "export NVCC_PREPEND_FLAGS='-ccbin g++-12'")
    ]  # fmt: skip
    folder = "/opt/rh/gcc-toolset-12/root/usr/bin"
    assert remedies(found("CUDA003", override(machine, [ROCKY]), stack)) == [
        ("sudo dnf install -y gcc-toolset-12", f"export CC={folder}/gcc", f"export CXX={folder}/g++",
         f"export NVCC_PREPEND_FLAGS='-ccbin {folder}/g++'")
    ]  # fmt: skip


def test_system_packages_have_the_names_of_the_distribution() -> None:
    machine = override(read_recorded(H100X8), ['pythons=[{"path": "/usr/bin/python3.12", "version": "3.12"}]'])
    machine = msgspec.structs.replace(machine, cuda=msgspec.structs.replace(machine.cuda, compiler=absent("PATH")))
    finding = found("HOST004", override(machine, [UBUNTU]))
    assert [step for remedy in finding.remedies for step in remedy.steps] == [
        SystemPackages(packages=("build-essential",))
    ]
    assert remedies(found("HOST004", override(machine, [ROCKY]))) == [("sudo dnf install -y gcc gcc-c++",)]
    assert len(found("HOST004", override(machine, ["system.os=NixOS 24.11"])).remedies) == 2
    assert remedies(found("HOST005", override(machine, [ROCKY])))[0] == ("sudo dnf install -y python3.12-devel",)


LIBRARIES = "/usr/local/cuda/compat:/my dir/lib:/usr/local/cuda-12.1/lib64"
SEGMENTS = "expandable_segments:True,max_split_size_mb:128"
VLLM = {"vllm": "0.10.2", "trl": "0.23.1"}


@each_case(
    ("identifier", "variables", "packages", "commands"),
    [
        ("ENV001", {"CUDA_VISIBLE_DEVICES": "9"}, {},
         [("unset CUDA_VISIBLE_DEVICES",), ("export CUDA_VISIBLE_DEVICES=0",)]),
        (
            "ENV003",
            {"GLOO_SOCKET_IFNAME": "ib0"},
            {},
            [("ip -br addr", "unset GLOO_SOCKET_IFNAME"), ("export GLOO_SOCKET_IFNAME=ens3",)],
        ),
        ("ENV004", {"LD_LIBRARY_PATH": LIBRARIES}, {},
         [("export LD_LIBRARY_PATH='/my dir/lib:/usr/local/cuda-12.1/lib64'",)]),
        ("ENV004", {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}, {}, [("unset LD_LIBRARY_PATH",)]),
        ("ENV009", {"LD_LIBRARY_PATH": LIBRARIES}, {},
         [("export LD_LIBRARY_PATH='/usr/local/cuda/compat:/my dir/lib'",)]),
        (
            "ENV006",
            {"CUDA_VISIBLE_DEVICES": "GPU-b, GPU-a"},
            VLLM,
            [("nvidia-smi -L", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", "export CUDA_VISIBLE_DEVICES=1,0")],
        ),
        ("ENV007", {"PYTORCH_CUDA_ALLOC_CONF": SEGMENTS}, VLLM,
         [("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128",)]),
        ("ENV010", {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}, {},
         [("unset HF_HUB_OFFLINE", "unset TRANSFORMERS_OFFLINE")]),
    ],
)  # fmt: skip
def test_a_changed_variable_cures(
    identifier: str, variables: dict[str, str], packages: dict[str, str], commands: list[tuple[str, ...]]
) -> None:
    gpus = [make_gpu(n, H100, uuid=known(f"GPU-{name}-1", "NVML")) for n, name in enumerate("ab")]
    machine = with_variables(local_machine(gpus), **variables)
    machine = msgspec.structs.replace(machine, interfaces=known(("lo", "docker0", "ens3"), "/sys"))
    stack = file_stack(packages=packages)
    finding = found(identifier, machine, stack)
    assert remedies(finding) == commands
    before = {each.id for each in evaluate(machine, stack)}
    for remedy in finding.remedies:
        after = {each.id for each in evaluate(apply_variables(machine, remedy), stack)}
        assert after <= before - {identifier}


def test_the_gpus_are_listed_for_an_unknown_uuid() -> None:
    machine = with_variables(local_machine([H100]), CUDA_VISIBLE_DEVICES="GPU-7c1f")
    assert remedies(found("ENV006", machine, file_stack(packages=VLLM))) == [("nvidia-smi -L",)]
    machine = with_variables(local_machine([H100]), CUDA_VISIBLE_DEVICES="MIG-7c1f,MIG-8")
    container = "docker run --gpus '\"device=MIG-7c1f\"' -e CUDA_VISIBLE_DEVICES=0 ..."
    assert remedies(found("ENV006", machine, file_stack(packages=VLLM))) == [("nvidia-smi -L", container)]


def test_no_text_of_a_report_becomes_a_command() -> None:
    machine = with_variables(local_machine([H100]), CUDA_VISIBLE_DEVICES="MIG-7\"' ; reboot")
    assert remedies(found("ENV006", machine, file_stack(packages=VLLM))) == [("nvidia-smi -L",)]
    machine = with_variables(local_machine([H100]), NCCL_SOCKET_IFNAME="ib0")
    machine = msgspec.structs.replace(machine, interfaces=known(("lo", "e;reboot"), "report"))
    assert remedies(found("ENV003", machine))[1] == ("export NCCL_SOCKET_IFNAME='e;reboot'",)


def test_allocator_options_that_vllm_reads() -> None:
    """From 0.20.1 on vLLM disables expandable segments around its pool, in the variable that it reads."""
    machine = with_variables(local_machine([H100]), PYTORCH_ALLOC_CONF="expandable_segments:True")
    stack = file_stack("2.11.0+cu130", packages={"vllm": "0.23.0", "trl": "1.7.0"})
    finding = found("ENV007", machine, stack)
    assert remedies(finding) == [
        ("unset PYTORCH_ALLOC_CONF",),
        ("unset PYTORCH_ALLOC_CONF", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    ]
    for remedy in finding.remedies:
        assert "ENV007" not in {each.id for each in evaluate(apply_variables(machine, remedy), stack)}
    old = file_stack("2.11.0+cu130", packages={"vllm": "0.20.0", "trl": "1.7.0"})
    assert remedies(found("ENV007", machine, old)) == [("unset PYTORCH_ALLOC_CONF",)]


def test_the_login_command_is_that_of_the_installed_hub() -> None:
    machine = with_variables(local_machine([H100]))
    for version, command in (("0.36.0", "hf auth login"), ("0.33.4", "huggingface-cli login")):
        stack = file_stack(packages={"huggingface-hub": version})
        assert remedies(found("ENV011", machine, stack)) == [(command,)]


@each_case(
    ("kind", "source", "variables", "command"),
    [
        ("venv", "/old/lib/libstdc++.so.6", {"LD_LIBRARY_PATH": "/old/lib/:/x"}, "export LD_LIBRARY_PATH=/x"),
        ("conda", "/e/lib/libstdc++.so.6", {}, "conda install -p /e -c conda-forge 'libstdcxx-ng>=13'"),
        ("venv", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", {},
         "docker run --rm -it --gpus all nvidia/cuda:12.8.1-base-ubuntu24.04"),
    ],
)  # fmt: skip
def test_libstdcxx_is_replaced_where_it_comes_from(
    kind: str, source: str, variables: dict[str, str], command: str
) -> None:
    stack = file_stack(extensions=(Extension(path="x.so", distribution="x", glibcxx="3.4.32"),))
    stack = msgspec.structs.replace(stack, kind=known(kind, "files"), libstdcxx=known("3.4.28", source))
    assert commands_of(found("PY008", with_variables(local_machine([H100]), **variables), stack)) == (command,)


def test_a_newer_system_has_the_installed_vllm() -> None:
    machine = make_machine([H100], glibc="2.17")
    ((command,),) = remedies(found("PY006", machine, torch_stack(packages={"vllm": "0.11.0"})))
    assert command == "docker run --rm -it --gpus all --ipc=host --entrypoint bash vllm/vllm-openai:v0.11.0"


@each_case(
    ("role", "path", "commands", "variable"),
    [
        (
            "uv cache",
            "/c",
            [("uv cache prune",), ("df -h", "du -xh --max-depth=2 /c | sort -h | tail")],
            "UV_CACHE_DIR",
        ),
        ("hf cache", "~/my models", [("df -h", "du -xh --max-depth=2 ~'/my models' | sort -h | tail")], "HF_HOME"),
    ],
)
def test_a_full_disk_is_examined(role: str, path: str, commands: list[tuple[str, ...]], variable: str) -> None:
    places = msgspec.json.encode({role: {"path": path, "total": 1 << 40, "free": 1 << 20}}).decode()
    finding = found("HOST003", override(read_recorded(H100X8), [f"storage.places={places}"]))
    assert remedies(finding) == commands
    assert f"set {variable} to a directory" in finding.fix
