"""The MCP server, as the SDK's own client sees it over the standard streams of a real process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import fields
from support.cases import each_case
from support.command import COMMAND, environment, interpreter, snapshot
from support.paths import ROOT
from support.sample_environments import make_venv

from envdoctor.commands.registry import request_type
from envdoctor.core.distribution import extra_command
from envdoctor.core.errors import EnvdoctorError
from envdoctor.integrations.calls import MAX_ARGUMENT_BYTES, Call, run_call
from envdoctor.integrations.mcp_command import REQUIREMENT
from envdoctor.integrations.tools import TOOLS, load_tool_run

DOWNGRADED = {"machine": "h200", "facts": ["driver.version=550.144.03", "driver.library=580.159.04"]}
PATIENCE = 60.0  # seconds, on a busy machine


class Session:
    """A connected client, in an event loop of its own thread, and the directories of the server."""

    def __init__(self, portal: Any, client: Any, home: Path, project: Path, log: Path) -> None:
        self.portal, self.client, self.home, self.project, self.log = portal, client, home, project, log

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.portal.call(self.client.call_tool, tool, arguments)

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return self.portal.call(work)


@contextlib.contextmanager
def connect(folder: Path, *options: str, mode: str = "auto", command: str = "") -> Iterator[Session]:
    from anyio.from_thread import start_blocking_portal
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    home, project, log = folder / "home", folder / "project", folder / "stderr"
    home.mkdir()
    project.mkdir()
    parameters = StdioServerParameters(
        command=command or interpreter(),
        args=["-m", "envdoctor", "mcp", *options],
        env=environment(home),
        cwd=project,
    )
    with log.open("w") as errors, start_blocking_portal() as portal:
        client = Client(stdio_client(parameters, errlog=errors), mode=mode)
        with portal.wrap_async_context_manager(client):
            yield Session(portal, client, home, project, log)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with connect(tmp_path_factory.mktemp("mcp")) as connected:
        yield connected


def hang(session: Session) -> str:
    """A log that never ends: a named pipe without a writer."""
    pipe = session.project / f"{time.monotonic_ns()}.log"
    os.mkfifo(pipe)
    return str(pipe)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def worker_count(directory: Path) -> int:
    """The processes of calls with this working directory."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_worker = b"integrations.worker import" in (process / "cmdline").read_bytes()
            count += is_worker and (process / "cwd").readlink() == directory
    return count


def test_tools_are_listed_with_instructions_and_schemas(session: Session) -> None:
    instructions = session.client.instructions
    listed = session.run(session.client.list_tools).tools
    assert [tool.name for tool in listed] == list(TOOLS)
    for tool in listed:
        assert f"`{tool.name}`" in instructions
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is False
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
        assert all(each["description"].endswith(".") for each in tool.input_schema["properties"].values())


def test_no_tool_has_an_argument_that_writes() -> None:
    """An argument is permitted by name, so that a new option of a command is not an argument by accident."""
    offered = {(tool.name, name) for tool in TOOLS.values() for name in tool.fields}
    assert not offered & {("check", "save"), ("audit", "fix")}
    for tool in TOOLS.values():
        known = {field.name for field in fields(request_type(load_tool_run(tool)))}
        assert set(tool.fields) <= known, tool.name


def test_the_version_range_of_the_sdk_is_that_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["mcp"] == [REQUIREMENT]


