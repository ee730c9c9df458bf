"""Rules on compiled extensions: symbols of torch, shared libraries, and code for each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envdoctor.core.records import NO_FILE, Evidence, Extension, Gpu, KernelCode, Machine, Stack
from envdoctor.core.remedies import Remedy, either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import Capability, capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.kernel_files import MAIN_FILES, is_optional
from envdoctor.knowledge.libraries import package_of_library
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import releases_of, releases_that_pin, required_specifier
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.rules.facts import gpu_label, gpus_of, installed_version, torch_cuda, torch_label, torch_version
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import specifiers_for, versions_of
from envdoctor.rules.torch_install import (
    COMPANIONS,
    backend_of_torch,
    best_torch,
    companion_release,
    conda_command,
    install_library,
    install_torch,
    python_option,
    rebuild,
    reinstall,
    show_files,
)

# Minimum compute capability of all builds of the library; VLLM005 reports older GPUs.
# xformers uses torch's kernels on Volta; its own file has none.
OLDEST_GPU: dict[str, Capability] = {"vllm": (7, 0), "sgl-kernel": (7, 5), "flash-attn": (8, 0), "xformers": (7, 5)}
GENERAL_ARCHITECTURES = 3  # architectures of a fatbin entry: kernels with so many are built for all GPUs of the build
CUDA_LIBRARY = (
    r"lib(cudart|cublas|cublasLt|cudnn\w*|cufft|curand|cusolver|cusparse|cusparseLt|nvrtc|nvJitLink|cupti)\.so\.(\d+)"
)

# Files for one torch release each; the library loads only the one for the installed torch:
# torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch24-cpu.so (torch-c-dlpack-ext 0.1.5, core.py).
FILE_OF_A_RELEASE = r"_torch(\d)(\d+)-(?:cpu|cuda)\.so$"


@rule("EXT001", kind="environment", severity="error", cause="torch-abi-mismatch")
def extension_was_built_for_another_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A compiled extension requires C++ symbols that the installed torch does not have.

    It was built for another torch release or another C++ ABI (the `cxx11abi` part of a wheel's name). Importing it
    fails with "undefined symbol: _ZN3c10...".

    Fix: install the wheel for the installed torch, rebuild the extension, or install the torch release that the
    library requires.

    References:
    https://github.com/Dao-AILab/flash-attention/issues/1696
    https://docs.vllm.ai/en/latest/getting_started/installation/gpu/
    """
    for name, files in _by_distribution(stack).items():
        broken = [
            file
            for file in files
            if any(not _is_nccl(symbol) for symbol in file.missing_symbols) and not _for_another_torch(file, stack)
        ]
        if not broken or name in ("torch", ""):
            continue
        symbols = [symbol for symbol in broken[0].missing_symbols if not _is_nccl(symbol)]
        yield Problem(
            "error",
            f"{broken[0].path} of {name} {installed_version(stack, name) or ''} needs {symbols[0]}"
            + (f" and {len(symbols) - 1} more" if symbols[1:] else "")
            + f", which {torch_label(stack)} does not have",
            (Evidence(f"extensions.{broken[0].path}.missing_symbols", " ".join(symbols[:4]), broken[0].path),),
            f"Install the {name} built for {torch_label(stack)}, or the torch that it was built for.",
            _for_one_torch(stack, name),
        )


