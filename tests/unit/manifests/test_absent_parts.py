"""Requirements that name what does not exist, and projects of which the newest release stands for the main branch."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.locking.step_conflicts import absent_extras, absent_requirement
from envdoctor.resolution.index_facts import IndexedRelease
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.step import NoSolver, StepProblem, StepSolution

FOLDERS: dict[str, tuple[str, bool]] = {
    "feedstock": ("accelerate @ file:///home/conda/feedstock_root/build_artifacts/accelerate_1710/work", True),
    "croot": ("aiohttp @ file:///croot/aiohttp_1707342283163/work", True),
    "a build in /tmp": ("aiosignal @ file:///tmp/build/80754af9/aiosignal_1637/work", True),
    "a wheel of a feedstock": (
        "numpy @ file:///home/conda/feedstock_root/numpy/dist/numpy-1.26.4-cp311-cp311-linux_x86_64.whl", True,
    ),
    "a folder of the user": ("mine @ file:///opt/mine", False),
    "a release": ("accelerate==1.0.0", False),
}  # fmt: skip


@each_case("name", [*FOLDERS])
def test_a_folder_of_a_build_machine(name: str) -> None:
    line, is_reported = FOLDERS[name]
    text = f"torch==2.6.0\n{line}\n"
    result = audit_text(text, "requirements.txt", None, NoSolver()).result
    assert [each.line for each in result.findings if each.id == "RUN133"] == ([2] if is_reported else [])


EXTRAS = '[project]\nname = "evals"\ndependencies = ["torch>=2.1"]\n[project.optional-dependencies]\n'
OWN: dict[str, tuple[str, list[int]]] = {
    "names of extras": ('gemini = ["google-generativeai"]\nqwen_vl = ["decord"]\nall = ["gemini", "qwen-vl"]\n', [7]),
    "one name": ('test = ["pytest"]\ndev = ["black", "test"]\n', [6]),
    "the extra has the package": ('speech = ["speech>=2", "soundfile"]\nall = ["speech"]\n', []),
    "a known package": ('deepspeed = ["ninja"]\nall = ["deepspeed", "torch"]\n', []),
    "the extras of the project": ('gemini = ["google-generativeai"]\nall = ["evals[gemini]"]\n', []),
    "a bound": ('gemini = ["google-generativeai"]\nall = ["gemini>=1"]\n', []),
    "an extra of its own name": ('black = ["black"]\nruff = ["ruff"]\n', []),
}


@each_case("name", [*OWN])
def test_an_extra_lists_names_of_extras(name: str) -> None:
    text, expected = OWN[name]
    result = audit_text(EXTRAS + text, "pyproject.toml", None, NoSolver()).result
    assert [each.line for each in result.findings if each.id == "RUN188"] == expected


def test_the_name_of_a_requirement_in_a_folder() -> None:
    requirement = parse_install_requirement("accelerate @ file:///croot/accelerate_17/work", 1)
    assert requirement
    assert (requirement.name, requirement.url) == ("accelerate", "file:///croot/accelerate_17/work")


def test_a_part_of_a_repository_imports_torch_in_its_build() -> None:
    url = "git+https://github.com/Dao-AILab/flash-attention.git@v2.6.1"
    text = f"torch==2.4.1\nrotary-emb @ {url}#subdirectory=csrc/rotary\n"
    result = audit_text(text, "requirements.txt", None, NoSolver(), python="3.10").result
    assert [(each.line, each.status) for each in result.findings if each.id == "RUN040"] == [(2, "error")]


def test_a_warning_of_uv_about_an_extra() -> None:
    output = (
        "Resolved 2 packages in 2ms\nwarning: The package `Big.Model==0.4.0` does not have an extra named `train`\n"
    )
    assert absent_extras(output) == {("big-model", "train")}
    assert absent_extras("Resolved 2 packages\n") == set()


def test_an_extra_that_the_release_does_not_have() -> None:
    class WithoutTrain(FixedSolver):
        def __call__(self, problem: StepProblem) -> StepSolution:
            absent = frozenset({("envs", "train"), ("envs", "fast-io"), ("huggingface-hub", "cli")})
            return super().__call__(problem)._replace(absent_extras=absent)

    solver = WithoutTrain(FixedIndex(), {"envs": "0.4.0", "fast-io": "1.0", "huggingface-hub": "2.4.0"})
    cases = {"envs[train]": [3], "envs[test]": [], "envs": [], "envs[fast_io]' 'fast-io": []}
    cases |= {"huggingface_hub[cli]": []}
    for requirement, lines in cases.items():
        assert [each.line for each in findings(sh(f"pip install '{requirement}'"), solver, "RUN132")] == lines


REQUIREMENTS = ("torch", "torch==2.1.0", "vision[all]>=1,<2", "torch-npu==2.1.0")


@each_case(
    "conflict, expected",
    [
        ("there is no version of torch==2.1.0+cpu; torch-npu==2.1.0 depends on torch==2.1.0+cpu", ""),
        ("there is no version of torch==2.1.0", "torch==2.1.0"),
        ("there is no version of vision[all]<2,>=1", "vision[all]>=1,<2"),
        ("torch-npu was not found in the package registry", "torch-npu==2.1.0"),
        ("there is no version of torch==2.1.0 with a matching Python tag", ""),
    ],
)
def test_the_requirement_that_no_release_satisfies(conflict: str, expected: str) -> None:
    assert absent_requirement(conflict, REQUIREMENTS) == expected


def test_an_older_release_without_the_extra_is_no_evidence() -> None:
    class WithoutTrain(FixedSolver):
        def __call__(self, problem: StepProblem) -> StepSolution:
            return super().__call__(problem)._replace(absent_extras=frozenset({("envs", "train")}))

    for newest, lines in (("0.4.0", [3]), ("4.0.0", [])):
        solver = WithoutTrain(FixedIndex(IndexedRelease("envs", newest, "2026-10-01")), {"envs": "0.4.0"})
        assert [each.line for each in findings(sh("pip install 'envs[train]'"), solver, "RUN132")] == lines


CLONE = "git clone https://github.com/huggingface/{}.git"
VLLM = "pip install vllm==0.8.3"
# Commands, and whether transformers of the newest release of the clone stays next to vLLM 0.8.3.
CLONES: dict[str, tuple[tuple[str, ...], bool]] = {
    "main": ((CLONE.format("rlkit"), "cd rlkit", "pip install -e .", VLLM), True),
    "a commit": ((CLONE.format("rlkit"), "cd rlkit", "git checkout 3f1c0de", "pip install -e .", VLLM), False),
    "a fork": ((CLONE.format("rlkit").replace("huggingface", "me"), "cd rlkit", "pip install -e .", VLLM), False),
    "another directory": ((CLONE.format("rlkit"), "cd other", "pip install -e .", VLLM), False),
}


@each_case("name", [*CLONES])
def test_the_newest_release_stands_for_the_main_branch(name: str) -> None:
    commands, is_resolved = CLONES[name]
    solver = FixedSolver(FixedIndex(IndexedRelease("rlkit", "0.9.1", "2026-10-01")), {"rlkit": "0.9.1"})
    findings(sh("uv venv --python 3.10", *commands), solver, "RUN003")
    named = [each.specifier for problem in solver.problems for each in problem.requirements if each.name == "rlkit"]
    assert ("==0.9.1" in named) == is_resolved


class WithFlashAttn(FixedSolver):
    """rlkit requires an older torch, and a flash-attn that is built."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        solution = super().__call__(problem)
        if "rlkit" not in solution.versions:
            return solution
        versions = dict(solution.versions) | {"torch": "2.7.0", "flash-attn": "2.7.4.post1"}
        return StepSolution(versions, {"torch": ("rlkit",), "flash-attn": ("rlkit",)}, frozenset({"flash-attn"}))


def test_the_torch_and_the_builds_of_a_main_branch() -> None:
    index = FixedIndex(IndexedRelease("rlkit", "0.9.1", "2026-10-01"))
    steps = (
        "git clone https://github.com/huggingface/rlkit.git",
        "cd rlkit",
        "pip install torch",
        "pip install -e .",
    )
    for title, lines in (("## Without Docker", [7]), ("## With Docker (recommended)", [])):
        solver = WithFlashAttn(index, {"rlkit": "0.9.1", "torch": "2.9.0"}, built=("flash-attn",))
        text = sh("uv venv --python 3.12", *steps, title=title)
        assert [each.line for each in findings(text, solver, "RUN040")] == lines
        assert findings(text, solver, "RUN010") == []  # nothing depends on the first torch
