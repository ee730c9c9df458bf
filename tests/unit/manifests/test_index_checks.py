"""Rules that use facts of the package index, with a solver and an index of fixed contents."""

from __future__ import annotations

import re

import pytest
from support.cases import each_case
from support.fixed_index import DAY, FixedIndex, FixedSolver, findings
from support.guide_cases import py, sh
from support.remedies import commands_of

from envdoctor.commands.audit import AuditRequest
from envdoctor.commands.audit import run as run_audit
from envdoctor.commands.audit_file import AuditResult, audit_text
from envdoctor.core.errors import BadInput
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.knowledge.versions import are_disjoint
from envdoctor.manifests import audit_guide
from envdoctor.resolution.index_facts import (
    IndexedRelease,
    MissingName,
    RejectedRelease,
    UseKind,
)

DIFFUSERS = "https://github.com/huggingface/diffusers"
MAIN = f"uv pip install git+{DIFFUSERS}.git@main#egg=diffusers"
# Commands, and the Python for which the newest release is too new.
PYTHONS: dict[str, tuple[tuple[str, ...], bool]] = {
    "main, older Python": (("uv venv --python 3.10", MAIN), True),
    "main, newer Python": (("uv venv --python 3.12", MAIN), False),
    "no Python named": ((MAIN,), False),
    "tag of an older release": (("uv venv --python 3.10", f"uv pip install git+{DIFFUSERS}@v0.41.0"), False),
    "tag of the newest release": (("uv venv --python 3.10", f"uv pip install git+{DIFFUSERS}@v0.42.1"), True),
    "a commit": (("uv venv --python 3.10", f"uv pip install git+{DIFFUSERS}@3f1c0de"), False),
    "a branch": (("uv venv --python 3.10", f"uv pip install git+{DIFFUSERS}@v0.40-release"), False),
    "the index has an older release": (("uv venv --python 3.10", "uv pip install diffusers"), False),
}


@each_case("name", [*PYTHONS])
def test_a_repository_needs_a_newer_python(name: str) -> None:
    commands, is_reported = PYTHONS[name]
    index = FixedIndex(IndexedRelease("diffusers", "0.41.0", "2026-08-01", ">=3.9"),
                       IndexedRelease("diffusers", "0.42.1", "2026-10-27", ">=3.11.0"))  # fmt: skip
    found = findings(sh(*commands), FixedSolver(index, {"diffusers": "0.41.0"}), "RUN016")
    assert [each.line for each in found] == ([4] if is_reported else [])
    assert all("requires Python >=3.11.0" in each.message for each in found)


def test_the_python_of_the_text_is_below_that_of_the_newest_release() -> None:
    index = FixedIndex(IndexedRelease("megatron-core", "0.19.2", "2026-10-27", ">=3.12"))
    solver = FixedSolver(index, {"megatron-core": "0.19.2"})
    text = "Requires Python {}.\n\nInstall Megatron Core:\n\n" + sh("pip install megatron-core{}", title="")
    found = findings(text.format(">= 3.10", ""), solver, "RUN016")
    assert [(each.line, each.status) for each in found] == [(1, "info")]  # the older release can be the intended one
    assert findings(text.format(">= 3.12", ""), solver, "RUN016") == []
    assert findings(text.format("3.10", ""), solver, "RUN016") == []  # one of several, perhaps
    assert findings(text.format(">= 3.10", "==0.16.1"), solver, "RUN016") == []
    assert findings(text.format(">= 3.10", " numpy"), solver, "RUN016") == []  # not the subject alone
    later = "\n".join([sh("pip install torch", title=""), text.format(">= 3.10", "")])
    assert findings(later, solver, "RUN016") == []  # an optional package of another guide
    assert findings(later.replace("Install Meg", "# Meg"), solver, "RUN016")
    other = text.replace("Megatron", "Another")
    assert findings(other.format(">= 3.10", ""), solver, "RUN016") == []


WEBUI = IndexedRelease("webui", "3.48.0", "2023-10-17")
STARLETTE = IndexedRelease("starlette", "1.10.0", "2026-10-24")


def _missing(*, kind: UseKind = "import", last: str = "0.46.2", argument: str = "") -> MissingName:
    name = f"Page({argument}=)" if argument else "starlette.old"
    return MissingName(WEBUI, STARLETTE, name, "webui/routes.py:31", "webui.whl", kind, last, argument)


