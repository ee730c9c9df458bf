"""The packages of a file come from its index, or the command ends: a name on PyPI can be that of another package."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor

from envdoctor.commands.move import read_source
from envdoctor.core.errors import BadInput

SIMPLE = "https://u:hunter2Zq9XkPw@127.0.0.1:1/simple"
POETRY = """[[package]]
name = "six"
version = "1.16.0"
files = []

[package.source]
type = "legacy"
url = "https://127.0.0.1:1/simple"
reference = "internal"

[metadata]
lock-version = "2.0"
python-versions = ">=3.11"
content-hash = "x"
"""
FILES = {
    "index": ("requirements.txt", f"--index-url {SIMPLE}\nsix==1.16.0\n"),
    "short": ("requirements.txt", f"-i {SIMPLE}\nsix==1.16.0\n"),
    "equals": ("six.txt", f"--index-url={SIMPLE}\nsix==1.16.0\n"),
    "extra index": ("requirements.txt", f"--extra-index-url {SIMPLE}\nsix==1.16.0\n"),
    "links": ("requirements.txt", "--find-links https://127.0.0.1:1/links\nsix==1.16.0\n"),
    "included": ("requirements.txt", "-r base.txt\nrequests==2.32.0\n"),
    "option": ("setup.sh", f"pip install --index-url {SIMPLE} torch==2.8.0\n"),
    "variable": ("setup.sh", "export UV_INDEX_URL=https://127.0.0.1:1/simple\npip install torch==2.8.0\n"),
    "own variable": ("setup.sh", "PIP_INDEX_URL=https://127.0.0.1:1/simple pip install torch==2.8.0\n"),
    "lock": ("poetry.lock", POETRY),
}  # fmt: skip


@each_case("name", FILES)
def test_an_index_that_is_not_used_ends_the_command(name: str, tmp_path: Path) -> None:
    file, text = FILES[name]
    (tmp_path / file).write_text(text)
    (tmp_path / "base.txt").write_text(f"--index-url {SIMPLE}\nsix==1.16.0\n")
    with pytest.raises(BadInput, match=r"takes packages from http.*127\.0\.0\.1:1/") as error:
        read_source(str(tmp_path / file))
    assert error.value.hint.startswith("export PIP_")
    assert "hunter2" not in f"{error.value.message} {error.value.hint}"


def test_configured_and_public_indexes_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "--extra-index-url https://download.pytorch.org/whl/cu128\n-i https://pypi.org/simple\nsix==1.16.0\n"
    )
    assert read_source(str(path)).versions == {"six": "1.16.0"}
    path.write_text(f"--index-url {SIMPLE}\nsix==1.16.0\n")
    monkeypatch.setenv("PIP_INDEX_URL", "https://other:secret@127.0.0.1:1/simple/")
    assert read_source(str(path)).versions == {"six": "1.16.0"}
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", SIMPLE)  # PyPI would be used as well
    with pytest.raises(BadInput):
        read_source(str(path))


def test_forecast_names_the_index(tmp_path: Path) -> None:
    (tmp_path / "six.txt").write_text(f"--index-url {SIMPLE}\nsix==1.16.0\n")
    done = envdoctor("forecast", "six.txt", home=tmp_path)
    assert (done.returncode, "127.0.0.1:1/simple" in done.stderr, "hunter2" in done.stderr) == (2, True, False)
