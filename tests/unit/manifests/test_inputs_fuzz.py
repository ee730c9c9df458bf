"""Mutated files of each format: an error for the user or findings, no traceback, bounded time.

ENVDOCTOR_FUZZ_EXAMPLES sets the number of examples.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import mutate
from support.paths import DATA

from envdoctor.commands.audit_file import audit_file
from envdoctor.core.errors import BadInput

FILES = {
    str(path.relative_to(DATA / "inputs")): path.read_text(encoding="utf-8").replace("TRANSFORMERS", "5.1.0")
    for path in sorted((DATA / "inputs").rglob("*"))
    if path.is_file()
}
MAX_SECONDS = 10.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated")


def check(path: Path) -> None:
    """Audit a file: an error for the user, or findings of rules that did not crash."""
    start_time = time.process_time()
    refusal: BadInput | None = None
    crashed: list[str] = []
    try:
        crashed = [each.message for each in audit_file(str(path), None).result.findings if each.status == "crashed"]
    except BadInput as error:
        refusal = error
    assert not crashed
    assert refusal is None or (refusal.expected and refusal.hint)
    assert time.process_time() - start_time < MAX_SECONDS


@given(name=st.sampled_from(sorted(FILES)), seed=st.integers(0, 1 << 32))
def test_mutated_file_is_audited_or_refused(folder: Path, name: str, seed: int) -> None:
    path = folder / Path(name).name
    path.write_text(mutate(FILES[name], seed), encoding="utf-8", errors="replace")
    check(path)


ADVERSARIAL = {
    "uv.lock": 'version = 1\n[[package]]\nname = "a"\nversion = "1"\nsource = { virtual = "." }\n'
    + 'dependencies = [{ name = "a", extra = ["a"] }]\n' * 1,
    "deep.json": '{"cells": ' + "[" * 50_000,
    "deep.yml": "a: " + "[" * 50_000,
    "bomb.yml": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
    ) + "dependencies: *i\n",
    "jobs.yml": "jobs:\n" + "".join(f"  j{i}:\n    steps:\n    - run: pip install torch\n" for i in range(400)),
    "Pipfile.lock": '{"_meta": [], "default": {"torch": [], "x": {"version": 1}}, "develop": 1}',
    "poetry.lock": '[metadata]\ncontent-hash = 1\npython-versions = 3\n[[package]]\nname = 1\nmarkers = 5\n',
    "pylock.toml": 'lock-version = 1\npackages = [1, "a"]\n',
    "pixi.lock": "version: 6\nenvironments:\n  a: 1\n  b:\n    packages: {linux-64: [1, {conda: 2}]}\npackages: 1\n",
    "pixi.toml": '[workspace]\nplatforms = 1\n[environments]\na = 1\n[pypi-dependencies]\ny = []\nx = 1',
    "pyproject.toml": "[project]\ndependencies = 1\nname = 2\n[tool]\nuv = 1\npoetry = {dependencies = 1}\n"
    '[dependency-groups]\na = [{include-group = "a"}, "torch==2.8.0"]\n',
    "train.ipynb": '{"cells": [1, {"cell_type": "code", "source": 1}, {"cell_type": "code"}]}',
    "devcontainer.json": '{"image": 1, "features": [], "postCreateCommand": [1], "build": 1, "containerEnv": 1}',
    "Dockerfile": "FROM\nRUN\nFROM a AS\nRUN [1]\nENV\nARG\nFROM b AS b\nFROM b\nRUN pip install torch==2.8.0\n",
    "x.def": "Bootstrap: docker\n%post\n%post x\n%\nFrom:\n",
    "setup.cfg": "[options\ninstall_requires = torch\n",
    "page.html": "<html>" + "<pre>" * 20_000,
    "f.sh": "f() { f; f; }\nf\n" + "for a in 1 2 3 4 5 6 7 8 9; do " * 12 + "pip install torch; " + "done; " * 12,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(ADVERSARIAL))
def test_adversarial_file_is_audited_or_refused_in_bounded_time(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(ADVERSARIAL[name], encoding="utf-8")
    check(tmp_path / name)
