"""Merges the sections of a report into the records that detection on a live machine returns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import (
    CudaToolkit,
    Distribution,
    Driver,
    Fact,
    Gpu,
    Limits,
    Machine,
    Memory,
    Stack,
    Storage,
    System,
    TorchBuild,
    absent,
    known,
    unreadable,
)
from envdoctor.knowledge.gpus import gpu_model
from envdoctor.knowledge.torch_builds import LAST_CPU_BUILD_FOR_ARM, torch_releases
from envdoctor.knowledge.versions import major_minor, minor_of, public_part
from envdoctor.reports.container_images import WITH_GPUS, WITHOUT_GPUS
from envdoctor.reports.gpus import compute_capability
from envdoctor.reports.other_tools import NO_PCI_GPU
from envdoctor.reports.section import Section, dotted_version, first_group

GRACE = lazy_pattern(r"\bG(?:H200|B10|B200|B300)\b")  # superchips: GPUs next to a Grace processor, which is Arm
MENTIONED_PACKAGES = 2  # so many packages in a sentence or a line are no list
NOT_IN_REPORT: Fact[Any] = unreadable("report", "not in the report")


class MergedFacts:
    """The facts of all sections, in order of precedence."""

    def __init__(self, sections: list[Section]) -> None:
        self.sections = sections

    def fact(self, path: str) -> Fact[Any]:
        """The first known fact, else the first absent one, else the first unreadable one."""
        candidates = [section.facts[path] for section in self.sections if path in section.facts]
        if path == "stack.torch.cuda" and candidates and "(conda build " in candidates[0].note:
            candidates = [each for each in candidates if each.note != "from a sentence"]  # of the request
        for state in ("known", "absent", "unreadable"):
            of_state = [fact for fact in candidates if fact.state == state]
            if of_state:
                if path == "stack.python_version":
                    return _most_exact(of_state)
                if path == "system.container":  # how it was started says more than a prompt
                    return next((fact for fact in of_state if fact.note in (*WITHOUT_GPUS, WITH_GPUS)), of_state[0])
                return of_state[0]
        return NOT_IN_REPORT

    def record(self, prefix: str, names: tuple[str, ...]) -> dict[str, Fact[Any]]:
        """The facts of a record by field name."""
        return {name: self.fact(f"{prefix}.{name}") for name in names}


def _most_exact(versions: list[Fact[Any]]) -> Fact[Any]:
    """The first version, or a later one with more digits: a path names 3.12, and the interpreter 3.12.3."""
    first = versions[0]
    return next((fact for fact in versions if str(fact.value).startswith(f"{first.value}.")), first)


def build_machine(sections: list[Section], origin: str) -> Machine:
    """The machine of a report. Facts that the report does not contain are unreadable."""
    facts = MergedFacts(sections)
    gpus = build_gpus(facts)
    driver = Driver(**facts.record("driver", Driver.__struct_fields__))
    system = System(**facts.record("system", System.__struct_fields__))
    if driver.version.value and system.os.value == "macOS" and system.os.note == "from a path":
        system = replace(system, os=NOT_IN_REPORT)  # of the client: no driver for CUDA 11 or newer runs on macOS
    return Machine(
        origin=origin,
        system=_with_arm_of_module(system, gpus.value or ()),
        memory=Memory(**facts.record("memory", Memory.__struct_fields__)),
        storage=Storage(**facts.record("storage", Storage.__struct_fields__)),
        limits=Limits(**facts.record("limits", Limits.__struct_fields__)),
        pythons=NOT_IN_REPORT,
        driver=driver,
        gpus=gpus,
        cuda=CudaToolkit(**facts.record("cuda", CudaToolkit.__struct_fields__)),
        environment=_merge_environment(sections),
        interfaces=NOT_IN_REPORT,
        slurm=facts.fact("slurm"),
    )


def _with_arm_of_module(system: System, gpus: Sequence[Gpu]) -> System:
    """The system with the architecture of the Arm processor that is on one module with the GPU: Grace, Jetson."""
    if system.architecture.value or not gpus or not all(map(_is_next_to_arm, gpus)):
        return system
    note = f"the processor of {gpus[0].name.value} is an Arm"
    return replace(system, architecture=known("aarch64", gpus[0].name.source, note))


def _is_next_to_arm(gpu: Gpu) -> bool:
    name = gpu.name.value or ""
    model = gpu_model(name)
    return bool(GRACE.search(name)) or (model is not None and model.kind == "jetson")


def build_stack(sections: list[Section], uses: tuple[str, ...], machine: Machine) -> Stack:
    """The Python environment of a report on this machine."""
    facts = MergedFacts(sections)
    distributions: dict[str, Distribution] = {}
    printed = _torch_of_interpreter(sections)
    for section in sections:
        if not _is_another_environment(section, distributions) and not _is_of_other_python(section, printed):
            distributions = section.distributions | distributions
    torch = build_torch(facts, distributions.get("torch"))
    torch = _with_build_of_pypi(torch, facts, sections, machine)
    if torch.value and torch.value.version.value and "torch" not in distributions:
        distributions["torch"] = Distribution(name="torch", version=torch.value.version.value)
    if (machine.system.os.value or "").lower().startswith("windows") and machine.system.wsl.state != "known":
        distributions.pop("triton", None)  # a build of its own for Windows, which torch does not require there
    return Stack(
        origin=machine.origin,
        kind=facts.fact("stack.kind"),
        python=facts.fact("stack.python"),
        python_version=facts.fact("stack.python_version"),
        headers=NOT_IN_REPORT,
        libstdcxx=NOT_IN_REPORT,
        distributions=known(dict(sorted(distributions.items())), "report") if distributions else NOT_IN_REPORT,
        shadowed=NOT_IN_REPORT,
        torch=torch,
        extensions=NOT_IN_REPORT,
        cuda_available=facts.fact("stack.cuda_available"),
        uses=known(uses, "report") if uses else NOT_IN_REPORT,
        requested=facts.fact("stack.requested"),
        dtype=facts.fact("stack.dtype"),
    )


def _is_another_environment(section: Section, distributions: dict[str, Distribution]) -> bool:
    """Whether a list of packages has another release of torch than the lists before it."""
    here, there = section.distributions.get("torch"), distributions.get("torch")
    is_list = len(section.distributions) > MENTIONED_PACKAGES
    return bool(is_list and here and there and public_part(here.version) != public_part(there.version))


def _torch_of_interpreter(sections: list[Section]) -> str:
    """The version of torch that an interpreter printed; empty without one, or if its list of packages has it too."""
    facts = (section.facts.get("stack.torch.version") for section in sections if section.kind == "python")
    printed = next((str(fact.value) for fact in facts if fact and fact.state == "known"), "")
    listed = (section.distributions["torch"].version for section in sections if "torch" in section.distributions)
    return "" if any(public_part(version) == public_part(printed) for version in listed) else printed


def _is_of_other_python(section: Section, printed: str) -> bool:
    """Whether a list of packages has another release of torch than the interpreter printed."""
    listed = section.distributions.get("torch")
    is_list = section.kind.startswith(("pip list", "pip freeze", "conda list", "package versions"))
    return bool(printed and listed and is_list and public_part(listed.version) != public_part(printed))


def _merge_environment(sections: list[Section]) -> Fact[dict[str, str]]:
    merged: dict[str, str] = {}
    for section in sections:
        for name, value in section.environment.items():
            merged.setdefault(name, value)
    return known(dict(sorted(merged.items())), "report: environment variables") if merged else NOT_IN_REPORT


def build_torch(facts: MergedFacts, listed: Distribution | None) -> Fact[TorchBuild]:
    """The build that torch itself reports, else the one from a package list.

    The local version names the CUDA version: `2.4.0+cu121` is CUDA 12.1, `2.5.1+cpu` a build without CUDA,
    `2.5.1+rocm6.2` HIP 6.2.
    """
    import_failure = facts.fact("stack.torch")
    version = facts.fact("stack.torch.version")
    if version.state != "known" and import_failure.state == "absent":
        in_list = f"; {listed.version} is in the package list" if listed else ""
        return absent(import_failure.source, import_failure.note + in_list)
    if version.state != "known" and listed:
        version = known(listed.version, "report: package list")
    elif version.note == "from a sentence":  # a list has the installed one; a sentence can name an earlier one
        installed = _torch_of_list(facts.sections)
        is_other = installed and public_part(installed) != public_part(version.value or "")
        version = known(installed, "report: package list") if is_other else version
    build = {name: facts.fact(f"stack.torch.{name}") for name in ("cuda", "hip", "architectures")}
    if version.state != "known" and all(fact.state == "unreadable" for fact in build.values()):
        return NOT_IN_REPORT
    local = (version.value or "").partition("+")[2]
    for name, fact in _parse_local_version(local, version.source).items():
        outranked = local == "cpu" or build[name].note == "from a sentence"
        if build[name].state == "unreadable" or (name == "cuda" and outranked):
            build[name] = fact
    return known(
        TorchBuild(version=version, cxx11_abi=NOT_IN_REPORT, **build),
        version.source if version.state == "known" else "report",
    )


def _torch_of_list(sections: list[Section]) -> str:
    """The version of torch in a list of pip, uv or conda."""
    kinds = ("pip list", "pip freeze", "uv pip", "conda list")
    lists = (section for section in sections if section.kind.startswith(kinds))
    return next((section.distributions["torch"].version for section in lists if "torch" in section.distributions), "")


def _with_build_of_pypi(
    torch: Fact[TorchBuild], facts: MergedFacts, sections: list[Section], machine: Machine
) -> Fact[TorchBuild]:
    """A torch without local version in a list of pip is PyPI's, whose CUDA version is known by release and platform.

    Those of conda, of NVIDIA and of PyTorch's index are known by other facts or by a local version.
    """
    build = torch.value
    version = (build.version.value or "") if build else ""
    lists = [section for section in sections if "torch" in section.distributions and _is_of_pip(section)]
    unknown = build is not None and build.cuda.state == build.hip.state == "unreadable"
    if not build or not lists or not unknown or not re.fullmatch(r"[\d.]+", version):
        return torch
    if facts.fact("stack.kind").value == "conda":
        return torch
    cuda = _cuda_of_pypi(version, facts, lists, machine)
    return replace(torch, value=replace(build, cuda=cuda)) if cuda else torch


def _is_of_pip(section: Section) -> bool:
    return "pip" in section.kind or section.distributions["torch"].source.endswith(".whl")


def _cuda_of_pypi(version: str, facts: MergedFacts, lists: list[Section], machine: Machine) -> Fact[str] | None:
    """The CUDA version of PyPI's wheel: none for Windows, and for Arm up to torch 2.10."""
    source = lists[0].source
    system = (machine.system.os.value or "").lower()
    wsl = machine.system.wsl.value is not None
    arm = machine.system.architecture.value in ("aarch64", "arm64")
    works = facts.fact("stack.cuda_available").value is True
    if system.startswith(("mac", "darwin")):
        return None
    if system.startswith("windows") and not wsl:
        return None if works else absent(source, f"the wheel of torch {version} on PyPI for Windows has no CUDA")
    if arm:
        is_cpu = major_minor(version) <= LAST_CPU_BUILD_FOR_ARM and not works
        return absent(source, f"the wheel of torch {version} on PyPI for aarch64 has no CUDA") if is_cpu else None
    runtimes = [minor_of(each.distributions[name].version) for each in lists for name in each.distributions
                if name.startswith("nvidia-cuda-runtime")]  # fmt: skip
    release = torch_releases().get(minor_of(version))
    of_release = release.pypi if release else ""
    # Other packages can require the runtime of another CUDA version as well.
    cuda = runtimes[0] if len(runtimes) == 1 else of_release or next(iter(runtimes), "")
    return known(cuda, source, f"the wheel of torch {version} on PyPI") if cuda else None


