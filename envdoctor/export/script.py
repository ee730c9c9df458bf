"""A shell script that looks at the machine first, then installs the lock, and leaves nothing half made."""

from __future__ import annotations

import math
import re
import shlex

from envdoctor.export.builds import (
    KIB_PER_GIB,
    NVCC,
    build_file,
    build_notes,
    built,
    jobs_line,
    pip_build,
    pip_wheels,
    programs,
    settings,
    uv_build,
)
from envdoctor.export.stack import INDEX_VARIABLE, Exported, Locked, commented, demand_whole, heading, torch_check
from envdoctor.export.text import export_line
from envdoctor.knowledge.cuda import cuda_releases

FRAME = r"""#!/usr/bin/env bash
@@HEADING@@
set -euo pipefail

stop() { printf 'stop: %s\n' "$1" >&2; exit 1; }
at_least() { printf '%s\n%s\n' "$2" "$1" | sort -V -C; }  # at_least OBSERVED NEEDED

@@CHOICE@@venv=${1:-.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac

# The machine, before anything is written.
architecture=$(uname -m)
[[ $architecture == @@ARCHITECTURE@@ ]] || stop "this machine is $architecture, the wheels are for @@ARCHITECTURE@@"
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
glibc=${glibc#glibc }
[[ -n $glibc ]] || stop "no glibc here (getconf GNU_LIBC_VERSION says nothing); the wheels need @@GLIBC@@ or newer"
at_least "$glibc" @@GLIBC@@ || stop "glibc is $glibc, the wheels need @@GLIBC@@ or newer"
@@DRIVER@@@@COMPILERS@@
[[ ! -e $venv && ! -L $venv ]] || stop "$venv is there already; name another place: bash $0 PLACE"
place=$(dirname -- "$venv")
[[ -d $place && -w $place ]] || stop "$place is no folder that you can write to"
free=$(df -Pk -- "$place" | awk 'NR == 2 { print $4 }')
((free >= @@DISK_KIB@@)) || stop "$place has $((free / 1048576)) GiB free, needed are @@DISK@@"
if command -v uv > /dev/null; then
  tool=uv
elif command -v python@@PYTHON@@ > /dev/null; then
  tool=pip
@@INDEX@@else
  stop "neither uv nor python@@PYTHON@@ is here; install one of them"
fi

# An environment that was not finished is taken away again.
made=
work=$(mktemp -d)
clean_up() {
  code=$?
  rm -rf -- "$work"
  if [[ $code -ne 0 && -n $made ]]; then
    rm -rf -- "$venv"
    printf 'stop: not finished; the unfinished %s was removed\n' "$venv" >&2
  fi
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

cat > "$work/requirements.txt" <<'LOCK'
@@LOCK@@LOCK

made=yes
if [[ $tool == uv ]]; then
  uv venv --no-project --python @@PYTHON@@ "$venv"
  uv pip sync --require-hashes --only-binary :all:@@UV_INDEX@@ --python "$venv/bin/python" "$work/requirements.txt"
else
  python@@PYTHON@@ -m venv "$venv"
  "$venv/bin/python" @@PIP_WHEELS@@@@PIP_INDEX@@ -r "$work/requirements.txt"
fi

@@BUILDS@@# What was wanted is what is there.
@@EXPORTS@@"$venv/bin/python" -c @@CHECK@@
@@SAVED@@printf 'done: source %q\n' "$venv/bin/activate"@@SOURCED@@
"""

DRIVER = r"""driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2> /dev/null | sed -n 1p || true)
if [[ ! $driver =~ ^[0-9]+(\.[0-9]+)+$ ]]; then  # no nvidia-smi, or it printed a complaint
  driver=$(grep -m 1 -oE '[0-9]{3,}(\.[0-9]+)+' /proc/driver/nvidia/version 2> /dev/null | sed -n 1p || true)
fi
[[ -n $driver ]] \
  || stop "no NVIDIA driver answers (nvidia-smi, /proc/driver/nvidia/version); CUDA @@BUILD@@ needs @@MINIMUM@@"
at_least "$driver" @@MINIMUM@@ || stop "the NVIDIA driver is $driver, CUDA @@BUILD@@ needs @@MINIMUM@@ or newer"
at_least "$driver" @@BUNDLED@@ \
  || printf 'note: driver %s is older than CUDA @@BUILD@@ itself (@@BUNDLED@@): PTX is not compiled\n' "$driver" >&2
"""

COMPILERS = r"""have() { for program; do if command -v "$program" > /dev/null; then return 0; fi; done; return 1; }
"""

BUILDS = r"""# Compiled here, against what is installed by now, with build requirements from it; nothing else is.
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
    || stop "without uv, @@VARIABLE@@ must hold the address of the PyTorch index for @@BACKEND@@"
"""


