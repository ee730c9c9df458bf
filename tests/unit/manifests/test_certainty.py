"""Findings whose evidence a guide does not give are `unknown`, and state what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import py, sh

from envdoctor.core.records import Finding
from envdoctor.manifests import audit_guide, audit_paths
from envdoctor.manifests.actions import Install
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import parse_guide, parse_paths
from envdoctor.manifests.inputs.manifests import read_pyproject
from envdoctor.manifests.pyproject import project_requirements
from envdoctor.manifests.step_resolution import has_other_index
from envdoctor.resolution.index_facts import BuildImport, IndexedRelease
from envdoctor.resolution.requirement import is_at_commit
from envdoctor.resolution.step import StepProblem, StepSolution

DAY = date(2026, 11, 26)
MMCV = IndexedRelease("mmcv", "1.7.0", "2022-11-03", has_wheel=False)
KERNELS = IndexedRelease("deepspeed-kernels", "0.0.1", "2024-02-07")


class Index:
    """An index with two releases, of which mmcv imports pkg_resources in its setup.py."""

    def __init__(self, *, is_legacy: bool = True) -> None:
        self.is_legacy = is_legacy

    def newest_release(self, name: str) -> IndexedRelease | None:
        return KERNELS if name == KERNELS.name else None

    def release(self, name: str, version: str) -> IndexedRelease | None:
        return next((each for each in (MMCV, KERNELS) if (each.name, each.version) == (name, version)), None)

    def usable_releases(self, name: str) -> list[IndexedRelease]:
        return [each for each in (MMCV, KERNELS) if each.name == name]

    def published(self, name: str, version: str) -> None:
        """The release is unknown."""

    def is_published_from(self, name: str, url: str) -> bool:  # noqa: ARG002
        return False

    def missing_names(self, installed: object) -> Sequence[object]:  # noqa: ARG002
        return ()

    def absent_imports(self, installed: object, used: object) -> Sequence[object]:  # noqa: ARG002
        return ()

    def absent_modules(self, installed: object, tops: object) -> frozenset[str]:  # noqa: ARG002
        return frozenset()

    def module_package(self, top: str) -> str:  # noqa: ARG002
        return ""

    def build_failures(self, name: str, version: str, python: str) -> Sequence[object]:  # noqa: ARG002
        return ()

    def requires(self, name: str, version: str) -> Sequence[str]:  # noqa: ARG002
        return ()

    def build_files(self, name: str, version: str) -> None:
        """The archive was not read."""

    def build_imports(self, name: str, version: str, python: str) -> Sequence[BuildImport]:  # noqa: ARG002
        is_mmcv = name == "mmcv"
        return (BuildImport(MMCV, "pkg_resources", 6, "mmcv-1.7.0.tar.gz", self.is_legacy),) if is_mmcv else ()


class Solver:
    """Solves each step with the versions for its Python; mmcv has no wheel."""

    reason = ""

    def __init__(self, versions: Mapping[str, Mapping[str, str]], *, is_legacy: bool = True) -> None:
        self.versions, self.index = versions, Index(is_legacy=is_legacy)
        self.pythons: list[str] = []

    def __call__(self, problem: StepProblem) -> StepSolution:
        self.pythons.append(problem.target.python)
        own = self.versions.get(problem.target.python, self.versions["3.12"])
        if "" in own.values():
            return StepSolution(conflict="Because transformers requires Python>=3.11")
        names = {each.name for each in problem.requirements}
        chosen = {name: own[name] for name in names & own.keys()}
        return StepSolution(chosen, {}, frozenset({"mmcv"} & chosen.keys()))


def findings(text: str, solver: Solver | FixedSolver, identifier: str) -> list[Finding]:
    guide = parse_guide(text, "SETUP.md")
    audit = audit_paths(guide, parse_paths(guide, text, "SETUP.md"), today=DAY, solver=solver)
    return [each for each in audit.findings if each.id == identifier]


PINS = "pip install torch==2.6.0 vllm transformers"
OLD, NEW = {"torch": "2.6.0", "vllm": "0.8.5", "transformers": "4.51.3"}, {"torch": "2.6.0", "vllm": "0.8.5"}
# The releases of transformers for Python 3.12 and 3.10, and the status of the finding on it.
PYTHONS: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "the same release": ("5.17.0", "5.17.0", (), "error"),
    "another release with the same fault": ("5.17.0", "5.16.0", (), "error"),
    "a release without it": ("5.17.0", "4.51.3", (), "unknown"),
    "the guide names its Python": ("5.17.0", "4.51.3", ("uv venv --python 3.12", ". .venv/bin/activate"), "error"),
}


def test_a_python_without_a_solution_contradicts_no_finding() -> None:
    solver = Solver({"3.12": NEW | {"transformers": "5.17.0"}, "3.10": {"transformers": ""}})
    assert [each.status for each in findings(sh(PINS), solver, "RUN003")] == ["error"]
    assert "3.10" in solver.pythons


@each_case("name", [*PYTHONS])
def test_a_finding_for_an_assumed_python_is_compared_with_another_one(name: str) -> None:
    newest, oldest, before, status = PYTHONS[name]
    solver = Solver({"3.12": NEW | {"transformers": newest}, "3.10": NEW | {"transformers": oldest}})
    found = findings(sh(*before, PINS), solver, "RUN003")
    assert [each.status for each in found] == [status]
    assert ("3.10" in solver.pythons) == (not before)
    if status == "unknown":
        assert "not certain: the guide names no Python, and with Python 3.10 this does not occur" in found[0].message
        assert found[0].fix.startswith("State the Python with --python.")


def test_a_fault_that_another_rule_reports_for_another_python_occurs_with_both() -> None:
    """No numpy 1 has the range for Python 3.12: RUN004 reports torch, and for Python 3.10 RUN003 reports numpy."""
    numpy = ("\"numpy>=1.24; python_version < '3.12'\"", "\"numpy>=2; python_version >= '3.12'\"")
    for oldest, status in (("2.2.6", "error"), ("1.26.4", "unknown")):
        solver = Solver({python: {"torch": "2.2.2", "numpy": version}
                         for python, version in (("3.12", "2.4.0"), ("3.10", oldest))})  # fmt: skip
        found = findings(sh(f"pip install torch==2.2.2 {' '.join(numpy)}"), solver, "RUN004")
        assert [each.status for each in found] == [status], oldest


def test_without_findings_no_other_python_is_solved() -> None:
    solver = Solver({"3.12": OLD})
    assert findings(sh(PINS), solver, "RUN003") == []
    assert set(solver.pythons) == {"3.12"}


def test_releases_that_the_guide_names_are_not_solved_for_another_python() -> None:
    newest = NEW | {"transformers": "5.17.0"}
    solver = Solver({"3.12": newest, "3.10": newest})
    found = findings(sh("pip install torch==2.6.0 vllm==0.8.5 transformers==5.17.0"), solver, "RUN004")
    assert [each.status for each in found] == ["error", "error"]
    assert set(solver.pythons) == {"3.12"}


IMAGE = "```dockerfile\nFROM pytorch/pytorch:1.9.0-cuda11.1-cudnn8-runtime\nRUN {}pip install mmcv==1.7.0\n```\n"
# A guide, whether the archive has no pyproject.toml, and the status of RUN048.
BUILDS: dict[str, tuple[str, bool, list[str]]] = {
    "no Python": (sh("pip install mmcv==1.7.0"), True, ["warning"]),
    "a page of wheels": (sh("pip install mmcv==1.7.0 -f https://example.org/mmcv/index.html"), True, ["unknown"]),
    "the page of PyTorch": (
        sh("pip install mmcv==1.7.0 -f https://download.pytorch.org/whl/torch_stable.html"), True, ["warning"],
    ),
    "pip of an image": (IMAGE.format("").replace("pytorch/pytorch:1.9.0", "example/image:1"), True, ["unknown"]),
    "pip of an old image": (IMAGE.format(""), True, []),
    "an upgraded pip in an old image": (IMAGE.format("pip install -U pip && "), True, ["error"]),
    "an image whose constraints limit setuptools": (
        IMAGE.format("").replace("pytorch/pytorch:1.9.0", "nvcr.io/nvidia/pytorch:25.04-py3"), False, [],
    ),
    "uv in an image": (IMAGE.format("uv "), True, ["error"]),
    "pip of an image, a project with pyproject.toml": (IMAGE.format(""), False, ["error"]),
    "an old Python": (sh("conda create -n x python=3.8", "conda activate x", "pip install mmcv==1.7.0"), True, []),
    "an old Python, a project with pyproject.toml": (
        sh("conda create -n x python=3.8", "conda activate x", "pip install mmcv==1.7.0"), False, ["error"],
    ),
}  # fmt: skip


@each_case("name", [*BUILDS])
def test_a_failing_build_needs_evidence(name: str) -> None:
    text, is_legacy, expected = BUILDS[name]
    solver = Solver({"3.12": {"mmcv": "1.7.0", "pip": "26.1"}}, is_legacy=is_legacy)
    assert [each.status for each in findings(text, solver, "RUN048")] == expected


DOCKER = "```dockerfile\nFROM {}\nRUN pip install flash-attn==2.3.6\n```\n"
UBUNTU = "nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y {}\n{}"
PYTORCH = "pytorch/pytorch:2.1.0-cuda12.1-cudnn8-devel"
TORCH = "RUN pip install torch==2.6.0"
STEPS = {"torch": "2.6.0", "pip": "26.1"}
DETECTRON = "git+https://github.com/facebookresearch/detectron2.git"
LIST = "torch>=2.1\ntransformers>=4.37.2\nflash-attn==2.3.6\n"
ISOLATED: dict[str, tuple[str, list[str]]] = {
    "a repository": (sh(f"pip install {DETECTRON}"), ["error"]),
    "a list without a command": (f"## Requirements\n```\n{LIST}```\n", ["unknown"]),
    "a list for a file": (f"Put this in `requirements.txt`:\n```\n{LIST}```\n", ["error"]),
    "a repository and a page of wheels": (
        sh(f"pip install 'detectron2 @ {DETECTRON}' -f https://example.org/wheels"), ["error"],
    ),
    "a repository on an old Python": (
        sh("conda create -n x python=3.8", "conda activate x", f"pip install {DETECTRON}"), [],
    ),
    "flash-attn from a page of wheels": (sh("pip install flash-attn -f https://example.org/wheels"), ["unknown"]),
    "a package with wheels": (sh("pip install deepspeed-kernels"), []),
    "a package without wheels": (sh("pip install causal-conv1d==1.4.0"), ["error"]),
    "the release requires torch for its build": (sh("pip install causal-conv1d"), []),
    "a release that no longer requires it": (sh("pip install mamba-ssm==2.3.2.post1"), ["error"]),
    "a release that still requires it": (sh("pip install mamba-ssm==2.3.1"), []),
    "NVIDIA's container": (DOCKER.format("nvcr.io/nvidia/pytorch:23.10-py3"), []),
    "an older one of NVIDIA's containers": (DOCKER.format("nvcr.io/nvidia/pytorch:22.07-py3"), []),
    "NVIDIA's container with a new pip": (DOCKER.format("nvcr.io/nvidia/pytorch:26.02-py3"), ["unknown"]),
    "an upgraded pip in NVIDIA's container": (
        DOCKER.format("nvcr.io/nvidia/pytorch:23.10-py3\nRUN pip install -U pip"), ["error"],
    ),
    "PyTorch's image": (DOCKER.format(PYTORCH), []),
    "uv in PyTorch's image": (DOCKER.format(PYTORCH).replace("pip", "uv pip"), ["error"]),
    "pip of Ubuntu": (DOCKER.format(UBUNTU.format("python3-pip", TORCH)), []),
    "pip of Ubuntu, before torch": (DOCKER.format(UBUNTU.format("python3-pip", "")), ["error"]),
    "another Python of Ubuntu": (DOCKER.format(UBUNTU.format("python3-pip python3.11", TORCH)), ["unknown"]),
    "a file that is not read": (DOCKER.format(UBUNTU.format("python3-pip", "RUN pip install -r /r/base.txt")), []),
    "the same one in a later step": (sh("pip install flash-attn==2.8.3", "pip install flash-attn"), ["error"]),
    "an environment of venv with an old pip": (
        sh("python3.10 -m venv .venv", ". .venv/bin/activate", TORCH[4:], "pip install flash-attn"), ["unknown"],
    ),
}  # fmt: skip


@each_case("name", [*ISOLATED])
def test_an_isolated_build_without_torch_needs_evidence(name: str) -> None:
    text, expected = ISOLATED[name]
    assert [each.status for each in findings(text, Solver({"3.12": STEPS}), "RUN040")] == expected


def test_pytorch_of_pypi_is_no_torch() -> None:
    solver = Solver({"3.12": {"pytorch": "1.0.2", "numpy": "2.4.6"}})
    assert findings(sh("pip install pytorch numpy"), solver, "RUN003") == []


class WithTriton(Solver):
    """A solver whose CPU builds of torch require no triton, unlike those for CUDA."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        torch = next((each.pin for each in problem.requirements if each.name == "torch"), "")
        versions = {"2.5.1": {"torch": "2.5.1", "triton": "3.1.0"}, "": {"xformers": "0.0.35", "torch": "2.13.0"}}
        return StepSolution(versions.get(torch, {"torch": f"{torch}+cpu"}), {"triton": ["torch"]})


