"""Rules on packages that are compiled for a specific torch: torchvision, torchao, flash-attn, bitsandbytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.releases import TorchPairing, bitsandbytes_libraries, torch_pairings
from envdoctor.knowledge.versions import (
    cuda_of_local,
    is_local_build,
    is_prerelease,
    local_part,
    public_part,
    satisfies,
    version_key,
)
from envdoctor.rules.bitsandbytes import bitsandbytes_release, loads_cuda
from envdoctor.rules.facts import is_without_cuda, on_windows, torch_cuda
from envdoctor.rules.known_breaks import has_known_break
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.requirements import specifiers_for, version_evidence, versions_of
from envdoctor.rules.torch_install import (
    companion_release,
    install_torch,
    reinstall,
    show_files,
)

_SEARCHES_CUDART = "<0.40.2"  # bitsandbytes/cuda_setup/main.py of the wheels of 0.35.4 to 0.41.0
_AUDIO_WITHOUT_CUDA = "<0.10"  # pytorch.org installs it next to a CPU build of torch: previous versions, 2026-11-28
NO_BITSANDBYTES = "No release of bitsandbytes in the tables has one: build it from source."


@rule("PKG010", kind="environment", severity=("error", "warning"), cause="torch-companion-mismatch")
def torchao_kernels_are_for_another_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """torchao's compiled kernels were built for another torch release, although its metadata does not require one.

    Installers therefore accept the combination. torchao 0.13 and newer logs `Skipping import of cpp extensions due
    to incompatible torch version` and uses its slower Python code. Older releases with torch 2.9 or newer abort the
    process at import, unless their library does not load because it needs libcudart.so.12. torchao 0.13 and newer
    uses names that older torch releases lack, so that its import fails.

    Fix: install the torchao release for the installed torch.

    References:
    https://github.com/pytorch/ao/issues/2919
    https://github.com/pytorch/ao/pull/2908
    """
    versions = versions_of(stack)
    torch, torchao = versions.get("torch", ""), versions.get("torchao", "")
    if not torch or not torchao or is_prerelease(torch) or is_local_build(torch) or is_local_build(torchao):
        return
    rows = torch_pairings("torchao")
    row = next((row for row in rows if satisfies(public_part(torchao), row.versions)), None)
    if not row or _works_with(row, torch):
        return
    cannot_import = bool(row.imports) and satisfies(public_part(torch), row.imports) is False
    if any(satisfies(torchao, specifier) is False for specifier in specifiers_for(stack, "torchao").values()):
        return  # PKG002 names the release that another package requires
    if has_known_break(versions_of(stack), "peft", "torchao"):
        return  # the release for this torch is another one that peft rejects
    compatible = next((other for other in reversed(rows) if _works_with(other, torch)), None)
    wanted = compatible.versions if compatible else ""
    yield Problem(
        "error" if cannot_import or (satisfies(torchao, "<0.13") is True and _has_cuda_12(stack)) else "warning",
        f"torchao {torchao} needs torch{row.imports} to be imported, but torch {torch} is installed"
        if cannot_import
        else f"torchao {torchao} has kernels for torch{row.torch}, but torch {torch} is installed",
        version_evidence(stack, "torch", "torchao"),
        f"Install torchao{wanted} for torch {torch}."
        if compatible
        else f"Install the torchao for torch {torch} (github.com/pytorch/ao/issues/2919), or remove torchao.",
        steps(shell_command("uv pip install 'torchao{}'", wanted) if compatible else "uv pip uninstall torchao"),
    )


def _has_cuda_12(stack: Stack) -> bool:
    """Whether torch is for CUDA 12, as torchao's wheels (read from 0.10.0, 2026-11-26), or its CUDA is unknown."""
    return torch_cuda(stack)[:2] in ("", "12") and not is_without_cuda(stack)


def _works_with(row: TorchPairing, torch: str) -> bool:
    version = public_part(torch)
    return all(satisfies(version, specifier) is not False for specifier in (row.torch, row.imports))


