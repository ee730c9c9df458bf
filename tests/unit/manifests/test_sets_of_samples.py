"""Each set that `--fix` gives for a sample: uv solves exactly it, and an audit of it reports no error."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.cases import each_case
from support.paths import DATA
from support.release_index import ReleaseIndex

from envdoctor.commands.audit_file import AuditResult, audit_file
from envdoctor.commands.audit_fix import Corrections
from envdoctor.core.errors import BadInput
from envdoctor.download.sources import Sources
from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.locking.uv import OWN_PYTHON, find_uv

pytestmark = pytest.mark.long
SAMPLES = sorted(
    path
    for folder in ("guides", "inputs")
    for path in (DATA / folder).rglob("*")
    if path.is_file() and path.name not in ("field.toml", "what.txt")
)


def fixed(path: Path, folder: Path, sources: Sources) -> AuditResult | None:
    fix = Corrections(folder, replace=True)
    try:
        result = audit_file(str(path), None, UvStepSolver(sources), fix).result
    except BadInput:  # a file of which nothing can be judged
        return None
    fix.finish()
    return result


@each_case("path", SAMPLES, ids=lambda path: path.name)
def test_a_set_of_a_sample_is_solved_and_sound(
    path: Path, index: ReleaseIndex, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = index.variables("pypi")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sources, folder = Sources(index=variables["UV_DEFAULT_INDEX"]), tmp_path_factory.mktemp("fix")
    result = fixed(path, folder, sources)
    solved = [each for each in result.sets if each.state == "solved"] if result else []
    for each in solved:
        platform, python, *_ = (part.removeprefix("Python ") for part in each.target.split(", "))
        if each.image or "not reachable" in each.note:
            continue  # uv cannot solve it here: packages of an image, or an index that is not served
        source = folder / "set.in"
        source.write_text("".join(f"{text}\n" for text in each.requirements))
        command = [find_uv(), "pip", "compile", source, *OWN_PYTHON, "--python-version", python,
                   "--python-platform", platform, "--only-binary", ":all:", *each.options]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        built = each.note.partition("built from source: ")[2]
        assert done.returncode == 0 or built, f"{path.name}: {done.stderr}"
    for written in result.written if result else ():
        if written.endswith(".requirements.txt") or Path(written).name == path.name:
            again = audit_file(written, None, UvStepSolver(sources)).result
            errors = [finding.message for finding in again.findings if finding.status == "error"]
            assert errors == [], written
    shutil.rmtree(folder)
