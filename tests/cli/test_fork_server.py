"""The forking interpreter of the tests: it behaves as the interpreter does, and leaves no process."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.forking import forking_interpreter, shared_forking_interpreter
from support.paths import TESTS

VARIABLES = {"PATH": os.environ["PATH"], "READ_AT_IMPORT": "1"}
DEADLINE = 60.0


@pytest.fixture(scope="module")
def forking() -> Iterator[Path]:
    """An interpreter that has imported `json`, and `rules`, a folder of tests/unit."""
    with forking_interpreter(
        Path(sys.executable),
        ["json", "rules"],
        VARIABLES,
        read_at_import=["READ_", "-READ_LATER"],
        folders=[TESTS / "unit"],
    ) as program:
        yield program


def run(program: Path | str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"env": VARIABLES, "text": True, "capture_output": True, "timeout": DEADLINE} | options
    return subprocess.run([program, *arguments], check=False, **options)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


IS_FORK = "import sys; print('rules' in sys.modules)"


def test_command_lines_run_in_a_fork(forking: Path, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("import sys\n" + IS_FORK)
    for arguments in (["-c", IS_FORK], ["-B", "-u", "-c", IS_FORK], ["-u", "code.py"], ["code.py"], ["-m", "code"]):
        done = run(forking, *arguments, cwd=tmp_path)
        assert (done.stdout, done.stderr) == ("True\n", ""), arguments


@pytest.mark.parametrize("changed", [{"READ_LATER": "2"}, {"PYTHON_EXEC": "python"}, {"PYTHONIOENCODING": "latin1"}])
def test_variables_that_are_read_later_may_differ(changed: dict[str, str], forking: Path) -> None:
    assert run(forking, "-c", IS_FORK, env=VARIABLES | changed).stdout == "True\n"


def test_a_command_of_a_fork_is_a_fork(forking: Path) -> None:
    """The interpreter sets LC_CTYPE where no locale is set, and its children inherit it."""
    code = f"import subprocess, sys; subprocess.run([{str(forking)!r}, '-c', {IS_FORK!r}])"
    assert run(forking, "-c", code).stdout == "True\n"


def test_unbuffered_output_precedes_that_of_a_descriptor(forking: Path) -> None:
    code = "import os; print('first'); os.write(1, b'second\\n'); os._exit(0)"
    for program in (forking, sys.executable):
        assert run(program, "-u", "-c", code).stdout == "first\nsecond\n"


def test_a_fork_is_named_after_its_client(forking: Path) -> None:
    code = "print(open('/proc/self/comm').read(), end='')"
    with subprocess.Popen([forking, "-c", code], env=VARIABLES, text=True, stdout=subprocess.PIPE) as client:
        output, _ = client.communicate(timeout=DEADLINE)
    assert output == f"fork{client.pid}\n"


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [(["-I", "-c", IS_FORK], {}), (["-W", "error", "-c", IS_FORK], {}), (["-"], {}),
     (["-c", IS_FORK], {"PYTHONUTF8": "1"}), (["-c", IS_FORK], {"READ_AT_IMPORT": "2"}),
     (["-c", IS_FORK], {"READ_MORE": ""}), (["-c", IS_FORK], {"LC_ALL": "C"})],
)  # fmt: skip
def test_other_options_and_variables_start_the_interpreter(
    arguments: list[str], changed: dict[str, str], forking: Path
) -> None:
    done = run(forking, *arguments, env=VARIABLES | changed, input=IS_FORK)
    assert (done.stdout, done.stderr, done.returncode) == ("False\n", "", 0)


@pytest.mark.parametrize(
    "code",
    ["", "import sys; sys.exit(7)", "import sys; sys.exit('message')", "1 / 0", "raise KeyboardInterrupt",
     "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "import os; os.abort()",
     "import atexit; atexit.register(print, 'end'); print('begin')", "import os; os._exit(300)",
     "import sys; sys.stdout.write('no end of line')", "print('out'); import sys; print('err', file=sys.stderr)",
     "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()"],
)  # fmt: skip
def test_output_and_exit_status_are_those_of_the_interpreter(code: str, forking: Path) -> None:
    expected, done = (run(program, "-c", code) for program in (sys.executable, forking))
    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)
    assert done.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


STATE = """
import json, os, resource, signal, sys
names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
print(json.dumps({
    "arguments": sys.argv, "path": sys.path, "environment": dict(os.environ), "directory": os.getcwd(),
    "umask": os.umask(0), "limits": {name: resource.getrlimit(getattr(resource, name)) for name in names},
    "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1], "main": sorted(vars(sys.modules["__main__"])),
    "streams": [stream and [stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering,
                            stream.newlines] for stream in (sys.stdin, sys.stdout, sys.stderr)],
}))
"""


@pytest.mark.parametrize(
    ("form", "encoding"),
    [
        ("script", {}),
        ("-c", {}),
        ("-c", {"PYTHONIOENCODING": "ascii"}),
        ("-c", {"PYTHONIOENCODING": "koi8-r:replace"}),
    ],
)
def test_process_state_is_that_of_the_interpreter(
    form: str, encoding: dict[str, str], forking: Path, tmp_path: Path
) -> None:
    script = tmp_path / "state.py"
    script.write_text(STATE)
    arguments = [*(["-c", STATE] if form == "-c" else [str(script)]), "größe", ""]
    variables = VARIABLES | {"HOME": "/nowhere", "EMPTY": "", "LINES": "a\nb"} | encoding

    def limit() -> None:
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 21))

    states = []
    for program in (sys.executable, forking):
        done = run(program, *arguments, env=variables, cwd=tmp_path, preexec_fn=limit)
        assert done.returncode == 0, done.stderr
        states.append(json.loads(done.stdout))
    expected, state = states
    differing = {name: (expected[name], state[name]) for name in expected if expected[name] != state[name]}
    assert differing == {}
    assert (state["umask"], state["limits"]["RLIMIT_NOFILE"]) == (0o027, [100, 200])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_closed(closed: str, forking: Path, tmp_path: Path) -> None:
    code = (
        "import os, sys; print('printed'); print('rules' in sys.modules, sys.stdin, sys.stdout is None,"
        f"sys.stderr is None, sorted(os.listdir('/proc/self/fd')), file=open('{tmp_path}/' + sys.argv[1], 'w'))"
    )
    for program, name in ((sys.executable, "expected"), (forking, "state")):
        done = run("bash", "-c", f'"$0" "$@" {closed}', str(program), "-c", code, name)
        assert (done.returncode, done.stderr) == (0, "")
    expected, state = ((tmp_path / name).read_text().split(" ", 1) for name in ("expected", "state"))
    assert (expected[0], state[0]) == ("False", "True")
    assert state[1:] == expected[1:]


def test_standard_input_and_output_are_the_clients(forking: Path) -> None:
    echo = "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)"
    with subprocess.Popen(
        [forking, "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=VARIABLES
    ) as child:
        assert child.stdin
        assert child.stdout
        for line in ("abc", "def"):  # each line is answered before the next is sent
            child.stdin.write(line + "\n")
            child.stdin.flush()
            assert child.stdout.readline() == line[::-1] + "\n"
        child.stdin.close()
        assert child.wait(DEADLINE) == 0
        assert child.stdout.read() == ""


# Short sleeps: Python enters a sleep although a signal has just arrived, and handles it only after the sleep.
PRINT_PID = "import os, time; print(os.getpid(), flush=True); [time.sleep(0.01) for _ in range(60000)]"


def start(program: Path, code: str, **options: Any) -> tuple[subprocess.Popen[str], int]:
    """Start code that prints its process id first, and then hangs."""
    child = subprocess.Popen([program, "-c", code], stdout=subprocess.PIPE, text=True, env=VARIABLES, **options)
    assert child.stdout
    return child, int(child.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_client_reaches_the_fork(number: int, forking: Path) -> None:
    child, pid = start(forking, PRINT_PID, stderr=subprocess.DEVNULL)
    with child:
        assert pid != child.pid
        child.send_signal(number)
        assert child.wait(DEADLINE) == -number
    assert not is_running(pid)


def test_an_ignored_signal_is_not_forwarded(forking: Path) -> None:
    child, pid = start(forking, PRINT_PID, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    with child:
        child.send_signal(signal.SIGHUP)
        child.terminate()
        assert child.wait(DEADLINE) == -signal.SIGTERM
    assert not is_running(pid)


def test_sigkill_of_the_client_kills_the_fork(forking: Path) -> None:
    child, pid = start(forking, PRINT_PID)
    with child:
        child.kill()
        assert child.wait(DEADLINE) == -signal.SIGKILL
        wait_until(lambda: not is_running(pid))
    assert run(forking, "-c", IS_FORK).stdout == "True\n"


def test_a_signal_to_the_group_of_a_fork_spares_the_server(forking: Path) -> None:
    done = run(forking, "-c", "import os, signal; os.killpg(0, signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL
    assert run(forking, "-c", IS_FORK).stdout == "True\n"


def test_forks_do_not_share_changes(forking: Path) -> None:
    code = (
        "import json, os; print(hasattr(json, 'mark'), os.environ.get('MARK')); json.mark = os.environ['MARK'] = '1'"
    )
    for _ in range(2):
        done = run(forking, "-c", code)
        assert done.stdout == "False None\n"


def test_commands_run_at_the_same_time(forking: Path, tmp_path: Path) -> None:
    """Each of four processes waits for the files of the others."""
    code = (
        "import sys, time, pathlib\npathlib.Path(sys.argv[1]).touch()\n"
        "while len(list(pathlib.Path('.').iterdir())) < 4: time.sleep(0.01)"
    )
    children = [subprocess.Popen([forking, "-c", code, name], env=VARIABLES, cwd=tmp_path) for name in "abcd"]
    assert [child.wait(DEADLINE) for child in children] == [0] * 4


OWNER = """
import pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from support.forking import forking_interpreter, shared_forking_interpreter
with forking_interpreter(pathlib.Path(sys.executable), [], {"PATH": "/usr/bin:/bin"}) as program:
    print(program, flush=True)
    time.sleep(600)