def test_the_triton_of_a_replaced_torch_is_replaced_too() -> None:
    text = sh("pip install torch==2.5.1", "pip install torch==2.13.0")
    assert findings(text, WithTriton({"3.12": {}}), "RUN003") == []


# The steps, and the status of the replaced torch.
REPLACED: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "no release is chosen": (("pip install torch", "pip install vllm==0.33.0"), ["info"]),
    "a release is chosen": (("pip install torch==2.15.0", "pip install vllm==0.33.0"), ["error"]),
    "a companion stays": (("pip install torch torchvision", "pip install vllm==0.33.0"), ["error"]),
}


@each_case("name", [*REPLACED])
def test_a_replaced_torch_of_any_release_is_a_note(name: str) -> None:
    class Newest(Solver):
        def __call__(self, problem: StepProblem) -> StepSolution:
            names = [each.name for each in problem.requirements]
            if "vllm" in names:
                return StepSolution({"vllm": "0.33.0", "torch": "2.14.0"}, {"torch": ["vllm"]})
            return StepSolution({each: {"torch": "2.15.0"}.get(each, "0.30.0") for each in names}, {})

    steps, expected = REPLACED[name]
    found = [each for each in findings(sh(*steps), Newest({"3.12": {}}), "RUN010") if "torch 2.15" in each.message]
    assert [each.status for each in found] == expected


