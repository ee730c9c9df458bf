"""Commands on installed environments: their output, checked against its schema."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.command import envdoctor, envelope
from support.install_place import Place
from support.json_schema import validate

from envdoctor.output.schema import schema_of


def run(place: Place, *arguments: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the home directory of a place. A removal is confirmed."""
    confirmed = ["--yes"] if arguments[0] in ("clean", "uninstall") else []
    return envdoctor(*arguments, *confirmed, home=place.home, **extra)


def command_data(place: Place, *arguments: str | Path) -> dict[str, Any]:
    """The data of a command, validated against its schema."""
    done = run(place, *arguments, "--format", "json")
    found = envelope(done)
    for name in ("envelope", found["command"]):
        schema = schema_of(name)
        assert validate(found, schema, schema) == []
    assert found["data"] is not None, found["error"]
    data = found["data"]
    assert isinstance(data, dict)
    return data


def command_error(place: Place, *arguments: str | Path) -> dict[str, Any]:
    """The error of a command, validated against its schema."""
    done = run(place, *arguments, "--format", "json")
    found = envelope(done)
    schema = schema_of("envelope")
    assert validate(found, schema, schema) == []
    assert done.returncode in (1, 2), done.stdout
    error = found["error"]
    assert isinstance(error, dict)
    assert "internal error" not in error["message"]
    return error


def file_tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Mode and content of every file, folder and link below a folder."""
    return {
        str(path.relative_to(folder)): (
            oct(path.lstat().st_mode),
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def run_lines(lines: list[str], place: Place) -> None:
    """Run the printed commands in a shell that stops at the first error."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
    uv = Path(sys.executable).parent
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], check=True, capture_output=True, cwd=place.home,
        env=inherited | {"HOME": str(place.home), "PATH": f"{uv}:{os.environ['PATH']}"},
    )  # fmt: skip