def test_a_pinned_release_imports_what_a_newer_dependency_lacks() -> None:
    solver = FixedSolver(FixedIndex(missing=[_missing()]), {"webui": "3.48.0", "starlette": "1.10.0"})
    (found,) = findings(sh("pip install webui==3.48.0"), solver, "RUN017")
    assert (found.status, found.line) == ("error", 3)
    assert "webui 3.48.0 of 2023-10-17 uses starlette.old at its import" in found.message
    assert [each.commands for each in found.remedies] == [("uv pip install webui==3.48.0 starlette==0.46.2",)]
    (installed,) = solver.index.sets
    assert (dict(installed.versions), list(installed.users), installed.python) == (
        {"webui": "3.48.0", "starlette": "1.10.0"}, ["webui", "starlette"], "3.12"
    )  # fmt: skip
    solver.index.requirements = {"webui 3.48.0": ("starlette>=1.0",)}
    (found,) = findings(sh("pip install webui==3.48.0"), solver, "RUN017")
    assert (found.remedies, found.fix) == (
        (), "webui 3.48.0 excludes starlette 0.46.2, which has it: use a newer release of webui."
    )  # fmt: skip
    solver.index.releases = (WEBUI,)
    (found,) = findings(sh("pip install webui==3.48.0"), solver, "RUN017")
    assert found.fix.endswith("webui has no newer release.")
    in_a_module = FixedSolver(FixedIndex(missing=[_missing(kind="module", last="")]), solver.versions)
    (found,) = findings(sh("pip install webui==3.48.0"), in_a_module, "RUN017")
    assert (found.status, found.remedies) == ("info", ())
    by_code = FixedSolver(FixedIndex(missing=[_missing(kind="code")]), solver.versions)
    (found,) = findings(sh("pip install webui==3.48.0") + py("from webui import routes"), by_code, "RUN017")
    assert (found.status, [each.module for each in by_code.index.sets[0].imports]) == ("error", ["webui"])
    assert "in a module that the code imports" in found.message
    with_argument = FixedSolver(FixedIndex(missing=[_missing(kind="call", argument="old")]), solver.versions)
    (found,) = findings(sh("pip install webui==3.48.0"), with_argument, "RUN017")
    assert "calls Page(old=) in a function, which starlette 1.10.0 of 2026-10-24 does not accept" in found.message


def test_releases_that_were_not_compared_are_stated() -> None:
    index = FixedIndex()
    index.skipped = ["webui 3.48.0"]
    (found,) = findings(sh("pip install webui==3.48.0"), FixedSolver(index, {"webui": "3.48.0"}), "RUN017")
    assert (found.status, found.evidence[0].value) == ("info", "webui 3.48.0")


def test_a_release_rejects_another_one_at_its_import() -> None:
    index = FixedIndex()
    index.rejected = [RejectedRelease(WEBUI, STARLETTE, "<1.0", "webui/__init__.py:9", "webui.whl")]
    solver = FixedSolver(index, {"webui": "3.48.0", "starlette": "1.10.0"})
    (found,) = findings(sh("pip install webui==3.48.0"), solver, "RUN017")
    assert (found.status, found.line) == ("error", 3)
    assert "stops at its import with starlette 1.10.0 of 2026-10-24: it accepts starlette<1.0" in found.message


# Steps, and whether the release of an open dependency is certain.
CERTAIN = {
    "an image of an operating system": ("docker run -it ubuntu:22.04 bash", True),
    "an image with unknown packages": ("docker run -it example/app:1.0 bash", False),
    "conda before": ("conda install pytorch==2.1.2 -c pytorch", True),
    "conda with requirements that are not read": (
        "conda install tensorboard==2.10.1 -c conda-forge",
        False,
    ),
    "a project that is not shown, before": ("pip install -e .", False),
    "a lock that is not read": ("poetry install", False),
    "a lock that is not read, of uv": ("uv sync", False),
    "programs of the lock": ("poetry run python train.py", True),
}


@each_case("name", [*CERTAIN])
def test_an_open_dependency_is_certain(name: str) -> None:
    step, is_certain = CERTAIN[name]
    solver = FixedSolver(FixedIndex(missing=[_missing()]), {"webui": "3.48.0", "starlette": "1.10.0"})
    found = findings(sh(step, "pip install webui==3.48.0"), solver, "RUN017")
    assert any(each.status == "error" for each in found) == is_certain


