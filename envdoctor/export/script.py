"""A shell script that checks the machine, installs the lock, and removes an incomplete environment on failure."""

from __future__ import annotations

import math
import re
import shlex

from envdoctor.export.builds import (
    KIB_PER_GIB,
    NVCC,
    build_file,
    build_notes,
    build_variables,
    max_jobs_line,
    packages_to_build,
    pip_build_arguments,
    pip_wheel_arguments,
    required_programs,
    uv_build_command,
)
from envdoctor.export.stack import (
    INDEX_VARIABLE,
    ExportedFile,
    LockedStack,
    comment_lines,
    heading,
    require_complete,
    torch_check_code,
)
from envdoctor.export.text import export_line
from envdoctor.knowledge.cuda import cuda_releases

TEMPLATE = r"""#!/usr/bin/env bash
@@HEADING@@
set -euo pipefail

stop() { printf 'stop: %s\n' "$1" >&2; exit 1; }
at_least() { printf '%s\n%s\n' "$2" "$1" | sort -V -C; }  # at_least OBSERVED NEEDED

@@CHOICE@@venv=${1:-.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac

# Check the machine before anything is written.
architecture=$(uname -m)
[[ $architecture == @@ARCHITECTURE@@ ]] || stop "this machine is $architecture; the wheels are for @@ARCHITECTURE@@"
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
glibc=${glibc#glibc }
[[ -n $glibc ]] || stop "no glibc (getconf GNU_LIBC_VERSION prints nothing); the wheels need @@GLIBC@@ or newer"
at_least "$glibc" @@GLIBC@@ || stop "glibc is $glibc; the wheels need @@GLIBC@@ or newer"
@@DRIVER@@@@COMPILERS@@
[[ ! -e $venv && ! -L $venv ]] || stop "$venv already exists; use another directory: bash $0 DIR"
parent=$(dirname -- "$venv")
[[ -d $parent && -w $parent ]] || stop "$parent is not a writable directory"
free=$(df -Pk -- "$parent" | awk 'NR == 2 { print $4 }')
((free >= @@DISK_KIB@@)) || stop "$parent has $((free / 1048576)) GiB free; @@DISK@@ GiB are needed"
if command -v uv > /dev/null; then
  tool=uv
elif command -v python@@PYTHON@@ > /dev/null; then
  tool=pip
@@INDEX@@else
  stop "neither uv nor python@@PYTHON@@ is installed; install one of them"
fi

# On failure, the incomplete environment is removed.
created=
work=$(mktemp -d)
clean_up() {
  code=$?
  rm -rf -- "$work"
  if [[ $code -ne 0 && -n $created ]]; then
    rm -rf -- "$venv"
    printf 'stop: not finished; the incomplete %s was removed\n' "$venv" >&2
  fi
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

cat > "$work/requirements.txt" <<'LOCK'
@@LOCK@@LOCK

created=yes
if [[ $tool == uv ]]; then
  uv venv --no-project --python @@PYTHON@@ "$venv"
  uv pip sync --require-hashes --only-binary :all:@@UV_INDEX@@ --python "$venv/bin/python" "$work/requirements.txt"
else
  python@@PYTHON@@ -m venv "$venv"
  "$venv/bin/python" @@PIP_WHEELS@@@@PIP_INDEX@@ -r "$work/requirements.txt"
fi

@@BUILDS@@# Check the installed torch.
@@EXPORTS@@"$venv/bin/python" -c @@CHECK@@
@@SAVED@@printf 'done: source %q\n' "$venv/bin/activate"@@SOURCED@@
"""

DRIVER = r"""driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2> /dev/null | sed -n 1p || true)
if [[ ! $driver =~ ^[0-9]+(\.[0-9]+)+$ ]]; then  # nvidia-smi is missing or printed an error
  driver=$(grep -m 1 -oE '[0-9]{3,}(\.[0-9]+)+' /proc/driver/nvidia/version 2> /dev/null | sed -n 1p || true)
fi
[[ -n $driver ]] \
  || stop "no NVIDIA driver found (nvidia-smi, /proc/driver/nvidia/version); CUDA @@BUILD@@ needs @@MINIMUM@@"
at_least "$driver" @@MINIMUM@@ || stop "the NVIDIA driver is $driver; CUDA @@BUILD@@ needs @@MINIMUM@@ or newer"
at_least "$driver" @@BUNDLED@@ \
  || printf 'note: driver %s is older than that of CUDA @@BUILD@@ (@@BUNDLED@@): no PTX support\n' "$driver" >&2
"""

COMPILERS = r"""have() { for program; do if command -v "$program" > /dev/null; then return 0; fi; done; return 1; }
"""

BUILDS = r"""# Compile packages with the installed packages, without build isolation.
@@JOBS@@
@@STEPS@@if [[ $tool == uv ]]; then
  uv pip check --python "$venv/bin/python"
else
  "$venv/bin/python" -m pip check
fi

"""

BUILD = r"""cat > "$work/@@FILE@@" <<'LOCK'
@@LINE@@
LOCK
if [[ $tool == uv ]]; then
  @@SETTINGS@@@@UV@@@@UV_INDEX@@ --python "$venv/bin/python" -r "$work/@@FILE@@"
else
  @@SETTINGS@@PATH="$venv/bin:$PATH" "$venv/bin/python" @@PIP@@@@PIP_INDEX@@ -r "$work/@@FILE@@"
fi
"""

