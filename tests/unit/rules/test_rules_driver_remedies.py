"""Remedies for the driver, single GPUs and containers: their exact text for the facts of a machine.

They need root or another GPU, so no test applies them.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from support.cases import each_case
from support.machines import H100X8
from support.paths import ROOT
from support.remedies import commands_of
from support.report_stack import file_stack, make_gpu, make_machine, make_stack, torch_stack

from envdoctor.core.records import Extension, Fabric, Fact, Finding, KernelCode, Machine, Stack, known
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.rules import evaluate

H100 = "NVIDIA H100 80GB HBM3"
PTX = KernelCode(ptx=("compute_80",), ptx_isa="8.7", containers={"compute_80": 10})
NEEDS_PTX = file_stack(extensions=(Extension(path="x.so", distribution="vllm", code=PTX),))


def found(identifier: str, machine: Machine, stack: Stack | None = None) -> Finding:
    return next(finding for finding in evaluate(machine, stack) if finding.id == identifier)


def remedies(finding: Finding) -> list[tuple[str, ...]]:
    return [remedy.commands for remedy in finding.remedies]


def mismatch(**facts: Any) -> Machine:
    return override(make_machine([H100], driver="575.57.08", source="test", **facts), ["driver.library=575.64.03"])


def test_the_module_is_reloaded_before_a_reboot() -> None:
    finding = found("DRV001", mismatch())
    assert remedies(finding) == [
        (
            "sudo lsof /dev/nvidia*",
            "modinfo -F version nvidia",
            "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
            "sudo modprobe -a nvidia nvidia_uvm",
        ),
        ("modinfo -F version nvidia", "sudo reboot"),
    ]
    assert "575.64.03" in finding.fix


@each_case(
    ("container", "first"),
    [
        ("docker", "docker restart CONTAINER"),
        ("podman", "podman restart CONTAINER"),
        ("kubernetes", "kubectl get pod POD -o jsonpath='{.metadata.ownerReferences}'"),
        ("apptainer", "apptainer exec --nv IMAGE nvidia-smi"),
    ],
)
def test_a_container_is_restarted_as_its_module_is_that_of_the_host(container: str, first: str) -> None:
    commands = remedies(found("DRV001", mismatch(container=container)))
    assert commands[0][:2] == ("ldconfig -p | grep -E 'libcuda|libnvidia-ml'", first)
    assert not any("modprobe" in command or "reboot" in command for remedy in commands for command in remedy)


def old_driver(name: str, *facts: str) -> Machine:
    return override(read_recorded(name), ["driver.version=470.256.02", "system.os=Ubuntu 22.04.3 LTS", *facts])


@each_case(
    ("name", "facts", "package"),
    [
        (H100X8, (), "nvidia-driver-535-server"),
        ("gh200-480gb", (), "nvidia-driver-535-server-open"),
        ("rtx4090", (), "nvidia-driver-535"),
        ("rtx4090", ("driver.module=open",), "nvidia-driver-535-open"),
    ],
)
def test_the_smallest_sufficient_branch_is_installed(name: str, facts: tuple[str, ...], package: str) -> None:
    commands = remedies(found("DRV006", old_driver(name, *facts)))
    assert commands == [("dpkg -l 'nvidia-driver-*'", f"sudo apt-get install -y {package}", "sudo reboot")]


@each_case(
    ("fact", "commands"),
    [
        ("system.os=Rocky Linux 9.4", ("cat /proc/driver/nvidia/version",)),
        ("system.os=Debian GNU/Linux 12 (bookworm)", ("dpkg -l '*nvidia-driver*'",)),
        ("system.container=docker", ("cat /proc/driver/nvidia/version",)),
        ("system.wsl=5.15", ("nvidia-smi",)),
        (
            "gpus.0.compute_capability=3.7",
            ("nvidia-smi --query-gpu=index,pci.bus_id,uuid,name --format=csv",),
        ),
    ],
)
def test_no_package_is_installed_where_its_name_is_not_known(fact: str, commands: tuple[str, ...]) -> None:
    assert remedies(found("DRV006", old_driver("rtx4090", fact))) == [commands]


def with_ecc_errors(**gpu: Fact[str]) -> Machine:
    machine = override(read_recorded(H100X8), ["gpus.3.ecc_uncorrected=2", "gpus.3.mig=true"])
    gpus = list(machine.gpus.value or ())
    gpus[3] = msgspec.structs.replace(gpus[3], **gpu)
    return msgspec.structs.replace(machine, gpus=known(tuple(gpus), "NVML"))


@each_case(
    ("facts", "name"),
    [
        ({"pci_bus": known("00000000:4F:00.0", "NVML"), "uuid": known("GPU-1", "NVML")}, "00000000:4F:00.0"),
        ({"uuid": known("GPU-1", "NVML")}, "GPU-1"),
    ],
)
def test_a_gpu_is_named_by_its_bus_or_uuid(facts: dict[str, Fact[str]], name: str) -> None:
    machine = with_ecc_errors(**facts)
    assert remedies(found("GPU002", machine)) == [
        (f"nvidia-smi -q -d ECC,ROW_REMAPPER,PIDS -i {name}", f"sudo nvidia-smi --gpu-reset -i {name}")
    ]
    assert remedies(found("GPU004", machine)) == [
        ("nvidia-smi -L",),
        (f"sudo nvidia-smi mig -lgi -i {name}", f"sudo nvidia-smi -i {name} -mig 0"),
    ]


def test_a_gpu_of_unknown_bus_is_listed_first() -> None:
    assert remedies(found("GPU002", with_ecc_errors())) == [
        (
            "nvidia-smi --query-gpu=index,pci.bus_id,uuid,name --format=csv  # BUS_ID: that of GPU 3",
            "nvidia-smi -q -d ECC,ROW_REMAPPER,PIDS -i BUS_ID",
            "sudo nvidia-smi --gpu-reset -i BUS_ID",
        )
    ]


def test_no_rule_selects_a_gpu_by_its_index() -> None:
    folder = ROOT / "envdoctor/rules"
    assert [path.name for path in folder.glob("*.py") if re.search(r"-i \{\w+\.index", path.read_text())] == []


def test_ecc_is_enabled_on_the_gpus_without_it() -> None:
    gpus = [make_gpu(n, H100, ecc=known(n == 0, "NVML"), pci_bus=known(f"0000:0{n}:00.0", "NVML")) for n in range(3)]
    ((inspection, *commands),) = remedies(found("GPU015", make_machine(gpus)))
    assert inspection == "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv"
    assert commands == [
        f"sudo nvidia-smi -i 0000:0{n}:00.0 {option}" for option in ("-e 1", "--gpu-reset") for n in (1, 2)
    ]


def without_fabric(*facts: str) -> Machine:
    machine = override(read_recorded(H100X8), list(facts))
    gpus = list(machine.gpus.value or ())
    gpus[0] = msgspec.structs.replace(gpus[0], fabric=known(Fabric("in progress"), "NVML"))
    return msgspec.structs.replace(machine, gpus=known(tuple(gpus), "NVML"))


@each_case("identifier", ["GPU008", "DRV010"])
def test_the_fabric_manager_has_the_version_of_the_driver(identifier: str) -> None:
    status, start = "systemctl status nvidia-fabricmanager", "sudo systemctl enable --now nvidia-fabricmanager"
    fails = torch_stack(available=False)
    assert remedies(found(identifier, without_fabric("driver.version=575.57.08"), fails)) == [
        (status, start),
        (
            "sudo apt-get install -y --allow-downgrades 'nvidia-fabricmanager-575=575.57.08*'",
            "sudo systemctl restart nvidia-fabricmanager",
        ),
    ]
    container = without_fabric("driver.version=575.57.08", "system.container=docker")
    assert remedies(found(identifier, container, fails)) == [("cat /proc/driver/nvidia/version", status)]
    for fact in ("driver.version=610.43.02", "system.os=Rocky Linux 9.4"):  # the package's name is unknown
        assert remedies(found(identifier, without_fabric(fact), fails)) == [(status, start)]


@each_case(
    ("name", "driver", "packages"),
    [
        ("rtx4090", "550.78", ["nvidia-driver-570"]),
        (H100X8, "550.90.07", ["nvidia-driver-570-server"]),  # 550 is no base of a forward-compatibility package
        (H100X8, "535.129.03", ["nvidia-driver-570-server", "cuda-compat-12-8"]),
    ],
)
def test_forward_compatibility_is_only_for_data_centre_gpus(name: str, driver: str, packages: list[str]) -> None:
    machine = override(read_recorded(name), [f"driver.version={driver}"])
    finding = found("TORCH005", machine, NEEDS_PTX)
    installs = [command.split()[-1] for remedy in remedies(finding) for command in remedy if "install" in command]
    assert installs == packages
    paths = [command for remedy in remedies(finding) for command in remedy if command.startswith("export")]
    expected = "export LD_LIBRARY_PATH=/usr/local/cuda-12.8/compat${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    assert paths == [expected] * (len(packages) - 1)


def test_only_the_file_with_cudas_path_is_moved_away() -> None:
    """Debian's libc6-i386 has zz_i386-biarch-compat.conf in this directory, which `*compat*` also matches."""
    machine = override(
        read_recorded("h200"), ['environment={"LD_LIBRARY_PATH": "/usr/local/cuda/compat:/my dir:/usr/lib"}']
    )
    assert remedies(found("DRV013", machine, torch_stack(available=False))) == [
        (
            "ldconfig -p | grep libcuda.so.1",
            "grep -l 'cuda.*/compat' /etc/ld.so.conf.d/*.conf",
            "export LD_LIBRARY_PATH='/my dir:/usr/lib'",
        )
    ]


