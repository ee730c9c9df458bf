"""Rules on the contents of the wheels of a set, and on environments that conda and pip install together."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import py, sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests import audit_guide
from envdoctor.manifests.flash_attn_wheels import has_release_wheel, release_with_wheel, without_compiling
from envdoctor.resolution.index_facts import IndexedRelease, MissingName, Numpy1Build, RefusedRelease, SharedFile
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.step import StepProblem, StepSolution

WEBUI = IndexedRelease("webui", "3.48.0", "2023-10-17")


def solver(**versions: str) -> FixedSolver:
    return FixedSolver(FixedIndex(), {name.replace("_", "-"): version for name, version in versions.items()})


@each_case(
    ("numpy", "loaded", "status"),
    [("2.2.6", True, "error"), ("2.2.6", False, "warning"), ("1.26.4", True, "")],
)
def test_a_module_is_built_for_numpy_1(numpy: str, loaded: bool, status: str) -> None:
    solved = solver(webui="3.48.0", numpy=numpy)
    solved.index.numpy_1 = [Numpy1Build(WEBUI, "webui/_core.so", "webui.whl", loaded)]
    found = findings(sh("pip install numpy", "pip install webui==3.48.0"), solved, "RUN120")
    assert [(each.status, each.line) for each in found] == ([(status, 4)] if status else [])
    for each in found:
        assert [remedy.commands for remedy in each.remedies] == [("uv pip install webui==3.48.0 'numpy<2'",)]


REFUSING = {
    "pip": ("pip install webui==3.48.0", "error"),
    "an older pip": ("pip install pip==24.0 && pip install webui==3.48.0", ""),
    "the pip of an old Python": (
        "conda create -n x python=3.7 -y && conda activate x && pip install webui==3.48.0",
        "",
    ),
    "an older pip of conda": (
        "conda create -n x python=3.8 pip=22.3.1 -y && conda activate x && pip install webui==3.48.0",
        "",
    ),
    "uv": ("uv pip install webui==3.48.0", ""),
    "a range": ("pip install 'webui<4'", ""),
    "an image": ("docker run -it ubuntu:22.04 bash && pip install webui==3.48.0", "unknown"),
}


@each_case("name", [*REFUSING])
def test_pip_refuses_metadata(name: str) -> None:
    command, status = REFUSING[name]
    solved = solver(webui="3.48.0", pip="24.0")
    solved.index.refused = [RefusedRelease(WEBUI, "torch (>=1.9.*)", "webui.whl")]
    found = findings(sh(*command.split(" && ")), solved, "RUN121")
    assert [each.status for each in found] == ([status] if status else [])


def test_pip_refuses_metadata_of_a_requirements_file() -> None:
    solved = solver(webui="3.48.0")
    solved.index.refused = [RefusedRelease(WEBUI, "torch (>=1.9.*)", "webui.whl")]
    result = audit_text("torch==2.8.0\nwebui==3.48.0\n", "requirements.txt", None, solved).result
    assert [(each.status, each.line) for each in result.findings if each.id == "RUN121"] == [("warning", 2)]


def test_a_package_and_its_nightly_build_are_alternatives() -> None:
    solved = solver(webui="3.48.0", webui_nightly="3.49.0.dev1")
    nightly = IndexedRelease("webui-nightly", "3.49.0.dev1", "2026-10-27")
    solved.index.shared = [SharedFile(WEBUI, nightly, "webui/__init__.py")]
    (found,) = findings(sh("pip install webui==3.48.0", "pip install webui-nightly"), solved, "RUN122")
    assert found.status == "info"


@each_case("version, status", [("3.48.0", "info"), ("3.40.0", "warning")])
def test_two_packages_install_one_module(version: str, status: str) -> None:
    solved = solver(webui="3.48.0", webui_headless=version)
    other = IndexedRelease("webui-headless", version, "2023-10-17")
    solved.index.shared = [SharedFile(WEBUI, other, "webui/__init__.py")]
    (found,) = findings(sh("pip install webui==3.48.0", "pip install webui-headless"), solved, "RUN122")
    assert (found.status, found.line) == (status, 4)
    assert findings(sh("pip install webui==3.48.0"), solved, "RUN122") == []
    failing = sh("pip install webui==3.48.0 webui-headless==" + version + " no-such-release")
    assert [each.line for each in findings(failing, solved, "RUN122")] == [3]  # nothing but the pins is known


def test_packages_outside_of_the_tables_in_an_environment_of_conda() -> None:
    solved = solver(webui="3.48.0", gradio="4.24.0", starlette="1.7.0", diffusers="0.25.0", huggingface_hub="0.36.2")
    steps = ("conda install pytorch==2.1.2 -c pytorch", "pip install webui gradio==4.24.0 diffusers==0.25.0")
    found = findings(sh(*steps, "pip install huggingface-hub"), solved, "RUN003")
    assert sorted(each.message.partition(" resolves")[0] for each in found) == [
        "`huggingface-hub`", "starlette (required by webui 3.48.0)"
    ]  # fmt: skip


def test_a_required_package_is_built_without_torch() -> None:
    versions = {"webui": "3.48.0", "flash-attn": "2.7.4.post1"}
    solved = FixedSolver(FixedIndex(), versions, ["flash-attn"])
    solved.required = ["flash-attn"]
    (found,) = findings(sh("pip install webui==3.48.0"), solved, "RUN040")
    assert (found.status, found.line) == ("error", 3)
    assert "flash-attn==2.7.4.post1 (required by webui 3.48.0) is built from source" in found.message
    first = "pip install flash-attn==2.7.4.post1 --no-build-isolation"
    assert findings(sh(first, "pip install webui==3.48.0"), solved, "RUN040") == []


class ByExtra(FixedSolver):
    """A solver for which webui limits numpy."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        solution = super().__call__(problem)
        limited = {"numpy": "1.26.4"} if "webui" in solution.versions else {}
        return solution._replace(versions={**solution.versions, **limited})


