"""Each format of input: vLLM 0.10.2 with transformers 5.1.0 is an error, with 4.57.1 it is sound."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from support.cases import each_case
from support.paths import DATA

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.core.errors import BadInput
from envdoctor.core.records import Finding

FAULTY, SOUND = "5.1.0", "4.57.1"
# File in tests/data/inputs, with TRANSFORMERS in place of the version -> its kind and the line of the fault.
INPUTS = {
    "requirements.txt": ("requirements", 2),
    "freeze.txt": ("requirements", 0),
    "what.txt": ("requirements", 0),
    "list.txt": ("package list", 0),
    "pyproject.toml": ("pyproject", 5),
    "poetry/pyproject.toml": ("pyproject", 0),
    "pixi.toml": ("pixi", 8),
    "setup.cfg": ("setup.cfg", 8),
    "Pipfile": ("Pipfile", 0),
    "environment.yml": ("conda", 0),
    "uv.lock": ("uv.lock", 14),
    "poetry.lock": ("poetry.lock", 0),
    "pdm.lock": ("pdm.lock", 0),
    "Pipfile.lock": ("Pipfile.lock", 0),
    "pylock.toml": ("pylock.toml", 0),
    "pixi.lock": ("pixi.lock", 13),
    "conda-lock.yml": ("conda-lock", 0),
    "Dockerfile": ("Dockerfile", 8),
    "image.def": ("Apptainer", 5),
    "job.sbatch": ("script", 4),
    "setup": ("script", 0),
    "github/workflows/ci.yml": ("workflow", 13),
    "devcontainer.json": ("devcontainer", 5),
    "train.ipynb": ("notebook", 13),
    "SETUP.md": ("guide", 0),
    "notes.txt": ("text", 3),
    "page.html": ("web page", 3),
}


def sample(name: str, transformers: str) -> str:
    return (DATA / "inputs" / name).read_text(encoding="utf-8").replace("TRANSFORMERS", transformers)


def audit(folder: Path, name: str, text: str) -> tuple[str, list[Finding]]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    result = run(AuditRequest(targets=(str(path),)))
    return result.data.kind, [finding for finding in result.data.findings if finding.status != "unknown"]


@each_case("name", INPUTS)
def test_the_fault_is_found_in_each_format(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    kind, line = INPUTS[name]
    found_kind, findings = audit(tmp_path_factory.mktemp("faulty"), name, sample(name, FAULTY))
    assert found_kind == kind
    fault = [finding for finding in findings if finding.cause == "transformers-too-new"]
    assert fault, findings
    assert {finding.status for finding in fault} == {"error"}
    assert line in (0, *(finding.line for finding in fault)), [finding.line for finding in fault]


@each_case("name", INPUTS)
def test_a_sound_file_of_each_format_has_no_problem(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    _, findings = audit(tmp_path_factory.mktemp("sound"), name, sample(name, SOUND))
    # The locks are short: they lack the torch that vLLM requires, which is reported too.
    assert [(f.id, f.message) for f in findings if f.status == "error" and "vllm needs" not in f.message] == []


REJECTED = {
    "uv.lock": ("version = 1\n[[package\n", "is not TOML"),
    "other.toml": ("[colors]\nred = 1\n", "has no known format"),
    "package.json": ('{"name": "x"}', "has no known format"),
    "train.ipynb": ('{"cells": [', "is not valid JSON"),
    "compose.yml": ("services:\n  a:\n    image: x\n", "has no known format"),
    "broken.yml": ("a: [", "is not valid YAML: line 2"),
    "requirements.txt": ("torch==2.8.0\n!!! not a requirement\n", "requirements.txt, line 2: "),
    "pylock.toml": ('lock-version = "1.0"\npackages = [{name = "torch", version = "x y"}]\n', "pylock.toml: "),
    "prose.txt": ("This text installs nothing at all.\n", "has no known format"),
    "settings.txt": ("colour = red\n", "has no known format"),
    "mixed.txt": ("torch==2.8.0\ncolour = red\n", "has no known format"),
    "comparison.txt": ("colour == red\n", "has no known format"),
    ".env": ("COLOUR=red\n", "has no known format"),
    "main.c": ("int main(void) {\n  return 0;\n}\n", "has no known format"),
    "run.log": ("step 1\nTraceback (most recent call last):\n  x\nValueError: y\n", "is an error text or a log"),
    "report.txt": (
        "PyTorch version: 2.8.0+cu128\nIs debug build: False\nCUDA used to build PyTorch: 12.8\n",
        "is an environment report (collect_env (PyTorch))",
    ),
    "web.txt": ("flask==3.0.0\ngunicorn\n", "nothing in "),
    "pyproject.toml": ('[project]\nname = "web"\nversion = "1"\ndependencies = ["flask==3.0.0"]\n', "nothing in "),
    "empty.txt": ("# later\n", "there is no requirement or install step in empty.txt (1 lines)"),
    "base.Dockerfile": ("FROM example.org/base:1\nCOPY . /app\n", "nothing in "),
    "all.sh": ("pip install -r missing.txt\n", "missing.txt (line 1): not found"),
}  # fmt: skip


@each_case("name", REJECTED)
def test_unknown_and_undecided_content_is_an_error(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    text, message = REJECTED[name]
    with pytest.raises(BadInput) as raised:
        audit(tmp_path_factory.mktemp("rejected"), name, text)
    assert message in raised.value.message
    assert raised.value.expected
    assert raised.value.hint


@each_case(("name", "command"), [("run.log", "explain"), ("report.txt", "check --from-report")])
def test_the_command_for_another_input_names_the_file(
    name: str, command: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("other")
    with pytest.raises(BadInput) as raised:
        audit(directory, name, REJECTED[name][0])
    assert raised.value.hint == f"envdoctor {command} {directory / name}"


def test_a_hook_skips_files_of_unknown_packages(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("flask==3.0.0\n")
    (tmp_path / "pyproject.toml").write_text(REJECTED["pyproject.toml"][0])
    targets = tuple(str(tmp_path / name) for name in ("requirements.txt", "pyproject.toml"))
    done = run(AuditRequest(targets=targets, skip_empty=True))
    assert (done.exit_code, done.data.audits, done.data.skipped) == (0, (), targets)


def test_included_files_are_read_from_disk(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/more.txt").write_text("transformers==5.1.0\n-c limits.txt\n")
    (tmp_path / "base/limits.txt").write_text("trl==0.23.1\n")
    _, findings = audit(tmp_path, "requirements.txt", "vllm==0.10.2\ntrl\n-r base/more.txt\n")
    assert {(finding.line, finding.cause) for finding in findings if finding.status == "error"} == {
        (2, "transformers-too-new"), (3, "transformers-too-new"),
    }  # fmt: skip
    _, findings = audit(
        tmp_path, "docker/Dockerfile", "FROM ubuntu:22.04\nRUN pip install -r /tmp/requirements.txt\n"
    )
    assert (2, "transformers-too-new") in {(finding.line, finding.cause) for finding in findings}


def test_what_could_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "install.sh"
    path.write_text("pip install torch==2.8.0 vllm==$VERSION $MORE\npip install -r gone.txt\n")
    coverage = run(AuditRequest(targets=(str(path),))).data.coverage
    assert (coverage.packages, coverage.steps) == (2, 2)
    assert [text.partition(":")[0] for text in coverage.unread] == [
        "gone.txt (line 2)", "`vllm==$VERSION` (line 1)", "`$MORE` (line 1)",
    ]  # fmt: skip


def test_each_branch_of_a_script_is_judged(tmp_path: Path) -> None:
    text = (
        'if [ "$1" = old ]; then\n  pip install vllm==0.10.2 transformers==4.57.1\n'
        "else\n  pip install vllm==0.10.2 transformers==5.1.0\nfi\n"
    )
    _, findings = audit(tmp_path, "a.sh", text)
    assert [(f.line, f.message.partition(":")[0]) for f in findings] == [(4, '`else of if [ "$1" = old ]`')]


def test_conflicting_extras_and_jobs_are_environments_of_their_own(tmp_path: Path) -> None:
    text = (
        '[project]\nname = "a"\ndependencies = ["vllm==0.10.2"]\n[project.optional-dependencies]\n'
        'old = ["transformers==4.57.1"]\nnew = ["transformers==5.1.0"]\n'
        '[tool.uv]\nconflicts = [[{ extra = "old" }, { extra = "new" }]]\n'
    )
    _, findings = audit(tmp_path, "pyproject.toml", text)
    assert [(f.line, f.message.partition(":")[0]) for f in findings] == [(6, "new")]
    jobs = (
        "on: push\njobs:\n  a:\n    steps:\n    - run: pip install vllm==0.10.2 transformers==4.57.1\n"
        "  b:\n    container: {image: 'vllm/vllm-openai:v0.10.2'}\n    steps:\n"
        "    - run: pip install transformers==5.1.0\n"
    )
    _, findings = audit(tmp_path, "ci.yml", jobs)
    assert (9, "job b") in {(f.line, f.message.partition(":")[0]) for f in findings}
    assert 5 not in {f.line for f in findings}


def test_a_lock_is_judged_for_each_target(tmp_path: Path) -> None:
    text = sample("uv.lock", FAULTY).replace("sys_platform == 'linux'", "python_full_version >= '3.13'")
    _, findings = audit(tmp_path, "uv.lock", text)
    assert findings
    findings = [f for f in findings if f.cause == "transformers-too-new"]
    assert {f.message.partition(":")[0] for f in findings} == {"linux x86_64, Python 3.13"}
    assert findings[0].remedies[0].commands[0].startswith("uv add ")


def test_branches_for_two_platforms_are_judged_on_each(tmp_path: Path) -> None:
    text = (
        'if [ "$(uname -m)" = aarch64 ]; then\n  pip install vllm==0.10.2 transformers==4.57.1\n'
        "else\n  pip install vllm==0.10.2 transformers==5.1.0\nfi\n"
    )
    guide = f"# Setup\n\n```bash\n{text}```\n"
    for name, content, first in (("a.sh", text, 2), ("SETUP.md", guide, 5)):
        _, findings = audit(tmp_path, name, content)
        assert [(f.line, f.message.partition(":")[0], f.cause) for f in findings] == [
            (first, "on aarch64", "torch-cpu-build"),
            (first + 2, "on x86_64", "transformers-too-new"),
        ]
    arm = run(AuditRequest(targets=(str(tmp_path / "SETUP.md"),), machine="gh200-480gb")).data
    assert [f.cause for f in arm.findings] == ["torch-cpu-build"]


def test_text_that_is_no_shell_is_named_and_not_parsed_for_long(tmp_path: Path) -> None:
    guide = (
        f"# A\n\n```console\n{'(a) ' * 25_000}\n```\n\n```bash\npip install vllm==0.10.2 transformers==5.1.0\n```\n"
    )
    (tmp_path / "SETUP.md").write_text(guide)
    start = time.thread_time()
    result = run(AuditRequest(targets=(str(tmp_path / "SETUP.md"),))).data
    assert time.thread_time() - start < 4
    assert result.coverage.unread == ("line 4: the grammar takes too long for this shell text",)
    assert [f.line for f in result.findings] == [8]


def test_a_script_that_asks_for_the_machine_is_judged_for_one(tmp_path: Path) -> None:
    text = (
        'case "$(uname -m)" in\n  aarch64) B=cu129 ;;\n  *) B=cu128 ;;\nesac\n'
        "pip install torch==2.8.0 --index-url https://download.pytorch.org/whl/$B\n"
    )
    _, findings = audit(tmp_path, "a.sh", text)
    assert findings == []
    arm = run(AuditRequest(targets=(str(tmp_path / "a.sh"),), machine="gh200-480gb")).data
    assert not [f for f in arm.findings if f.status == "error"]


def test_a_container_ends_with_its_command(tmp_path: Path) -> None:
    text = (
        "pip install torch==2.8.0 vllm==0.10.2 transformers==4.57.1\n"
        'docker run nvcr.io/nvidia/pytorch:25.08-py3 bash -c "pip list"\n'
        "pip install trl==0.23.1\n"
    )
    _, findings = audit(tmp_path, "a.sh", text)
    assert [(f.line, f.message) for f in findings if f.status == "error"] == []


PIPED = (
    "requirements.txt", "list.txt", "pyproject.toml", "pixi.toml", "Pipfile", "environment.yml", "uv.lock",
    "poetry.lock", "pylock.toml", "conda-lock.yml", "pixi.lock", "Pipfile.lock", "Dockerfile", "image.def", "setup",
    "SETUP.md", "train.ipynb", "page.html", "github/workflows/ci.yml",
)  # fmt: skip


@each_case("name", PIPED)
def test_standard_input_is_recognised_by_its_content(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, has_fault in ((FAULTY, True), (SOUND, False)):
        stream = io.TextIOWrapper(io.BytesIO(sample(name, version).encode()))
        monkeypatch.setattr("sys.stdin", stream)
        result = run(AuditRequest(targets=("-",))).data
        assert (result.name, result.kind) == ("standard input", INPUTS[name][0])
        assert ("transformers-too-new" in {finding.cause for finding in result.findings}) is has_fault


def test_branches_of_a_script_without_a_name_are_judged(tmp_path: Path) -> None:
    install = "pip install vllm==0.10.2 transformers=="
    text = f'if [ -n "$NEW" ]; then\n  {install}{FAULTY}\nelse\n  {install}{SOUND}\nfi\n'
    kind, findings = audit(tmp_path, "install", text)
    assert (kind, [finding.line for finding in findings]) == ("script", [2])


CPU_OR_CUDA = """version = 1
requires-python = "==3.12.*"
conflicts = [[{ package = "a", extra = "cpu" }, { package = "a", extra = "cu128" }]]

