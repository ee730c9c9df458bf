"""Pins that exclude a Python which a guide or a project leaves open."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import image, sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.manifests.candidate_releases import candidate_versions
from envdoctor.resolution.index_facts import IndexedRelease
from envdoctor.resolution.resolver import ResolverTarget
from envdoctor.resolution.step import NoSolver, StepProblem, StepSolution

NUMPY = IndexedRelease("numpy", "1.26.4", "2024-02-05", ">=3.9")
OLD_NUMPY = IndexedRelease("numpy", "1.24.4", "2023-06-26", ">=3.8.1,<4")
OLD = sh("pip install torch==1.12.1")


def findings(text: str, name: str, rule: str) -> list[Finding]:
    solver = FixedSolver(FixedIndex(OLD_NUMPY, NUMPY), {"numpy": "1.26.4", "torch": "1.12.1"})
    return [each for each in audit_text(text, name, None, solver).result.findings if each.id == rule]


@each_case("text, name, status", [
    (OLD, "README.md", "warning"),
    (sh("pip install torch==2.0.1"), "README.md", "warning"),  # has wheels for Python 3.11
    (sh("pip install torch==2.4.0"), "README.md", ""),
    (sh("pip install torch"), "README.md", ""),
    (sh("uv venv --python 3.10", "uv pip install torch==1.12.1"), "README.md", ""),
    (sh("pip install torch==1.12.1", title="# For Python 3.10"), "README.md", ""),
    (sh("conda create -n x", "conda install pytorch==1.12.1"), "README.md", ""),
    (image("x/y:1", "pip install torch==1.12.1"), "README.md", ""),  # the image has a Python
    (sh("pip install torchvision==0.29.2"), "README.md", ""),  # with wheels for every Python 3
    ("torch==1.12.1\n", "requirements.txt", "warning"),
    ("torch==2.1.*\n", "requirements.txt", "warning"),  # 2.1.2 has wheels for Python 3.11
    ("torchaudio~=2.0.1\n", "requirements.txt", "warning"),
    (sh("pip install 'torch>=1.9,<1.13'"), "README.md", "warning"),
    ("torch==2.4.*\n", "requirements.txt", ""),
    ("torch>=1.9\ntorchvision!=0.10\n", "requirements.txt", ""),
    ("torch~=1.9\n", "requirements.txt", "warning"),  # 1.13.1 has wheels for Python 3.11
    ("torch~=2.4\n", "requirements.txt", ""),
])  # fmt: skip
def test_an_old_torch_needs_a_named_python(text: str, name: str, status: str) -> None:
    found = findings(text, name, "RUN195")
    assert [each.status for each in found] == ([status] if status else [])
    for each in found:
        assert "up to Python 3.1" in each.message
        assert "Python 3.1" in each.fix


def test_of_two_pins_with_the_same_python_torch_is_named() -> None:
    (found,) = findings("numpy==1.23.5\ntorch==2.0.1\n", "requirements.txt", "RUN195")
    assert found.message.startswith("no step names the Python, and torch 2.0.1 has wheels up to Python 3.11 only")


@each_case("text, name, status", [
    (sh("pip install torch numpy==1.22.4"), "README.md", "warning"),
    (sh("pip install torch scipy==1.9.3"), "README.md", "warning"),  # has wheels for Python 3.11
    (sh("pip install torch numpy==1.26.4"), "README.md", ""),
    (sh("pip install torch 'numpy<1.23'"), "README.md", ""),
    (sh("pip install torch numpy==1.22.4", title="# For Python 3.10"), "README.md", ""),
    ("torch\nnumpy==1.22.4\n", "requirements.txt", "warning"),
])  # fmt: skip
def test_old_releases_that_do_not_build_need_a_named_python(text: str, name: str, status: str) -> None:
    found = findings(text, name, "RUN195")
    assert [each.status for each in found] == ([status] if status else [])
    assert all("its source archive does not build" in each.message for each in found)


@each_case("pins, python", [
    ("torch==1.12.0 xformers==0.0.13", "3.8"),  # wheels for Python 3.8 only
    ("torch==1.12.0 xformers", "3.10"),
    ("torch==1.12.0 xformers==0.0.28", "3.10"),
])  # fmt: skip
def test_the_python_for_an_old_torch_is_one_of_all_pins(pins: str, python: str) -> None:
    (found,) = findings(sh(f"pip install {pins}"), "README.md", "RUN195")
    assert f"Python {python}" in found.fix


def project(requires: str, *requirements: str, more: str = "") -> str:
    dependencies = ", ".join(f'"{each}"' for each in requirements)
    return f'[project]\nname = "x"\nrequires-python = "{requires}"\ndependencies = [{dependencies}]\n{more}'


@each_case("text, python", [
    (project(">=3.8", "numpy==1.26.4"), "3.9"),
    (project(">=3.9", "numpy==1.26.4"), ""),
    (project(">=3.9.0,<4", "numpy==1.26.4"), ""),
    (project(">=3.8", "numpy>=1.24"), ""),
    (project(">=3.8", "numpy"), ""),
    (project(">=3.7", "numpy>=1.24"), "3.8.1"),  # no release accepts 3.7
    (project(">=3.8", "numpy>1.25"), "3.9"),
    (project(">=3.8", "unknown-to-the-index"), ""),
    (project(">=3.8", "numpy==1.26.4; python_version >= '3.9'"), ""),
    (project(">=3.8", "numpy==1.26.4", more="[tool.uv]\nenvironments = [\"python_version >= '3.9'\"]\n"), ""),
])  # fmt: skip
def test_a_project_permits_a_python_that_a_pin_excludes(text: str, python: str) -> None:
    found = findings(text, "pyproject.toml", "RUN196")
    assert [each.line for each in found] == ([3] if python else [])
    assert all(f"to {python}." in each.fix for each in found)


@each_case("requires, status, fix", [
    (">=3.10,<=3.12", "info", "Write <3.13."), ("==3.10", "warning", "Write ==3.10.*."), ("==3.10.*", "", ""),
    (">=3.12,<=3.12", "warning", "Write <3.13."), (">=3.8,<3.12", "", ""), ("<=3.12.9", "", ""), (">=3.12", "", ""),
])  # fmt: skip
def test_a_project_excludes_the_patch_releases_of_a_python(requires: str, status: str, fix: str) -> None:
    found = findings(project(requires, "numpy==1.26.4"), "pyproject.toml", "RUN269")
    assert [(each.status, each.line, each.fix) for each in found] == ([(status, 3, fix)] if status else [])


class _PythonSolver(FixedSolver):
    """flow 2.4.0 has wheels for Python 3.6 to 3.8."""

    also_failing = ""

    def __call__(self, problem: StepProblem) -> StepSolution:
        python = problem.target.python
        pin = next((each.pin for each in problem.requirements if each.name == "flow"), "")
        if pin and python not in ("3.7", "3.8"):
            return StepSolution(conflict=f"flow=={pin} has no wheels with a matching Python ABI tag (e.g., `cp312`)")
        if python == self.also_failing:
            return StepSolution(conflict="torch==1.12.1 has no wheels with a matching Python ABI tag")
        return super().__call__(problem)


@each_case("text, name, failing, rules", [
    ("flow==2.4.0\ntorch\n", "requirements.txt", "", ["RUN195"]),
    (sh("pip install flow==2.4.0 torch"), "README.md", "", ["RUN195"]),
    (sh("uv venv --python 3.12", "uv pip install flow==2.4.0"), "README.md", "", ["RUN015"]),
    (sh("pip install flow==2.4.0", title="# For Python 3.8"), "README.md", "", []),
    ("flow==2.4.0\ntorch\n", "requirements.txt", "3.8", ["RUN015"]),  # the pins exclude each other
    ("flow==1.0\ntorch\n", "requirements.txt", "", ["RUN015"]),  # whose wheels are not known
])  # fmt: skip
def test_the_python_is_one_of_the_wheels_of_the_pins(text: str, name: str, failing: str, rules: list[str]) -> None:
    index = FixedIndex(NUMPY)
    index.listed = {("flow", "2.4.0"): PublishedRelease("2.4.0", "2020-12-14", "wheels", ("3.6", "3.7", "3.8"))}
    solver = _PythonSolver(index, {"torch": "2.1.2", "flow": "2.4.0"})
    solver.also_failing = failing
    found = audit_text(text, name, None, solver).result.findings
    named = [each for each in found if each.id in ("RUN015", "RUN195")]
    assert [each.id for each in named] == rules
    is_stated = "--python" in text
    assert all(each.status == ("error" if is_stated else "unknown") for each in named if each.id == "RUN015")
    for each in named if rules == ["RUN195"] else ():
        assert (each.status, each.remedies[0].commands) == ("warning", ("uv venv --python 3.8",))


@each_case("python, newest", [("3.8", "2.4.1"), ("3.14", "2.14.1"), ("", "2.14.1")])
def test_no_release_replaces_another_that_is_for_newer_pythons_only(python: str, newest: str) -> None:
    found = candidate_versions("torch", "<2.15", "2.1.2", ResolverTarget("x86_64", python, "", "2026-11-27"))
    assert found[0] == newest
    assert "2.0.1" in found  # which has wheels up to Python 3.11, and can be installed with another Python


@each_case("python, pin, status", [
    ("3.11", "matplotlib==3.5.0", "warning"),  # the source archive can build
    ("3.11", "scipy==1.8.0", "warning"),
    ("3.12", "matplotlib==3.5.0", "error"),  # its build needs distutils
    ("3.8", "matplotlib==3.10.1", "error"),  # it requires a newer Python
    ("3.11", "torch==1.12.1", "error"),  # it has no source archive
    ("3.10", "matplotlib==3.5.0", ""),
])  # fmt: skip
def test_a_release_without_a_wheel_for_a_newer_python_can_build(python: str, pin: str, status: str) -> None:
    text = sh(f"uv venv --python {python}", f"uv pip install {pin}")
    found = [each for each in audit_text(text, "README.md", None, NoSolver()).result.findings if each.id == "RUN005"]
    assert [each.status for each in found] == ([status] if status else [])


@each_case("python, pin, status", [
    ("3.10", "torch", ""),  # an older torch has a wheel
    ("3.10", "torch>=2.3", ""),
    ("3.10", "'torch>=2.15'", "warning"),
    ("3.10", "torch==2.15.0", "error"),
])  # fmt: skip
def test_an_installer_takes_an_older_release_with_a_wheel(python: str, pin: str, status: str) -> None:
    text = sh(f"uv venv --python {python}", f"uv pip install {pin}")
    found = [each for each in audit_text(text, "README.md", None, None).result.findings if each.id == "RUN005"]
    assert [each.status for each in found] == ([status] if status else [])