@rule("EXT002", kind="environment", severity="error", cause="nccl-lib-mismatch")
def nccl_lacks_symbols_of_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A compiled file requires NCCL functions that the loaded NCCL does not have.

    "libtorch_cuda.so: undefined symbol: ncclCommRegister". Another, older libnccl is found first: the system's, one
    on LD_LIBRARY_PATH, or a pinned nvidia-nccl package.

    Fix: install the nvidia-nccl package that torch requires, and remove other libnccl files from the path.

    References:
    https://github.com/pytorch/pytorch/issues/119932
    https://github.com/pytorch/pytorch/issues/186591
    """
    for file in stack.extensions.value or ():
        symbols = [symbol for symbol in file.missing_symbols if _is_nccl(symbol)]
        missing = [name for name in file.missing_libraries if name.startswith("libnccl.so")]
        if not (symbols or missing) or is_optional(file):
            continue
        package = f"nvidia-nccl-cu{(torch_cuda(stack) or '12').split('.')[0]}"
        yield Problem(
            "error",
            f"{file.path} needs {', '.join(symbols[:2] or missing)}, which the loaded NCCL does not have"
            if symbols
            else f"{file.path} needs {missing[0]}, which was not found",
            (Evidence(f"extensions.{file.path}", " ".join(symbols[:4] or missing), file.path),),
            "Install the NCCL that torch requires, and remove other libnccl files from LD_LIBRARY_PATH.",
            either(install_library(stack, package, "2"), "ldconfig -p | grep libnccl; echo $LD_LIBRARY_PATH"),
        )
        return


@rule("EXT003", kind="environment", severity="error", cause="cudart-missing")
def cuda_library_is_missing(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A compiled file needs a CUDA library in a version that the loader does not find.

    "libcudart.so.12: cannot open shared object file": the extension was built for another CUDA major version than
    torch's, or torch is a CPU build.

    Fix: install the extension's build for torch's CUDA version, or the nvidia package with that library.

    References:
    https://docs.nvidia.com/cuda/cuda-runtime-api/
    """
    for name, files in _by_distribution(stack).items():
        for file in files:
            missing = [library for library in file.missing_libraries if re.match(CUDA_LIBRARY, library)]
            if name == "vllm":  # VLLM003 reports another major version than torch
                missing = [library for library in missing if f".so.{torch_cuda(stack).split('.')[0]}" in library]
            if not missing or is_optional(file) or _is_for_another_cuda(file, files, stack):
                continue
            yield Problem(
                "error",
                f"{file.path} of {name or 'no known distribution'} needs {', '.join(missing)}, which was not found; "
                f"torch is built for {'CUDA ' + torch_cuda(stack) if torch_cuda(stack) else 'no CUDA'}",
                (Evidence(f"extensions.{file.path}.missing_libraries", " ".join(missing), file.path),),
                *_for_one_cuda(machine, stack, name, missing[0]),
            )
            break


@rule("EXT004", kind="environment", severity="error", cause="ext-arch-not-in-build")
def extension_has_no_code_for_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """torch supports the GPU, but a library's compiled kernels contain neither native code nor PTX for it.

    "no kernel image is available for execution on the device" from vLLM, flash-attn or xformers, while a matrix
    product in torch works. The rule checks only files that a library always loads. Files with kernels for specific
    GPUs (FlashMLA, FlashAttention 3) are not reported.

    Fix: install a release of the library whose wheel has the architecture, or build it from source with
    TORCH_CUDA_ARCH_LIST.

    References:
    https://github.com/vllm-project/vllm/issues/20748
    https://github.com/vllm-project/vllm/issues/16901
    """
    for name, files in _by_distribution(stack).items():
        for file in (file for file in files if _is_main(name, file)):
            unsupported = [gpu for gpu in gpus_of(machine) if (c := capability_of(gpu)) and not _runs(files, file, c)]
            if unsupported and (reason := _no_code_problem(stack, name, file, unsupported)):
                yield reason
                break


def _is_for_another_cuda(file: Extension, files: Sequence[Extension], stack: Stack) -> bool:
    """Whether the library has files by CUDA version, one of them for torch's, and this is another.

    torch_memory_saver 0.0.9.post1 has `hook_mode_preload_cu12`, `hook_mode_preload_cu13` and one without a version.
    """
    mark = re.compile(rf"_cu{(torch_cuda(stack) or '0').split('.')[0]}(?!\d)")
    return not mark.search(file.path) and any(mark.search(other.path) for other in files)


