"""What every exported form shares: a lock whose every text is known to be of its form, and the commands for it."""

from __future__ import annotations

import re
import shlex

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Record
from envdoctor.export.text import comment
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.locking.lock import Lock
from envdoctor.locking.lock_files import format_lock, parse_lock
from envdoctor.profiles import Profile

# Variables that shells, loaders, interpreters and installers act on: one of them, set by a stranger's profile, would
# run a program or take wheels from elsewhere.
OBEYED = re.compile(
    r"PATH|HOME|IFS|ENV|SHELL|CDPATH|PS\d|BASH.*|SHELLOPTS|PROMPT_.*|LD_.*|GCONV_PATH|PYTHON(STARTUP|HOME|PATH|INSPECT)|"
    r"GIT_.*|PIP_.*|UV_.*|CONDA_.*|VIRTUAL_ENV|SSL_.*|(HTTPS?|ALL|NO)_PROXY|.*_proxy|CC|CXX|EDITOR|PAGER|BROWSER"
)
FORMS_OF_TEXT = (
    ("id", r"[A-Za-z0-9][A-Za-z0-9._-]*"),
    ("platform", r"(x86_64|aarch64)-manylinux_2_\d+"),
    ("python", r"3\.\d+"),
    ("torch_build", r"cpu|\d+\.\d+"),
    ("backend", r"(cpu|cu\d+)?"),
    ("made", r"\d{4}-\d\d-\d\d"),
)
DISK_GB = 1_000_000
GUARDS = ("--require-hashes", "--only-binary", ":all:")  # nothing without its hash, nothing compiled unasked
INDEX_VARIABLE = "PYTORCH_INDEX"  # holds the address of the PyTorch index, which no exported file names


class Locked(Record, frozen=True, kw_only=True):
    """A profile and its lock, checked: what an exported file is written from."""

    profile: Profile
    file: Lock
    architecture: str
    glibc: str
    backend: str  # of the PyTorch index that torch comes from, empty where it comes from PyPI
    torch: str  # its version without the mark of a build, empty where the lock has none
    build: str  # "cpu" or the CUDA version
    places: tuple[Place, ...] = ()  # of its wheels, where they were looked up


class Place(Record, frozen=True):
    """Where a wheel of a lock lies: its file name, address or path, and length where it is known."""

    name: str
    url: str
    sha256: str
    size: int | None = None


class Exported(Record, frozen=True):
    """A file for somebody without envdoctor."""

    profile: str
    form: str
    file_name: str
    text: str
    notes: tuple[str, ...]  # what the form cannot say, and what is left to do


def checked(profile: Profile, file: Lock, places: tuple[Place, ...] = ()) -> Locked:
    """The profile and its lock, if nothing in them can be taken for anything but what it is."""
    hint = f"envdoctor profiles show {shlex.quote(profile.id)}"
    heads = {"id": profile.id} | {name: getattr(file, name) for name, _ in FORMS_OF_TEXT[1:]}
    for name, form in FORMS_OF_TEXT:
        if not re.fullmatch(form, heads[name]):
            raise BadInput(f"{name} {heads[name]!r} of the lock", expected=f"text as {form}", hint=hint)
    if not 0 <= profile.when.disk_gb < DISK_GB:  # not-a-number is refused, too
        raise BadInput(f"when.disk_gb = {profile.when.disk_gb}", expected=f"0 to {DISK_GB} GiB", hint=hint)
    _check_environment(profile, hint)
    if bad := next((name for name in file.without if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name)), ""):
        raise BadInput(f"package {bad!r} that the lock is without", expected="a package's name", hint=hint)
    # What is installed is what reads back from the lock's own text: no other kind of line is in it.
    file = parse_lock(format_lock(file), where=f"the lock of {profile.id}")
    wanted = profile.cuda.build if profile.cuda else "cpu"
    if file.profile != profile.id or file.torch_build != wanted:
        raise BadInput(
            f"the lock is of profile '{file.profile}' with torch for {file.torch_build}",
            expected=f"profile '{profile.id}' with torch for {wanted}",
            hint="envdoctor lock --check",
        )
    if file.torch_build != "cpu" and file.torch_build not in cuda_releases():
        raise BadInput(f"CUDA {file.torch_build}", expected="one of: " + ", ".join(cuda_releases()), hint=hint)
    torch, _, mark = next((p.version for p in file.packages if p.name == "torch"), "").partition("+")
    return Locked(
        profile=profile,
        file=file,
        architecture=file.platform.partition("-")[0],
        glibc="2." + file.platform.rpartition("_")[2],
        # A marked wheel (`2.13.0+cpu`) is on the PyTorch index alone, whatever folder the lock was made from.
        backend=file.backend or (mark if re.fullmatch(r"cpu|cu\d+", mark) else ""),
        torch=torch,
        build=file.torch_build,
        places=places,
    )