"""


def test_the_server_ends_with_its_parent() -> None:
    def servers() -> list[str]:
        return [name for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == owner.pid]  # noqa: PTH208

    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(TESTS)], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout
        folder = Path(owner.stdout.readline().strip()).parent
        (server,) = servers()
        owner.kill()
    wait_until(lambda: not is_running(int(server)))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def parent_of(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_shared_server_ends_with_its_last_user(tmp_path: Path) -> None:
    def share() -> AbstractContextManager[Path]:
        return shared_forking_interpreter(tmp_path / "server", Path(sys.executable), ["json"], VARIABLES)

    def server(program: Path) -> int:
        return int(run(program, "-c", "import os; print(os.getppid())").stdout)

    with ExitStack() as last:
        with share() as program:
            first = server(program)
            last.enter_context(share())
        assert server(program) == first
    wait_until(lambda: not is_running(first))
    with share() as program:
        assert server(program) != first


def test_the_server_survives_clients_that_end_at_any_moment(forking: Path) -> None:
    """A client killed before its request, and clients killed together with their processes."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(forking.parent / "socket"))
    for _ in range(20):
        with subprocess.Popen(
            [forking, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"],
            env=VARIABLES, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout
            pid = int(process.stdout.readline())
            os.kill(pid, signal.SIGKILL)
            process.kill()
    assert run(forking, "-c", "print(1)").stdout == "1\n"