INDEX = """  [[ -z $backend || -n ${@@VARIABLE@@:-} ]] \\
    || stop "without uv, @@VARIABLE@@ must contain the URL of the PyTorch index for @@BACKEND@@"
"""


def script(stack: LockedStack) -> ExportedFile:
    """The script: `bash FILE [DIR]` creates the environment in DIR, by default in `.venv`."""
    require_complete(stack, "script")
    name = f"install-{stack.profile.id}.sh"
    saved = [export_line(variable, value) for variable, value in stack.profile.environment.items()]
    usage = ["", f"  bash {name} [DIR]"]
    if stack.backend:
        usage.append("an empty TORCH_BACKEND= uses your own package sources for torch instead of the PyTorch index")
    if packages_to_build(stack):
        usage.append("MAX_JOBS=N sets the number of parallel compilers")
    values = {
        "HEADING": comment_lines([*heading(stack), *usage]).rstrip("\n"),
        "ARCHITECTURE": stack.architecture,
        "GLIBC": stack.glibc,
        "DRIVER": _driver(stack),
        "DISK": f"{stack.profile.when.disk_gb:g}",
        "DISK_KIB": str(math.ceil(stack.profile.when.disk_gb * KIB_PER_GIB)),
        "PYTHON": stack.lock.python,
        "LOCK": stack.lock.text,
        "EXPORTS": "".join(f"{line}\n" for line in saved),
        "SAVED": f"printf '%s\\n' {shlex.join(saved)} > \"$venv/environment.sh\"\n" if saved else "",
        "SOURCED": "\nprintf 'and:  source %q\\n' \"$venv/environment.sh\"" if saved else "",
        "CHECK": shlex.quote(torch_check_code(stack)),
        "PIP_WHEELS": shlex.join(pip_wheel_arguments(stack)),
        "COMPILERS": _compilers(stack),
        "BUILDS": _builds(stack),
        **_index(stack),
    }
    checks = "architecture, glibc, driver, disk" + (" and compilers" if packages_to_build(stack) else "")
    notes = [f"checks {checks}; not the number, model or memory of GPUs", *build_notes(stack)]
    return ExportedFile(stack.profile.id, "script", name, _fill_template(TEMPLATE, values), tuple(notes))


def _compilers(stack: LockedStack) -> str:
    """The part that checks for the programs that the builds call; empty without builds."""
    if not packages_to_build(stack):
        return ""
    packages = ", ".join(package.name for package in packages_to_build(stack))
    lines = []
    for names in required_programs(stack):
        candidates = " ".join(names)
        if "c++" in names:
            candidates = f'${{CXX:+"${{CXX%% *}}"}} {candidates}'
        elif NVCC in names:
            candidates += ' "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"'  # torch searches there, too
        missing = f"{' or '.join(names)} is not installed, and is needed to compile {packages}"
        lines.append(f"have {candidates} || stop {shlex.quote(missing)}\n")
    return COMPILERS + "".join(lines)


def _builds(stack: LockedStack) -> str:
    """The part that compiles packages; empty without builds."""
    steps = [
        _fill_template(
            BUILD,
            {
                "FILE": build_file(package),
                "LINE": package.line,
                "SETTINGS": build_variables(stack),
                "UV": shlex.join(uv_build_command(stack, package, backend=False)),
                "PIP": shlex.join(pip_build_arguments(package)),
                **_index(stack),
            },
        )
        for package in packages_to_build(stack)
    ]
    return _fill_template(BUILDS, {"JOBS": max_jobs_line(stack), "STEPS": "".join(steps)}) if steps else ""


def _index(stack: LockedStack) -> dict[str, str]:
    """The parts for the PyTorch index; empty if torch is from PyPI."""
    if not stack.backend:
        return dict.fromkeys(("CHOICE", "INDEX", "UV_INDEX", "PIP_INDEX"), "")
    return {
        # A directory of wheels or a mirror may replace the PyTorch index.
        "CHOICE": f"backend=${{TORCH_BACKEND-{stack.backend}}}\n",
        "INDEX": _fill_template(INDEX, {"BACKEND": stack.backend, "VARIABLE": INDEX_VARIABLE}),
        "UV_INDEX": ' ${backend:+--torch-backend "$backend"}',
        "PIP_INDEX": f' ${{backend:+--extra-index-url "${INDEX_VARIABLE}"}}',
    }


def _driver(stack: LockedStack) -> str:
    """The part that checks the driver; empty for the CPU build."""
    if stack.build == "cpu":
        return ""
    release = cuda_releases()[stack.build]
    return _fill_template(DRIVER, {"BUILD": stack.build, "MINIMUM": release.minimum, "BUNDLED": release.bundled})


def _fill_template(template: str, values: dict[str, str]) -> str:
    """Replace the @@NAME@@ placeholders in one pass: placeholders in values are not replaced."""
    return re.sub(r"@@([A-Z_]+)@@", lambda match: values[match[1]], template)
