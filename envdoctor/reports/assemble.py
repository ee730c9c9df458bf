"""What the parsers read, put together as the records that a live machine gives."""

from __future__ import annotations

from typing import Any

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
from envdoctor.reports.gpus import compute_capability
from envdoctor.reports.section import Said, find

MISSING: Fact[Any] = unreadable("report", "not in the report")


class Gathered:
    """The facts of all parsers, best source first."""

    def __init__(self, said: list[Said]) -> None:
        self.said = said

    def fact(self, path: str) -> Fact[Any]:
        """The first known fact; without one the first that is absent, then one that could not be read."""
        told = [each.facts[path] for each in self.said if path in each.facts]
        for state in ("known", "absent", "unreadable"):
            if first := next((fact for fact in told if fact.state == state), None):
                return first
        return MISSING

    def record(self, prefix: str, names: tuple[str, ...]) -> dict[str, Fact[Any]]:
        """The facts of a record by its field names."""
        return {name: self.fact(f"{prefix}.{name}") for name in names}


def build_machine(said: list[Said], origin: str) -> Machine:
    """The machine of a report; what it does not say is unreadable."""
    facts = Gathered(said)
    return Machine(
        origin=origin,
        system=System(**facts.record("system", System.__struct_fields__)),
        memory=Memory(**facts.record("memory", Memory.__struct_fields__)),
        storage=Storage(**facts.record("storage", Storage.__struct_fields__)),
        limits=Limits(**facts.record("limits", Limits.__struct_fields__)),
        pythons=MISSING,
        driver=Driver(**facts.record("driver", Driver.__struct_fields__)),
        gpus=build_gpus(facts),
        cuda=CudaToolkit(**facts.record("cuda", CudaToolkit.__struct_fields__)),
        environment=_environment(said),
        interfaces=MISSING,
        slurm=facts.fact("slurm"),
    )


def build_stack(said: list[Said], uses: tuple[str, ...], origin: str) -> Stack:
    """The stack of a report."""
    facts = Gathered(said)
    distributions: dict[str, Distribution] = {}
    for each in said:
        for name, distribution in each.distributions.items():
            distributions.setdefault(name, distribution)
    torch = build_torch(facts, distributions.get("torch"))
    if torch.value and torch.value.version.value and "torch" not in distributions:
        distributions["torch"] = Distribution(name="torch", version=torch.value.version.value)
    return Stack(
        origin=origin,
        kind=facts.fact("stack.kind"),
        python=facts.fact("stack.python"),
        python_version=facts.fact("stack.python_version"),
        headers=MISSING,
        libstdcxx=MISSING,
        distributions=known(dict(sorted(distributions.items())), "report") if distributions else MISSING,
        shadowed=MISSING,
        torch=torch,
        extensions=MISSING,
        cuda_available=facts.fact("stack.cuda_available"),
        uses=known(uses, "report") if uses else MISSING,
    )


def _environment(said: list[Said]) -> Fact[dict[str, str]]:
    merged: dict[str, str] = {}
    for each in said:
        for name, value in each.environment.items():
            merged.setdefault(name, value)
    return known(dict(sorted(merged.items())), "report: environment variables") if merged else MISSING


def build_torch(facts: Gathered, listed: Distribution | None) -> Fact[TorchBuild]:
    """The build that torch itself tells, else the one of a package list; its local version names the CUDA.

    `2.4.0+cu121` is CUDA 12.1, `2.5.1+cpu` none, `2.5.1+rocm6.2` HIP 6.2.
    """
    gone = facts.fact("stack.torch")
    version = facts.fact("stack.torch.version")
    if version.state != "known" and gone.state == "absent":
        return absent(gone.source, gone.note + (f"; {listed.version} is in the package list" if listed else ""))
    if version.state != "known" and listed:
        version = known(listed.version, "report: package list")
    build = {name: facts.fact(f"stack.torch.{name}") for name in ("cuda", "hip", "architectures")}
    if version.state != "known" and not any(fact.state == "known" for fact in build.values()):
        return MISSING
    local = (version.value or "").partition("+")[2]
    for name, fact in _local_build(local, version.source).items():
        if build[name].state == "unreadable" or (name == "cuda" and local == "cpu"):
            build[name] = fact
    return known(
        TorchBuild(version=version, cxx11_abi=MISSING, **build),
        version.source if version.state == "known" else "report",
    )


