"""Rules on the environment's Python and platform: interpreter, supported versions, wheels for this system."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.records import Distribution, Evidence, Machine, Stack
from envdoctor.core.remedies import either, for_environment, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.releases import numpy2_releases
from envdoctor.knowledge.torch_builds import torch_releases
from envdoctor.knowledge.versions import local_part, major_minor, public_part, satisfies
from envdoctor.rules.facts import (
    first_in_use,
    gpus_of,
    is_from_report,
    model_of,
    on_windows,
    parse_major_minor,
    parse_version,
    torch_cuda,
    torch_version,
)
from envdoctor.rules.known_breaks import bounds_of_breaks
from envdoctor.rules.python_ranges import distributions_in_use, known_pythons
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.requirements import agreed_range, versions_of
from envdoctor.rules.torch_install import (
    TorchInstall,
    backend_of,
    backend_of_torch,
    best_torch,
    conda_command,
    install_torch,
    python_option,
    reinstall,
)

PYTHONS = ("3.12", "3.13", "3.11", "3.10", "3.9", "3.14")  # the first one with all wheels is preferred
LINUX_ONLY = ("vllm", "sglang", "flash-attn", "deepspeed", "triton", "xformers", "flashinfer-python")
OFTEN_DUPLICATED = ("torch", "numpy", "transformers", "vllm", "triton", "torchvision", "accelerate", "trl", "peft",
            "tokenizers", "huggingface-hub", "nvidia-ml-py", "pynvml", "flash-attn")  # fmt: skip
WITHOUT_TORCH = ("tensorflow", "tensorflow-gpu", "tf-nightly", "jax", "paddlepaddle-gpu", "paddlepaddle")
NEEDS_TORCH = ("vllm", "trl", "accelerate", "peft", "bitsandbytes", "flash-attn", "deepspeed", "torchvision",
               "torchaudio", "xformers", "unsloth", "verl")  # fmt: skip


@rule("PY001", kind="environment", severity="error", cause="wrong-python-env")
def python_has_no_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The examined Python has no torch, although the report is about torch.

    "PyTorch version: N/A" in a report, "No module named 'torch'": the packages are installed for another interpreter,
    or the installation failed (no wheel for this Python or platform, a nightly build that was removed).

    Fix: start the program with the interpreter of the right environment, or install torch into this one.

    References:
    https://docs.python.org/3/library/venv.html
    https://docs.pytorch.org/docs/stable/notes/faq.html
    """
    if stack.torch.state != "absent":
        return
    user = first_in_use(stack, *NEEDS_TORCH)
    if not user and (not is_from_report(stack) or first_in_use(stack, *WITHOUT_TORCH)):
        return
    where = stack.python.value or f"Python {stack.python_version.value or ''}".strip()
    jetson = is_jetson(machine)
    wanted = None if jetson else _missing_torch(machine, stack)
    yield Problem(
        "error",
        f"{where} has no torch" + (f", which {user} needs" if user else ""),
        (evidence("torch", stack.torch), evidence("python_version", stack.python_version)),
        f"Use the interpreter of the environment with torch, or install {wanted or 'torch'} into this one."
        + (" On Jetson use NVIDIA's wheel for this JetPack." if jetson else ""),
        steps("python -c 'import sys; print(sys.executable, sys.path)'", *(wanted.steps if wanted else ())),
    )