@rule(
    "PKG011",
    kind="environment",
    severity=("error", "warning"),
    cause="torch-companion-mismatch",
    url="https://github.com/pytorch/vision#installation",
)
def torch_companion_is_for_another_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """torchvision or torchaudio was built for another CUDA version than torch, or for ROCm, by their local versions.

    torchvision compares the CUDA major versions at import and raises `Detected that PyTorch and torchvision were
    compiled with different CUDA major versions`. A `+cpu` build has no GPU operators: `Could not run
    'torchvision::nms' with arguments from the 'CUDA' backend`. PyPI's wheels for Linux on x86_64 have no local
    version and are for CUDA: with a `+cpu` torch the import fails (`operator torchvision::nms does not exist`, `Could
    not load this library: _torchaudio.abi3.so`). If the system is unknown, this is a warning. PyPI's torchvision for
    Windows has no CUDA.

    torchaudio 2.11 and newer require no torch, and compare the minor versions as well: the build on PyPI is for one.

    Fix: reinstall both from the same index.

    References:
    https://github.com/pytorch/vision/blob/main/torchvision/extension.py
    measured with torch 2.13.0+cpu, torchvision 0.28.0 and torchaudio 2.11.0 on 2026-11-24
    """
    versions = versions_of(stack)
    local = _platform_of_local(versions.get("torch", ""))
    torch_build = torch_cuda(stack) or local or ("cpu" if is_without_cuda(stack) else "")
    yield from _torchaudio_of_pypi(machine, stack, local)
    for name in ("torchvision", "torchaudio"):
        version = versions.get(name, "")
        has_no_cuda = name == "torchaudio" and satisfies(version, _AUDIO_WITHOUT_CUDA) is True
        is_plain = re.fullmatch(r"[\d.]+", version) is not None
        from_pypi = local == "cpu" and is_plain and not has_no_cuda and _may_be_linux_x86(machine)
        cpu_on_windows = (
            name == "torchvision" and is_plain and on_windows(machine) and local not in ("", "cpu", "rocm")
        )
        companion_build = "cpu" if cpu_on_windows else _platform_of_local(version)
        same_major = companion_build.partition(".")[0] == torch_build.partition(".")[0]
        if not from_pypi and (not torch_build or not companion_build or same_major):
            continue
        build = {"cpu": "CPU", "rocm": "ROCm"}.get(torch_build, f"CUDA {torch_build}")
        release = companion_release(stack, name, public_part(versions.get("torch", ""))) or public_part(version)
        yield Problem(
            "warning" if cpu_on_windows or (from_pypi and not machine.system.architecture.value) else "error",
            f"{name} {version} from PyPI is for CUDA, but torch {versions['torch']} is for CPU"
            if from_pypi
            else f"{name} {version} of PyPI has no CUDA on Windows, and torch {versions['torch']} is for {build}"
            if cpu_on_windows
            else f"{name} {version} does not match torch for {build}",
            version_evidence(stack, "torch", name),
            f"Reinstall {name} {release} from torch's index.",
            steps(reinstall(stack, name, release)),
        )


def _platform_of_local(version: str) -> str:
    """What a local version is for: a CUDA version, "cpu" or "rocm"; empty if it does not show."""
    return "rocm" if local_part(version).startswith("rocm") else cuda_of_local(version)


def _torchaudio_of_pypi(machine: Machine, stack: Stack, cuda: str) -> Iterator[Problem]:
    """torchaudio without a local version next to a torch for another CUDA version than that of PyPI's build."""
    versions = versions_of(stack)
    if cuda in ("", "cpu") or "torchaudio" not in versions or not _may_be_linux_x86(machine):
        return
    distributions = (stack.distributions.value or {}).values()
    from_torch_index = {each.name for each in distributions if each.source.startswith("the PyTorch")}  # of a guide
    for row in guide_tables().companion_build:
        if row.package in from_torch_index:
            continue
        is_older_torch = not satisfies(versions["torch"], f">={row.version}")  # PKG002 reports it
        if versions.get(row.package) != row.version or row.cuda == cuda or is_older_torch:
            continue
        # A newer CUDA version than that of the wheel on PyPI has no build of this release.
        is_newer = satisfies(cuda, f">{row.cuda}") is True
        torch = install_torch(stack, public_part(versions["torch"]), row.cuda) if is_newer else None
        yield Problem(
            "error",
            f"{row.package} {row.version} from PyPI is built for CUDA {row.cuda}, and torch {versions['torch']} for "
            f"CUDA {cuda}: `import {row.package}` raises RuntimeError",
            version_evidence(stack, "torch", row.package),
            f"Install {torch}." if torch else f"Reinstall {row.package} {row.version} from torch's index.",
            steps(*torch.steps) if torch else steps(reinstall(stack, row.package, row.version)),
        )


def _may_be_linux_x86(machine: Machine) -> bool:
    """Whether the system is, or can be, Linux on x86_64; a list of packages does not name it."""
    system = machine.system
    return system.architecture.value in (None, "x86_64") and not re.match(
        r"Windows|Microsoft|mac|Darwin", system.os.value or ""
    )