def _parse_local_version(local: str, source: str) -> dict[str, Fact[str]]:
    note = f"local version {local}"
    if digits := first_group(r"^cu(\d{2,3})", local):
        return {"cuda": known(dotted_version(digits), source, note), "hip": absent(source, note)}
    if local.startswith("cpu"):
        return {"cuda": absent(source, "a build without CUDA (+cpu)"), "hip": absent(source, note)}
    if hip := first_group(r"^rocm(\d{1,2}\.\d{1,2})", local):
        return {"cuda": absent(source, note), "hip": known(hip, source, note)}
    return {}


def build_gpus(facts: MergedFacts) -> Fact[tuple[Gpu, ...]]:
    """The first list of GPUs, completed with the details that other sections give for the same GPUs.

    "No CUDA" in collect_env is the view of the examined environment. A GPU list elsewhere in the text describes
    another place, such as the host of the container, and does not override it. An NVML error is kept as the note
    even if GPUs are known.
    """
    list_facts = [section.facts["gpus"] for section in facts.sections if "gpus" in section.facts]
    error = next((fact for fact in list_facts if "NVML error" in fact.note), None)
    lost = next((section.facts["lost"] for section in facts.sections if "lost" in section.facts), None)
    gpu_lists = [section for section in facts.sections if section.gpus]
    no_cuda = next((fact for fact in list_facts if fact.state == "absent" and "No CUDA" in fact.note), None)
    if no_cuda and not error:
        elsewhere = f"; elsewhere in the paste: {_summarize_gpus(gpu_lists[0])}" if gpu_lists else ""
        return absent(no_cuda.source, no_cuda.note + elsewhere)
    if not gpu_lists:
        if no_device := next((fact for fact in list_facts if fact.note == NO_PCI_GPU), None):
            return no_device
        if lost:
            return known((_lost_gpu(0, lost),), lost.source, lost.note)
        return error or next(iter(sorted(list_facts, key=lambda fact: fact.state)), NOT_IN_REPORT)
    merged = _merge_gpu_lists(gpu_lists)
    gpus = tuple(_build_gpu(index, gpu_facts, lost) for index, gpu_facts in sorted(merged.items()))
    return known(gpus, gpu_lists[0].source, (error or lost or NOT_IN_REPORT).note if error or lost else "")