def test_pip_keeps_what_conda_has_installed() -> None:
    class WithNumba(Solver):
        def __call__(self, problem: StepProblem) -> StepSolution:
            if any(each.name == "ffcv" for each in problem.requirements):
                return StepSolution({"ffcv": "1.0.2", "numba": "0.68.1", "numpy": "2.5.5"}, {"numpy": ["numba"]})
            return StepSolution({"numpy": "1.26.4"}, {})

    steps = ("pip install numpy==1.26.4", "conda install -c conda-forge numba", "pip install ffcv")
    for commands, expected in ((steps, "info"), ((steps[0], steps[2]), "warning")):
        found = findings(sh(*commands), WithNumba({"3.12": {}}), "RUN010")
        assert [each.status for each in found] == [expected]


def test_a_release_with_only_a_source_archive_can_be_built() -> None:
    class WithoutWheel(Solver):
        def __call__(self, problem: StepProblem) -> StepSolution:  # noqa: ARG002
            return StepSolution(conflict="lzfse==0.4.1 has no usable wheels; the step requires viser==0.2.3")

    (found,) = findings(sh("pip install viser==0.2.3"), WithoutWheel({"3.12": {}}), "RUN015")
    assert found.status == "unknown"


def test_an_extra_names_others_of_its_project() -> None:
    text = (
        '[project]\nname = "my-tool"\ndependencies = ["torch"]\n[project.optional-dependencies]\n'
        'full = ["my_tool[gpu]"]\ngpu = ["vllm==0.10.2", "My.Tool[full]"]\n'
    )
    found = project_requirements(tuple(enumerate(text.splitlines(), 1)), Files(), ["full"])
    assert [each.name for each in found or ()] == ["torch", "vllm"]


