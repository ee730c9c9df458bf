"""Create a profile from an existing environment, with exact versions. Pure; hashes.py reads the hashes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envdoctor.core.errors import BadInput
from envdoctor.core.record import Record
from envdoctor.core.records import Distribution, Machine, Stack
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.releases import leading_name
from envdoctor.profiles.checks import NAME, check_wheel
from envdoctor.profiles.hashes import WheelHash
from envdoctor.profiles.records import Wheel

GIB = 1 << 30
HINT = "envdoctor profiles new PATH --name NAME"
# Installers are not part of the stack. setuptools is: triton 3.1 imports it without requiring it.
TOOLS = {"pip", "uv", "wheel"}
INSTALLERS = {"", "pip", "uv", "poetry", "pdm", "conda", "pixi", "hatch", "rye"}
ALWAYS_REQUIRED = {"torch", "torchvision", "torchaudio"}
PROBES = {
    "torch": ("torch_matmul",),
    "transformers": ("transformers_generate",),
    "trl": ("trl_grpo",),
    "peft": ("peft_lora",),
    "datasets": ("datasets_map",),
}
GPU_PROBES = {"torch": ("cuda_matmul", "sdpa"), "triton": ("triton_jit",), "bitsandbytes": ("bitsandbytes_nf4",)}


class StackParts(Record, frozen=True):
    """The distributions of an environment by their role in the profile."""

    requirements: tuple[Distribution, ...]
    constraints: tuple[Distribution, ...]  # dependencies of the requirements
    wheels: tuple[Wheel, ...]
    left_out: tuple[str, ...]  # with the reason


def profile_from_stack(
    stack: Stack, machine: Machine, name: str, *, hashes: Mapping[str, WheelHash] | None = None, size: int = 0
) -> str:
    """The profile in TOML. `hashes` from `find_wheel_hashes`; `size`: bytes of the environment, 0 if unknown."""
    if not re.fullmatch(NAME, name):
        raise BadInput(f"--name {name!a}", expected="up to 64 letters, digits, dots and dashes", hint=HINT)
    known = hashes or {}
    parts = _split_stack(stack, known)
    if not parts.requirements:
        raise BadInput(
            f"{stack.origin or 'the environment'} has no package that an index could provide",
            expected="an environment with installed packages",
            hint=HINT,
        )
    cuda = _cuda(stack)
    blocks = [
        _head(stack, machine, name, parts, known),
        _when(stack, machine, cuda, size),
        f'[python]\nversions = ["{_python(stack)}"]',
        *([f'[cuda]\nbuild = "{cuda}"'] if cuda else []),
        *(_pin("requirements", distribution, known) for distribution in parts.requirements),
        *(_pin("constraints", distribution, known) for distribution in parts.constraints),
        *(_wheel(wheel) for wheel in parts.wheels),
        *_sources(stack, cuda),
        f"[verify]\nrequired = [{', '.join(map(_quoted, _probes(parts, cuda)))}]",
        '[train]\nrecipe = "sort"',
        "# No evidence: this profile has not been tested yet.",
    ]
    return "\n\n".join(blocks) + "\n"


def _head(stack: Stack, machine: Machine, name: str, parts: StackParts, hashes: Mapping[str, WheelHash]) -> str:
    pins = (*parts.requirements, *parts.constraints)
    sources: dict[str, int] = {}
    for found in (_hash_of(distribution, hashes) for distribution in pins):
        if found:
            sources[found.source] = sources.get(found.source, 0) + 1
    hash_sources = "; ".join(f"{count} from {source}" for source, count in sources.items()) or "none"
    where = machine.system.os.value or "an unknown system"
    kind = stack.kind.value or "Python environment"
    lines = [
        f"Made from a {kind} with Python {stack.python_version.value} on {where},",
        f"{datetime.now(UTC):%Y-%m-%d}. Requirements are packages that no other requires; constraints pin the rest.",
        f"Known SHA-256 of wheels: {hash_sources}; of {len(pins)}.",
        "An installed package does not contain the hash of its wheel. The hashes below are of the installed wheels.",
        "For the others, `envdoctor resolve` prints the hashes that the index has now for the same version.",
        *(f"Left out: {text}" for text in parts.left_out),
    ]
    values = [
        "schema = 1", f"id = {_quoted(name)}", f"title = {_quoted(name + ', from an environment')}",
        f"summary = {_quoted(_summary(parts))}", "preference = 0",
        *(['system = ["c-compiler", "python-headers"]  # triton compiles its launcher at the first kernel']
          if any(distribution.name == "triton" for distribution in pins) else []),
    ]  # fmt: skip
    return "\n".join([*map(_comment, lines), *values])


def _summary(parts: StackParts) -> str:
    main_packages = ("torch", "vllm", "trl", "transformers", "verl")
    found = {d.name: d.version for d in (*parts.requirements, *parts.constraints)}
    named = [f"{name} {found[name]}" for name in main_packages if name in found]
    return ", ".join(named) or f"{len(found)} packages"


def _when(stack: Stack, machine: Machine, cuda: str, size: int) -> str:
    architecture, glibc = machine.system.architecture.value or "", machine.system.glibc.value or ""
    if not re.fullmatch(r"[a-z0-9_]{2,16}", architecture) or not re.fullmatch(r"2\.[0-9]{1,3}", glibc):
        raise BadInput(
            f"architecture {architecture!r} and glibc {glibc!r} of the machine name no wheel platform",
            expected="an architecture and a glibc 2.x",
            hint="--fact system.architecture=x86_64 --fact system.glibc=2.35",
        )
    disk = math.ceil(size * 2 / GIB * 10) / 10 if size else 1.0
    basis = f"{size / GIB:.1f} GiB installed, and as much for wheels and cache" if size else "not measured"
    lines = ["[when]", f'architectures = ["{architecture}"]',
             f'glibc = "{glibc}"  # {_glibc_note(stack)}', f"disk_gb = {max(disk, 0.1)}  # {basis}"]  # fmt: skip
    if cuda:
        lines.append("gpus = 1")
        lines += _capability(stack, machine)
    return "\n".join(lines)


def _glibc_note(stack: Stack) -> str:
    versions = [e.glibc for e in stack.extensions.value or () if re.fullmatch(r"2\.\d{1,3}(\.\d+)?", e.glibc)]
    newest = max(versions, key=lambda text: [int(part) for part in text.split(".")], default="")
    note = f"; its compiled files require {newest}, so an older one may work" if newest else ""
    return f"of the original machine{note}"


def _capability(stack: Stack, machine: Machine) -> list[str]:
    """The compute capability of the original GPUs, otherwise the oldest that its torch supports, if known."""
    observed = [gpu.compute_capability.value or "" for gpu in machine.gpus.value or ()]
    if observed and all(re.fullmatch(r"[0-9]+\.[0-9]+", text) for text in observed):
        return [f'compute_capability = "{min(observed, key=Version)}"  # of the original GPU']
    torch = stack.torch.value
    native = [re.fullmatch(r"sm_([0-9]+)([0-9])", text) for text in (torch and torch.architectures.value) or ()]
    code = sorted((int(found[1]), int(found[2])) for found in native if found)
    return [f'compute_capability = "{code[0][0]}.{code[0][1]}"  # the oldest that its torch supports'] if code else []


def _python(stack: Stack) -> str:
    found = re.match(r"3\.[0-9]{1,2}(?![0-9])", stack.python_version.value or "")
    if not found:
        raise BadInput(
            f"Python {stack.python_version.value!r} of {stack.origin or 'the environment'}",
            expected="a Python 3 whose version can be read",
            hint=HINT,
        )
    return found[0]


def _cuda(stack: Stack) -> str:
    """The CUDA version of torch's build, "12.8"; empty for a CPU build or no torch."""
    torch = stack.torch.value
    if torch is None:
        return ""
    version = (
        (stack.distributions.value or {})["torch"].version if "torch" in (stack.distributions.value or {}) else ""
    )
    local = re.fullmatch(r"cu([0-9]+)([0-9])", version.partition("+")[2])
    cuda = torch.cuda.value or (f"{local[1]}.{local[2]}" if local else "")
    if torch.hip.value or (torch.cuda.state == "unreadable" and not cuda and "+cpu" not in version):
        observed = f"a ROCm build ({torch.hip.value})" if torch.hip.value else f"unreadable ({torch.cuda.note})"
        raise BadInput(f"torch's CUDA build is {observed}", expected="a CUDA or a CPU build", hint=HINT)
    if cuda and cuda not in cuda_releases():
        raise BadInput(
            f"torch's CUDA build is {cuda}", expected="one of: " + ", ".join(cuda_releases()), hint="envdoctor check"
        )
    return cuda