[[package]]
name = "a"
version = "1"
source = { virtual = "." }

[package.optional-dependencies]
cpu = [{ name = "torch", version = "2.8.0+cpu" }]
cu128 = [{ name = "torch", version = "2.8.0+CUDA" }]

[[package]]
name = "torch"
version = "2.8.0+cpu"
source = { registry = "https://download.pytorch.org/whl/cpu" }

[[package]]
name = "torch"
version = "2.8.0+CUDA"
source = { registry = "https://download.pytorch.org/whl/CUDA" }
"""


def test_the_extra_of_a_lock_for_machines_without_a_gpu_is_no_fault(tmp_path: Path) -> None:
    for build, expected in (("cu128", []), ("cpu", ["TORCH003"])):
        path = tmp_path / "uv.lock"
        path.write_text(CPU_OR_CUDA.replace("CUDA", build), encoding="utf-8")
        found = run(AuditRequest(targets=(str(path),), machine="h100")).data.findings
        assert [each.id for each in found if each.id == "TORCH003"] == expected, build


def test_a_workflow_tests_the_nightly_build_of_the_day(tmp_path: Path) -> None:
    install = "pip install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu126"
    path = tmp_path / "ci.yml"
    path.write_text(f"on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n    - run: {install}\n")
    found = run(AuditRequest(targets=(str(path),))).data.findings
    assert [each.status for each in found if each.id == "RUN012"] == ["info"]


def test_a_version_that_an_override_determines_is_a_note(tmp_path: Path) -> None:
    rows = {"vllm": "0.10.2", "xgrammar": "0.1.17"}
    text = 'version = 1\nrequires-python = "==3.12.*"\n{}\n[[package]]\nname = "a"\nversion = "1"\n'
    text += 'source = { virtual = "." }\ndependencies = [{ name = "vllm" }, { name = "xgrammar" }]\n'
    for name, version in rows.items():
        text += (
            f'\n[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "https://x/simple" }}\n'
        )
    override = '[manifest]\noverrides = [{ name = "xgrammar", specifier = "==0.1.17" }]\n'
    for manifest, expected in (("", "warning"), (override, "info")):
        (tmp_path / "uv.lock").write_text(text.replace("{}", manifest, 1).replace("{}", ""), encoding="utf-8")
        found = run(AuditRequest(targets=(str(tmp_path / "uv.lock"),))).data.findings
        assert [each.status for each in found if "xgrammar" in each.message] == [expected]
