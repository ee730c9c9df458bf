"""Run a command that may write only below some folders, with Landlock of the kernel.

    python -I confine.py FOLDER ... -- COMMAND ARGUMENT ...
    python -I confine.py

Builds of source archives and imports run the code of packages, which can write wherever the user can: the setup.py of
nvidia-pyindex changes /etc/pip.conf. The rules apply to the command and all its children; reading and the network are
not limited. Devices that discard or produce data, and /dev/shm, remain writable.
"""

import ctypes
import os
import struct
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # numbers of the system calls on all architectures
NO_NEW_PRIVILEGES = 38  # of prctl
PATH_BENEATH = 1
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
# Write, remove and create files and folders, link and rename between folders.
WRITES = WRITE_FILE | sum(1 << bit for bit in range(4, 14))
TRUNCATE_VERSION = 3  # of Landlock
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    """Make a system call; raises OSError."""
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def version() -> int:
    """The version of Landlock; 0 if the kernel has none."""
    try:
        return call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def confine(folders: "list[str]") -> None:
    """Let this process write only below the folders."""
    truncate = TRUNCATE if version() >= TRUNCATE_VERSION else 0
    handled = WRITES | truncate
    ruleset = call(CREATE_RULESET, struct.pack("=Q", handled), ctypes.c_size_t(8), ctypes.c_uint32(0))
    for path in (*folders, "/dev/shm", *DEVICES):
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = handled if os.path.isdir(path) else WRITE_FILE | truncate  # noqa: PTH112
        rule = struct.pack("=Qi", allowed, opened)
        call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0))
        os.close(opened)
    LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def main() -> None:
    """Confine this process, and replace it by the command. Without arguments, print the version of Landlock."""
    if not sys.argv[1:]:
        print(version())
        return
    separator = sys.argv.index("--")
    confine(sys.argv[1:separator])
    command = sys.argv[separator + 1 :]
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