def _summarize_gpus(section: Section) -> str:
    names = [str(gpu["name"].value) for gpu in section.gpus.values() if "name" in gpu]
    return f"{len(section.gpus)} GPUs ({', '.join(sorted(set(names))) or 'unnamed'})"


def _merge_gpu_lists(gpu_lists: list[Section]) -> dict[int, dict[str, Fact[Any]]]:
    """GPU facts by index.

    A later list adds facts only to a GPU of the same name. A full name replaces one that nvidia-smi truncated.
    """
    first = max(
        gpu_lists[:1]
        + [section for section in gpu_lists if section.kind.startswith(("collect_env", "nvidia-smi"))][:1],
        key=lambda section: len(section.gpus),
    )
    merged = {index: dict(gpu) for index, gpu in first.gpus.items()}
    for section in gpu_lists:
        for index, gpu in section.gpus.items():
            if section is first or index not in merged or not _same_name(merged[index].get("name"), gpu.get("name")):
                continue
            if (name := merged[index].get("name")) and str(name.value).endswith("...") and "name" in gpu:
                merged[index]["name"] = gpu["name"]
            for field, fact in gpu.items():
                current = merged[index].get(field)
                if current is None or (field == "mig" and not current.note and fact.note):
                    merged[index][field] = fact
    return merged