def _split_stack(stack: Stack, hashes: Mapping[str, WheelHash]) -> StackParts:
    everything = stack.distributions.value
    if everything is None:
        raise BadInput(
            f"{stack.origin or 'the environment'}: packages could not be read ({stack.distributions.note})",
            expected="an environment that you may read",
            hint=HINT,
        )
    pinned: dict[str, Distribution] = {}
    wheels: list[Wheel] = []
    left_out: list[str] = []
    for name, distribution in sorted(everything.items()):
        if name in TOOLS:
            continue
        problem = _index_problem(distribution)
        found = _hash_of(distribution, hashes)
        if problem and found and (wheel := _as_wheel(distribution, found)):
            wheels.append(wheel)
            left_out.append(f"{wheel.name} {distribution.version}, from an address, is under [[wheels]]")
        elif problem:
            left_out.append(f"{distribution.name} {distribution.version}: {problem}")
        else:
            pinned[name] = distribution
    names = _top_level_names(pinned, everything)
    rest = tuple(d for name, d in pinned.items() if name not in names)
    return StackParts(tuple(pinned[name] for name in names), rest, tuple(wheels), tuple(left_out))


def _index_problem(distribution: Distribution) -> str:
    """Why no index provides this distribution, or why it cannot be written to a profile."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?", distribution.name):
        return "its name is not valid on an index"
    try:
        Version(distribution.version)
    except InvalidVersion:
        return "its version is not valid on an index"
    first = distribution.source.partition(" ")[0].lower()
    if first not in INSTALLERS:
        return f"installed from {distribution.source}, not from an index"
    if first == "conda" and "site-packages" not in distribution.location:
        return "a conda package that PyPI does not have"
    return ""


def _top_level_names(pinned: Mapping[str, Distribution], everything: Mapping[str, Distribution]) -> list[str]:
    """Packages that no other requires, with torch and its family, and one of each cycle of requirements."""
    requires = {name: {leading_name(line) for line in d.requires} - {name} for name, d in everything.items()}
    required_names = {other for name in pinned for other in requires[name]}
    names = [name for name in pinned if name not in required_names or name in ALWAYS_REQUIRED]
    reached = _dependencies(names, requires)
    for name in pinned:
        if name not in reached:
            names.append(name)
            reached |= _dependencies([name], requires)
    return sorted(names, key=lambda name: (name != "torch", name))


def _dependencies(names: Iterable[str], requires: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += requires.get(name, ())
    return found


def _as_wheel(distribution: Distribution, found: WheelHash) -> Wheel | None:
    """A distribution installed from an https URL with a hash, as a direct wheel; None if it is not valid as one."""
    file = unquote(urlsplit(found.url).path).rpartition("/")[2]
    wheel = Wheel(name=distribution.name, file=file, url=found.url, sha256=found.sha256, why=f"from {found.source}")
    try:
        fits = str(parse_wheel_filename(file)[1]) == str(Version(distribution.version))
    except (InvalidWheelFilename, InvalidVersion):
        return None
    # A query may be a signature, which is a credential.
    return wheel if fits and not urlsplit(found.url).query and not next(check_wheel(wheel, "wheels"), None) else None


def _hash_of(distribution: Distribution, hashes: Mapping[str, WheelHash]) -> WheelHash | None:
    found = hashes.get(distribution.name)
    return found if found and found.version == distribution.version else None


def _pin(kind: str, distribution: Distribution, hashes: Mapping[str, WheelHash]) -> str:
    lines = [f"[[{kind}]]", f"spec = {_quoted(f'{distribution.name}=={distribution.version}')}"]
    if found := _hash_of(distribution, hashes):
        lines.append(_comment(f"sha256:{found.sha256}, from {found.source}"))
    return "\n".join(lines)


def _wheel(wheel: Wheel) -> str:
    values = {"name": wheel.name, "file": wheel.file, "url": wheel.url, "sha256": wheel.sha256, "why": wheel.why}
    return "\n".join(["[[wheels]]", *(f"{key} = {_quoted(value)}" for key, value in values.items())])


def _sources(stack: Stack, cuda: str) -> Iterator[str]:
    """The sources. A local version (+cu128, +cpu) is only on the PyTorch index; others may be on PyPI."""
    torch = (stack.distributions.value or {}).get("torch")
    local = torch.version.partition("+")[2] if torch else ""
    if not local:
        yield '[[sources]]\nkind = "configured"'
    if torch:
        backend = f"cu{cuda.replace('.', '')}" if cuda else "cpu"
        yield f'[[sources]]\nkind = "torch-index"\nbackend = "{backend}"'


def _probes(parts: StackParts, cuda: str) -> Sequence[str]:
    present = {distribution.name for distribution in (*parts.requirements, *parts.constraints)}
    tables = (PROBES, GPU_PROBES) if cuda else (PROBES,)
    return [probe for table in tables for name, probes in table.items() if name in present for probe in probes]


def _quoted(text: str) -> str:
    """A TOML string. TOML has the same escapes as JSON."""
    return json.dumps(text)


def _comment(text: str) -> str:
    """One line of comment, also for untrusted metadata."""
    return "# " + "".join(char if char.isprintable() else "?" for char in text)[:300]