@rule("EXT005", kind="environment", severity="warning", cause="ext-arch-not-in-build")
def package_has_no_code_for_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """None of a package's compiled files has code for a GPU, although they have code for others.

    This covers packages that EXT004 does not know by file, such as your own extensions: "no kernel image is available
    for execution on the device" when one of their kernels is launched.

    Fix: rebuild it with TORCH_CUDA_ARCH_LIST set to the GPU's compute capability, or install a wheel that supports
    it.

    References:
    https://docs.pytorch.org/docs/stable/cpp_extension.html
    """
    for name, files in _by_distribution(stack).items():
        files_with_code = [file for file in files if file.code and (file.code.native or file.code.ptx)]
        if not files_with_code or name in MAIN_FILES or name == "torch" or is_optional(files_with_code[0]):
            continue
        for gpu in gpus_of(machine):
            capability = capability_of(gpu)
            if capability and not any(_supports(file.code, capability) for file in files_with_code if file.code):
                architectures = " ".join(
                    sorted(
                        {
                            kind
                            for file in files_with_code
                            if file.code
                            for kind in (*file.code.native, *file.code.ptx)
                        }
                    )
                )
                wanted = gpu.compute_capability.value
                yield Problem(
                    "warning",
                    f"no compiled file of {name} has code for {gpu_label(gpu)}; they have {architectures}",
                    (Evidence(f"extensions.{files_with_code[0].path}.code", architectures, files_with_code[0].path),),
                    f"Rebuild {name} from its source with TORCH_CUDA_ARCH_LIST='{wanted}'.",
                    _rebuild(stack, name, wanted or ""),
                )
                break