def test_modprobe_loads_every_module() -> None:
    """Without -a, modprobe takes the second name for a parameter of the first module."""
    machine = make_machine(None, nvcc="12.8.93", source="test")
    for commands in remedies(found("DRV009", machine, torch_stack(available=False))):
        assert commands[-1] == "sudo modprobe -a nvidia nvidia_uvm"


def test_the_installed_branch_cures() -> None:
    rtx4090 = override(read_recorded("rtx4090"), ["system.os=Ubuntu 22.04", "driver.version=550.78"])
    for rule, machine, stack in (("DRV006", old_driver(H100X8), None), ("TORCH005", rtx4090, NEEDS_PTX)):
        ((_, install, _),) = remedies(found(rule, machine, stack))
        branch = install.split("nvidia-driver-")[1].split("-")[0]
        after = evaluate(override(machine, [f"driver.version={branch}.124.06"]), stack)
        assert [each.id for each in after if each.id == rule or each.status == "error"] == []


def test_the_path_of_a_needed_compatibility_package_is_kept() -> None:
    machine = override(read_recorded(H100X8), ["driver.version=535.129.03", "environment={}"])
    *_, compat = found("TORCH005", machine, NEEDS_PTX).remedies
    assert compat.commands[-1].startswith("export LD_LIBRARY_PATH=/usr/local/cuda-12.8/compat")
    variables = 'environment={"LD_LIBRARY_PATH": "/usr/local/cuda-12.8/compat"}'
    assert "ENV004" not in {each.id for each in evaluate(override(machine, [variables]))}
    for other in (["driver.version=570.133.20"], ["gpus.0.name=NVIDIA GeForce RTX 4090"]):
        assert found("ENV004", override(machine, [variables, *other])).status == "warning"