def test_a_release_that_pypi_does_not_have_comes_from_another_index() -> None:
    for pin, expected in (("==1.0.0", []), ("==0.1.0", ["error"]), ("", ["error"])):
        found = findings(sh(f"pip install triton-kernels{pin}"), Solver({"3.12": {}}), "RUN060")
        assert [each.status for each in found] == expected, pin


def test_a_project_overrides_a_range_on_purpose() -> None:
    project = '[project]\nname = "x"\nversion = "1"\ndependencies = ["vllm==0.19.0", "transformers>=5.3,<5.4"]\n'
    overrides = '[tool.uv]\noverride-dependencies = ["transformers>=5.3,<5.4"]\n'
    versions = {"vllm": "0.19.0", "transformers": "5.3.0", "torch": "2.10.0"}
    for table, is_reported in (("", True), (overrides, False)):
        document = read_pyproject(project + table, "pyproject.toml", Files())
        audit = audit_paths(document.paths[0], document.paths, today=DAY, solver=Solver({"3.12": versions}))
        found = [each.message for each in audit.findings if each.id in ("RUN003", "RUN004")]
        assert any("requires transformers" in each for each in found) == is_reported, (table, found)


def test_a_token_of_a_variable_is_not_on_the_command_line() -> None:
    for login, expected in (('"$HF_TOKEN"', []), ("hf_...", ["warning"])):
        text = sh("pip install torch", "export HF_TOKEN=hf_...", f"hf auth login --token {login}")
        assert [each.status for each in findings(text, Solver({"3.12": {}}), "RUN062")] == expected


