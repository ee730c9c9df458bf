"""Files that commands write: complete or not at all, replaced with --force only, and never through a link."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor, environment, interpreter
from support.release_index import ReleaseIndex
from support.sample_environments import add_torch, make_venv

from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput

GUIDE = "```bash\npip install 'transformers>=4.57.1' trl==0.23.1\n```\n"
COMMANDS = {
    "report.md": ("report", "--output", "report.md"),
    "report.html": ("report", "--output", "report.html"),
    "Dockerfile": ("export", "cpu", "--as", "dockerfile", "--output", "Dockerfile"),
    "mine.toml": ("profiles", "new", "venv", "--output", "mine.toml"),
    "machine.json": ("check", "--machine", "h200", "--save", "machine.json"),
    "SETUP.md.patch": ("audit", "SETUP.md", "--fix", "."),
}


@pytest.fixture(scope="module")
def variables(index: ReleaseIndex) -> dict[str, str]:
    """`audit --fix` solves with the index of the built-in tables."""
    return index.variables("pypi") | {"PIP_CONFIG_FILE": "/dev/null"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_is_replaced_only_with_force_and_never_through_a_link(
    name: str, tmp_path: Path, variables: dict[str, str]
) -> None:
    add_torch(make_venv(tmp_path / "venv"))
    (tmp_path / "SETUP.md").write_text(GUIDE)
    target, victim = tmp_path / name, tmp_path / "victim"
    victim.write_text("precious")
    for make in (
        lambda: target.write_text("mine"),
        lambda: target.symlink_to(victim),
        lambda: target.symlink_to("x"),
    ):
        make()
        done = envdoctor(*COMMANDS[name], home=tmp_path, **variables)
        assert done.returncode == 2, done.stdout
        assert "--force to replace" in done.stderr
        assert (target.is_symlink(), victim.read_text()) == (target.is_symlink(), "precious")
        assert target.is_symlink() or target.read_text() == "mine"
        assert not list(tmp_path.glob("*.requirements.txt"))
        done = envdoctor(*COMMANDS[name], "--force", home=tmp_path, **variables)
        assert done.returncode in (0, 1), done.stderr
        assert not target.is_symlink()
        assert len(target.read_text()) > 20
        assert victim.read_text() == "precious"
        for each in (target, *tmp_path.glob("*.requirements.txt")):
            each.unlink()
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("name", ["SETUP.md.patch", "SETUP.requirements.txt"])
def test_an_audit_names_an_existing_correction_before_it_queries_an_index(name: str, tmp_path: Path) -> None:
    (tmp_path / "SETUP.md").write_text(GUIDE)
    (tmp_path / name).write_text("")
    closed = {"UV_DEFAULT_INDEX": "http://127.0.0.1:1/simple", "PIP_CONFIG_FILE": "/dev/null"}
    done = envdoctor("audit", "SETUP.md", "--fix", ".", home=tmp_path, cwd=tmp_path, **closed)
    assert done.returncode == 2
    assert f"error: {name} exists" in done.stderr
    assert done.stderr.rstrip().endswith("audit SETUP.md --fix . --force")
    assert "resolv" not in done.stderr


def test_a_figure_does_not_replace_the_file_of_a_link(tmp_path: Path) -> None:
    run = tmp_path / "runs/a"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
    (run / "metrics.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "curves.html").symlink_to("victim")
    assert envdoctor("plot", run, "--output", "curves.html", home=tmp_path).returncode == 2
    assert (tmp_path / "victim").read_text() == "precious"


@each_case("name", ["curves.html", "curves.png"])
def test_a_figure_replaces_a_named_file_only_with_force(name: str, tmp_path: Path) -> None:
    folder = tmp_path / Path(name).suffix[1:]
    run = folder / "run"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "sort", "settings": {}}))
    (run / "metrics.csv").write_text("step,reward\n1,0.5\n2,0.6\n")
    (folder / name).write_text("mine")
    done = envdoctor("plot", run, "-o", folder / name, home=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "--force to replace" in done.stderr
    assert f"hint: envdoctor plot {run} --output {folder / name} --force" in done.stderr.replace("\n", " ")
    assert (folder / name).read_text() == "mine"
    if name.endswith(".html"):  # a .png needs matplotlib
        assert envdoctor("plot", run, "-o", folder / name, "--force", home=tmp_path).returncode == 0
        assert (folder / name).read_text().startswith("<!")


def test_a_file_is_written_to_a_pipe_and_to_standard_output(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadInput, match="No such device or address"):  # nobody reads
        write_file(tmp_path / "fifo", "text", hint="")
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "fifo").read_text()))
    reader.start()
    while reader.is_alive():
        try:
            write_file(tmp_path / "fifo", "text", hint="")
            reader.join()
        except BadInput:
            continue
    assert received == ["text"]
    done = subprocess.run(
        [interpreter(), "-m", "envdoctor", "export", "cpu", "--output", "/dev/stdout"],
        stdout=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path, check=True,
    )  # fmt: skip
    assert "torch==" in done.stdout


def test_an_interrupted_write_leaves_the_former_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    path.write_text("former")

    def fails(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(Exception, match="No space left"):
        write_file(path, "new", hint="", replace=True)
    assert [each.name for each in tmp_path.iterdir()] == ["report.md"]
    assert path.read_text() == "former"
