"""Forms that make a container image: a Dockerfile and a definition for Apptainer."""

from __future__ import annotations

import json
import shlex

from packaging.version import Version

from envdoctor.core.errors import BadInput
from envdoctor.export.builds import NVCC, apt_packages, build_file, build_notes, built, named, needs, shell_steps
from envdoctor.export.stack import Exported, Locked, commented, demand_whole, heading, torch_check, uv_sync
from envdoctor.export.text import docker_value, export_line
from envdoctor.knowledge.guides import system_of_image
from envdoctor.knowledge.images import image_tables

PLACE = "/opt/stack"
PYTHON = f"{PLACE}/venv/bin/python"
LOCK = f"{PLACE}/requirements.txt"
USER = 10001  # above any that the base images have
DOCKER_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
# Triton and torch.compile call a C or C++ compiler when they run; no base image has one.
SYSTEM_PACKAGES = "ca-certificates g++"


def base_image(stack: Locked) -> str:
    """The image to start from: of the build's CUDA, and of a system whose glibc is new enough."""
    table = image_tables()
    if stack.build == "cpu" and NVCC in needs(stack):
        raise BadInput(
            f"{named(built(stack))} of '{stack.profile.id}' needs nvcc, and the image for torch's CPU build has none",
            expected="a profile with [cuda] build",
            hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format script",
        )
    if stack.build == "cpu":
        fitting = [f"python:{stack.file.python}-{row.tag}" for row in table.python if _new_enough(row.system, stack)]
    else:
        kind = "devel" if needs_nvcc(stack) or NVCC in needs(stack) else "base"
        fitting = [
            f"nvidia/cuda:{row.version}-{kind}-{row.system}"
            for row in table.cuda
            if row.build == stack.build and _new_enough(row.system, stack)
        ]
    if not fitting:
        wanted = "Python" if stack.build == "cpu" else f"CUDA {stack.build}"
        known = [f"CUDA {row.build} on {row.system}" for row in table.cuda if stack.build != "cpu"]
        known += [f"Python on {row.system}" for row in table.python if stack.build == "cpu"]
        raise BadInput(
            f"no known image has {wanted} and glibc {stack.glibc} or newer",
            expected="one of: " + ", ".join(known),
            hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format script",
        )
    return fitting[0]


def needs_nvcc(stack: Locked) -> list[str]:
    """The packages of the lock that call nvcc when they run."""
    names = {package.name for package in stack.file.packages}
    return [row.name for row in image_tables().nvcc if row.name in names and stack.build != "cpu"]


def _new_enough(system: str, stack: Locked) -> bool:
    row = system_of_image(system)
    return row is not None and Version(row.glibc) >= Version(stack.glibc)


def _demand_one_line(stack: Locked, form: str) -> None:
    """Refuse values that a form has no way to write."""
    compiled = stack.profile.build.environment if built(stack) and stack.profile.build else {}
    for name, value in (*stack.profile.environment.items(), *compiled.items()):
        if not value.isprintable() or (form == "apptainer" and ("{{" in value or "}}" in value)):
            raise BadInput(
                f"environment.{name} = {value!r} cannot be written in form '{form}'",
                expected="one line of printable text" + (", without {{ }}" if form == "apptainer" else ""),
                hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format script",
            )


def _notes(stack: Locked) -> tuple[str, ...]:
    notes = ["not built here: the base image and uv's come from Docker Hub when you build"]
    if stack.build != "cpu":
        notes.append(f"Python {stack.file.python} is fetched by uv, since the base image has none of that version")
    if compiling := needs_nvcc(stack):
        notes.append(f"the base image has the CUDA toolkit, since {', '.join(compiling)} compiles when it runs")
    elif NVCC in needs(stack):
        notes.append("the base image has the CUDA toolkit, since it is compiled with")
    if NVCC in needs(stack):
        notes.append("no GPU is seen while an image is built: [build] of the profile says for which to compile")
    return (*notes, *build_notes(stack))


def _system_packages(stack: Locked) -> str:
    return " ".join([SYSTEM_PACKAGES, *apt_packages(stack)])


def _create(stack: Locked) -> str:
    """The command that makes the environment in the image."""
    python = f"/usr/local/bin/python{stack.file.python}" if stack.build == "cpu" else stack.file.python
    return shlex.join(["uv", "venv", "--no-project", "--python", python, f"{PLACE}/venv"])


def _install(stack: Locked) -> str:
    return shlex.join([*uv_sync(stack), "--python", PYTHON, LOCK])