def test_text_of_a_report_is_quoted() -> None:
    machine = with_ecc_errors(uuid=known("GPU-1;reboot", "report"))
    ((_, reset),) = remedies(found("GPU002", machine))
    assert reset == "sudo nvidia-smi --gpu-reset -i 'GPU-1;reboot'"
    machine = override(without_fabric(), ["driver.version=575.1'; reboot"])
    assert not any("reboot" in command for remedy in remedies(found("GPU008", machine)) for command in remedy)


OF_LINUX = re.compile(
    r"\bsudo\b|\blspci\b|\bldconfig\b|\bapt\b|\bdnf\b|\bdpkg\b|modprobe|/usr/|/proc/|\bexport\b|\bdocker\b"
)


@each_case(
    ("machine", "stack"),
    [
        ({"gpus": None}, {"torch": "2.5.1+cu121", "cuda": "12.1", "available": False}),
        ({"gpus": None, "nvcc": "12.4.131"}, {"torch": "2.5.1+cu121", "cuda": "12.1", "available": False}),
        ({"gpus": ["RTX 4070"], "driver": "552.22"}, {"torch": "2.5.1+cu121", "cuda": "12.1", "available": False}),
        ({"gpus": ["RTX 4070"], "driver": "472.12"}, {"torch": "2.5.1+cu121", "cuda": "12.1", "available": False}),
        ({"gpus": ["RTX 4070"], "driver": "552.22", "nvcc": "11.8.89"}, {"torch": "2.5.1+cu121", "cuda": "12.1"}),
        ({"gpus": ["RTX 5080"], "driver": "572.83", "nvcc": "12.4.99"}, {"torch": "2.7.1+cu128", "cuda": "12.8"}),
        ({"gpus": ["GTX 1070"], "driver": "581.80"}, {"torch": "2.8.0+cu129", "cuda": "12.9"}),
        ({"gpus": ["RTX 4070"], "driver": "552.22"}, {"torch": "2.5.1+cpu", "available": False}),
    ],
)
def test_commands_for_windows(machine: dict[str, Any], stack: dict[str, Any]) -> None:
    """Commands of Linux do not exist on Windows."""
    all_findings = evaluate(make_machine(**machine, os="Windows 11", kernel=None, glibc=None), make_stack(**stack))
    findings = [each for each in all_findings if each.status in ("error", "warning")]
    assert findings
    assert [each for finding in findings for each in commands_of(finding) if OF_LINUX.search(each)] == []


def test_wsl_1_has_no_gpu() -> None:
    """The kernel of WSL 1 is 4.4.0; its remedy is WSL 2."""
    stack = make_stack("2.5.1+cu121", cuda="12.1", available=False)
    commands = {"4.4.0-19041-Microsoft": "--set-version", "5.15.167.4-microsoft-standard-WSL2": "--update"}
    for kernel, command in commands.items():
        finding = found("DRV012", make_machine(kernel=kernel, wsl=True), stack)
        assert any(command in each for each in commands_of(finding))


def test_build_for_a_driver_of_which_only_the_cuda_version_is_known() -> None:
    """A driver for CUDA 11.4 runs the builds for CUDA 11."""
    finding = found(
        "TORCH004", make_machine(driver_cuda="11.4"), make_stack("2.4.0+cu121", cuda="12.1", available=False)
    )
    assert any("torch==2.4.0 --torch-backend=cu118" in each for each in commands_of(finding))
