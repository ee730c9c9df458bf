"""Common parts of all export formats: the checked profile and lock, and the commands to install them."""

from __future__ import annotations

import re

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.export.text import one_line
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.locking.lock import Lock
from envdoctor.locking.lock_files import format_lock, parse_lock
from envdoctor.locking.wheel_urls import PackageFile
from envdoctor.profiles import Profile
from envdoctor.profiles.notebooks import require_environment

# Variables that shells, loaders, interpreters and installers use. In an untrusted profile they could run programs or
# change the package sources.
UNSAFE_VARIABLES = lazy_pattern(
    r"PATH|HOME|IFS|ENV|SHELL|CDPATH|PS\d|BASH.*|SHELLOPTS|PROMPT_.*|LD_.*|GCONV_PATH|PYTHON(STARTUP|HOME|PATH|INSPECT)|"
    r"GIT_.*|PIP_.*|UV_.*|CONDA_.*|VIRTUAL_ENV|SSL_.*|(HTTPS?|ALL|NO)_PROXY|.*_proxy|CC|CXX|EDITOR|PAGER|BROWSER"
)
FIELD_PATTERNS = (
    ("id", r"[A-Za-z0-9][A-Za-z0-9._-]*"),
    ("platform", r"(x86_64|aarch64)-manylinux_2_\d+"),
    ("python", r"3\.\d+"),
    ("torch_build", r"cpu|\d+\.\d+"),
    ("backend", r"(cpu|cu\d+)?"),
    ("made", r"\d{4}-\d\d-\d\d"),
)
DISK_GB = 1_000_000
HASH_OPTIONS = ("--require-hashes", "--only-binary", ":all:")  # require hashes, and never compile unexpectedly
INDEX_VARIABLE = "PYTORCH_INDEX"  # contains the URL of the PyTorch index, which exported files do not contain


class LockedStack(Record, frozen=True, kw_only=True):
    """A profile and its lock, after `check_stack`."""

    profile: Profile
    lock: Lock
    architecture: str
    glibc: str
    backend: str  # of the PyTorch index; empty if torch comes from PyPI
    torch: str  # the version without its local part; empty if the lock has no torch
    build: str  # "cpu" or the CUDA version
    files: tuple[PackageFile, ...] = ()  # the located files of the packages


class ExportedFile(Record, frozen=True):
    """An exported file."""

    profile: str
    form: str
    file_name: str
    text: str
    notes: tuple[str, ...]  # limits of the format, and steps for the user


def check_stack(profile: Profile, lock: Lock, files: tuple[PackageFile, ...] = ()) -> LockedStack:
    """Check all texts of a profile and its lock, so that exported files cannot misinterpret them."""
    require_environment(profile)
    hint = shell_command("envdoctor profiles show {}", profile.id)
    texts = {"id": profile.id} | {name: getattr(lock, name) for name, _ in FIELD_PATTERNS[1:]}
    for name, pattern in FIELD_PATTERNS:
        if not re.fullmatch(pattern, texts[name]):
            raise BadInput(f"{name} {texts[name]!r} of the lock", expected=f"text that matches {pattern}", hint=hint)
    if not 0 <= profile.when.disk_gb < DISK_GB:  # also true for NaN
        raise BadInput(f"when.disk_gb = {profile.when.disk_gb}", expected=f"0 to {DISK_GB} GiB", hint=hint)
    _check_environment(profile, hint)
    if invalid := next((name for name in lock.without if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name)), ""):
        raise BadInput(f"package {invalid!r} that the lock omits", expected="the name of a package", hint=hint)
    # Parsing the text of the lock again ensures that it only contains valid lines.
    lock = parse_lock(format_lock(lock), where=f"the lock of {profile.id}")
    torch_build = profile.cuda.build if profile.cuda else "cpu"
    if lock.profile != profile.id or lock.torch_build != torch_build:
        raise BadInput(
            f"the lock is for profile '{lock.profile}' with torch for {lock.torch_build}",
            expected=f"profile '{profile.id}' with torch for {torch_build}",
            hint="envdoctor lock --check",
        )
    if lock.torch_build != "cpu" and lock.torch_build not in cuda_releases():
        raise BadInput(f"CUDA {lock.torch_build}", expected="one of: " + ", ".join(cuda_releases()), hint=hint)
    torch, _, local = lock.version_of("torch").partition("+")
    return LockedStack(
        profile=profile,
        lock=lock,
        architecture=lock.architecture,
        glibc="2." + lock.platform.rpartition("_")[2],
        # A wheel with a local version (`2.13.0+cpu`) is only on the PyTorch index, regardless of the lock's sources.
        backend=lock.backend or (local if re.fullmatch(r"cpu|cu\d+", local) else ""),
        torch=torch,
        build=lock.torch_build,
        files=files,
    )


