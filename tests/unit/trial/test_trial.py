"""`envdoctor audit --trial` with real uv, wheels and source archives that the test builds, and real imports."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.cases import each_case
from support.local_packages import PYTHON, write_wheel
from support.source_packages import write_sdist

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.commands.audit_file import AuditResult
from envdoctor.commands.audit_set_trial import try_sets
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Finding
from envdoctor.core.results import CommandResult
from envdoctor.download.sources import read_sources
from envdoctor.locking.solve_set import solve_set
from envdoctor.locking.solved_set import accept
from envdoctor.manifests import CorrectedSet
from envdoctor.output.audit import trial_text
from envdoctor.output.envelope import to_json
from envdoctor.output.github import to_github
from envdoctor.output.sarif import to_sarif
from envdoctor.trial import confinement, imports

DRIVER = b"import ctypes\nctypes.CDLL('libcuda.so.1')\n"
MODULES = {
    "sound": b"",
    "raises": b"raise ValueError('a field is missing')\n",
    "crashes": b"import os\nos.abort()\n",
    "exits": b"raise SystemExit(4)\n",
    "hangs": b"import time\ntime.sleep(60)\n",
    "drives": DRIVER,
    "draws": b"import ctypes\nctypes.CDLL('libGL.so.1.none')\n",
    "uses-old": b"from changed import old_name\n",
    "also-uses": b"import changed\nchanged.old_name()\n",
}
GUIDE = """
```bash
python -m venv .venv && source .venv/bin/activate
pip install sound raises crashes exits hangs drives fails-to-build==1.0 needs-mpi
pip install uses-old also-uses twin-a twin-b
pip install ./own-project
rm -rf /not-run && touch ran-the-shell
```
```python
from sound import present as alias, absent
import json, not_installed
alias()
```
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, text in MODULES.items():
        module = name.replace("-", "_")
        requires = ["changed"] if "use" in name else []
        content = text or b"def present():\n    pass\n"
        write_wheel(folder, name, "1.0", requires=requires, files={f"{module}/__init__.py": content})
    write_wheel(folder, "changed", "1.4", files={"changed/__init__.py": b"def old_name():\n    pass\n"})
    write_wheel(folder, "changed", "2.0", files={"changed/__init__.py": b"def new_name():\n    pass\n"})
    for name in ("twin-a", "twin-b"):
        write_wheel(folder, name, "1.0", files={"twin/__init__.py": f"x = {name!r}".encode()})
    write_sdist(folder, "fails-to-build", "1.0", source="#error this source is broken\n")
    write_wheel(folder, "torch", "9.9.0")
    write_sdist(folder, "on-torch", "1.0", start="import torch\n")
    write_sdist(folder, "needs-mpi", "1.0", source="#include <mpi.h>\n")
    return folder


@pytest.fixture(scope="module")
def variables(wheels: Path) -> Iterator[None]:
    """Only the folder of wheels is a source of packages."""
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(wheels / "cache"))
        patch.setattr(imports, "IMPORT_SECONDS", 1.0)
        yield