def test_each_tool_returns_a_valid_structured_result(session: Session) -> None:
    guide = session.project / "SETUP.md"
    guide.write_text("```bash\npip install torch==2.8.0 vllm==0.10.2 transformers==5.0.0\n```\n")
    make_venv(session.project / "venv")
    before = snapshot(session.project)
    schemas = {tool.name: tool.output_schema for tool in session.run(session.client.list_tools).tools}
    calls: dict[str, dict[str, Any]] = {
        "check": DOWNGRADED,
        "remedies": DOWNGRADED,
        "fix": {"venv": "venv", "machine": "cpu-2core"},
        "explain": {"text": "ImportError: libcudart.so.12: cannot open shared object file"},
        "audit": {"targets": ["SETUP.md"], "resolve": "never"},
        "plan": {"recipe": "sort", "machine": "h200"},
        "resolve": {"all_profiles": True, "machine": "all"},
    }
    results = {name: session.call(name, **arguments) for name, arguments in calls.items()}
    for name, result in results.items():
        assert result.is_error is False, result.content
        jsonschema.validate(result.structured_content, schemas[name])
        assert result.content[0].text == result.structured_content["summary"] != ""
        assert "\x1b" not in result.content[0].text
    data = {name: result.structured_content["data"] for name, result in results.items()}
    assert [finding["id"] for finding in data["check"]["findings"]] == ["DRV001"]
    assert "machine" not in data["check"]  # only with details
    assert results["check"].structured_content["exit_code"] == 1
    (remedies,) = data["remedies"]["remedies"]
    first = remedies["remedies"][0]
    assert [step["type"] for step in first["steps"]] == ["command", "command"]
    assert first["commands"][0] in results["remedies"].content[0].text
    assert data["explain"]["causes"][0]["cause"] == "cudart-missing"
    assert data["audit"]["findings"]
    assert data["plan"]["fits"] is True
    assert (data["fix"]["dry_run"], data["fix"]["applied"]) == (True, False)
    assert {cell["machine"] for cell in data["resolve"]["cells"]} >= {"h200", "t4"}
    assert snapshot(session.project) == before  # read-only


def test_details_add_the_facts(session: Session) -> None:
    result = session.call("check", machine="cpu-2core", details=True)
    assert result.structured_content["data"]["machine"]["name"] == "cpu-2core"
    assert session.call("check", machine="cpu-2core", details="yes").is_error


@each_case(
    ("tool", "arguments", "message"),
    [
        ("check", {"save": "machine.json"}, "unknown argument 'save'"),
        ("audit", {"targets": ["SETUP.md"], "fix": "."}, "unknown argument 'fix'"),
        ("check", {"venv": 3}, "Expected `str`, got `int`"),
        ("check", {"machine": "h900"}, "h900"),
        ("explain", {}, "'text' is missing"),
        ("explain", {"text": "-"}, "no standard input"),
        ("explain", {"text": "missing.log"}, "cannot read missing.log"),
        ("explain", {"text": "x" * MAX_ARGUMENT_BYTES}, "bytes"),
        ("resolve", {"profiles": ["./evil.toml"]}, "a path"),
    ],
    ids=lambda case: f"{case[0]} {case[2]}",
)
def test_wrong_arguments_are_tool_errors(
    session: Session, tool: str, arguments: dict[str, Any], message: str
) -> None:
    result = session.call(tool, **arguments)
    assert result.is_error is True
    error = result.structured_content["error"]
    assert message in error["message"]
    assert error["expected"]
    assert error["hint"]
    assert error["message"][:60] in result.content[0].text.replace("\n", " ")
    assert "Traceback" not in result.content[0].text


def test_an_unknown_tool_is_a_protocol_error(session: Session) -> None:
    from mcp.shared.exceptions import MCPError

    with pytest.raises(MCPError, match="unknown tool 'install'; one of: check"):
        session.call("install")


