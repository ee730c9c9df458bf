"""Scripts for nodes that call `envdoctor health`: a prolog and a health check of SLURM, a check of NHC."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from envdoctor.core.errors import unknown_name
from envdoctor.export.stack import ExportedFile

# SLURM kills a HealthCheckProgram after 60 s (slurm.conf), and NHC's watchdog fires after 30 s by default.
SLURM_SECONDS, NHC_SECONDS = 45, 25
PROLOG = r"""#!/bin/bash
# Prolog of SLURM: keeps jobs with GPUs off a node that is not healthy. In slurm.conf:
#   Prolog=@@FILE@@
#   PrologFlags=Alloc
# A non-zero exit code makes slurmd drain the node and requeue the job. No command of SLURM is called here: it would
# wait for a controller that waits for this script (slurm.schedmd.com/prolog_epilog.html).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
[[ -n ${SLURM_JOB_GPUS:-}${GPU_DEVICE_ORDINAL:-}${CUDA_VISIBLE_DEVICES:-} ]] || exit 0

@@HEALTH@@
case $code in
  0) exit 0 ;;  # healthy, or something to monitor
  1 | 124)
    logger --tag envdoctor --priority daemon.err -- "job ${SLURM_JOB_ID:-?} kept off: $line" 2> /dev/null
    printf 'envdoctor: %s\n' "$line" >&2
    exit 1
    ;;
  *)  # The check itself failed: the state of the node is unknown.
    logger --tag envdoctor --priority daemon.warning -- "not checked: exit code $code: $line" 2> /dev/null
    exit 0
    ;;
esac
"""
HEALTH_CHECK = r"""#!/bin/bash
# Health check of SLURM: drains a node that must not run jobs, with the reason. In slurm.conf:
#   HealthCheckProgram=@@FILE@@
#   HealthCheckInterval=300
#   HealthCheckNodeState=ANY,CYCLE
# isolate and reset drain the node, monitor only logs. A drained node stays drained until somebody resumes it. slurmd
# waits at its start until this program exits with 0, so that it always does; it is killed after 60 s.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin${SLURM_BIN:+:$SLURM_BIN}

@@HEALTH@@
log() { logger --tag envdoctor --priority "daemon.$1" -- "$2" 2> /dev/null; }
case $code in
  0)
    [[ $line == monitor* ]] && log warning "$line"
    ;;
  1 | 124)
    log err "$line"
    node=${SLURMD_NODENAME:-$(hostname -s)}
    state=$(timeout 5 scontrol --oneliner show node "$node" 2> /dev/null)
    # The reason of somebody who drained the node before is kept.
    if [[ ! $state =~ State=[^\ ]*(DRAIN|DOWN) ]]; then
      timeout 5 scontrol update NodeName="$node" State=DRAIN Reason="envdoctor $line" || log err "scontrol failed"
    fi
    ;;
  *) log warning "not checked: exit code $code: $line" ;;
esac
exit 0
"""
NHC = r"""# Check of LBNL Node Health Check (github.com/mej/nhc): /etc/nhc/scripts/envdoctor.nhc. In nhc.conf:
#   * || check_envdoctor
#   gpu[01-16] || check_envdoctor 8
# isolate and reset fail the check, so that NHC marks the node offline; monitor is logged. The argument is the number
# of GPUs. NHC ends a check after $TIMEOUT seconds (30 by default).

function check_envdoctor() {
    local gpus="${1:-@@GPUS@@}" code line process report waited

@@HEALTH@@
    case $code in
        0)
            [[ $line == monitor* ]] && log "$FUNCNAME:  $line"
            return 0
            ;;
        1 | 124)
            die 1 "$FUNCNAME:  $line"
            return 1
            ;;
    esac
    log "$FUNCNAME:  not checked: exit code $code: $line"
    return 0
}
"""
# A process that blocks in the driver cannot be killed, so the script stops waiting for it, which `timeout` would not.
# The first line without its mark is the reason. Other characters could end a quoted word: NHC evaluates the reason.
HEALTH = r"""report=$(mktemp) || @@LEAVE@@ 0
@@COMMAND@@ > "$report" 2>&1 < /dev/null &
process=$!
for ((waited = 0; waited < @@SECONDS@@ * 5; waited++)); do
  kill -0 "$process" 2> /dev/null || break
  sleep 0.2
done
if kill -KILL "$process" 2> /dev/null; then
  code=124
  line="isolate: no answer within @@SECONDS@@ s, the driver or a file system hangs"
else
  wait "$process"
  code=$?
  IFS= read -r line < "$report"
  line=${line#* }
  line=${line//[^A-Za-z0-9 .,:;()\/_+=%@-]/ }
  line=${line:0:200}
  # A broken installation of the program ends with 1 as well.
  [[ $code -ne 1 || $line == isolate:* || $line == reset:* ]] || code=3
fi
rm -f -- "$report"
"""


def _health(command: str, seconds: int, gpus: int, indent: str = "") -> str:
    count = '"$gpus"' if indent else str(gpus)
    words = f"{shlex.quote(command)} health --gpus {count}" if gpus or indent else f"{shlex.quote(command)} health"
    text = HEALTH.replace("@@SECONDS@@", str(seconds)).replace("@@COMMAND@@", words).strip()
    text = text.replace("@@LEAVE@@", "return" if indent else "exit")
    return "\n".join(indent + line for line in text.split("\n")) + "\n"


def _prolog(command: str, gpus: int) -> ExportedFile:
    file = "/etc/slurm/prolog.d/envdoctor.sh"
    text = PROLOG.replace("@@FILE@@", file).replace("@@HEALTH@@", _health(command, SLURM_SECONDS, gpus))
    notes = (f"install it as {file}, owned by root and executable, on every node with GPUs",)
    return ExportedFile("", "slurm-prolog", "envdoctor-prolog.sh", text, notes)


def _health_check(command: str, gpus: int) -> ExportedFile:
    file = "/etc/slurm/envdoctor-health.sh"
    text = HEALTH_CHECK.replace("@@FILE@@", file).replace("@@HEALTH@@", _health(command, SLURM_SECONDS, gpus))
    notes = (f"install it as {file}, owned by root and executable, on every node",)
    return ExportedFile("", "slurm-health-check", "envdoctor-health.sh", text, notes)


def _nhc(command: str, gpus: int) -> ExportedFile:
    text = NHC.replace("@@GPUS@@", str(gpus)).replace("@@HEALTH@@", _health(command, NHC_SECONDS, gpus, "    "))
    notes = ("install it as /etc/nhc/scripts/envdoctor.nhc and add a line to /etc/nhc/nhc.conf",)
    return ExportedFile("", "nhc", "envdoctor.nhc", text, notes)


WRITERS: dict[str, Callable[[str, int], ExportedFile]] = {
    "slurm-prolog": _prolog,
    "slurm-health-check": _health_check,
    "nhc": _nhc,
}


def node_script(form: str, command: str, gpus: int) -> ExportedFile:
    """A script of one of the forms. `command`: the path of envdoctor on the nodes; `gpus`: 0 for any number."""
    if form not in WRITERS:
        raise unknown_name("format", form, list(WRITERS), hint="envdoctor export --help")
    return WRITERS[form](command, gpus)
