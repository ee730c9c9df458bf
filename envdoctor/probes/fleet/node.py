"""What one node of a fleet says of itself: its clock, its own `envdoctor check`, and what that has no facts for.

Sent to a node's python3 over its standard input, so it stands alone, and runs on every Python from 3.8. CONFIG, a
dictionary, is put before it: name, command, arguments, deadline, hub, peers.

Lines on standard output, each of which begins with `envdoctor-fleet`:
  envdoctor-fleet clock NODE SECONDS      while it works, so that who reads them can tell how far the clock is off
  envdoctor-fleet answer NODE BASE64      zlib-compressed JSON, at the end
"""

# Nodes have any Python from 3.8, and this is sent to each: no pathlib, no f-strings.
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
CLOCK_SECONDS = 0.02  # between two lines: how exactly the later end of a line's way can be told
CLOCK_LINES = 100
HUB_SECONDS = 5
SMI_FIELDS = ("name", "driver_version", "memory.total", "ecc.errors.uncorrected.volatile.total")
WRITING = threading.Lock()


def say(kind, node, text):
    """One line, whole, at once."""
    with WRITING:
        sys.stdout.write("envdoctor-fleet %s %s %s\n" % (kind, node, text))
        sys.stdout.flush()


def tell_time(node, done):
    """The clock's time, some times a second, until the work is done."""
    for _ in range(CLOCK_LINES):
        say("clock", node, "%.6f" % time.time())
        if done.wait(CLOCK_SECONDS):
            return


def read(*parts):
    """A small file's text; empty where it cannot be read."""
    try:
        with open(os.path.join(*parts), errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return ""


def entries(*parts):
    """The names in a folder; none where there is no such folder."""
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except OSError:
        return []


def read_interfaces(root="/sys/class/net"):
    """MTU, link state and speed of each interface."""
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
    """State (`4: ACTIVE`), rate (`400 Gb/sec (4X NDR)`) and link layer of each port."""
    return {
        "%s/%s" % (device, port): {
            key: read(root, device, "ports", port, key) for key in ("state", "phys_state", "rate", "link_layer")
        }
        for device in entries(root)
        for port in entries(root, device, "ports")
    }


def read_limits():
    """Soft limits; -1 means unlimited."""
    names = {"memlock": "RLIMIT_MEMLOCK", "nofile": "RLIMIT_NOFILE", "stack": "RLIMIT_STACK", "nproc": "RLIMIT_NPROC"}
    return {name: resource.getrlimit(getattr(resource, which))[0] for name, which in names.items()}


def read_room(path):
    """Size and free bytes of the file system of a path, or of its nearest parent that exists."""
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return {}
    return {"total": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}


def read_hub(address):
    """`reached` where anything answers there, else why not. An HTTP error is an answer."""
    if not address:
        return "not asked"
    try:
        request = urllib.request.Request(address, method="HEAD")
        urllib.request.urlopen(request, timeout=HUB_SECONDS).close()
    except urllib.error.HTTPError:
        return "reached"
    except (OSError, ValueError) as error:
        return "not reached: %s" % str(getattr(error, "reason", error))[:200]
    return "reached"


def read_addresses(peer):
    """The addresses of another node's name, as this node resolves it."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(peer, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def read_xids(text):
    """Xid numbers by PCI address, of `NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', ...` in the kernel's log."""
    found = {}
    for bus, number in re.findall(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)", text):
        found.setdefault(bus, set()).add(int(number))
    return {bus: sorted(numbers) for bus, numbers in found.items()}


def output_of(argv, seconds):
    """What a short program prints; empty where it cannot be run."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[-OUTPUT_BYTES:].decode("utf-8", "replace") if done.returncode == 0 else ""


def read_smi():
    """GPUs by nvidia-smi, for a node that has no envdoctor."""
    text = output_of(["nvidia-smi", "--query-gpu=" + ",".join(SMI_FIELDS), "--format=csv,noheader,nounits"], 20)
    return [dict(zip(SMI_FIELDS, re.split(r"\s*,\s*", line))) for line in text.splitlines() if line.count(",") == 3]


def run_check(config):
    """The node's own `envdoctor check`: its output, or why there is none."""
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
        said = err.read().decode("utf-8", "replace").strip()
    if code == 127 or "No module named envdoctor" in said:
        return {"outcome": "missing", "why": said.splitlines()[-1] if said else argv[0]}
    if size > OUTPUT_BYTES:
        return {"outcome": "flood", "bytes": size}
    return {"outcome": outcome, "code": code, "output": text, "errors": said}


class Later:
    """What is read beside the check: a dead file server or name server answers never, and must hold up nothing."""

    def __init__(self, otherwise, function, *arguments):
        self.value = otherwise
        self.thread = threading.Thread(target=self.run, args=(function, arguments), daemon=True)
        self.thread.start()

    def run(self, function, arguments):
        """Within the thread: read it."""
        self.value = function(*arguments)

    def get(self, until):
        """The value, or what stands for none when the time is over."""
        self.thread.join(max(0.0, until - time.monotonic()))
        return self.value


def main(config):
    """Say the time while the work goes on, then all of it in one line."""
    node = config["name"] or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    done = threading.Event()
    threading.Thread(target=tell_time, args=(node, done), daemon=True).start()
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    shm, hf_home = Later({}, read_room, "/dev/shm"), Later({}, read_room, home)
    hub = Later("not reached: no answer", read_hub, config["hub"])
    names = {peer: Later([], read_addresses, peer) for peer in config["peers"] if peer != node}
    check = run_check(config)
    until = time.monotonic() + HUB_SECONDS
    probe = {
        "hostname": socket.gethostname(),
        "kernel": os.uname().release,
        "python3": "%d.%d.%d" % sys.version_info[:3],
        "interfaces": read_interfaces(),
        "infiniband": read_infiniband(),
        "limits": read_limits(),
        "shm": shm.get(until),
        "hf_home": hf_home.get(until),
        "hub": hub.get(until),
        "names": {peer: later.get(until) for peer, later in names.items()},
        "xids": read_xids(output_of(["dmesg"], 5)),
        "smi": read_smi() if check["outcome"] != "ended" else [],
    }
    done.set()
    data = json.dumps({"probe": probe, "check": check}).encode()
    say("answer", node, base64.b64encode(zlib.compress(data)).decode())


if __name__ == "__main__":
    main(CONFIG)  # noqa: F821  put before this text by who sends it
    os._exit(0)  # threads that wait for a dead file server would hold up the interpreter's end
