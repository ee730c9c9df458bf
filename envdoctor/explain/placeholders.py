"""Fills the placeholders of fixes and remedies.

`{torch|your torch}` in a text is the version, or the text after the bar. A placeholder of a remedy has no default:
the remedy ends before the first step that needs an unknown value, if the steps before it only examine something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import Install, Notation, Remedy, Step, UserCommand, either, parse_step
from envdoctor.knowledge.header_packages import package_of_header
from envdoctor.knowledge.libraries import NVIDIA_LIBRARY, OWN_VERSIONS, package_of_library
from envdoctor.knowledge.releases import optional_specifier, releases_that_pin
from envdoctor.knowledge.torch_builds import torch_releases
from envdoctor.knowledge.versions import cuda_of_local, is_prerelease, public_part, satisfies
from envdoctor.knowledge.wheel_cuda import fitting_wheels

PLACEHOLDER = lazy_pattern(r"\{(\w+)(?:\|([^{}]*))?\}")
# Values that a shell does not interpret: a log must not put a command into a remedy. `uv pip` lines are quoted later.
SAFE_VALUE = lazy_pattern(r"[\w./:+=@ -]+")
SAFE_IN_TEXT = lazy_pattern(r"[\w./:+=@ \[\],<>!~()*%^-]+")
REQUIREMENT = lazy_pattern(r"(?!torch\b|vllm\b)([\w.-]+(?:\[[\w,-]+\])?)\s*((?:[<>=!~]=?=?\s*[\w.*+!]+\s*,?\s*)+)")
TRAILING = ",.;:'\"` "  # after a requirement in a sentence
# The bound that cures a cause: a package that is too old is not replaced by an older one.
BOUNDS = {"library-too-old": ">", "transformers-too-new": "<", "numpy2-abi": "<"}
SAFE_REQUIREMENT = lazy_pattern(r"[\w.][\w./:+=@ \[\],<>!~-]*")
# Distributions by the stems of files and modules in error texts. A name that is not here is not one of a package.
DISTRIBUTIONS = (
    (r"flash_attn(?:_2_cuda|_cuda|_gpu)?", "flash-attn"),
    (r"xformers", "xformers"),
    (r"vllm", "vllm"),
    (r"sgl_kernel", "sgl-kernel"),
    (r"(?:lib)?bitsandbytes(?:_c\w+)?", "bitsandbytes"),
    (r"causal_conv1d(?:_cuda)?", "causal-conv1d"),
    (r"mamba_ssm|selective_scan_cuda", "mamba-ssm"),
    (r"torchvision", "torchvision"),
    (r"(?:lib)?_?torchaudio", "torchaudio"),
    (r"transformer_engine(?:_torch|_cu1[23])?", "transformer-engine"),
    (r"deepspeed", "deepspeed"),
    (r"awq_ext|awq_v2_ext", "autoawq-kernels"),
    (r"exllama_kernels|exllamav2_kernels", "auto-gptq"),
    (r"exllamav2_ext", "exllamav2"),
)
TORCHAO = {
    "2.8.0": "0.13.0",
    "2.9.0": "0.14.1",
    "2.9.1": "0.15.0",
    "2.10.0": "0.16.0",
}  # github.com/pytorch/ao/issues/2919
NEWER_TRANSFORMERS = "transformers>=4.57.1,<5"
NEWER_ACCELERATE = "accelerate>=1.3,<2"  # the Trainer of that transformers needs it, its metadata does not: HF006
PYTHONS = ("3.12", "3.11", "3.10", "3.13", "3.9", "3.8", "3.14")  # those with wheels of most packages first
BUILT_FOR_TORCH = (
    "flash-attn",
    "causal-conv1d",
    "mamba-ssm",
)  # their source distributions compile for the installed torch


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """The text with its placeholders filled. Without a value and a default it is the name in capitals.

    The text contains commands to paste, so a value with characters that a shell interprets counts as none.
    """

    def fill(match: re.Match[str]) -> str:
        value = values.get(match[1], "")
        default: str = match[2] if match[2] is not None else match[1].upper()
        return value if SAFE_IN_TEXT.fullmatch(value) else default

    filled = PLACEHOLDER.sub(fill, text)
    return re.sub(r" {2,}", " ", filled).replace(" ;", ";").replace(" ,", ",").replace(" :", ":").strip()


def fill_remedies(remedies: Notation, values: Mapping[str, str], cause: str = "") -> tuple[Remedy, ...]:
    """The remedies of a table as far as their values are known.

    An install that changes nothing is left out, and one that moves a package in the wrong direction for the cause.
    """
    bound = BOUNDS.get(cause, "")
    lines = (_known_lines((each,) if isinstance(each, str) else each, values, bound) for each in remedies)
    return either(*dict.fromkeys(known for known in lines if known))


def _known_lines(lines: tuple[str, ...], values: Mapping[str, str], bound: str) -> tuple[str, ...]:
    known: list[str] = []
    for line in lines:
        filled = _fill_line(line, values, bound)
        if not filled:
            only_examines = all(isinstance(parse_step(each), UserCommand) for each in known)
            return tuple(known) if only_examines else ()
        known.append(filled)
    return tuple(known)


def _fill_line(line: str, values: Mapping[str, str], bound: str) -> str:
    """The line with its values; empty if one is unknown or unsafe in a shell, or if the step changes nothing."""
    names = [match[1] for match in PLACEHOLDER.finditer(line)]
    safe = SAFE_REQUIREMENT if line.startswith("uv pip") else SAFE_VALUE
    if not all(safe.fullmatch(values.get(name, "")) for name in names):
        return ""
    filled = PLACEHOLDER.sub(lambda match: values[match[1]], line)
    try:
        step = parse_step(filled)
    except ValueError:
        return ""
    return "" if _cures_nothing(step, values, bound) else filled


def _cures_nothing(step: Step, values: Mapping[str, str], bound: str) -> bool:
    """Whether the installed versions match the ranges, or the clauses of them that begin with `bound`.

    Exact versions are installed with their requirements.
    """
    if not isinstance(step, Install) or step.reinstall or any("==" in package for package in step.packages):
        return False
    parsed = [REQUIREMENT.fullmatch(package) for package in step.packages]
    return all(
        each and satisfies(values.get(each[1].lower().replace("-", "_"), ""), _clauses(each[2], bound))
        for each in parsed
    )


def _clauses(specifier: str, bound: str) -> str:
    """The clauses of a specifier that begin with `bound`; all of them if none does."""
    return ",".join(each for each in specifier.split(",") if each.strip().startswith(bound)) or specifier


def changes_something(remedies: tuple[Remedy, ...]) -> bool:
    """Whether a step does more than to examine something or to start a program in another way."""
    return any(not isinstance(step, UserCommand) for remedy in remedies for step in remedy.steps)


def distribution_of(name: str) -> str:
    """The distribution of a file or module, flash-attn for `flash_attn_2_cuda.cpython-310...so`; empty if unknown."""
    stem = name.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].lower().replace("-", "_")
    return next((known for pattern, known in DISTRIBUTIONS if re.fullmatch(pattern, stem)), "")


def text_values(groups: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """The named groups of a text, and the values that follow from them and from the facts.

    `library` is the name to print and `distribution` the package to install, without a value for an unknown file.
    """
    found = dict(groups)
    if name := groups.get("library"):
        name = groups.get("folder", name) if name.startswith("_") else name  # _C, _ext: the file of a package
        distribution = distribution_of(name)
        found |= {"library": distribution or name, "distribution": distribution}
        installed = values.get(distribution.replace("-", "_"))
        if installed and distribution in BUILT_FOR_TORCH:
            found["rebuild_pin"] = f"{distribution}=={public_part(installed)}"
    if "requirement" in groups:
        requirement = groups["requirement"].rstrip(TRAILING)
        found |= {"requirement": requirement}
    if port := groups.get("port2") or groups.get("port3"):
        found["port"] = port
    if re.fullmatch(r"\d{5}", groups.get("found", "")):
        number = int(groups["found"])  # of cudaDriverGetVersion: 12040
        found["driver_cuda"] = f"{number // 1000}.{number % 1000 // 10}"
    if bus := groups.get("bus", "").lower():
        found["bus_id"] = bus if "." in bus else f"{bus}.0"
    found |= _pythons_of_text(groups)
    found |= _packages_of_text(groups)
    if missing := groups.get("missing"):
        found["missing_requirement"] = _requirement_of_library(missing, values.get("cuda", ""))
    known = {**values, **found}
    found |= _onnxruntime(known)
    torch = known.get("torch", "")
    from_nvidia = is_prerelease(torch)  # NVIDIA's container or a nightly: a wheel of the index would replace it
    found |= {
        "vllm_pin": ""
        if from_nvidia or known.get("architecture") == "aarch64"
        else _exactly("vllm", known.get("vllm")),
        "trl_vllm": _vllm_in(groups.get("vllm_range", "")) or _vllm_of_trl(public_part(known.get("trl", ""))),
        "xformers_pin": _pin("xformers", torch),
        "torchao_pin": _torchao(torch),
        "companion_pin": _companion(groups.get("library", ""), torch),
        "newer_transformers": _newer_transformers(known.get("accelerate", "")),
    }
    return {name: value for name, value in found.items() if value}


def _packages_of_text(groups: Mapping[str, str]) -> dict[str, str]:
    """Packages that a message names by a header, by the release of generated code, or by the torch of a companion."""
    header, gencode = package_of_header(groups.get("header", "")), groups.get("gencode")
    return {
        "header_package": header,
        "header_package_named": f" ({header} of Debian and Ubuntu)" if header else "",
        "gencode_requirement": bounded(f"protobuf>={gencode}") if gencode else "",
        "companion_of_requested": _pin(groups.get("library", ""), groups.get("torch_requested", "")),
    }


def _pythons_of_text(groups: Mapping[str, str]) -> dict[str, str]:
    """The Pythons that a message permits: by the tags of wheels, by a specifier, by the first that conda excludes."""
    python_range, below = groups.get("python_range", ""), groups.get("conda_below", "").removeprefix("3.")
    of_torch = _python_of_torch(groups.get("torch_wanted", ""))
    return {
        "torch_python": of_torch,
        "python_of_torch": f", such as {of_torch}" if of_torch else "",
        "wheel_python": _newest_python_of_tags(groups.get("wheel_tags", "")),
        "python_in_range": next((each for each in PYTHONS if python_range and satisfies(each, python_range)), ""),
        "conda_python": f"3.{int(below) - 1}" if below else "",
    }


def _python_of_torch(version: str) -> str:
    """A Python with wheels of a torch release, "3.11" for 2.1.2; empty for an unknown release."""
    release = torch_releases().get(".".join(version.split(".")[:2]))
    if not release or not release.python:
        return ""
    oldest, newest = release.python
    return next((each for each in PYTHONS if satisfies(each, f">={oldest},<={newest}")), "")


def _newest_python_of_tags(tags: str) -> str:
    """The newest Python of ABI tags, "3.10" for "`cp38`, `cp310`"; empty before 3.8, which uv does not have."""
    minors = [int(minor) for minor in re.findall(r"\bcp3(\d{1,2})(?=m?\b)", tags)]
    return f"3.{max(minors)}" if minors and max(minors) >= 8 else ""


def _onnxruntime(known: Mapping[str, str]) -> dict[str, str]:
    """The releases of onnxruntime-gpu for the CUDA of torch; without a known CUDA those for each version."""
    if "cuda_provider" not in known:
        return {}
    cuda = known.get("cuda", "")
    majors = [cuda.partition(".")[0]] if cuda else ["12", "13"]
    ranges = {major: fitting_wheels("onnxruntime-gpu", major, "") for major in majors}
    return {f"cuda_{major}_onnxruntime_pin": f"onnxruntime-gpu{found}" for major, found in ranges.items() if found}


def _exactly(package: str, version: str | None) -> str:
    return f"{package}=={public_part(version)}" if version else ""


def _newer_transformers(accelerate: str) -> str:
    is_too_old = accelerate and satisfies(accelerate, ">=1.3") is False
    return f"{NEWER_TRANSFORMERS} {NEWER_ACCELERATE}" if is_too_old else NEWER_TRANSFORMERS


def _torchao(torch: str) -> str:
    return _exactly("torchao", TORCHAO.get(public_part(torch)))


def _companion(name: str, torch: str) -> str:
    """The release of torchvision, torchaudio or torchao for this torch, from the same index."""
    pin = _torchao(torch) if name == "torchao" else _pin(name, torch) if name in ("torchvision", "torchaudio") else ""
    backend = _backend(cuda_of_local(torch))
    return f"{pin} --torch-backend={backend}" if pin and backend else pin


def _backend(cuda: str) -> str:
    return cuda if cuda == "cpu" else f"cu{cuda.replace('.', '')}" if cuda else ""


def _vllm_in(versions: str) -> str:
    """The vLLM that a message of TRL names: `from 0.22.0 to 0.31.0`, `0.10.2, 0.11.0 and 0.11.1`."""
    numbers = re.findall(r"\d+(?:\.\d+)+", versions)
    if len(numbers) == 2 and " to " in versions:
        return f"vllm>={numbers[0]},<={numbers[1]}"
    return f"vllm=={numbers[-1]}" if numbers else ""


def _vllm_of_trl(trl: str) -> str:
    """The vLLM that a TRL release supports, if it names a newest one: "vllm<0.13,>=0.10.2"."""
    specifier = optional_specifier("trl", trl, "vllm") if trl else ""
    return f"vllm{specifier}" if re.search(r"<|==", specifier) else ""


def _requirement_of_library(library: str, cuda: str) -> str:
    """The package of a CUDA library: "nvidia-cuda-runtime-cu12>=12,<13"; empty if its name does not identify one.

    cuDNN and NCCL have a package for each CUDA version with the same files: only `cuda`, torch's, selects one.
    """
    match = re.fullmatch(NVIDIA_LIBRARY, library)
    major = (match[2] or "").partition(".")[0] if match else ""
    name = package_of_library(library, cuda)
    own = match is not None and (match[1].startswith("cudnn") or match[1] in OWN_VERSIONS)
    if not major or (own and not (cuda and name.startswith(("nvidia-cudnn", "nvidia-nccl")))):
        return ""
    return f"{name}>={major},<{int(major) + 1}"


def bounded_requirements(requirements: Iterable[str]) -> str:
    """All requirements with upper bounds, for one installation; empty if one cannot be bounded."""
    with_bounds = [bounded(each.rstrip(TRAILING)) for each in dict.fromkeys(requirements)]
    return " ".join(with_bounds) if all(with_bounds) else ""


def bounded(requirement: str) -> str:
    """A requirement with an upper bound: `numba>=0.61` becomes `numba>=0.61,<1`; empty without any version.

    Not for torch and vLLM: other packages are compiled for the installed one.
    """
    match = re.fullmatch(
        r"(?!torch\b|vllm\b)([\w.-]+(?:\[[\w,-]+\])?)\s*((?:[<>=!~]=?=?\s*[\w.*+!]+\s*,?\s*)+)", requirement
    )
    if not match:
        return ""
    clauses = [clause.replace(" ", "") for clause in match[2].split(",") if clause.strip()]
    if not any(clause.startswith(("<", "==", "~=")) for clause in clauses):
        lower = next((found for clause in clauses if (found := re.match(r">=?v?(\d+)", clause))), None)
        if not lower:
            return ""
        clauses.append(f"<{int(lower[1]) + 1}")
    return match[1] + ",".join(clauses)


def _pin(package: str, torch: str) -> str:
    """The newest release of a package for exactly this torch: "xformers==0.0.32.post2"; empty if there is none."""
    releases = releases_that_pin(package, "torch", public_part(torch)) if torch else []
    return f"{package}=={releases[0]}" if releases else ""


def placeholder_values(machine: Machine, stack: Stack) -> dict[str, str]:
    """The values of placeholders: versions of distributions, driver and GPU."""
    values: dict[str, str | None] = {
        name.replace("-", "_"): distribution.version
        for name, distribution in (stack.distributions.value or {}).items()
    }
    gpus = machine.gpus.value or ()
    torch = stack.torch.value
    nccl, triton = _required_by_torch(stack, r"nvidia-nccl-cu\d+"), _required_by_torch(stack, "triton")
    python = stack.python_version.value or ""
    values |= {
        "gpu": gpus[0].name.value if gpus else None,
        "cc": gpus[0].compute_capability.value if gpus else None,
        "driver": machine.driver.version.value,
        "driver_branch": (machine.driver.version.value or "").split(".")[0],
        "torch": torch.version.value if torch else values.get("torch"),
        "cuda": torch.cuda.value if torch else None,
        "architecture": machine.system.architecture.value,
        "python": python,
        "python_minor": ".".join(python.split(".")[:2]),
        "torch_set": _torch_set(stack, values),
        "nccl_pin": nccl,
        "nccl_package": nccl.partition("==")[0],
        "triton_pin": triton,
    }
    return {name: value for name, value in values.items() if value}


def _required_by_torch(stack: Stack, pattern: str) -> str:
    """The exact requirement of the installed torch on a package, `triton==3.4.0`; empty without one."""
    torch = (stack.distributions.value or {}).get("torch")
    lines = ("".join(line.partition(";")[0].split()) for line in (torch.requires if torch else ()))
    return next((line for line in lines if re.fullmatch(rf"(?:{pattern})==[\w.]+", line)), "")


def _torch_set(stack: Stack, versions: Mapping[str, str | None]) -> str:
    """The packages and options that install the companions of the installed torch again; empty if one is unknown.

    `torch==2.8.0 torchvision==0.23.0 --torch-backend=cu128 --reinstall-package torchvision`
    """
    build = stack.torch.value
    torch = (build.version.value if build else None) or versions.get("torch") or ""
    installed = [name for name in ("torchvision", "torchaudio") if versions.get(name)]
    pins = [_pin(name, torch) for name in installed]
    cuda = (build.cuda.value if build else None) or cuda_of_local(torch)
    if not torch or not installed or not all(pins) or not cuda or is_prerelease(torch):
        return ""
    reinstalled = " ".join(f"--reinstall-package {name}" for name in installed)
    return f"torch=={public_part(torch)} {' '.join(pins)} --torch-backend={_backend(cuda)} {reinstalled}"