def test_a_cancelled_call_ends_its_process_and_parallel_calls_continue(session: Session) -> None:
    import anyio

    log = hang(session)

    async def work() -> list[Any]:
        results: list[Any] = []

        async def explain(number: int) -> None:
            text = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {number} GiB"
            results.append(await session.client.call_tool("explain", {"text": text}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.client.call_tool, "explain", {"text": log})
            with anyio.fail_after(PATIENCE):
                while not worker_count(session.project):
                    await anyio.sleep(0.02)
            async with anyio.create_task_group() as parallel:
                for number in range(2):
                    parallel.start_soon(explain, number)
            tasks.cancel_scope.cancel()
        return results

    results = session.run(work)
    assert [result.structured_content["data"]["causes"][0]["cause"] for result in results] == ["gpu-oom"] * 2
    wait_for(lambda: not worker_count(session.project))


def test_standard_error_has_no_traceback(session: Session) -> None:
    assert "Traceback" not in session.log.read_text()


@pytest.mark.long
def test_a_client_of_an_older_protocol_and_the_limit_of_all_calls(tmp_path: Path) -> None:
    with connect(tmp_path, "--timeout", "2", mode="legacy", command=sys.executable) as session:
        assert session.client.protocol_version < "2026"
        assert [tool.name for tool in session.run(session.client.list_tools).tools] == list(TOOLS)
        assert session.call("explain", text="DRV001").structured_content["data"]["id"] == "DRV001"
        result = session.call("explain", text=hang(session))
        assert result.is_error is True
        assert "did not finish within 2 s" in result.structured_content["error"]["message"]
        assert "Traceback" not in session.log.read_text()


@pytest.mark.long
@pytest.mark.parametrize("end", ["close", "terminate"])
def test_the_end_of_the_server_ends_its_calls(tmp_path: Path, end: str) -> None:
    """A client that closes the streams or sends SIGTERM leaves no process behind."""
    os.mkfifo(tmp_path / "endless.log")
    initialize = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "explain", "arguments": {"text": "endless.log"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        (*COMMAND, "mcp"), env=environment(tmp_path), cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as server:  # fmt: skip
        assert server.stdin
        server.stdin.writelines(json.dumps(message) + "\n" for message in messages)
        server.stdin.flush()
        wait_for(lambda: worker_count(tmp_path) > 0)
        server.stdin.close() if end == "close" else server.terminate()
        server.wait(PATIENCE)
        assert server.stdout
        assert server.stderr
        first, *others = (json.loads(line) for line in server.stdout)
        assert first["id"] == 1
        assert all("explain was stopped" in json.dumps(reply) for reply in others)
        assert "Traceback" not in server.stderr.read()
    wait_for(lambda: not worker_count(tmp_path))


def test_a_call_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "endless.log")
    call = Call(tool="explain", arguments={"text": str(tmp_path / "endless.log")})
    with pytest.raises(EnvdoctorError, match="explain did not finish within 1 s and was stopped"):
        run_call(call, seconds=1.0)


@pytest.mark.long
def test_a_stopped_call_ends_uv_while_it_waits_for_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, errors = threading.Event(), []
    call = Call(tool="resolve", arguments={"profiles": ["cpu"], "machine": "cpu-2core"})

    def resolve() -> None:
        try:
            run_call(call, seconds=PATIENCE, stop=stop)
        except EnvdoctorError as error:
            errors.append(error)

    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(PATIENCE)
        address = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        for name, value in {
            "HOME": str(tmp_path),
            "UV_DEFAULT_INDEX": address,
            "PIP_CONFIG_FILE": "/dev/null",
        }.items():
            monkeypatch.setenv(name, value)
        thread = threading.Thread(target=resolve)
        thread.start()
        connection, _ = index.accept()  # no reply
        assert uv_processes(address)
        stop.set()
        thread.join(PATIENCE)
        connection.close()
    assert [error.kind for error in errors] == ["interrupted"]
    assert not uv_processes(address)


def uv_processes(address: str) -> list[Path]:
    """The processes of uv that use this index."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            uses_index = address.encode() in (process / "environ").read_bytes()
            found += [process] if uses_index and (process / "comm").read_text().strip() == "uv" else []
    return found


def test_the_working_directory_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's repository cannot run its code by the names of its files."""
    for name in ("msgspec", "json", "rich", "envdoctor"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w')\n")
    monkeypatch.chdir(tmp_path)
    reply = run_call(Call(tool="explain", arguments={"text": "DRV001"}), seconds=PATIENCE)
    assert reply.envelope["ok"]
    assert not (tmp_path / "executed").exists()


def without_sdk(folder: Path) -> str:
    """A site-packages directory with this interpreter's packages except the SDK."""
    folder.mkdir()
    for entry in Path(jsonschema.__file__).parents[1].iterdir():
        if not entry.name.startswith("mcp"):
            (folder / entry.name).symlink_to(entry)
    return f"{ROOT}:{folder}"


@each_case(("version", "message"), [("", "not installed"), ("1.28.0", "mcp 1.28.0 is installed")])
def test_without_the_extra_the_error_has_the_command_that_installs_it(
    tmp_path: Path, version: str, message: str
) -> None:
    path = without_sdk(tmp_path / f"site{version}")
    if version:
        metadata = tmp_path / f"site{version}" / f"mcp-{version}.dist-info/METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: mcp\nVersion: {version}\n")
    done = subprocess.run(
        [sys.executable, "-S", "-m", "envdoctor", "mcp"],
        env=environment(tmp_path, PYTHONPATH=path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert message in done.stderr
    assert f"hint: {extra_command('mcp', REQUIREMENT)}" in done.stderr
    assert done.stdout == ""
