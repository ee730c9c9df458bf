"""Formats for container images: a Dockerfile and an Apptainer definition."""

from __future__ import annotations

import json
import shlex

from packaging.version import Version

from envdoctor.core.errors import BadInput
from envdoctor.core.shell_commands import shell_command
from envdoctor.export.builds import (
    NVCC,
    apt_packages,
    build_commands,
    build_file,
    build_needs,
    build_notes,
    describe_packages,
    packages_to_build,
)
from envdoctor.export.stack import (
    ExportedFile,
    LockedStack,
    comment_lines,
    heading,
    require_complete,
    torch_check_code,
    uv_sync_command,
)
from envdoctor.export.text import docker_value, export_line
from envdoctor.knowledge.images import image_tables, system_of_image

ROOT = "/opt/stack"
PYTHON = f"{ROOT}/venv/bin/python"
LOCK = f"{ROOT}/requirements.txt"
USER = 10001  # higher than the user ids of the base images
DOCKER_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
# Triton and torch.compile call a C or C++ compiler at run time. No base image has one.
SYSTEM_PACKAGES = "ca-certificates g++"


def base_image(stack: LockedStack) -> str:
    """The base image: with the CUDA version of torch's build and a sufficiently new glibc."""
    table = image_tables()
    if stack.build == "cpu" and NVCC in build_needs(stack):
        raise BadInput(
            f"{describe_packages(packages_to_build(stack))} of '{stack.profile.id}' needs nvcc, "
            "and the image for torch's CPU build has none",
            expected="a profile with [cuda] build",
            hint=shell_command("envdoctor export {} --as script", stack.profile.id),
        )
    if stack.build == "cpu":
        fitting = [
            f"python:{stack.lock.python}-{row.tag}" for row in table.python if _is_new_enough(row.system, stack)
        ]
    else:
        kind = "devel" if needs_nvcc(stack) or NVCC in build_needs(stack) else "base"
        fitting = [
            f"nvidia/cuda:{row.version}-{kind}-{row.system}"
            for row in table.cuda
            if row.build == stack.build and _is_new_enough(row.system, stack)
        ]
    if not fitting:
        wanted = "Python" if stack.build == "cpu" else f"CUDA {stack.build}"
        known = [f"CUDA {row.build} on {row.system}" for row in table.cuda if stack.build != "cpu"]
        known += [f"Python on {row.system}" for row in table.python if stack.build == "cpu"]
        raise BadInput(
            f"no known image has {wanted} and glibc {stack.glibc} or newer",
            expected="one of: " + ", ".join(known),
            hint=shell_command("envdoctor export {} --as script", stack.profile.id),
        )
    return fitting[0]


def needs_nvcc(stack: LockedStack) -> list[str]:
    """The packages of the lock that call nvcc at run time."""
    names = {package.name for package in stack.lock.packages}
    return [row.name for row in image_tables().nvcc if row.name in names and stack.build != "cpu"]


def _is_new_enough(system: str, stack: LockedStack) -> bool:
    row = system_of_image(system)
    return row is not None and Version(row.glibc) >= Version(stack.glibc)


def _check_one_line(stack: LockedStack, form: str) -> None:
    """Refuse values that a format cannot represent."""
    compiled = stack.profile.build.environment if packages_to_build(stack) and stack.profile.build else {}
    for name, value in (*stack.profile.environment.items(), *compiled.items()):
        if not value.isprintable() or (form == "apptainer" and ("{{" in value or "}}" in value)):
            raise BadInput(
                f"environment.{name} = {value!r} cannot be written in form '{form}'",
                expected="one line of printable text" + (", without {{ }}" if form == "apptainer" else ""),
                hint=shell_command("envdoctor export {} --as script", stack.profile.id),
            )


def _notes(stack: LockedStack) -> tuple[str, ...]:
    notes = ["not built here: the base image and uv's image are downloaded from Docker Hub during the build"]
    if stack.build != "cpu":
        notes.append(f"Python {stack.lock.python} is downloaded by uv: the base image does not have it")
    if compiling := needs_nvcc(stack):
        notes.append(f"the base image has the CUDA toolkit, since {', '.join(compiling)} compiles at run time")
    elif NVCC in build_needs(stack):
        notes.append("the base image has the CUDA toolkit, which the builds need")
    if NVCC in build_needs(stack):
        notes.append("no GPU is visible while an image is built: [build] of the profile selects the architectures")
    return (*notes, *build_notes(stack))


def _system_packages(stack: LockedStack) -> str:
    return " ".join([SYSTEM_PACKAGES, *apt_packages(stack)])


def _create_command(stack: LockedStack) -> str:
    """The command that creates the environment in the image."""
    python = f"/usr/local/bin/python{stack.lock.python}" if stack.build == "cpu" else stack.lock.python
    return shlex.join(["uv", "venv", "--no-project", "--python", python, f"{ROOT}/venv"])