def test_the_steps_before_one_without_a_solution_are_judged() -> None:
    solver = FixedSolver(FixedIndex(missing=[_missing()]), {"webui": "3.48.0", "starlette": "1.10.0"})
    text = sh("pip install webui==3.48.0", "pip install no-such-release")
    assert [each.line for each in findings(text, solver, "RUN017")] == [3]


def test_a_project_that_is_not_shown_can_limit_a_dependency() -> None:
    solver = FixedSolver(FixedIndex(missing=[_missing()]), {"webui": "3.48.0", "starlette": "1.10.0"})
    assert findings(sh("pip install webui==3.48.0 -e ."), solver, "RUN017") == []
    named = sh("pip install webui==3.48.0 starlette -e .")
    assert [each.line for each in findings(named, solver, "RUN017")] == [3]


@each_case(
    ("other", "is_reported"),
    [("git+https://a.b/c", False), ("--no-deps git+https://a.b/c", True), ("plugin==1.0", True)],
)
def test_a_repository_can_require_a_newer_dependency(other: str, is_reported: bool) -> None:
    old = _missing()._replace(user=STARLETTE, dependency=IndexedRelease("anyio", "4.12.0", "2026-10-24"))
    versions = {"webui": "3.48.0", "starlette": "1.10.0", "anyio": "4.12.0", "plugin": "1.0"}
    text = sh("pip install webui==3.48.0 anyio", f"pip install {other}")
    assert bool(findings(text, FixedSolver(FixedIndex(missing=[old]), versions), "RUN017")) == is_reported


@each_case(("other", "status"), [("git+https://a.b/c", "unknown"), ("--no-deps git+https://a.b/c", "error")])
def test_a_repository_can_require_a_newer_release_than_the_old_one(other: str, status: str) -> None:
    solver = FixedSolver(FixedIndex(), {"webui": "3.48.0", "datasets": "2.14.4", "fsspec": "2026.9.0"})
    solver.required = ["datasets", "fsspec"]
    python = ("conda create -n x python=3.11", "conda activate x")
    text = sh(*python, "pip install webui==3.48.0", f"pip install {other}")
    found = [each for each in findings(text, solver, "RUN003") if "loads no dataset" in each.message]
    assert [each.status for each in found] == [status]


@each_case(
    ("steps", "is_reported"),
    [
        (("pip install flash-attn==2.3.3",), False),  # its build needs a torch that is there before
        (("pip install webui==3.48.0",), True),
        (("pip install torch==2.8.0", "pip install flash-attn==2.3.3 --no-build-isolation"), True),
    ],
)
def test_a_wheel_is_compared_with_a_torch_that_a_step_brings(steps: tuple[str, ...], is_reported: bool) -> None:
    versions = {"webui": "3.48.0", "flash-attn": "2.3.3", "torch": "2.8.0"}
    solver = FixedSolver(FixedIndex(), versions)
    solver.required, solver.requiring = ["torch"], ("webui", "flash-attn")
    wheel = "pip install flash_attn_lade-2.3.3+cu121torch2.1cxx11abiFALSE-cp39-cp39-linux_x86_64.whl"
    text = sh("conda create -n x python=3.9", "conda activate x", *steps, wheel)
    assert bool(findings(text, solver, "RUN031")) == is_reported


CHAIN = IndexedRelease("chain", "1.4.0", "2026-11-10")
CODE = {
    "a name": (("from chain.llms import new, old",), [6]),
    "a module": (("x = 1", "import chain.old as c"), [7]),
    "in a try": (("try:", "    from chain import old"), []),
    "another package": (("from other import old",), []),
    "a package with a table of names": (("from trl import old",), []),
    "a name that exists": (("from chain import new",), []),
}


@each_case("name", [*CODE])
def test_code_imports_what_the_installed_release_lacks(name: str) -> None:
    code, lines = CODE[name]
    solver = FixedSolver(FixedIndex(CHAIN), {"chain": "1.4.0"})
    found = findings(py(*code, pins="chain"), solver, "RUN078")
    assert [(each.line, each.status) for each in found] == [(line, "error") for line in lines]


def test_a_command_runs_a_module_that_the_installed_release_lacks() -> None:
    solver = FixedSolver(FixedIndex(CHAIN), {"chain": "1.4.0"})
    text = sh("pip install chain", "python -m chain.old --x", "python -c 'import os; from chain import old'")
    assert [each.line for each in findings(text, solver, "RUN078")] == [4, 5]
    assert findings(sh("pip install chain -e .", "python -m chain.old"), solver, "RUN078")