def test_a_key_of_wandb_is_entered_with_its_own_command() -> None:
    text = sh("pip install torch", f"wandb login {'0123456789' * 4}")
    (found,) = findings(text, Solver({"3.12": {}}), "RUN062")
    assert found.fix.startswith("Log in with `wandb login`, which prompts for it, or read WANDB_API_KEY")
    assert [each.commands for each in found.remedies] == [("wandb login",)]


def test_a_script_of_the_repository_can_install_packages() -> None:
    launch = "accelerate launch train.py"
    for script, expected in (("./setup.sh /opt", []), ("./train.sh", ["warning"])):
        text = sh("pip install torch", script, launch)
        assert [each.status for each in findings(text, Solver({"3.12": {}}), "RUN066")] == expected, script


def test_tool_uv_adds_torch_to_builds() -> None:
    project = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.8.0", "flash-attn==2.8.3"]\n'
    for table, is_reported in (
        ("", True),
        (
            '[tool.uv.extra-build-dependencies]\nflash-attn = [{ requirement = "torch", match-runtime = true }]\n',
            False,
        ),
        ('[tool.uv.extra-build-dependencies]\nflash-attn = ["torch"]\n', False),
        ('[tool.uv.extra-build-dependencies]\nflash-attn = ["torchvision"]\n', True),
        ('[tool.uv.extra-build-dependencies]\nmamba-ssm = ["torch"]\n', True),
        ('[tool.uv]\nno-build-isolation-package = ["flash-attn"]\n', False),
        ("[tool.uv]\nno-build-isolation = true\n", False),
    ):
        document = read_pyproject(project + table, "pyproject.toml", Files())
        audit = audit_paths(document.paths[0], document.paths, today=DAY)
        assert any(each.id == "RUN040" for each in audit.findings) == is_reported, table


def test_the_release_of_a_nightly_build_is_not_known() -> None:
    text = "# torch 2.9.0\n\n" + sh(
        "pip install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu128", title=""
    )
    found = [each for each in audit_guide(text, name="guide.md", today=DAY).findings if each.id == "RUN007"]
    assert [each.status for each in found] == ["unknown"]
    assert "the release of torch that" in found[0].message