@rule("FA002", kind="environment", severity="info", cause="flash-attn-no-wheel")
def flash_attn_has_no_release_wheel_here(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """The installed flash-attn release has no wheel for the installed torch.

    It was compiled locally, or torch was changed later. A reinstallation compiles for hours and needs about 5 GB of
    memory per job. If the binary was built for an earlier torch, its import fails with undefined symbols
    (`torch-abi-mismatch`), as with flash-attn 2.5.7 and torch 2.3.

    Fix: if necessary, use a torch for which the release has wheels, or a newer flash-attn.

    References:
    https://github.com/Dao-AILab/flash-attention/releases
    https://github.com/Dao-AILab/flash-attention/issues/2219
    """
    versions = versions_of(stack)
    torch, flash = versions.get("torch", ""), versions.get("flash-attn", "")
    if not torch or not flash or is_prerelease(torch) or "torch" in local_part(flash):
        return
    for row in torch_pairings("flash-attn"):
        if satisfies(public_part(flash), row.versions):
            file_known = any(extension.distribution == "flash-attn" for extension in stack.extensions.value or ())
            if satisfies(public_part(torch), row.torch) is False and not file_known:  # EXT001 reads the file
                yield Problem(
                    "info",
                    f"flash-attn {flash} has release wheels for torch{row.torch} only; torch {torch} is installed",
                    version_evidence(stack, "torch", "flash-attn"),
                    "Rebuild it, or install a release with a wheel, unless it was compiled for this torch.",
                    steps(f"{stack.python.value or 'python'} -c 'import flash_attn_2_cuda'"),
                )
            return


@rule("FA003", kind="environment", severity="error", cause="flash-attn-no-wheel")
def flash_attn_3_is_an_empty_package(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """`flash-attn-3` 0.0.0 is the empty placeholder on PyPI, not FlashAttention 3.

    It installs without an error, but contains no module: `import flash_attn_interface` fails.

    Fix: install a FlashAttention 3 wheel for the installed torch, or use the kernels hub
    (`attn_implementation="kernels-community/vllm-flash-attn3"`), which needs no package.

    References:
    https://github.com/windreamer/flash-attention3-wheels
    https://github.com/Dao-AILab/flash-attention/tree/main/hopper
    """
    if versions_of(stack).get("flash-attn-3") == "0.0.0":
        yield Problem(
            "error",
            "flash-attn-3 0.0.0 is an empty placeholder",
            version_evidence(stack, "flash-attn-3"),
            "Remove it, and install a FlashAttention 3 wheel built for this torch if you need it.",
            steps("uv pip uninstall flash-attn-3"),
        )


@rule("BNB001", kind="environment", severity=("error", "warning"), cause="bnb-no-cuda-binary")
def bitsandbytes_has_no_library_for_this_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """bitsandbytes has no native library for the CUDA version of the installed torch.

    Its wheel contains one `libbitsandbytes_cudaXYZ.so` per CUDA version. Releases from 0.40.2 to 0.49 load exactly
    torch's version, 0.50 and newer any version with the same major number. Older ones load the version of the
    libcudart.so that they find, which a toolkit can bring: this is a warning. Without a library the import
    succeeds, and the first 4-bit or 8-bit call raises `compiled without GPU support` or `Configured CUDA binary
    not found`.

    Fix: install a newer bitsandbytes, or select another library with `BNB_CUDA_VERSION`.

    References:
    https://huggingface.co/docs/bitsandbytes/installation
    https://github.com/bitsandbytes-foundation/bitsandbytes/releases
    """
    version = versions_of(stack).get("bitsandbytes", "")
    cuda = torch_cuda(stack)
    selected = (machine.environment.value or {}).get("BNB_CUDA_VERSION", "")
    if not version or not cuda:
        return
    newest = bitsandbytes_release(machine, stack, versions_of(stack).get("torch", ""), cuda)
    again = ["--reinstall-package", "bitsandbytes"] if newest == version else []
    install = (
        shell_command("uv pip install bitsandbytes=={} {}", newest, again)
        if newest
        else show_files(stack, "bitsandbytes")
    )
    if _is_for_cpus(stack):
        yield Problem(
            "error",
            f"bitsandbytes {version} has no native library for CUDA; torch is built for CUDA {cuda}",
            (*version_evidence(stack, "bitsandbytes"), evidence("extensions", stack.extensions)),
            f"Install bitsandbytes {newest}, whose wheel contains one." if newest else NO_BITSANDBYTES,
            steps(install),
        )
        return
    available, source = _bitsandbytes_cuda(stack, version)
    wanted = f"{selected[:2]}.{selected[2:]}" if re.fullmatch(r"\d{3}", selected) else cuda
    if not available or loads_cuda(version, wanted, available, forced=bool(selected)):
        return
    searches = satisfies(version, _SEARCHES_CUDART) is True
    if searches and ("cudatoolkit" in versions_of(stack) or machine.cuda.nvcc_version.value):
        return
    enough = loads_cuda(version, cuda, available)
    yield Problem(
        "warning" if searches else "error",
        f"bitsandbytes {version} has native libraries for CUDA {', '.join(available)}; "
        + (f"BNB_CUDA_VERSION={selected} requests {wanted}" if selected else f"torch is built for CUDA {cuda}"),
        (
            *version_evidence(stack, "bitsandbytes"),
            Evidence("CUDA of torch", cuda, stack.torch.source),
            Evidence(*source),
        ),
        "Unset BNB_CUDA_VERSION." * bool(selected)
        + " " * (bool(selected) and not enough)
        + ("" if enough else f"Install bitsandbytes {newest}." if newest else NO_BITSANDBYTES),
        steps(*(["unset BNB_CUDA_VERSION"] if selected else []), *([] if enough else [install])),
    )


def _is_for_cpus(stack: Stack) -> bool:
    """Whether the files of bitsandbytes are known and none is for CUDA: old wheels for Arm, or a local build."""
    files = [extension.path for extension in stack.extensions.value or () if "libbitsandbytes_" in extension.path]
    return bool(files) and not any("_cuda" in path for path in files)


def _bitsandbytes_cuda(stack: Stack, version: str) -> tuple[tuple[str, ...], tuple[str, str, str]]:
    """The CUDA versions of the native libraries of the installed bitsandbytes, and their evidence."""
    files = [file.path for file in stack.extensions.value or () if "libbitsandbytes_cuda" in file.path]
    found = {f"{match[1]}.{match[2]}" for match in (re.search(r"_cuda(\d{2})(\d)", path) for path in files) if match}
    if found:
        ordered = tuple(sorted(found, key=lambda text: version_key(text) or ((0,), (0, 0), 0, 0)))
        return ordered, ("libbitsandbytes_cuda*.so", ", ".join(ordered), stack.extensions.source)
    released = "" if is_local_build(version) else public_part(version)
    row = next((row for row in bitsandbytes_libraries() if released in row.versions), None)
    return (row.x86_64 if row else ()), ("libraries of the wheel", row.source if row else "", "table")


@rule("BNB006", kind="environment", severity="error", cause="bnb-no-cuda-binary")
def bitsandbytes_has_no_library_for_windows(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """bitsandbytes below 0.43 has no native library for Windows.

    Its wheel fits all platforms, but contains libraries for Linux only.

    Fix: install bitsandbytes 0.43 or newer.

    References:
    https://github.com/bitsandbytes-foundation/bitsandbytes/releases/tag/0.43.0
    """
    version = versions_of(stack).get("bitsandbytes", "")
    if on_windows(machine) and not is_local_build(version) and satisfies(version, "<0.43"):
        newest = bitsandbytes_release(machine, stack, versions_of(stack).get("torch", ""), torch_cuda(stack))
        wanted = f"=={newest}" if newest else ">=0.43"
        yield Problem(
            "error",
            f"bitsandbytes {version} has no native library for Windows",
            (*version_evidence(stack, "bitsandbytes"), evidence("system.os", machine.system.os)),
            f"Install bitsandbytes {wanted.lstrip('>=')} or newer.",
            steps(shell_command("uv pip install 'bitsandbytes{}'", wanted)),
        )


@rule("BNB002", kind="environment", severity=("warning", "info"), cause="bnb-no-cuda-binary")
def bnb_cuda_version_overrides_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """BNB_CUDA_VERSION makes bitsandbytes load the library of another CUDA version than torch's.

    The variable is meant for a separately installed CUDA toolkit. If it remains in a shell profile, bitsandbytes
    loads a library whose libcudart or cuBLAS is missing or has another major version.

    Fix: unset it.

    References:
    https://huggingface.co/docs/bitsandbytes/installation
    """
    value = (machine.environment.value or {}).get("BNB_CUDA_VERSION", "")
    cuda = torch_cuda(stack)
    if value and cuda and "bitsandbytes" in versions_of(stack) and value != cuda.replace(".", ""):
        other_major = value[:2] != cuda.partition(".")[0]
        yield Problem(
            "warning" if other_major else "info",
            f"BNB_CUDA_VERSION={value}, but torch is built for CUDA {cuda}",
            (Evidence("BNB_CUDA_VERSION", value, machine.environment.source), evidence("torch", stack.torch)),
            "Unset it, so that bitsandbytes uses torch's CUDA version.",
            steps("unset BNB_CUDA_VERSION"),
        )