@rule("PY002", kind="environment", severity=("warning", "info"), cause="wrong-python-env")
def copies_of_a_package_hide_each_other(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A package is installed twice in different versions; Python imports the first one on its path.

    Typically a copy in ~/.local, in the system's dist-packages or on PYTHONPATH exists in addition to the
    environment's own. Compiled modules of one copy are then combined with Python code of the other.

    Fix: remove the copy that does not belong to the environment.

    References:
    https://docs.python.org/3/library/site.html
    """
    first = stack.distributions.value or {}
    for copy in stack.shadowed.value or ():
        winner = first.get(copy.name)
        if not winner or winner.version == copy.version or _is_condas_torch(copy):
            continue  # PY007 covers torch of conda
        matters = copy.name in OFTEN_DUPLICATED or copy.name.startswith("nvidia-")
        user_site = "/.local/" in f"{winner.location} {copy.location}"
        if user_site and (machine.environment.value or {}).get("PYTHONNOUSERSITE"):
            continue
        same_place = winner.location == copy.location
        fix = "Reinstall it." if same_place else "Remove the copy that does not belong to the environment."
        yield Problem(
            "warning" if matters else "info",
            f"{copy.name} {winner.version} in {winner.location} hides {copy.version} in {copy.location}",
            (evidence("shadowed", stack.shadowed),),
            "Exclude ~/.local with PYTHONNOUSERSITE=1." if user_site else fix,
            steps(_removal(stack, winner, copy, user_site=user_site)),
        )


@rule("PY009", kind="environment", severity="warning", cause="wrong-python-env")
def pip_installs_for_another_python(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """pip found packages in the directory of another interpreter than the one that runs the program.

    ComfyUI's portable version and other launchers have an interpreter of their own (`python_embeded`, `venv`). A bare
    `pip install` uses the first Python on PATH: it succeeds, and the program still raises "No module named".

    Fix: install with the interpreter that runs the program: `python_embeded\\python.exe -m pip install NAME`.

    References:
    https://docs.python.org/3/library/venv.html
    https://docs.comfy.org/installation/comfyui_portable_windows
    """
    python = stack.python.value or ""
    root = _environment_root(python)
    version = parse_major_minor(stack.python_version.value)
    for name, package in (stack.distributions.value or {}).items() if root and is_from_report(stack) else ():
        location = package.location.replace("\\", "/").lower()
        other = re.search(r"/python(3)\.?(\d{1,2})/", location)
        is_other_version = other and version and (int(other[1]), int(other[2])) != version
        if other and not location.startswith(root) and (is_other_version or "python_embed" in root):
            yield Problem(
                "warning",
                f"{name} {package.version} is in {package.location}, and {python} runs the program",
                (evidence("python", stack.python), Evidence(name, package.location, "report")),
                "Install it with the interpreter that runs the program.",
                for_environment(steps(reinstall(stack, name, public_part(package.version))), python),
            )
            return


def _environment_root(python: str) -> str:
    """The directory of an interpreter's environment, in lower case and with `/`; empty for a bare name."""
    parts = python.replace("\\", "/").lower().split("/")[:-1]
    return "/".join(parts[:-1] if parts and parts[-1] in ("bin", "scripts") else parts)


@rule("PY007", kind="environment", severity=("warning", "info"), cause="wrong-python-env")
def torch_of_conda_and_of_pypi_share_an_environment(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """conda's pytorch and PyPI's torch are installed in one environment, in different versions.

    Both install to the same directory. `pip install` of a package that requires another torch overwrites conda's
    files with PyPI's. conda's libtorch, MKL or torchvision is then combined with PyPI's files, or conda's next update
    overwrites them. PyTorch publishes no conda builds from torch 2.6 on.

    Fix: keep one of the two: remove conda's pytorch and reinstall torch with pip or uv.

    References:
    https://github.com/pytorch/pytorch/issues/138506
    """
    distributions = stack.distributions.value or {}
    pip = distributions.get("torch")
    shadowed = [copy for copy in stack.shadowed.value or () if _is_condas_torch(copy)]
    conda = distributions.get("pytorch") or (shadowed[0] if shadowed else None)
    if not pip or not conda or _is_condas_torch(pip) or public_part(pip.version) == public_part(conda.version):
        return
    yield Problem(
        "info" if is_from_report(stack) else "warning",  # its two lists can be from different environments
        f"conda installed pytorch {conda.version}, and pip torch {pip.version}",
        (
            Evidence("conda", f"{conda.name} {conda.version}", conda.location or stack.distributions.source),
            Evidence("pip", f"torch {pip.version}", pip.location or stack.distributions.source),
        ),
        "Remove conda's pytorch, then reinstall torch, because both use the same files.",
        steps(conda_command(stack, "remove --force pytorch"), reinstall(stack, "torch", public_part(pip.version))),
    )


@rule(
    "PY003",
    kind="environment",
    severity=("error", "warning"),
    cause="python-unsupported",
    url="https://github.com/pytorch/pytorch/blob/main/RELEASE.md",
)
def python_is_not_supported_by_packages(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The Python version is too old or too new for packages of the environment.

    The rule compares it with `Requires-Python` of the installed packages, or with a table for the packages of a
    report. If torch is missing, it compares with the Python versions of torch's wheels. With a Python that is too
    new, pip builds from source archives, and the build fails.

    Fix: create an environment with a Python that all packages have wheels for; 3.12 is a safe choice.

    References:
    https://github.com/pytorch/pytorch/blob/main/RELEASE.md#release-compatibility-matrix
    """
    python = parse_version(stack.python_version.value)
    if not python:
        return
    shown = (evidence("python_version", stack.python_version),)
    packages = distributions_in_use(stack)
    wanted = {package: package.requires_python or known_pythons(stack, package) for package in packages}
    unsupported = {
        package: pythons for package, pythons in wanted.items() if satisfies(str(python), pythons) is False
    }
    if unsupported:
        ranges = [pythons for pythons in wanted.values() if pythons]
        fitting = next(
            (each for each in PYTHONS if all(satisfies(f"{each}.9", row) is not False for row in ranges)), ""
        )
        names = ", ".join(f"{f'{distribution.name} {distribution.version}'.strip()} ({pythons})"
                          for distribution, pythons in list(unsupported.items())[:4])  # fmt: skip
        yield Problem("error", f"Python {python} is outside the declared ranges: {names}", shown,
                      f"Create an environment with Python {fitting}, which all packages support." if fitting else
                      "No Python supports all of these packages: install other releases, or separate them.",
                      steps(*_other_python(stack, fitting)) if fitting else steps("uv python list"))  # fmt: skip
        return
    newest = list(torch_releases().values())[-1]
    if not newest.python:
        return
    oldest, latest = major_minor(newest.python[0]), major_minor(newest.python[1])
    current = (python.major, python.minor)
    of_torch = [row.python for row in torch_releases().values() if row.python]
    fitting = next(each for each in PYTHONS if oldest <= major_minor(each) <= latest)
    if is_jetson(machine) or not is_from_report(stack):
        return
    if stack.torch.state == "absent" and not any(
        major_minor(first) <= current <= major_minor(last) for first, last in of_torch
    ):
        yield Problem(
            "warning",
            f"no release of torch has wheels for Python {python}; {newest.latest} has them for {newest.python[0]} to "
            f"{newest.python[1]}",
            shown,
            "Create an environment with a Python of that range.",
            steps(shell_command("uv venv --python {} .venv-{}", fitting, fitting)),
        )


@rule("PY004", kind="environment", severity="warning", cause="python-headers-missing")
def headers_of_the_environments_python_are_missing(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The environment's Python has no Python.h, which Triton's launcher and every source build need.

    "fatal error: Python.h: No such file or directory" at the first torch.compile or Triton kernel.

    Fix: install the -dev package of this Python, or use a Python from uv or conda, which include the headers.

    References:
    https://github.com/vllm-project/vllm/issues/27890
    """
    if stack.headers.value is not False or not first_in_use(stack, "triton", "vllm") or not gpus_of(machine):
        return
    name = ".".join((stack.python_version.value or "3").split(".")[:2])
    yield Problem(
        "warning",
        f"Python {stack.python_version.value or ''} ({stack.python.value or 'of the environment'}) has no Python.h",
        (evidence("headers", stack.headers),),
        "Install the headers of this Python, or recreate the environment with a Python that includes them.",
        either(
            shell_command("sudo apt-get install -y python{}-dev", name),
            _other_python(stack, name, "--managed-python"),
        ),
    )


@rule("PY005", kind="environment", severity=("error", "warning", "info"), cause="platform-no-wheel")
def platform_has_no_wheels(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """Libraries of this environment have no wheels for the platform: Jetson, Windows or macOS.

    Jetson has its own CUDA. Wheels for Arm servers do not run there, and NVIDIA's torch for JetPack requires a
    specific Python. vLLM, flash-attn and similar packages have no wheels for Jetson, Windows or macOS.

    Fix: on Jetson use the containers for the installed JetPack; on Windows use WSL2; replace macOS with another
    machine.

    References:
    https://github.com/dusty-nv/jetson-containers
    https://docs.vllm.ai/en/latest/getting_started/installation/
    """
    system, library = machine.system.os.value or "", first_in_use(stack, *LINUX_ONLY)
    platform = "Windows" if on_windows(machine) else "macOS" if "mac" in system.lower() else ""
    shown = (evidence("system.os", machine.system.os), evidence("system.kernel", machine.system.kernel))
    if platform:
        if library in ("", "triton", *(("xformers", "flash-attn", "deepspeed") if platform == "Windows" else ())):
            return
        if local_part(versions_of(stack).get(library, "")):  # built there: vLLM is 0.8.5+cpu on macOS
            return
        if platform == "macOS" and library == "vllm" and versions_of(stack).get(library):  # older ones have no label
            return
        yield Problem("error", f"{library} has no wheels for {platform}", shown,
                      "Use WSL2 or Linux." if platform == "Windows" else "Use a Linux machine with an NVIDIA GPU.",
                      steps(*(("wsl --install -d Ubuntu-24.04",) if platform == "Windows" else ())))  # fmt: skip
        return
    # With CUDA 13 a Thor runs the wheels for Arm servers.
    is_thor = any(gpu.compute_capability.value == "11.0" for gpu in gpus_of(machine))
    if not is_jetson(machine) or (is_thor and torch_cuda(stack).startswith("13.")):
        return
    library = _without_build_for_jetson(stack)
    jetpack = _jetpack(machine, stack)
    nvidia_build = bool(re.search(r"\.nv\d|nv2\d", torch_version(stack)))
    has_cuda = stack.cuda_available.value is True
    named_only = "tegra" not in (machine.system.kernel.value or "")  # a sentence names the device
    named_only = named_only and stack.cuda_available.value is not False
    works = nvidia_build or named_only or has_cuda
    old = bool(jetpack) and not (has_cuda and jetpack == OLD_JETPACKS[0][2])  # with it runs software of its time
    harms = old or bool(library) or not works
    yield Problem(
        "warning" if harms else "info",
        "this is a Jetson" + (f" with {jetpack}" if jetpack else "")
        + (f", torch is {torch_version(stack)}" if torch_version(stack) else ", without torch")
        + ": PyPI and the PyTorch index have no wheels of vLLM, flash-attn and torch for its CUDA",
        (*shown, evidence("torch", stack.torch)) if stack.torch.value is None else shown,
        "Use JetPack 6 or newer and containers for Jetson, or NVIDIA's wheels for this JetPack.",
        steps("cat /etc/nv_tegra_release", "git clone https://github.com/dusty-nv/jetson-containers"),
    )  # fmt: skip


# Kernels and CUDA of JetPack 4 and 5, docs.nvidia.com/jetson/archives (read on 2026-11-28); CUDA 12.2 and newer are
# those of JetPack 6.
OLD_JETPACKS = (("4.9", "10.2", "JetPack 4 (CUDA 10.2)"), ("5.10", "11.4", "JetPack 5 (CUDA 11.4)"))


def _jetpack(machine: Machine, stack: Stack) -> str:
    """The JetPack before 6 of a Jetson, by its kernel, by the CUDA of torch or by the Python; empty for others."""
    kernel, cuda = machine.system.kernel.value or "", torch_cuda(stack)
    python = parse_major_minor(stack.python_version.value) or (3, 10)
    for release, of_jetpack, name in OLD_JETPACKS:
        if re.match(rf"{re.escape(release)}[.-]", kernel) or (not kernel and cuda == of_jetpack):
            return name
    if kernel or cuda or python >= (3, 10):
        return ""
    return OLD_JETPACKS[python > (3, 6)][2]


def _without_build_for_jetson(stack: Stack) -> str:
    """The first library whose release on PyPI has no code for Jetson; a local version is of another build.

    Read from the aarch64 wheel of bitsandbytes 0.46.0 on 2026-11-25: code for 7.5, 8.0, 9.0 and 10.0 only.
    """
    versions = versions_of(stack)
    names = (name for name in (*LINUX_ONLY, "bitsandbytes") if not local_part(versions.get(name, "")))
    return first_in_use(stack, *names)


def is_jetson(machine: Machine) -> bool:
    """Whether the kernel or the name of a GPU is that of a Jetson."""
    models = [model for gpu in gpus_of(machine) if (model := model_of(gpu))]
    return "tegra" in (machine.system.kernel.value or "") or any(model.kind == "jetson" for model in models)


def _is_condas_torch(distribution: Distribution) -> bool:
    return distribution.name in ("torch", "pytorch") and distribution.source.startswith("conda")


def _removal(stack: Stack, winner: Distribution, loser: Distribution, *, user_site: bool) -> str:
    if user_site:
        return "export PYTHONNOUSERSITE=1"
    if winner.location == loser.location:
        return reinstall(stack, winner.name, public_part(winner.version))
    return shell_command("ls -ld {}/{}*", loser.location, loser.name.replace("-", "_"))


def _missing_torch(machine: Machine, stack: Stack) -> TorchInstall | None:
    """The torch that the installed packages require: for CUDA, or for CPUs on a machine without GPU and driver.

    Where the driver is not known, uv chooses the build by the driver that it finds.
    """
    specifier, agree = agreed_range(stack, "torch")
    bounds = (specifier, *bounds_of_breaks(versions_of(stack), "torch"), *_bound_of_numpy(stack))
    specifier = ",".join(filter(None, bounds))
    wanted = best_torch(machine, stack, specifier=specifier) if agree else None
    no_gpu = (
        machine.gpus.state == "absent" and not machine.driver.version.value and not machine.cuda.nvcc_version.value
    )
    if wanted and no_gpu:
        return install_torch(stack, wanted.release, "cpu")
    if not wanted or machine.driver.version.value or specifier.startswith("=="):
        return wanted  # a package that requires one torch is compiled for its CUDA version
    backend = f"--torch-backend={backend_of(wanted.cuda)}"
    steps = tuple(line.replace(backend, "--torch-backend=auto") for line in wanted.steps)
    return TorchInstall(wanted.release, "", steps)


def _bound_of_numpy(stack: Stack) -> Iterator[str]:
    """The releases of torch that the installed NumPy can be used with, if it is NumPy 2."""
    if satisfies(versions_of(stack).get("numpy", ""), ">=2"):
        yield from (f">={row.first}" for row in numpy2_releases() if row.package == "torch")


def _other_python(stack: Stack, version: str, *options: str) -> tuple[str, ...]:
    """The steps that install the same packages into a new environment with another Python."""
    python, backend, folder = python_option(stack), backend_of_torch(stack), f".venv-{version}"
    return (
        shell_command("uv pip freeze {} > requirements-{}.txt", python, version),
        " ".join(("uv venv", *options, f"--python {version} {folder}")),
        shell_command("uv pip sync --python {} requirements-{}.txt", folder, version)
        + (f" --torch-backend={backend}" if backend else ""),
    )