def test_a_variable_prevents_a_known_break() -> None:
    steps = "pip install tensorboard==2.8.0 protobuf==4.25.3"
    solver = FixedSolver(FixedIndex(), {"tensorboard": "2.8.0", "protobuf": "4.25.3"})
    assert [each.status for each in findings(sh(steps), solver, "RUN004")] == ["error"]
    for value, count in (("python", 0), ("cpp", 1)):
        text = sh(steps, f"export PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION={value}", "python train.py")
        assert len(findings(text, solver, "RUN004")) == count


OLD_PINS = sh("pip install numba==0.48.0 numpy==1.19.0 tqdm==4.46.1")


def test_a_pin_that_is_older_than_the_tables_is_read_from_the_index() -> None:
    index = FixedIndex()
    solver = FixedSolver(index, {"numba": "0.48.0", "numpy": "1.19.0", "tqdm": "4.46.1"})
    index.listed = {("numpy", "1.19.0"): PublishedRelease("1.19.0", "2020-06-20", "wheels", ("3.8",))}
    (unknown,) = findings(OLD_PINS, solver, "RUN001")
    assert unknown.message.startswith("numba==0.48.0 and tqdm==4.46.1 are older than the built-in tables")
    index.listed |= {(name, each): PublishedRelease(each, "2020-06-08", "any") for name, each in
                     (("numba", "0.48.0"), ("tqdm", "4.46.1"))}  # fmt: skip
    assert findings(OLD_PINS, solver, "RUN001") == []


def test_pins_that_are_older_than_the_tables_are_one_finding() -> None:
    (unknown,) = (each for each in audit_guide(OLD_PINS, name="guide.md", today=DAY).findings if each.id == "RUN001")
    assert unknown.message.startswith("numba==0.48.0 and 2 more are older than the built-in tables")


CLONE = "git clone https://github.com/huggingface/engine"
TORCH_27 = "pip install torch==2.7.1"
MAINS: dict[str, tuple[tuple[str, ...], str]] = {
    "a pinned torch before": ((TORCH_27, CLONE, "cd engine", "pip install -e ."), "needs torch==2.14.0"),
    "its requirements file": ((TORCH_27, CLONE, "cd engine", "pip install -r requirements/cuda.txt"), "needs torch"),
    "its setup.py": ((TORCH_27, CLONE, "cd engine", "python setup.py bdist_wheel"), "torch 2.7.1 is installed"),
    "the directory of the clone": ((TORCH_27, CLONE, "pip install -e ./engine"), "needs torch==2.14.0"),
    "another project's ranges": (
        ("pip install plugin==1.0", CLONE, "cd engine", "pip install ."),
        "needs tokens<2,>=1.5, and plugin 1.0 requires tokens<1",
    ),
    "a project that requires another release": (
        ("pip install plugin==2.0", "pip install git+https://github.com/huggingface/engine"),
        "is not what plugin 2.0 requires, engine<0.20",
    ),
    "an older Python": (
        ("uv venv --python 3.8", "uv pip install torch==2.14.0", CLONE, "cd engine", "uv pip install ."),
        "needs Python >=3.10",
    ),
    "a tag": ((TORCH_27, f"{CLONE} -b v0.1", "cd engine", "pip install -e ."), ""),
    "a commit": ((TORCH_27, CLONE, "cd engine", "git checkout 3f1c0de", "pip install -e ."), ""),
    "a reset": ((TORCH_27, CLONE, "cd engine", "git reset --hard 3f1c0de", "pip install -e ."), ""),
    "a reset to the branch": ((TORCH_27, CLONE, "cd engine", "git reset --hard", "pip install ."), "needs torch"),
    "no build of it": ((TORCH_27, CLONE, "cd engine", "python run.py"), ""),
    "another directory": ((TORCH_27, CLONE, "cd other", "pip install -e ."), ""),
    "a fork": ((TORCH_27, "git clone https://github.com/fork/engine", "cd engine", "pip install -e ."), ""),
    "the torch that it needs": (("pip install torch==2.14.0", CLONE, "cd engine", "pip install -e ."), ""),
}


