"""Reports the facts of one fleet node: its clock, its own `envdoctor check`, and facts that the check does not read.

The program is sent to a node's python3 over standard input. It needs only the standard library, of Python 3.8 or
later. A dictionary CONFIG precedes it: name, command, arguments, deadline, hub, peers.

Lines on standard output:
  envdoctor-fleet clock NODE SECONDS      while it works, to measure the offset of the node's clock
  envdoctor-fleet report NODE BASE64      zlib-compressed JSON, at the end
"""

# The code also runs on old versions of Python: no pathlib, no f-strings.
# ruff: noqa: PTH110, PTH111, PTH118, PTH120, PTH123, PTH208, UP031, S310, PLW1510, B905, SIM105

import base64
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib

OUTPUT_BYTES = 8 << 20
CLOCK_SECONDS = 0.02  # between two lines; it limits the precision of the measured offset
CLOCK_LINES = 100
HUB_SECONDS = 5
SMI_FIELDS = ("name", "driver_version", "memory.total", "ecc.errors.uncorrected.volatile.total")
OUTPUT_LOCK = threading.Lock()


def print_line(kind, node, text):
    """Print one line; the lock keeps lines of several threads apart."""
    with OUTPUT_LOCK:
        sys.stdout.write("envdoctor-fleet %s %s %s\n" % (kind, node, text))
        sys.stdout.flush()


def print_clock(node, done):
    """Print the clock's time at intervals until the work is done."""
    for _ in range(CLOCK_LINES):
        print_line("clock", node, "%.6f" % time.time())
        if done.wait(CLOCK_SECONDS):
            return