def _check_environment(profile: Profile, hint: str) -> None:
    """Refuse invalid variable names, and variables that shells, loaders or installers use."""
    for name, value in profile.environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise BadInput(
                f"environment.{name!r} = {value!r}", expected="the name of a variable, and text", hint=hint
            )
        if UNSAFE_VARIABLES.fullmatch(name):
            raise BadInput(
                f"environment.{name} of profile '{profile.id}' affects shells, loaders or installers",
                expected="settings of libraries, such as VLLM_USE_FLASHINFER_SAMPLER",
                hint=hint,
            )


def require_complete(stack: LockedStack, form: str) -> None:
    """Refuse a partial lock, for formats that install without user interaction."""
    if stack.lock.without:
        raise BadInput(
            f"the lock of '{stack.profile.id}' does not contain {', '.join(stack.lock.without)}: the PyTorch index "
            f"({stack.backend}) was unreachable when it was made",
            expected=f"a complete lock for format '{form}'; `envdoctor lock` makes one if that index is reachable",
            hint=shell_command("envdoctor export {} --as requirements", stack.profile.id),
        )


def heading(stack: LockedStack) -> list[str]:
    """The description of the stack, as comment lines."""
    omitted = f"without {', '.join(stack.lock.without)}; " if stack.lock.without else ""
    compiled = f"{len(stack.lock.built)} of them compiled on the machine, " if stack.lock.built else ""
    build = "torch for the CPU" if stack.build == "cpu" else f"torch with CUDA {stack.build}"
    index = f" from the PyTorch index ({stack.backend})" if stack.backend else ""
    return [
        one_line(f"Profile {stack.profile.id}: {stack.profile.title}"),
        f"{len(stack.lock.packages)} packages, {compiled}{omitted}locked {stack.lock.made} as {stack.lock.digest}",
        f"for {stack.architecture}, glibc {stack.glibc} or newer, Python {stack.lock.python}, {build}{index}",
    ]


def comment_lines(lines: list[str]) -> str:
    """Lines as comments for Python, shell, YAML and TOML, without control characters."""
    plain = ("".join(c if c.isprintable() else " " for c in line) for line in lines)
    return "".join(f"# {line}".rstrip() + "\n" for line in plain)


def uv_sync_command(stack: LockedStack) -> list[str]:
    """The uv command that installs the lock, without the interpreter and the file."""
    return ["uv", "pip", "sync", *HASH_OPTIONS, *uv_backend_options(stack)]


def uv_backend_options(stack: LockedStack) -> list[str]:
    """uv's options for the PyTorch index; empty if torch is from PyPI."""
    return ["--torch-backend", stack.backend] if stack.backend else []


def torch_check_code(stack: LockedStack) -> str:
    """Python code that prints the version and CUDA build of torch, and fails if they are not the locked ones."""
    if not stack.torch:
        return "import sys; print('Python', sys.version.split()[0])"
    cuda = None if stack.build == "cpu" else stack.build
    return (
        "import sys, torch; found = (torch.__version__.split('+')[0], torch.version.cuda); "
        "print('torch', *found); "
        f"sys.exit(None if found == ({stack.torch!r}, {cuda!r}) else 'not the locked torch')"
    )