@pytest.fixture(scope="module")
def tried(variables: None, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """The trial of a guide with a package of each kind."""
    return audit(tmp_path_factory.mktemp("guide"), "SETUP.md", GUIDE)


def audit(folder: Path, name: str, text: str, *, python: str = PYTHON) -> AuditResult:
    path = folder / name
    path.write_text(text)
    data = run(AuditRequest(targets=(str(path),), resolve="never", trial=True, python=python)).data
    assert isinstance(data, AuditResult)
    return data


def finding(result: AuditResult, text: str) -> Finding:
    found = [each for each in result.findings if text in each.message]
    assert len(found) == 1, [each.message for each in result.findings]
    return found[0]


def lines(findings: Sequence[Finding]) -> list[str]:
    return [f"{each.status} {each.id} {each.line}: {each.message}" for each in findings]


FINDINGS = (
    ("error", "RUN092", 4, "`fails-to-build==1.0` cannot be built: "),
    ("unknown", "RUN092", 4, "not tried here: the build of `needs-mpi==1.0` needs MPI"),
    ("error", "RUN093", 4, "raises does not import: ValueError: a field is missing (raises/__init__.py, line 1)"),
    ("error", "RUN093", 4, "crashes does not import: was killed by SIGABRT"),
    ("error", "RUN093", 4, "exits does not import: SystemExit: 4"),
    ("warning", "RUN093", 4, "hangs does not import: did not end within 1 s"),
    ("unknown", "RUN093", 4, "not tried here: importing drives needs the NVIDIA driver: OSError: libcuda.so.1"),
    ("error", "RUN093", 5, "uses_old, also_uses do not import: "),
    ("warning", "RUN094", 5, "twin-a 1.0 and twin-b 1.0 both install the module twin: 1 files differ"),
    ("unknown", "RUN095", 6, "./own-project was not tried: "),
    ("error", "RUN093", 10, "sound.absent does not import: "),
)


@each_case(("status", "identifier", "line", "text"), FINDINGS)
def test_each_fault_is_found_at_its_line(
    status: str, identifier: str, line: int, text: str, tried: AuditResult
) -> None:
    found = finding(tried, text)
    assert (found.status, found.id, found.line) == (status, identifier, line)


def test_nothing_else_is_reported_or_run(tried: AuditResult) -> None:
    assert len([each for each in tried.findings if each.id >= "RUN092"]) == len(FINDINGS), lines(tried.findings)
    assert not (Path(tried.name).parent / "ran-the-shell").exists()
    assert not any(Path(os.environ["XDG_CACHE_HOME"], "envdoctor/trials").iterdir())


def test_the_verdict_states_what_was_tried(tried: AuditResult) -> None:
    (trial,) = tried.trials
    assert f"in 1 environment (x86_64, Python {PYTHON}), imported" in trial_text(tried)
    assert trial.tried
    assert trial.imported >= 2


def test_a_remedy_is_printed_after_it_succeeded(tried: AuditResult) -> None:
    """Both modules import with it; the release that the file has is the one that lacks the name."""
    (remedy,) = finding(tried, "uses_old").remedies
    assert remedy.commands == ("uv pip install 'changed<2'",)
    assert [each.value for each in finding(tried, "uses_old").evidence][1:] == ["changed 2.0 -> 1.4"]
    assert finding(tried, "raises does").remedies == ()


SMALL = "sound\n"
UNTRIED = (
    (SMALL, "3.99", "Python 3.99 is not on this machine: uv python install 3.99"),
    ("FROM vllm/vllm-openai:v0.10.2\nRUN pip install sound\n", PYTHON, "the packages of the image"),
    (
        "#!/bin/bash\nconda create -n a python=3.12 pandas\nconda activate a\npip install sound\n",
        PYTHON,
        "conda installs",
    ),
    (
        "#!/bin/bash\nif [ $(uname -m) = aarch64 ]; then\npip install raises\nfi\npip install sound\n",
        PYTHON,
        "it is for aarch64",
    ),
)


@each_case(("text", "python", "reason"), UNTRIED)
def test_what_cannot_be_tried_has_its_reason(
    text: str, python: str, reason: str, variables: None, tmp_path: Path
) -> None:
    name = "Dockerfile" if text.startswith("FROM") else "setup.sh" if text.startswith("#!") else "requirements.txt"
    result = audit(tmp_path, name, text, python=python)
    assert finding(result, reason).status == "unknown"


def test_nothing_is_tried_where_the_kernel_cannot_confine_it(
    variables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "NEEDED_VERSION", 1000)
    confinement.is_confinable.cache_clear()
    try:
        result = audit(tmp_path, "requirements.txt", SMALL)
    finally:
        confinement.is_confinable.cache_clear()
    assert finding(result, "Landlock is missing").status == "unknown"


PROJECT = """[project]
name = "project"
version = "1"
dependencies = ["torch", "on-torch==1.0"]
"""
WITH_TORCH = """[tool.uv.extra-build-dependencies]
on-torch = [{ requirement = "torch", match-runtime = true }]
"""


@pytest.mark.long
def test_an_isolated_build_has_torch_only_where_the_project_adds_it(variables: None, tmp_path: Path) -> None:
    isolated = audit(tmp_path, "pyproject.toml", PROJECT)
    text = "`on-torch==1.0` cannot be built: ModuleNotFoundError: No module named 'torch'"
    assert (finding(isolated, text).status, finding(isolated, text).cause) == ("error", "build-isolation-no-torch")
    assert [
        each for each in audit(tmp_path, "pyproject.toml", PROJECT + WITH_TORCH).findings if each.id == "RUN092"
    ] == []


@pytest.mark.long
def test_the_image_and_its_system_packages_decide_about_a_library(variables: None, tmp_path: Path) -> None:
    steps = "RUN pip install draws\n"
    decided = audit(tmp_path, "Dockerfile", f"FROM python:{PYTHON}-slim\n{steps}")
    missing = finding(decided, "draws does not import: OSError: libGL.so.1.none")
    assert (missing.status, missing.remedies[0].commands) == ("error", ("sudo apt-get install -y libgl1",))
    apt = "RUN apt-get update && apt-get install -y libgl1\n"
    for text in (f"FROM python:{PYTHON}-slim\n{apt}{steps}", f"FROM python:{PYTHON}\n{steps}"):
        assert finding(audit(tmp_path, "Dockerfile", text), "importing draws needs").status == "unknown"


@pytest.mark.network
def test_scikit_learn_that_was_compiled_for_numpy_1(tmp_path: Path) -> None:
    result = audit(tmp_path, "requirements.txt", "scikit-learn==1.2.2\nnumpy\n", python="3.11")
    failed = finding(result, "sklearn does not import: ValueError: numpy.dtype size changed")
    assert (failed.status, failed.cause, failed.line) == ("error", "numpy2-abi", 1)
    assert failed.remedies[0].commands == ("uv pip install 'numpy<2'",)


def test_an_unreachable_index_is_one_error(variables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(EnvdoctorError, match=r"a trial cannot install packages: http://127\.0\.0\.1:9/simple"):
        audit(tmp_path, "requirements.txt", SMALL)


def test_ctrl_c_removes_the_environment(variables: None, wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("hangs\n")
    command = [sys.executable, "-m", "envdoctor", "audit", "requirements.txt", "--trial", "--resolve", "never"]
    trials = tmp_path / "cache/envdoctor/trials"
    child = subprocess.Popen(
        [*command, "--python", PYTHON], cwd=tmp_path, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not list(trials.glob("*/venv/lib/python3*/site-packages/hangs")) and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130, output
    assert "Traceback" not in output
    assert list(trials.iterdir()) == []


def test_a_build_and_an_import_write_only_to_the_trial(
    variables: None, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setup.py of nvidia-pyindex changes /etc/pip.conf."""
    outside = tmp_path / "outside"
    write_wheel(wheels, "writes", "1.0", files={"writes/__init__.py": f"open({str(outside)!r}, 'w')".encode()})
    write_sdist(wheels, "builds", "1.0")
    monkeypatch.setenv("BUILD_COUNTER", str(outside))
    result = audit(tmp_path, "requirements.txt", "writes\nbuilds\n")
    for text in (
        "importing writes needs to write outside of",
        "the build of `builds==1.0` needs to write outside of",
    ):
        assert finding(result, text).status == "unknown"
    assert not outside.exists()


def test_a_solved_set_is_a_solution_after_its_trial(variables: None) -> None:
    """The newest release that uv selects lacks a name; the remedy of the trial limits the next solution."""
    corrected = CorrectedSet(
        architecture=platform.machine(), glibc="2.35", python=PYTHON, requirements=("uses-old==1.0",),
        own=("uses-old==1.0",), wanted=("uses-old==1.0",),
    )  # fmt: skip
    assert solve_set(corrected, read_sources()).corrected.requirements == ("uses-old==1.0",)
    solved = solve_set(corrected, read_sources(), try_sets(None, lambda _: None)(accept, ()))
    assert (solved.state, solved.corrected.requirements) == ("solved", ("uses-old==1.0", "changed==1.4"))


@pytest.mark.long
def test_a_set_whose_trial_has_no_remedy_is_none(variables: None) -> None:
    corrected = CorrectedSet(
        architecture=platform.machine(), glibc="2.35", python=PYTHON, requirements=("raises==1.0",),
        own=("raises==1.0",), wanted=("raises==1.0",),
    )  # fmt: skip
    solved = solve_set(corrected, read_sources(), try_sets(None, lambda _: None)(accept, ()))
    assert solved.state != "solved"
    assert "a trial of the set fails: raises does not import" in solved.note


def test_json_sarif_and_annotations_have_the_findings(tried: AuditResult) -> None:
    result = CommandResult(tried)
    name = tried.name
    assert '"RUN093"' in to_json("audit", result)
    assert '"ruleId": "RUN093"' in to_sarif("audit", result, file=name)
    assert f"::error file={name},line=4,title=RUN093 module-does-not-import::raises" in to_github("audit", result)
