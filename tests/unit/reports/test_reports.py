"""Pasted collect_env reports of PyTorch and vLLM as machine and stack records; signs of containers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from support import report_samples
from support.cases import each_case
from support.paths import DATA
from support.recorded_results import assert_as_recorded
from support.report_samples import PYTORCH, VLLM, every_fact, gpus, versions

from envdoctor.core.records import NvLink
from envdoctor.reports import Report, parse_report

SAMPLES = ["PYTORCH", "VLLM", "TABLE", "ACCELERATE", "TRANSFORMERS", "TRL"]


def test_collect_env_of_pytorch() -> None:
    report = parse_report(PYTORCH)
    machine, stack = report.machine, report.stack
    assert report.kinds == ("collect_env (PyTorch)",)
    assert report.errors == ""
    assert stack.torch.value
    assert (stack.torch.value.version.value, stack.torch.value.cuda.value) == ("2.4.0+cu121", "12.1")
    assert stack.torch.value.hip.state == "absent"
    assert (stack.python_version.value, stack.kind.value, stack.cuda_available.value) == ("3.10.14", "conda", True)
    assert machine.system.os.value == "Ubuntu 20.04.6 LTS"
    assert machine.system.architecture.value == "x86_64"
    assert machine.system.glibc.value == "2.31"  # from the Libc line, not the glibc that Python was built with
    assert machine.system.kernel.value == "5.19.0-1010-nvidia"
    assert machine.system.wsl.state == "absent"
    assert machine.system.container.value == "container"
    assert machine.system.cpu_count.value == 80
    assert machine.system.cpu_model.value == "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz"
    assert machine.driver.version.value == "550.54.14"
    assert machine.cuda.nvcc_version.value == "12.4.131"
    assert machine.cuda.compiler.value == "gcc (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0"
    assert [(gpu.name.value, gpu.compute_capability.value, gpu.mig.value, gpu.mig.note) for gpu in gpus(report)] == [
        ("NVIDIA A100 80GB PCIe", "8.0", True, "instances: 3g.40gb, 1g.10gb"),
        ("NVIDIA GeForce RTX 3090", "8.6", None, "not in the report"),
    ]
    assert versions(report) == {"numpy": "1.26.4", "flash-attn": "2.6.3", "torch": "2.3.0", "mkl": "2023.1.0"}
    assert stack.distributions.source == "report"


def test_collect_env_of_vllm() -> None:
    report = parse_report(VLLM)
    machine, stack = report.machine, report.stack
    assert report.kinds == ("collect_env (vLLM)", "nvidia-smi topo", "environment variables")
    assert report.errors == "INFO 06-12 17:10:51 [__init__.py:244] Automatically detected platform cuda."
    assert stack.uses.value == ("vllm",)
    assert versions(report) == {"torch": "2.7.0+cu128", "vllm": "0.9.2rc2.dev39+gc18b3b8e8"}
    assert machine.cuda.nvcc_version.state == "absent"
    assert machine.cuda.compiler.state == "absent"
    assert gpus(report)[0].nvlink.value == NvLink(12, 12)
    assert machine.system.container.state == "known"
    assert machine.environment.value == {
        "CUDA_VISIBLE_DEVICES": "1",
        "HF_TOKEN": "(set)",
        "HTTPS_PROXY": "http://***@proxy:3128",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/cuda/lib64",
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.8 brand=unknown,driver>=535,driver<536",
        "NVIDIA_VISIBLE_DEVICES": "all",
    }
    assert b"planted" not in msgspec.json.encode(report)


@each_case("text", [PYTORCH, VLLM, "", "nothing to see here", PYTORCH + VLLM])
def test_report_round_trips_and_all_sources_start_with_report(text: str) -> None:
    report = parse_report(text)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    facts = every_fact(report)
    assert len(facts) >= 40
    assert all(fact.source.startswith("report") for fact in facts)


def test_prose_without_a_report_gives_unreadable_facts_and_no_kind() -> None:
    report = parse_report(
        "Hello, my training does not start. I ran pip install torch==2.4.0 and vllm 0.6.3 failed.\n"
    )
    assert report.kinds == ()
    assert report.machine.gpus.note == "not in the report"
    assert report.stack.requested.value == {"torch": "2.4.0", "vllm": ""}
    known = {fact.value for fact in every_fact(report) if isinstance(fact.value, (str, tuple))}
    assert known == {("torch", "vllm"), "2.4.0"}  # libraries in use, and the version of torch
    assert report.errors.startswith("Hello")


@each_case(
    ("gpu_line", "driver_line", "other_lines", "state", "note"),
    [
        ("No CUDA", "No CUDA", "Is CUDA available: False", "absent", "No CUDA"),
        ("Could not collect", "Could not collect", "Is CUDA available: False", "absent", "Could not collect"),
        ("Could not collect", "550.54.14", "Is CUDA available: True", "unreadable", "no list"),
        (
            "Could not collect",
            "Could not collect",
            "Python platform: Linux-5.10.120-tegra-aarch64-with-glibc2.29",
            "unreadable",
            "Jetson",
        ),
        (
            "AMD Instinct MI300X (gfx942:sramecc+:xnack-)",
            "Could not collect",
            "Is CUDA available: True",
            "absent",
            "MI300X",
        ),
    ],
)
def test_absent_and_unreadable_gpus_differ(
    gpu_line: str, driver_line: str, other_lines: str, state: str, note: str
) -> None:
    report = parse_report(
        f"{other_lines}\nGPU models and configuration: {gpu_line}\nNvidia driver version: {driver_line}\n"
    )
    assert report.machine.gpus.state == state
    assert note in report.machine.gpus.note
    # The rule for unreadable GPUs of live machines recognises a report by the bare source.
    assert state != "unreadable" or report.machine.gpus.source == "report"


def test_torch_that_cannot_be_imported_is_absent() -> None:
    report = parse_report(
        "PyTorch version: N/A\nCUDA used to build PyTorch: N/A\nIs CUDA available: N/A\n[pip3] torch==2.1.0\n"
    )
    assert report.stack.torch.state == "absent"
    assert "2.1.0 is in the package list" in report.stack.torch.note
    assert report.stack.cuda_available.state == "unreadable"


@each_case(
    ("lines", "cuda", "hip"),
    [
        ("PyTorch version: 2.2.2\nCUDA used to build PyTorch: Could not collect", ("absent", None), None),
        ("PyTorch version: 2.5.1+cpu\nCUDA used to build PyTorch: None", ("absent", None), None),
        (
            (
                "PyTorch version: 2.4.0+rocm6.1\nCUDA used to build PyTorch: N/A\n"
                "ROCM used to build PyTorch: 6.1.40091-a8d"
            ),
            ("absent", None),
            "6.1.40091-a8d",
        ),
        ("PyTorch version: 2.6.0+cu124", ("known", "12.4"), None),
        ("PyTorch version: 2.6.0", ("unreadable", None), None),
        ("PyTorch version: 2.1.0a0+32f93b1\nCUDA used to build PyTorch: 12.2", ("known", "12.2"), None),
    ],
)
def test_cuda_version_of_the_torch_build(lines: str, cuda: tuple[str, str | None], hip: str | None) -> None:
    torch = parse_report(lines).stack.torch.value
    assert torch
    assert (torch.cuda.state, torch.cuda.value) == cuda
    assert torch.hip.value == hip


def test_windows_and_wsl() -> None:
    windows = parse_report(
        "PyTorch version: 2.2.2\nOS: Microsoft Windows 11 Education\nGCC version: Could not collect\n"
        "Clang version: Could not collect\nLibc version: N/A\n"
        "Python version: 3.10.13 | packaged by Anaconda, Inc. | (main) [MSC v.1916 64 bit (AMD64)] (64-bit runtime)\n"
        "Python platform: Windows-10-10.0.22631-SP0\n"
        "CPU:\nArchitecture=9\nName=13th Gen Intel(R) Core(TM) i9-13980HX\n"
    )
    system = windows.machine.system
    assert (system.os.value, system.architecture.value) == ("Microsoft Windows 11 Education", "x86_64")
    assert (system.glibc.state, system.wsl.state) == ("absent", "absent")
    assert system.cpu_model.value == "13th Gen Intel(R) Core(TM) i9-13980HX"
    assert windows.machine.cuda.compiler.state == "unreadable"  # collect_env does not detect MSVC
    wsl = parse_report("Python platform: Linux-5.15.167.4-microsoft-standard-WSL2-x86_64-with-glibc2.39\n")
    assert wsl.machine.system.wsl.value == "5.15.167.4-microsoft-standard-WSL2"


@each_case(
    ("text", "container"),
    [
        ("root@3f2a9c0d1e4b:/workspace# nvidia-smi", "docker"),
        ("root@vllm-6c9f7d5b8-x2k4j:/# python collect_env.py", "kubernetes"),
        ("$ kubectl exec -it pod -- python3 collect_env.py", "kubernetes"),
        ("vllm-1  | INFO 11-18 18:07:28 engine.py:366] ready", "docker"),
        ("root@container:/app# pip list", "container"),
        ('  File "/vllm-workspace/collect_env.py", line 1', "container"),
        ("(vllm) [root@host ~]# python collect_env.py", None),
        ("user@machine:~/docker$ python collect_env.py", None),
        ("root@jetson:/workspace# python3 collect_env.py", None),
        ("user@docker-host-03:~$ python collect_env.py", None),
        ("| N/A   35C    P0             64W /  300W |     176MiB /  81920MiB |     N/A   Default |", None),
    ],
)
def test_signs_of_a_container(text: str, container: str | None) -> None:
    assert parse_report(text).machine.system.container.value == container


def recorded_facts(report: Report) -> dict[str, Any]:
    """The facts that were read, and the error lines."""
    plain = msgspec.to_builtins([report.machine, report.stack])

    def values(part: Any) -> Any:
        if not isinstance(part, dict):
            return [values(each) for each in part] if isinstance(part, list) else part
        if "source" in part and ("value" in part or "state" in part):
            return values(part["value"]) if "value" in part else f"{part['state']}: {part.get('note', '')}"
        pairs = ((name, values(value)) for name, value in part.items())
        return {name: value for name, value in pairs if value != "unreadable: not in the report"}

    return {"kinds": report.kinds, "machine": values(plain[0]), "stack": values(plain[1]), "errors": report.errors}


def test_facts_are_as_recorded() -> None:
    texts = {name: getattr(report_samples, name) for name in SAMPLES}
    assert_as_recorded("reports", {name: recorded_facts(parse_report(text)) for name, text in texts.items()})


def test_facts_in_real_error_texts_are_as_recorded() -> None:
    for path in sorted((DATA / "field_errors").glob("*.json")):
        reports = {str(case["id"]): parse_report(case["text"]) for case in json.loads(path.read_text())}
        found = {name: recorded_facts(report) for name, report in reports.items() if report.kinds}
        assert_as_recorded(f"reports-{path.stem}", found)
