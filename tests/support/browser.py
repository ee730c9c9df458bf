"""Headless Chromium, driven over its debugging pipe: the pages that it shows, what it logs and requests."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
DEADLINE = 60.0


class Page:
    """One page. `messages` are console messages and exceptions, `requests` the URLs of requests by their id.

    A request that the page's policy blocks is not among them.
    """

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._buffer, self._number = read, write, b"", 0
        self.messages: list[str] = []
        self.requests: dict[str, str] = {}
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def show(self, url: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a page and wait until it is complete."""
        self.messages.clear()
        self.requests.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=url)
        end = time.monotonic() + DEADLINE
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") == "about:blank":
            assert time.monotonic() < end, f"{url} is not complete"
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def move_mouse(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press a key."""
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                return message["result"]
            self._record(message)

    def _record(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.messages.append(str([item.get("value") for item in parameters["args"]]))
            case "Runtime.exceptionThrown":
                self.messages.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded":
                self.messages.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests[parameters["requestId"]] = parameters["request"]["url"]
            case "Network.loadingFailed" if parameters.get("blockedReason") == "csp":
                del self.requests[parameters["requestId"]]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)


@contextmanager
def browser(directory: Path) -> Iterator[Page]:
    """A page of a new browser with an empty profile in `directory`."""
    assert CHROMIUM
    to_browser, from_browser = os.pipe(), os.pipe()
    given = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_browser[0], from_browser[1])]

    def connect() -> None:  # the browser reads from 3 and writes to 4
        os.dup2(given[0], 3)
        os.dup2(given[1], 4)

    process = subprocess.Popen(
        [CHROMIUM, *OPTIONS, f"--user-data-dir={directory / 'profile'}"],
        pass_fds=(3, 4), preexec_fn=connect,  # noqa: PLW1509  before any thread
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for end in (to_browser[0], from_browser[1], *given):
        os.close(end)
    try:
        yield Page(from_browser[0], to_browser[1])
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE)
        os.close(to_browser[1])
        os.close(from_browser[0])