def read(*parts):
    """Return the text of a small file; empty where it cannot be read."""
    try:
        with open(os.path.join(*parts), errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return ""


def entries(*parts):
    """Return the names in a directory; empty where it does not exist."""
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return []


def read_interfaces(root="/sys/class/net"):
    """Return MTU, link state and speed of each interface."""
    return {
        name: {
            "mtu": read(root, name, "mtu"),
            "state": read(root, name, "operstate"),
            "speed": read(root, name, "speed"),
            "device": os.path.exists(os.path.join(root, name, "device")),
        }
        for name in entries(root)
    }


def read_infiniband(root="/sys/class/infiniband"):
    """Return state (`4: ACTIVE`), rate (`400 Gb/sec (4X NDR)`) and link layer of each InfiniBand port."""
    return {
        "%s/%s" % (device, port): {
            key: read(root, device, "ports", port, key) for key in ("state", "phys_state", "rate", "link_layer")
        }
        for device in entries(root)
        for port in entries(root, device, "ports")
    }


def read_limits():
    """Return the soft limits; -1 means unlimited."""
    names = {"memlock": "RLIMIT_MEMLOCK", "nofile": "RLIMIT_NOFILE", "stack": "RLIMIT_STACK", "nproc": "RLIMIT_NPROC"}
    return {name: resource.getrlimit(getattr(resource, which))[0] for name, which in names.items()}


def read_disk_space(path):
    """Return size and free bytes of the file system of a path, or of its nearest existing parent."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        stats = os.statvfs(path)
    except OSError:
        return {}
    return {"total": stats.f_blocks * stats.f_frsize, "free": stats.f_bavail * stats.f_frsize}


def read_hub(address):
    """Return `reached`, also after an HTTP error, or why the address was not reached."""
    if not address:
        return "not requested"
    try:
        request = urllib.request.Request(address, method="HEAD")
        urllib.request.urlopen(request, timeout=HUB_SECONDS).close()
    except urllib.error.HTTPError:
        return "reached"
    except (OSError, ValueError) as error:
        return "not reached: %s" % str(getattr(error, "reason", error))[:200]
    return "reached"


def read_addresses(peer):
    """Return the addresses to which this node resolves another node's name."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(peer, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def read_xids(text):
    """Return Xid numbers by PCI address from lines `NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', ...`."""
    xids = {}
    for bus, number in re.findall(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)", text):
        xids.setdefault(bus, set()).add(int(number))
    return {bus: sorted(numbers) for bus, numbers in xids.items()}


def run_program(argv, seconds):
    """Return the output of a short program; empty where it fails."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[-OUTPUT_BYTES:].decode("utf-8", "replace") if done.returncode == 0 else ""


def read_smi():
    """Return the GPUs from nvidia-smi, for a node without envdoctor."""
    text = run_program(["nvidia-smi", "--query-gpu=" + ",".join(SMI_FIELDS), "--format=csv,noheader,nounits"], 20)
    return [dict(zip(SMI_FIELDS, re.split(r"\s*,\s*", line))) for line in text.splitlines() if line.count(",") == 3]


def run_check(config):
    """Run the node's own `envdoctor check`; return its output, or why there is none."""
    local = os.path.join(os.path.expanduser("~"), ".local", "bin")  # ssh gives a short PATH
    environment = dict(os.environ, PATH=os.environ.get("PATH", "/usr/bin:/bin") + os.pathsep + local)
    argv = config["command"] + ["check", "--format", "json"] + config["arguments"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
            )
        except OSError as error:
            return {"outcome": "missing", "why": "%s: %s" % (argv[0], error.strerror)}
        outcome = "ended"
        try:
            child.wait(config["deadline"])
        except subprocess.TimeoutExpired:
            outcome = "hung"
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            pass
        code = child.wait()
        size = out.seek(0, os.SEEK_END)
        out.seek(0)
        text = out.read(OUTPUT_BYTES).decode("utf-8", "replace")
        err.seek(max(0, err.seek(0, os.SEEK_END) - 2000))
        errors = err.read().decode("utf-8", "replace").strip()
    if code == 127 or "No module named envdoctor" in errors:
        return {"outcome": "missing", "why": errors.splitlines()[-1] if errors else argv[0]}
    if size > OUTPUT_BYTES:
        return {"outcome": "flood", "bytes": size}
    return {"outcome": outcome, "code": code, "output": text, "errors": errors}


class BackgroundRead:
    """Reads a value in a thread during the check, since a file server or name server may never respond."""

    def __init__(self, default, function, *arguments):
        self.value = default
        self.thread = threading.Thread(target=self.run, args=(function, arguments), daemon=True)
        self.thread.start()

    def run(self, function, arguments):
        """Read the value, in the thread."""
        self.value = function(*arguments)

    def get(self, deadline):
        """Return the value, or the default after the deadline, a time of time.monotonic()."""
        self.thread.join(max(0.0, deadline - time.monotonic()))
        return self.value


def main(config):
    """Print the clock while the check runs, then the report in one line."""
    node = config["name"] or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    done = threading.Event()
    threading.Thread(target=print_clock, args=(node, done), daemon=True).start()
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    shm, hf_home = BackgroundRead({}, read_disk_space, "/dev/shm"), BackgroundRead({}, read_disk_space, home)
    hub = BackgroundRead("not reached: no response", read_hub, config["hub"])
    names = {peer: BackgroundRead([], read_addresses, peer) for peer in config["peers"] if peer != node}
    check = run_check(config)
    deadline = time.monotonic() + HUB_SECONDS
    probe = {
        "hostname": socket.gethostname(),
        "kernel": os.uname().release,
        "python3": "%d.%d.%d" % sys.version_info[:3],
        "interfaces": read_interfaces(),
        "infiniband": read_infiniband(),
        "limits": read_limits(),
        "shm": shm.get(deadline),
        "hf_home": hf_home.get(deadline),
        "hub": hub.get(deadline),
        "names": {peer: addresses.get(deadline) for peer, addresses in names.items()},
        "xids": read_xids(run_program(["dmesg"], 5)),
        "smi": read_smi() if check["outcome"] != "ended" else [],
    }
    done.set()
    data = json.dumps({"probe": probe, "check": check}).encode()
    print_line("report", node, base64.b64encode(zlib.compress(data)).decode())


if __name__ == "__main__":
    main(CONFIG)  # noqa: F821  defined in front of this program
    os._exit(0)  # without joining threads that still wait for a file server