def _install_command(stack: LockedStack) -> str:
    return shlex.join([*uv_sync_command(stack), "--python", PYTHON, LOCK])


def dockerfile(stack: LockedStack) -> ExportedFile:
    """A Dockerfile. The image runs as an unprivileged user; downloads stay in the builder's cache."""
    require_complete(stack, "dockerfile")
    _check_one_line(stack, "dockerfile")
    gpus = "" if stack.build == "cpu" else " --gpus all"
    tag, platform = stack.profile.id.lower(), DOCKER_PLATFORMS[stack.architecture]
    usage = [
        "",
        f"  docker build --platform {platform} --tag {tag} - < Dockerfile",
        f"  docker run --rm -it{gpus} --shm-size 8g {tag}",
    ]
    check = json.dumps([PYTHON, "-c", torch_check_code(stack)])
    environment_lines = "".join(f"ENV {n}={docker_value(v)}\n" for n, v in stack.profile.environment.items())
    text = f"""# syntax=docker/dockerfile:1
{comment_lines([*heading(stack), *usage])}
FROM {base_image(stack)}
COPY --from={image_tables().uv[0].program} /uv /usr/local/bin/uv
# The C compiler is for kernels that are compiled at run time; its version is that of the base image.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \\
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \\
    rm -f /etc/apt/apt.conf.d/docker-clean \\
    && apt-get update \\
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {_system_packages(stack)}
RUN useradd --create-home --uid {USER} stack && install -d -o stack -g stack {ROOT}

USER {USER}:{USER}
WORKDIR /home/stack
COPY --chown={USER}:{USER} <<'LOCK' {LOCK}
{stack.lock.text}LOCK

ENV UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR={ROOT}/python
RUN --mount=type=cache,target=/home/stack/.cache/uv,uid={USER},gid={USER} \\
    {_create_command(stack)} \\
    && {_install_command(stack)}
{_docker_builds(stack)}ENV PATH="{ROOT}/venv/bin:$PATH" VIRTUAL_ENV={ROOT}/venv
{environment_lines}# Fails if the installed torch is not the locked one. The health check of containers is the same.
RUN {check}
HEALTHCHECK --interval=5m --timeout=2m --start-period=2m CMD {check}
CMD ["python"]
"""
    return ExportedFile(stack.profile.id, "dockerfile", "Dockerfile", text, _notes(stack))


def _docker_builds(stack: LockedStack) -> str:
    """The instructions that compile packages, as the user of the image; empty if there are none."""
    steps = build_commands(stack, PYTHON, ROOT)
    if not steps:
        return ""
    files = "".join(
        f"COPY --chown={USER}:{USER} <<'LOCK' {ROOT}/{build_file(package)}\n{package.line}\nLOCK\n"
        for package in packages_to_build(stack)
    )
    comment = "# Compile packages with the installed packages, without build isolation.\n"
    return comment + files + "RUN " + " \\\n    && ".join(steps) + "\n"


def _apptainer_builds(stack: LockedStack) -> str:
    """The lines that compile packages; empty if there are none."""
    files = "".join(
        f"    cat > {ROOT}/{build_file(package)} <<'LOCK'\n{package.line}\nLOCK\n"
        for package in packages_to_build(stack)
    )
    return files + "".join(f"    {step}\n" for step in build_commands(stack, PYTHON, ROOT))


def apptainer(stack: LockedStack) -> ExportedFile:
    """An Apptainer definition. Apptainer runs images as the calling user."""
    require_complete(stack, "apptainer")
    _check_one_line(stack, "apptainer")
    name = f"{stack.profile.id}.def"
    image = f"{stack.profile.id}.sif"
    gpus = "" if stack.build == "cpu" else " --nv"
    usage = ["", f"  apptainer build {image} {name}", f"  apptainer run{gpus} {image} program.py"]
    environment_lines = "".join(f"    {export_line(n, v)}\n" for n, v in stack.profile.environment.items())
    check = shlex.join([PYTHON, "-c", torch_check_code(stack)])
    text = f"""{comment_lines([*heading(stack), *usage])}
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
    mkdir -p {ROOT}
    cat > {LOCK} <<'LOCK'
{stack.lock.text}LOCK
    export UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR={ROOT}/python UV_CACHE_DIR={ROOT}/cache
    {_create_command(stack)}
    {_install_command(stack)}
{_apptainer_builds(stack)}    rm -rf {ROOT}/cache
    {check}

%environment
    export PATH="{ROOT}/venv/bin:$PATH"
    export VIRTUAL_ENV={ROOT}/venv
{environment_lines}
%test
    {check}

%runscript
    exec {PYTHON} "$@"
"""
    return ExportedFile(stack.profile.id, "apptainer", name, text, _notes(stack))