def _local_build(local: str, source: str) -> dict[str, Fact[str]]:
    note = f"local version {local}"
    if digits := find(r"^cu(\d{2,3})", local):
        return {"cuda": known(f"{digits[:-1]}.{digits[-1]}", source, note), "hip": absent(source, note)}
    if local.startswith("cpu"):
        return {"cuda": absent(source, "a build without CUDA (+cpu)"), "hip": absent(source, note)}
    if hip := find(r"^rocm(\d{1,2}\.\d{1,2})", local):
        return {"cuda": absent(source, note), "hip": known(hip, source, note)}
    return {}


def build_gpus(facts: Gathered) -> Fact[tuple[Gpu, ...]]:
    """The first list of GPUs, with what later parsers add to the same ones.

    "No CUDA" of collect_env is the stack's own view; a list from elsewhere in the paste is of another place (the host
    of the container), so it does not win. An NVML error stays as the note even where GPUs are known.
    """
    standing = [each.facts["gpus"] for each in facts.said if "gpus" in each.facts]
    error = next((fact for fact in standing if "NVML error" in fact.note), None)
    lost = next((each.facts["lost"] for each in facts.said if "lost" in each.facts), None)
    lists = [each for each in facts.said if each.gpus]
    denied = next((fact for fact in standing if fact.state == "absent" and "No CUDA" in fact.note), None)
    if denied and not error:
        elsewhere = f"; elsewhere in the paste: {_names(lists[0])}" if lists else ""
        return absent(denied.source, denied.note + elsewhere)
    if not lists:
        if lost:
            return known((_lost_gpu(0, lost),), lost.source, lost.note)
        return error or next(iter(sorted(standing, key=lambda fact: fact.state)), MISSING)
    merged = _merge(lists)
    gpus = tuple(_gpu(index, each, lost) for index, each in sorted(merged.items()))
    return known(gpus, lists[0].source, (error or lost or MISSING).note if error or lost else "")


def _names(said: Said) -> str:
    names = [str(gpu["name"].value) for gpu in said.gpus.values() if "name" in gpu]
    return f"{len(said.gpus)} GPUs ({', '.join(sorted(set(names))) or 'unnamed'})"


def _merge(lists: list[Said]) -> dict[int, dict[str, Fact[Any]]]:
    """By index; a later list counts for a GPU of the same name, and a cut name gives way to a whole one."""
    first = max(
        lists[:1] + [each for each in lists if each.kind.startswith(("collect_env", "nvidia-smi"))][:1],
        key=lambda s: len(s.gpus),
    )
    merged = {index: dict(gpu) for index, gpu in first.gpus.items()}
    for each in lists:
        for index, gpu in each.gpus.items():
            if each is first or index not in merged or not _same_name(merged[index].get("name"), gpu.get("name")):
                continue
            if (name := merged[index].get("name")) and str(name.value).endswith("...") and "name" in gpu:
                merged[index]["name"] = gpu["name"]
            for field, fact in gpu.items():
                standing = merged[index].get(field)
                if standing is None or (field == "mig" and not standing.note and fact.note):
                    merged[index][field] = fact
    return merged


def _same_name(one: Fact[Any] | None, other: Fact[Any] | None) -> bool:
    if one is None or other is None:
        return True
    first, second = (str(fact.value).removesuffix("...").strip().lower() for fact in (one, other))
    return first.startswith(second) or second.startswith(first) or first.endswith(second) or second.endswith(first)


GPU_FIELDS = tuple(name for name in Gpu.__struct_fields__ if name != "index")


def _gpu(index: int, told: dict[str, Fact[Any]], lost: Fact[Any] | None) -> Gpu:
    """One GPU, its compute capability from its name where the report does not tell it."""
    bus = told["pci_bus"].value if "pci_bus" in told else ""
    if lost and bus and ":" + str(bus).lower().split(":", 1)[1].partition(".")[0] in lost.note.lower():
        return _lost_gpu(index, lost)
    facts = {name: told.get(name, MISSING) for name in GPU_FIELDS}
    name = facts["name"]
    if facts["compute_capability"].state != "known" and name.value and (capability := compute_capability(name.value)):
        facts["compute_capability"] = known(capability, name.source, "from the GPU's name")
    return Gpu(index=index, **facts)


def _lost_gpu(index: int, lost: Fact[Any]) -> Gpu:
    return Gpu(index=index, **dict.fromkeys(GPU_FIELDS, unreadable(lost.source, lost.note)))