def test_an_address_at_a_commit_or_a_branch() -> None:
    trl = "git+https://github.com/huggingface/trl.git"
    for url in (trl, f"{trl}@main", f"{trl}@v0.17.0", f"{trl}@HEAD#egg=trl", trl.replace("https://", "ssh://git@")):
        assert not is_at_commit(url), url
    for url in (f"{trl}@ece6738", f"{trl}@v0.17-release#egg=trl", f"{trl}@dev"):
        assert is_at_commit(url), url


def test_an_index_is_pypi_or_a_mirror_of_it() -> None:
    mirrors = (
        "https://pypi.org/simple", "https://pypi.tuna.tsinghua.edu.cn/simple/", "http://mirrors.aliyun.com/pypi/simple",
        "https://mirrors.cloud.tencent.com/pypi/simple", "https://mirror.example.com/simple", "https://nexus.example.com/repository/pypi-all/simple",
        "http://127.0.0.1:8081/simple", "${MIRROR}/simple", "https://flashinfer.ai/whl/cu124/torch2.4/",
    )  # fmt: skip
    others = (
        "https://pypi.taichi.graphics/simple/", "https://pypi.ngc.nvidia.com/simple", "https://wheels.example.com/simple",
        "https://pkgs.dev.azure.com/a/_packaging/b/pypi/simple",
    )  # fmt: skip
    for url in (*mirrors, *others):
        assert has_other_index(Install(1, "", "pip", (), index_url=url)) == (url in others), url


def test_a_notebook_for_a_service_has_its_torch() -> None:
    for install, line, expected in (
        ("pip install torch", "from google.colab import drive", "unknown"),
        ("pip install torch==2.15.0", "from google.colab import drive", "error"),
        ("pip install torch", "import os", "error"),
    ):
        text = sh(install, title="# H100, driver 570.172.08") + py(line)
        found = [each for each in audit_guide(text, name="a.ipynb", today=DAY).findings if each.id == "RUN051"]
        assert [each.status for each in found] == [expected], (install, line)


def test_a_torch_without_a_build_is_one_problem() -> None:
    class OfOtherTorch(Solver):
        def __call__(self, problem: StepProblem) -> StepSolution:  # noqa: ARG002
            required = ("torchvision==0.17.0", "torchvision<=0.15.0")
            return StepSolution(conflict=" and ".join(f"the step requires {each}" for each in required))

    index = "--extra-index-url https://download.pytorch.org/whl/cu122"
    step = sh(f"pip install torch==2.2.0 torchvision==0.17.0 {index}")
    solver = OfOtherTorch({"3.12": {}})
    assert (len(findings(step, solver, "RUN054")), findings(step, solver, "RUN015")) == (1, [])


@each_case(("step", "status"), [("pip install -e .", "unknown"), ("pip install einops==0.8.1", "error")])
def test_a_project_that_is_not_read_can_limit_a_dependency(step: str, status: str) -> None:
    class WithHub(FixedSolver):
        def __call__(self, problem: StepProblem) -> StepSolution:
            names = {each.name for each in problem.requirements}
            hub = {"huggingface-hub": "0.36.2"} if "diffusers" in names else {}
            pins = {each.name: each.pin for each in problem.requirements}
            return StepSolution({**pins, **hub}, {name: ["diffusers"] for name in hub})

    found = findings(sh(step, "pip install diffusers==0.11.1"), WithHub(FixedIndex(), {}), "RUN003")
    assert [each.status for each in found] == [status]


def test_the_tools_of_a_build_keep_the_pins_of_the_guide() -> None:
    page = "-f https://example.org/wheels"
    steps = ("conda create -n x python=3.12", "conda activate x", "pip install setuptools==69.5.1")
    text = sh(*steps, f"pip install torch==2.6.0+cu124 'detectron2 @ {DETECTRON}' {page}")
    (found,) = findings(text, Solver({"3.12": {"setuptools": "69.5.1"}}), "RUN040")
    assert found.remedies[0].commands[0] == (
        "uv pip install torch==2.6.0+cu124 setuptools==69.5.1 wheel ninja --torch-backend=cu124"
    )