def dockerfile(stack: Locked) -> Exported:
    """An image that runs as an ordinary user; downloads stay in the builder's cache."""
    demand_whole(stack, "dockerfile")
    _demand_one_line(stack, "dockerfile")
    gpus = "" if stack.build == "cpu" else " --gpus all"
    tag, platform = stack.profile.id.lower(), DOCKER_PLATFORMS[stack.architecture]
    usage = [
        "",
        f"  docker build --platform {platform} --tag {tag} - < Dockerfile",
        f"  docker run --rm -it{gpus} --shm-size 8g {tag}",
    ]
    check = json.dumps([PYTHON, "-c", torch_check(stack)])
    settings = "".join(f"ENV {n}={docker_value(v)}\n" for n, v in stack.profile.environment.items())
    text = f"""# syntax=docker/dockerfile:1
{commented([*heading(stack), *usage])}
FROM {base_image(stack)}
COPY --from={image_tables().uv[0].program} /uv /usr/local/bin/uv
# The C compiler is for kernels that are compiled when the stack runs; its version is the base image's.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \\
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \\
    rm -f /etc/apt/apt.conf.d/docker-clean \\
    && apt-get update \\
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {_system_packages(stack)}
RUN useradd --create-home --uid {USER} stack && install -d -o stack -g stack {PLACE}

USER {USER}:{USER}
WORKDIR /home/stack
COPY --chown={USER}:{USER} <<'LOCK' {LOCK}
{stack.file.text}LOCK

ENV UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR={PLACE}/python
RUN --mount=type=cache,target=/home/stack/.cache/uv,uid={USER},gid={USER} \\
    {_create(stack)} \\
    && {_install(stack)}
{_docker_builds(stack)}ENV PATH="{PLACE}/venv/bin:$PATH" VIRTUAL_ENV={PLACE}/venv
{settings}# Built only if this is the lock's torch; the same is asked of a running container.
RUN {check}
HEALTHCHECK --interval=5m --timeout=2m --start-period=2m CMD {check}
CMD ["python"]
"""
    return Exported(stack.profile.id, "dockerfile", "Dockerfile", text, _notes(stack))


def _docker_builds(stack: Locked) -> str:
    """The instructions that compile, empty where nothing is; as the user that the image runs as."""
    steps = shell_steps(stack, PYTHON, PLACE)
    if not steps:
        return ""
    files = "".join(
        f"COPY --chown={USER}:{USER} <<'LOCK' {PLACE}/{build_file(package)}\n{package.line}\nLOCK\n"
        for package in built(stack)
    )
    told = "# Compiled here, against what is installed by now, with build requirements from it; nothing else is.\n"
    return told + files + "RUN " + " \\\n    && ".join(steps) + "\n"


def _apptainer_builds(stack: Locked) -> str:
    """The lines that compile, empty where nothing is."""
    files = "".join(
        f"    cat > {PLACE}/{build_file(package)} <<'LOCK'\n{package.line}\nLOCK\n" for package in built(stack)
    )
    return files + "".join(f"    {step}\n" for step in shell_steps(stack, PYTHON, PLACE))


def apptainer(stack: Locked) -> Exported:
    """A definition for Apptainer, which runs images as the user who calls it."""
    demand_whole(stack, "apptainer")
    _demand_one_line(stack, "apptainer")
    name = f"{stack.profile.id}.def"
    image = f"{stack.profile.id}.sif"
    gpus = "" if stack.build == "cpu" else " --nv"
    usage = ["", f"  apptainer build {image} {name}", f"  apptainer run{gpus} {image} program.py"]
    settings = "".join(f"    {export_line(n, v)}\n" for n, v in stack.profile.environment.items())
    check = shlex.join([PYTHON, "-c", torch_check(stack)])
    text = f"""{commented([*heading(stack), *usage])}
Bootstrap: docker
From: {image_tables().uv[0].system}
Stage: uv

Bootstrap: docker
From: {base_image(stack)}
Stage: stack

%files from uv
    /usr/local/bin/uv /usr/local/bin/uv

%post
    set -eu
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install -y --no-install-recommends {_system_packages(stack)}
    rm -rf /var/lib/apt/lists/*
    mkdir -p {PLACE}
    cat > {LOCK} <<'LOCK'
{stack.file.text}LOCK
    export UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR={PLACE}/python UV_CACHE_DIR={PLACE}/cache
    {_create(stack)}
    {_install(stack)}
{_apptainer_builds(stack)}    rm -rf {PLACE}/cache
    {check}

%environment
    export PATH="{PLACE}/venv/bin:$PATH"
    export VIRTUAL_ENV={PLACE}/venv
{settings}
%test
    {check}

%runscript
    exec {PYTHON} "$@"
"""
    return Exported(stack.profile.id, "apptainer", name, text, _notes(stack))