@rule("EXT006", kind="environment", severity=("error", "warning"), cause="package-files-damaged")
def compiled_file_is_damaged(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A compiled file of a package is truncated, not readable, or missing, so that nothing else of it was checked.

    Importing it fails with "file too short", "invalid ELF header" or "cannot open shared object file". A full disk,
    an interrupted copy and packages that share files cause it. Linker scripts and files for other platforms are not
    reported. It is a warning for a file that a package loads on some machines only, and for one that does not exist.

    Fix: install the package again.

    References:
    https://docs.astral.sh/uv/reference/cli/#uv-pip-install--reinstall-package
    """
    for name, files in _by_distribution(stack).items():
        damaged = [file for file in files if file.problem]
        if not damaged:
            continue
        loaded = [
            file
            for file in damaged
            if file.problem != NO_FILE and (name.startswith("nvidia-") or not is_optional(file))
        ]
        shown = (loaded or damaged)[0]
        label = f"{name or 'no known distribution'} {versions_of(stack).get(name, '')}".strip()
        others = f", and {len(damaged) - 1} more of its files" if damaged[1:] else ""
        yield Problem(
            "error" if loaded else "warning",
            f"{shown.path} of {label} could not be read: {shown.problem}{others}",
            tuple(Evidence(f"extensions.{file.path}", file.problem, file.path) for file in damaged[:4]),
            f"Install {name or 'the package'} again; check df -h before, because a full disk truncates files.",
            _again(stack, name),
        )


def _again(stack: Stack, name: str) -> tuple[Remedy, ...]:
    """Install the same release again, from where it came."""
    package = (stack.distributions.value or {}).get(name)
    if package is None:
        return steps(shell_command("uv pip list {}", python_option(stack)))
    if package.source.startswith("conda"):
        return steps(conda_command(stack, "install --force-reinstall {}={}", name, package.version))
    if package.source in ("", "uv", "pip"):
        backend = backend_of_torch(stack)
        options = [f"--torch-backend={backend}"] if backend and name in COMPANIONS else []
        release = public_part(package.version)
        install = "uv pip install {}=={} {} --no-deps --reinstall-package {}"
        return steps(shell_command(install, name, release, options, name))
    return steps(show_files(stack, name))


def _for_one_torch(stack: Stack, name: str) -> tuple[Remedy, ...]:
    """Install the release of a library for the installed torch, or the torch that it requires."""
    torch, version = public_part(torch_version(stack)), public_part(versions_of(stack).get(name, ""))
    specifier = specifiers_for(stack, "torch").get(name) or required_specifier(name, version, "torch")
    if satisfies(torch, specifier or ">=0") is False:
        if name in COMPANIONS and (release := companion_release(stack, name, torch)):
            return steps(reinstall(stack, name, release))
        release = next(iter(releases_that_pin(name, "torch", torch)), "")
        pin = specifier.removeprefix("==") if specifier.startswith("==") else ""
        wanted = install_torch(stack, pin, torch_cuda(stack)) if pin and torch_cuda(stack) else None
        return either(*([wanted.steps] if wanted else []), *([reinstall(stack, name, release)] if release else []))
    is_published = published_releases(name) or releases_of(name)
    if version and is_published and (specifier.startswith("==") or not rebuild(name, version)):
        return steps(reinstall(stack, name, version))
    return _rebuild(stack, name)


def _rebuild(stack: Stack, name: str, capabilities: str = "") -> tuple[Remedy, ...]:
    """Compile a library again; one that is not from PyPI has its source elsewhere."""
    version = public_part(versions_of(stack).get(name, ""))
    return steps((version and rebuild(name, version, capabilities)) or show_files(stack, name))


def _for_one_cuda(machine: Machine, stack: Stack, name: str, library: str) -> tuple[str, tuple[Remedy, ...]]:
    """The fix and the remedies for a missing CUDA library."""
    package, own = package_of_library(library, torch_cuda(stack)), torch_cuda(stack).partition(".")[0]
    suffix, soname = re.search(r"-cu(\d+)$", package), re.match(CUDA_LIBRARY, library)
    cuda, number = suffix[1] if suffix else "13", soname[2] if soname else ""
    if own == cuda:
        fix = f"Install {package}, which contains the library and which torch for CUDA {torch_cuda(stack)} can use."
        return fix, steps(install_library(stack, package, number))
    wanted = best_torch(machine, stack, same_release=True) if not own and gpus_of(machine) else None
    if wanted and wanted.cuda.partition(".")[0] == cuda:
        return f"Install {wanted}, which has the library.", steps(*wanted.steps)
    fix = f"Install the build of {name or 'the package'} for torch's CUDA version; {package} has the library."
    version = public_part(versions_of(stack).get(name, ""))
    if name in COMPANIONS and version:
        return fix, steps(reinstall(stack, name, version))
    return fix, _rebuild(stack, name) if name else steps(shell_command("uv pip list {}", python_option(stack)))


def _by_distribution(stack: Stack) -> dict[str, list[Extension]]:
    found: dict[str, list[Extension]] = {}
    for extension in stack.extensions.value or ():
        found.setdefault(extension.distribution, []).append(extension)
    return found


def _for_another_torch(file: Extension, stack: Stack) -> bool:
    """Whether a file is for another torch release than the installed one, according to its name."""
    release = re.search(FILE_OF_A_RELEASE, file.path)
    return release is not None and list(release.groups()) != torch_version(stack).split(".")[:2]


def _is_nccl(symbol: str) -> bool:
    return bool(re.match(r"p?nccl[A-Z]", symbol))


def _is_main(name: str, file: Extension) -> bool:
    pattern = MAIN_FILES.get(name)
    return bool(pattern and file.code and (file.code.native or file.code.ptx) and re.search(pattern, file.path))


def _runs(files: list[Extension], file: Extension, gpu: Capability) -> bool:
    """Whether this file, or the same file in another directory (sgl-kernel: sm90, sm100), has code for the GPU."""
    siblings = [other for other in files if re.search(r"/sm\d+/", other.path)] if "/sm" in file.path else []
    return any(other.code and _supports(other.code, gpu) for other in (file, *siblings))


def _supports(code: KernelCode, gpu: Capability) -> bool:
    """Whether the kernels for many architectures include this GPU.

    vLLM 0.10.2's _C has 28 fatbin entries `sm_70 sm_75 sm_80 sm_89 sm_90 sm_100 sm_120`, and 18 with only `sm_90a`.
    A file with only the second kind for a chip does not support it.
    """
    rows = [row.split() for row in code.containers if len(re.findall(r"sm_\d+\b", row)) >= GENERAL_ARCHITECTURES]
    return any(runs_native(kinds, gpu) or runs_as_ptx(kinds, gpu) for kinds in rows or [[*code.native, *code.ptx]])


def _no_code_problem(stack: Stack, name: str, file: Extension, unsupported: list[Gpu]) -> Problem | None:
    unsupported = [gpu for gpu in unsupported if (capability_of(gpu) or (0, 0)) >= OLDEST_GPU.get(name, (0, 0))]
    if not unsupported or not file.code:
        return None
    has = " ".join((*file.code.native, *file.code.ptx))
    wanted = ";".join(sorted({gpu.compute_capability.value or "" for gpu in unsupported}))
    return Problem(
        "error",
        f"{file.path} of {name} {installed_version(stack, name) or ''} has no code for {gpu_label(unsupported[0])}; "
        f"it has {has}",
        (Evidence(f"extensions.{file.path}.code", has, file.path),),
        f"Install a release of {name} with code for this GPU, or build it from source for compute capability "
        f"{wanted}; reinstalling torch does not help.",
        _rebuild(stack, name, wanted),
    )