def script(stack: Locked) -> Exported:
    """The script; `bash FILE [PLACE]` makes the environment at PLACE, `.venv` if none is named."""
    demand_whole(stack, "script")
    name = f"install-{stack.profile.id}.sh"
    saved = [export_line(variable, value) for variable, value in stack.profile.environment.items()]
    usage = ["", f"  bash {name} [PLACE]"]
    if stack.backend:
        usage.append("TORCH_BACKEND= (nothing) takes torch from your own sources instead of the PyTorch index")
    if built(stack):
        usage.append("MAX_JOBS=N, if set, is how many compilers run at once")
    values = {
        "HEADING": commented([*heading(stack), *usage]).rstrip("\n"),
        "ARCHITECTURE": stack.architecture,
        "GLIBC": stack.glibc,
        "DRIVER": _driver(stack),
        "DISK": f"{stack.profile.when.disk_gb:g}",
        "DISK_KIB": str(math.ceil(stack.profile.when.disk_gb * KIB_PER_GIB)),
        "PYTHON": stack.file.python,
        "LOCK": stack.file.text,
        "EXPORTS": "".join(f"{line}\n" for line in saved),
        "SAVED": f"printf '%s\\n' {shlex.join(saved)} > \"$venv/environment.sh\"\n" if saved else "",
        "SOURCED": "\nprintf 'and:  source %q\\n' \"$venv/environment.sh\"" if saved else "",
        "CHECK": shlex.quote(torch_check(stack)),
        "PIP_WHEELS": shlex.join(pip_wheels(stack)),
        "COMPILERS": _compilers(stack),
        "BUILDS": _builds(stack),
        **_index(stack),
    }
    looked = "architecture, glibc, driver, disk" + (" and compilers" if built(stack) else "")
    notes = [f"looks at {looked}; not at the number, kind or memory of GPUs", *build_notes(stack)]
    return Exported(stack.profile.id, "script", name, _filled(FRAME, values), tuple(notes))


def _compilers(stack: Locked) -> str:
    """The part that looks for what the builds call, empty where nothing is compiled."""
    if not built(stack):
        return ""
    what = ", ".join(package.name for package in built(stack))
    lines = []
    for names in programs(stack):
        tried = " ".join(names)
        if "c++" in names:
            tried = f'${{CXX:+"${{CXX%% *}}"}} {tried}'
        elif NVCC in names:
            tried += ' "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"'  # looked for as torch does, not on PATH alone
        missing = f"there is no {' or '.join(names)} here, and {what} is compiled on this machine"
        lines.append(f"have {tried} || stop {shlex.quote(missing)}\n")
    return COMPILERS + "".join(lines)


def _builds(stack: Locked) -> str:
    """The part that compiles, empty where nothing is."""
    steps = [
        _filled(
            BUILD,
            {
                "FILE": build_file(package),
                "LINE": package.line,
                "SETTINGS": settings(stack),
                "UV": shlex.join(uv_build(stack, package, backend=False)),
                "PIP": shlex.join(pip_build(package)),
                **_index(stack),
            },
        )
        for package in built(stack)
    ]
    return _filled(BUILDS, {"JOBS": jobs_line(stack), "STEPS": "".join(steps)}) if steps else ""


def _index(stack: Locked) -> dict[str, str]:
    """The parts of the script that are about the PyTorch index, empty where torch is from PyPI."""
    if not stack.backend:
        return dict.fromkeys(("CHOICE", "INDEX", "UV_INDEX", "PIP_INDEX"), "")
    return {
        # A folder of wheels or a mirror may stand in for the PyTorch index.
        "CHOICE": f"backend=${{TORCH_BACKEND-{stack.backend}}}\n",
        "INDEX": _filled(INDEX, {"BACKEND": stack.backend, "VARIABLE": INDEX_VARIABLE}),
        "UV_INDEX": ' ${backend:+--torch-backend "$backend"}',
        "PIP_INDEX": f' ${{backend:+--extra-index-url "${INDEX_VARIABLE}"}}',
    }


def _driver(stack: Locked) -> str:
    """The part that looks at the driver, empty for the CPU."""
    if stack.build == "cpu":
        return ""
    release = cuda_releases()[stack.build]
    return _filled(DRIVER, {"BUILD": stack.build, "MINIMUM": release.minimum, "BUNDLED": release.bundled})


def _filled(frame: str, values: dict[str, str]) -> str:
    """A frame with its marks filled in one pass: a value that looks like a mark stays a value."""
    return re.sub(r"@@([A-Z_]+)@@", lambda mark: values[mark[1]], frame)