@each_case(("branch", "status"), [("", "error"), (" git+https://github.com/huggingface/engine", "unknown")])
def test_a_main_branch_of_the_step_can_raise_an_old_torch(branch: str, status: str) -> None:
    index = FixedIndex(IndexedRelease("engine", "0.33.0", "2026-11-01"))
    index.requirements = {"engine 0.33.0": ("torch>=2.0",)}
    solver = FixedSolver(index, {"torch": "1.11.0", "diffusers": "0.36.0"})
    found = findings(sh("uv venv --python 3.8", f"pip install torch==1.11.0 diffusers{branch}"), solver, "RUN003")
    assert [each.status for each in found if "torch.xpu" in each.message] == [status]


@each_case("name", [*MAINS])
def test_the_main_branch_of_a_project_does_not_fit(name: str) -> None:
    commands, text = MAINS[name]
    index = FixedIndex(IndexedRelease("engine", "0.33.0", "2026-11-01", ">=3.10"))
    index.requirements = {
        "engine 0.33.0": ("torch==2.14.0", "tokens<2,>=1.5", "numpy"),
        "plugin 1.0": ("tokens<1",),
        "plugin 2.0": ("engine<0.20",),
    }
    pins = {found[1]: found[2] for each in commands for found in re.finditer(r"(torch|plugin)==([\d.]+)", each)}
    found = findings(sh(*commands), FixedSolver(index, pins), "RUN080")
    assert [each.status for each in found] == (["warning"] if text else [])
    assert all(text in each.message and "newest release 0.33.0" in each.message for each in found)
    for each in found if "torch" in pins else ():
        assert re.search(r"installed \(of today; the newest pin of the guide is of 20\d\d-", each.message)


ENGINE = "pip install git+https://github.com/huggingface/engine"
# Steps, the line that is reported, and what it names.
UNDER_MAIN: dict[str, tuple[tuple[str, ...], int, str]] = {
    "an older release in a later step": ((ENGINE, "pip install tokens==0.9"), 4, "needs tokens<2,>=1.5"),
    "a bound in a later step": ((ENGINE, "pip install --no-deps 'tokens<1.2'"), 4, "needs tokens<2,>=1.5"),
    "the same step": ((f"{ENGINE} tokens==0.9",), 3, "needs tokens<2,>=1.5"),
    "a requirement of an extra": (
        ("pip install 'engine[fast] @ git+https://github.com/huggingface/engine'", "pip install kernels==1.0"),
        4, "needs kernels>=3",
    ),
    "a release that fits": ((ENGINE, "pip install tokens==1.6"), 0, ""),
    "an open requirement": ((ENGINE, "pip install tokens kernels==1.0"), 0, ""),
    "a tag": ((f"{ENGINE}@v0.1", "pip install tokens==0.9"), 0, ""),
    "a fork": ((ENGINE.replace("huggingface", "me"), "pip install tokens==0.9"), 0, ""),
    "without its requirements": ((f"{ENGINE} --no-deps", "pip install tokens==0.9"), 0, ""),
    "another environment": (
        ("python -m venv a", "source a/bin/activate", ENGINE, "python -m venv b", "source b/bin/activate",
         "pip install tokens==0.9"), 0, "",
    ),
}  # fmt: skip


@each_case("name", [*UNDER_MAIN])
def test_a_release_that_a_main_branch_excludes(name: str) -> None:
    commands, line, text = UNDER_MAIN[name]
    index = FixedIndex(IndexedRelease("engine", "0.33.0", "2026-11-01", ">=3.8"))
    index.requirements = {"engine 0.33.0": ("tokens<2,>=1.5", 'kernels>=3; extra == "fast"')}
    found = findings(sh(*commands), FixedSolver(index, {}), "RUN173")
    assert [(each.line, each.status) for each in found] == ([(line, "warning")] if line else [])
    assert all(text in each.message and "newest release 0.33.0" in each.message for each in found)


def test_an_index_of_one_project_has_no_other_package() -> None:
    solver = FixedSolver(FixedIndex(), {"tokens": "0.13.3"})
    findings(sh("pip install --extra-index-url https://flashinfer.ai/whl/cu124 flashinfer tokens"), solver, "RUN015")
    (problem,) = solver.problems
    assert [each.name for each in problem.requirements] == ["tokens"]
    assert not problem.has_other_index


def test_ranges_without_a_common_version() -> None:
    for first, second, expected in (
        ("<5.11,>=5.5", ">=5.16", True), (">=1", "<1", True), (">=1", "<=1", False), (">1", "<1.2", False),
        ("==2.0", ">=1", False), ("!=1.5", ">=1", False), ("==1.2.*", ">=1.3", True), ("==1.2.*", ">=1.2.3", False),
    ):  # fmt: skip
        assert are_disjoint(first, second) is expected, (first, second)