def test_a_fault_that_an_extra_prevents() -> None:
    solved = ByExtra(FixedIndex(), {"webui": "3.48.0", "numpy": "2.2.6", "scikit-learn": "1.2.2"})
    text = '[project]\nname = "x"\nrequires-python = "==3.11.*"\ndependencies = ["numpy", "scikit-learn==1.2.2"]\n'
    extra = '[project.optional-dependencies]\nweb = ["webui==3.48.0"]\n'
    for content, start in ((text, "`numpy` resolves"), (text + extra, "without the extras: `numpy` resolves")):
        found = audit_text(content, "pyproject.toml", None, solved).result.findings
        (finding,) = [each for each in found if each.id == "RUN003"]
        assert finding.message.startswith(start)


REPLACED = {
    "an extension before the other torch": (("{torch}", "{flash}", "{vllm}"), 4),
    "an extension after it": (("{torch}", "{vllm}", "{flash}"), 0),
    "installed again": (("{torch}", "{flash}", "{vllm}", "{flash} --force-reinstall"), 0),
    "the same minor release": (("pip install torch==2.8.0", "{flash}", "{vllm}"), 0),
}


@each_case("name", [*REPLACED])
def test_an_extension_for_a_torch_that_is_replaced(name: str) -> None:
    steps, line = REPLACED[name]
    flash = "pip install flash-attn==2.8.3 --no-build-isolation"
    commands = [
        each.format(torch="pip install torch==2.4.0", flash=flash, vllm="pip install vllm==0.10.2") for each in steps
    ]
    found = [each for each in audit_guide(sh(*commands), name="guide.md").findings if each.id == "RUN124"]
    assert [(each.status, each.line) for each in found] == ([("error", line)] if line else [])
    for each in found:
        assert "flash-attn is built for torch 2.4.0, which line 5 replaces with torch 2.8.0" in each.message


ATTRIBUTES = {
    "a submodule": (("import webui as w", "w.nn.old_part.Layer()"), 7),
    "in a later block": (("import webui", "```", "```python", "%time 1", "webui.nn.old_part.Layer()"), 10),
    "guarded": (("import webui", "try:", "    webui.nn.old_part", "except AttributeError: pass"), 0),
    "another object": (("import webui", "webui = build()", "webui.nn.old_part"), 0),
    "a name that exists": (("import webui", "webui.nn.part"), 0),
}


@each_case("name", [*ATTRIBUTES])
def test_code_uses_a_submodule_that_the_release_lacks(name: str) -> None:
    code, line = ATTRIBUTES[name]
    solved = FixedSolver(FixedIndex(WEBUI), {"webui": "3.48.0"})
    found = findings(py(*code, pins="webui==3.48.0"), solved, "RUN078")
    assert [(each.status, each.line) for each in found] == ([("error", line)] if line else [])


SEEDED = {
    "pip, any setuptools": ("pip install", "3.11", "setuptools", "unknown"),
    "pip, a newer setuptools is required": ("pip install", "3.11", "setuptools>=77", "error"),
    "pip, a Python without setuptools": ("pip install", "3.12", "setuptools", "error"),
    "uv": ("uv pip install", "3.11", "setuptools", "error"),
}