def _same_name(one: Fact[Any] | None, other: Fact[Any] | None) -> bool:
    if one is None or other is None:
        return True
    first, second = (str(fact.value).removesuffix("...").strip().lower() for fact in (one, other))
    return first.startswith(second) or second.startswith(first) or first.endswith(second) or second.endswith(first)


GPU_FIELDS = tuple(name for name in Gpu.__struct_fields__ if name != "index")


def _build_gpu(index: int, gpu_facts: dict[str, Fact[Any]], lost: Fact[Any] | None) -> Gpu:
    """One GPU. Its name gives the compute capability if the report does not contain it."""
    bus = gpu_facts["pci_bus"].value if "pci_bus" in gpu_facts else ""
    if lost and bus and ":" + str(bus).lower().split(":", 1)[1].partition(".")[0] in lost.note.lower():
        return _lost_gpu(index, lost)
    facts = {name: gpu_facts.get(name, NOT_IN_REPORT) for name in GPU_FIELDS}
    name = facts["name"]
    if facts["compute_capability"].state != "known" and name.value and (capability := compute_capability(name.value)):
        facts["compute_capability"] = known(capability, name.source, "from the GPU's name")
    return Gpu(index=index, **facts)


def _lost_gpu(index: int, lost: Fact[Any]) -> Gpu:
    return Gpu(index=index, **dict.fromkeys(GPU_FIELDS, unreadable(lost.source, lost.note)))