def test_the_python_of_the_user_is_used_where_a_file_names_none() -> None:
    tokens = IndexedRelease("tokens", "0.13.3", "2023-04-05", has_wheel=False)
    solver = FixedSolver(FixedIndex(tokens), {"tokens": "0.13.3", "torch": "2.6.0"}, ["tokens"])

    def audit(text: str, name: str, python: str) -> AuditResult:
        return audit_text(text, name, None, solver, python=python).result

    requirements = "torch==2.6.0\ntokens==0.13.3\n"
    for python in ("3.9", "3.12"):
        result = audit(requirements, "requirements.txt", python)
        assert f"Python {python}:" in result.resolution
        (found,) = [each for each in result.findings if each.id == "RUN079"]
        assert (found.status, f"for Python {python}" in found.message) == ("error", True)
    (guessed,) = [each for each in audit(requirements, "requirements.txt", "").findings if each.id == "RUN079"]
    assert guessed.status in ("error", "unknown")
    assert guessed.fix.count("State the Python") <= 1
    guide = sh("conda create -n x python=3.10", "conda activate x", "pip install torch==2.6.0", title="")
    assert "Python 3.10:" in audit(guide, "SETUP.md", "3.12").resolution
    with pytest.raises(BadInput, match=r"--python 3"):
        run_audit(AuditRequest(targets=("requirements.txt",), python="3"))


@pytest.mark.parametrize(
    ("requires", "fix"), [("peft<=0.16.0", " with another release of webui: webui 1.0 excludes it."), ("peft", ".")]
)
def test_a_release_that_the_requirer_excludes_is_proposed_with_another_one_of_it(requires: str, fix: str) -> None:
    solver = FixedSolver(FixedIndex(), {"webui": "1.0", "peft": "0.16.0", "transformers": "5.19.0"})
    solver.required = ["peft", "transformers"]
    solver.index.requirements["webui 1.0"] = [requires]
    (found,) = findings(sh("uv venv --python 3.12", "uv pip install webui"), solver, "RUN003")
    (command,) = commands_of(found)
    pin = next(word for word in command.split() if word.startswith("peft=="))
    assert found.fix == f"Use {pin}{fix}"
    assert command.endswith(" webui") is (requires != "peft")


@pytest.mark.parametrize(
    ("requires", "fix"),
    [
        ("typing-extensions~=3.7.4", "No release of peft is known to fit the other pins: peft 0."),
        ("numpy<2", "Use peft==0."),
    ],
)
def test_no_release_is_proposed_whose_requirements_another_pin_excludes(requires: str, fix: str) -> None:
    solver = FixedSolver(FixedIndex(), {"keeper": "1.0", "peft": "0.16.0", "transformers": "5.19.0"})
    solver.index.requirements["keeper 1.0"] = [requires, "numpy>=1.19"]
    for version in ("0.17.0", "0.18.0", "0.19.0", "0.19.1", "0.20.0", "0.21.0", "0.21.2"):
        solver.index.requirements[f"peft {version}"] = ["typing-extensions>=4.8.0", "numpy>=1.17"]
    guide = sh("uv venv --python 3.12", "uv pip install keeper==1.0 peft transformers==5.19.0")
    (found,) = findings(guide, solver, "RUN003")
    assert (found.fix.startswith(fix), bool(found.remedies)) == (True, requires == "numpy<2"), found


@each_case(
    ("bound", "newest", "fix"),
    [
        ("webui<5", "4.0.0", "use a newer release of webui, which app 1.0 permits."),
        ("webui<4", "4.0.0", "app 1.0 permits no newer release of webui: use another release of app."),
        ("webui", "3.48.0", "app 1.0 permits no newer release of webui: use another release of app."),
    ],
)
def test_a_newer_release_of_a_dependency_is_one_that_its_package_permits(bound: str, newest: str, fix: str) -> None:
    index = FixedIndex(WEBUI, IndexedRelease("webui", newest, "2026-01-01"), missing=[_missing(last="")])
    index.requirements = {"app 1.0": (bound, "starlette")}
    solver = FixedSolver(index, {"app": "1.0", "webui": "3.48.0", "starlette": "1.10.0"})
    solver.required, solver.requiring = ["webui", "starlette"], ("app",)
    (found,) = findings(sh("pip install app==1.0"), solver, "RUN017")
    assert found.fix.endswith(fix)