def _check_environment(profile: Profile, hint: str) -> None:
    """Refuse variables that are none, or that something else than a library acts on."""
    for name, value in profile.environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise BadInput(f"environment.{name!r} = {value!r}", expected="a variable's name, and text", hint=hint)
        if OBEYED.fullmatch(name):
            raise BadInput(
                f"environment.{name} of profile '{profile.id}' steers shells, loaders or installers",
                expected="settings of libraries, as VLLM_USE_FLASHINFER_SAMPLER",
                hint=hint,
            )


def demand_whole(stack: Locked, form: str) -> None:
    """Refuse a lock that lacks packages, for forms that install without anybody looking on."""
    if stack.file.without:
        raise BadInput(
            f"the lock of '{stack.profile.id}' is without {', '.join(stack.file.without)}: the PyTorch index "
            f"({stack.backend}) was not reached when it was made",
            expected=f"a whole lock for form '{form}'; `envdoctor lock` makes one where that index can be reached",
            hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format requirements",
        )


def heading(stack: Locked) -> list[str]:
    """What the file is, as lines for comments."""
    whole = f"without {', '.join(stack.file.without)}; " if stack.file.without else ""
    compiled = f"{len(stack.file.built)} of them compiled on the machine, " if stack.file.built else ""
    build = "torch for the CPU" if stack.build == "cpu" else f"torch with CUDA {stack.build}"
    index = f" from the PyTorch index ({stack.backend})" if stack.backend else ""
    return [
        comment(f"Profile {stack.profile.id}: {stack.profile.title}"),
        f"{len(stack.file.packages)} packages, {compiled}{whole}locked {stack.file.made} as {stack.file.digest}",
        f"for {stack.architecture}, glibc {stack.glibc} or newer, Python {stack.file.python}, {build}{index}",
    ]


def commented(lines: list[str]) -> str:
    """Lines as comments of Python, shell, YAML and TOML; none of them can end its comment."""
    plain = ("".join(c if c.isprintable() else " " for c in line) for line in lines)
    return "".join(f"# {line}".rstrip() + "\n" for line in plain)


def uv_sync(stack: Locked) -> list[str]:
    """uv's words for installing exactly the lock; the interpreter and the file come after them."""
    return ["uv", "pip", "sync", *GUARDS, *uv_backend(stack)]


def uv_backend(stack: Locked) -> list[str]:
    """uv's words for the PyTorch index, none where torch is from PyPI."""
    return ["--torch-backend", stack.backend] if stack.backend else []


def torch_check(stack: Locked) -> str:
    """A line of Python that prints the build of torch, and fails if it is not the lock's."""
    if not stack.torch:
        return "import sys; print('Python', sys.version.split()[0])"
    cuda = None if stack.build == "cpu" else stack.build
    return (
        "import sys, torch; found = (torch.__version__.split('+')[0], torch.version.cuda); "
        "print('torch', *found); "
        f"sys.exit(None if found == ({stack.torch!r}, {cuda!r}) else 'not the torch of the lock')"
    )