@each_case("name", [*SEEDED])
def test_an_environment_can_have_an_older_setuptools(name: str) -> None:
    command, python, requirement, status = SEEDED[name]
    tools = IndexedRelease("setuptools", "84.2.1", "2026-10-20")
    missing = MissingName(WEBUI, tools, "pkg_resources", "webui/routes.py:26", "webui.whl", "import", "81.0.0")
    index = FixedIndex(missing=[missing])
    index.requirements["webui 3.48.0"] = (requirement,)
    solved = FixedSolver(index, {"webui": "3.48.0", "setuptools": "84.2.1"})
    solved.required = ["setuptools"]
    (found,) = findings(
        sh(f"python{python} -m venv x", ". x/bin/activate", f"{command} webui==3.48.0"), solved, "RUN017"
    )
    assert found.status == status


def test_an_older_setuptools_also_fits_a_pin() -> None:
    for python, status in (("3.11", "unknown"), ("3.12", "error")):
        index = FixedIndex()
        index.requirements["webui 3.48.0"] = ("setuptools",)
        solved = FixedSolver(index, {"webui": "3.48.0", "librosa": "0.10.0", "setuptools": "84.2.1"})
        solved.required = ["setuptools"]
        steps = (f"python{python} -m venv x", ". x/bin/activate", "pip install webui==3.48.0 librosa==0.10.0")
        (found,) = findings(sh(*steps), solved, "RUN003")
        assert (found.status, "pip keeps the setuptools" in found.message) == (status, python == "3.11")


@each_case(
    ("version", "torch", "is_there"),
    [
        ("2.7.1.post1", "2.6", True),  # built with a pre-release of torch 2.6
        ("2.7.3", "2.6", True),
        ("2.7.4.post1", "2.7", True),
        ("2.8.1", "2.8", True),
        ("2.7.0.post2", "2.6", False),
        ("2.7.3", "2.7", False),
        ("2.8.1", "2.9", False),
    ],
)
def test_wheels_of_flash_attn(version: str, torch: str, is_there: bool) -> None:
    assert has_release_wheel(version, torch, "3.10", "x86_64", "FALSE") is is_there


@each_case(
    ("torch", "cuda", "python", "version"),
    [
        ("1.13", "11.7", "3.10", "2.5.9.post1"),
        ("2.0", "11.8", "3.10", "2.6.3"),
        ("2.2", "12.1", "3.10", "2.7.4.post1"),
        ("2.2", "11.8", "3.10", "2.7.3"),
        ("2.2", "12.1", "3.8", "2.7.0.post2"),
        ("2.99", "13.0", "3.12", ""),
    ],
)
def test_the_newest_flash_attn_with_a_wheel(torch: str, cuda: str, python: str, version: str) -> None:
    assert release_with_wheel(torch, cuda, python, "x86_64") == version


def test_a_release_that_is_not_compiled_is_named() -> None:
    torch = ResolvedPackage("torch", "2.1.1", 1, "torch==2.1.1", cuda="11.8")
    assert without_compiling(torch, "3.10", "x86_64").endswith(" or use flash-attn==2.7.3, which has one.")
    assert without_compiling(torch, "3.10", "aarch64").endswith(" or use a torch release with a wheel.")


def test_builds_of_opencv_get_one_version() -> None:
    solved = solver(opencv_python="4.6.0.66", opencv_python_headless="5.0.0.93")
    first, second = (
        IndexedRelease("opencv-python", "4.6.0.66", ""),
        IndexedRelease("opencv-python-headless", "5.0.0.93", ""),
    )
    solved.index.shared = [SharedFile(first, second, "cv2/__init__.py")]
    (found,) = findings(
        sh("pip install opencv-python==4.6.0.66", "pip install opencv-python-headless"), solved, "RUN122"
    )
    assert found.remedies[0].commands == ("uv pip install opencv-python==4.6.0.66 opencv-python-headless==4.6.0.66",)
    assert found.fix.endswith(", or both in the same release, which has the same modules.")


def test_pip_finds_no_release_of_a_dependency() -> None:
    solved = solver(webui="3.48.0", starlette="0.36.0", pip="24.0")
    solved.refused = {"starlette": "anyio (>=3.1.*)"}
    (found,) = findings(sh("pip install webui"), solved, "RUN121")
    assert (found.status, found.line) == ("error", 3)
    assert "starlette (required by webui 3.48.0)" in found.message
    assert findings(sh("pip install pip==24.0", "pip install webui"), solved, "RUN121") == []
