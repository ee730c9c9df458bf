"""A command that causes another problem is not printed: it is joined with the command for that, or left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import py, sh
from support.local_packages import write_wheel
from support.remedies import commands_of
from support.resolved_guides import audit, found

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.core.remedies import UserCommand, remedy_of, steps
from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.manifests import tried_commands
from envdoctor.manifests.actions import Install as InstallAction
from envdoctor.manifests.consistent_commands import without_release
from envdoctor.manifests.context import build_context
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import parse_guide
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.tried_actions import action_of
from envdoctor.manifests.tried_commands import with_tried_commands
from envdoctor.resolution.index_facts import IndexedRelease
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.step import NoSolver, StepProblem, StepSolution, apart

STEP = "uv pip install trl==0.22.2 torch==2.5.1 transformers"
PROJECT = '[project]\nname = "a"\nrequires-python = ">=3.10"\ndependencies = ["trl==0.22.2", "torch==2.5.1", {}]\n'
DATASETS = "uv pip install transformers==4.56.2 datasets==5.0.1"


def finding(text: str, name: str, rule: str) -> Finding:
    (found,) = [each for each in audit_text(text, name, None, NoSolver()).result.findings if each.id == rule]
    return found


@each_case(
    ("text", "name", "command"),
    [
        # transformers 4.56.2 needs an older huggingface-hub than the installed datasets 5.2.0.
        (sh(STEP), "README.md", DATASETS),
        ("trl==0.22.2\ntorch==2.5.1\ntransformers\n", "requirements.txt", DATASETS),
        # uv solves all of a project: datasets is not installed yet.
        (PROJECT.format('"transformers"'), "pyproject.toml", "uv add transformers==4.56.2"),
        (sh("uv pip install trl==0.23.1 transformers"), "README.md", "uv pip install transformers==5.0.0"),
        (sh(STEP.replace("transformers", "transformers datasets==5.0.1")), "README.md",
         "uv pip install transformers==5.2.0"),
    ],
)  # fmt: skip
def test_a_command_is_joined_with_that_for_its_consequence(text: str, name: str, command: str) -> None:
    assert commands_of(finding(text, name, "RUN003")) == (command,)


@each_case(
    ("text", "rule", "consequence"),
    [
        (sh("uv pip install torch==2.8.0", "uv pip install triton==3.9.0", title="# GH200"), "RUN004",
         "with `triton==3.4.0`, triton 3.4.0 has no wheel for Linux on aarch64, only on x86_64."),
        (sh("uv venv --python 3.10", "uv pip install flash-attn==1.0.4", title="# H100"), "RUN040",
         "`flash-attn==1.0.4`, on the H100 of line 1: torch 2.0.0+cu117 (CUDA 11.7) has no code for GPU 0 "),
        (py("from trl import GRPOConfig", "GRPOConfig(use_vllm=True, use_liger_loss=True)"), "RUN066",
         "with `vllm`, TRL 0.23.1 supports vLLM >=0.10.0,<0.12, but 0.33.0 would be installed."),
    ],
)  # fmt: skip
def test_a_command_with_a_consequence_is_not_printed(text: str, rule: str, consequence: str) -> None:
    found = audit_text(text, "README.md", None, NoSolver()).result.findings
    fixes = [each for each in found if each.id == rule and consequence in each.fix]
    assert [commands_of(each) for each in fixes] == [()]
    assert re.match(r"Find out which release of triton fits\. With |.* This alone is not enough: ", fixes[0].fix)


@each_case(
    ("fix", "words"),
    [
        ("Use trl==0.12.0.", "Find out which release of trl fits."),
        ("Use trl 0.12.0, for which the code is written, or change the code.",
         "Find out which release of trl fits, or change the code."),
        ("Use trl==0.12.0 with another release of peft: peft 0.9 excludes it. Check peft.",
         "Find out which release of trl fits. Check peft."),
        ("Use trl==0.12.0.1.", "Use trl==0.12.0.1."),
        ("Use trl below 0.12.", "Use trl below 0.12."),
    ],
)  # fmt: skip
def test_a_release_that_is_no_cure_is_not_advised(fix: str, words: str) -> None:
    (remedy,) = steps("uv pip install peft trl==0.12.0")
    assert without_release(fix, remedy) == words


def test_without_time_the_commands_are_those_of_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried_commands, "_SECONDS", 0.0)
    found = finding(sh(STEP), "README.md", "RUN003")
    assert commands_of(found) == ("uv pip install transformers==4.56.2",)
    assert found.fix.endswith("The command was not tried with the other packages: the limit for trials was reached.")


def test_beyond_the_limit_the_rules_of_the_tables_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried_commands, "_MAX_COMMANDS", 0)
    assert commands_of(finding(sh(STEP), "README.md", "RUN003")) == (DATASETS,)


def test_a_trial_that_runs_out_of_time_does_not_end_the_audit(solver: UvStepSolver) -> None:
    solver.absent["a==9"] = "no version of a==9"
    other = apart(solver)
    other.reason = "no response in time"
    assert other.absent == solver.absent
    assert not solver.reason
    assert apart(solver) is other


def test_a_release_of_long_before_is_not_preferred_to_a_later_one() -> None:
    """TRL 0.14 has no limit for vLLM in the tables, and 1.0 to 1.6 support vLLM 0.13."""
    found = finding(sh("uv pip install trl==0.23.1 transformers==4.57.1 vllm==0.13.0"), "README.md", "RUN004")
    assert commands_of(found) == ("uv pip install trl==1.6.0",)


def numpy_finding(line: int, version: str) -> Finding:
    remedies = steps(f"uv pip install numpy=={version}")
    return Finding("RUN003", "numpy2-abi", "error", "m", (), f"Use numpy=={version}.", remedies, line=line)


@each_case(
    ("second", "versions"),
    [
        ("uv pip install librosa", ["1.24.3", "1.24.3"]),  # into the same environment: both need the older one
        ("uv venv other && source other/bin/activate && uv pip install librosa", ["1.25.2", "1.24.3"]),
    ],
)
def test_the_commands_for_an_environment_install_one_release(
    second: str, versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried_commands, "_SECONDS", 0.0)
    guide = parse_guide(sh("uv venv one && source one/bin/activate", "uv pip install scikit-learn", second), "a.md")
    findings = [numpy_finding(4, "1.25.2"), numpy_finding(5, "1.24.3")]
    found = with_tried_commands(findings, [guide], None, "2026-11-28", None)
    assert [commands_of(each) for each in found] == [(f"uv pip install numpy=={each}",) for each in versions]
    assert [each.fix.partition(" The command was not tried")[0] for each in found] == [
        f"Use numpy=={each}." for each in versions
    ]


def test_a_command_has_what_another_one_installs_because_it_excludes_the_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried_commands, "_SECONDS", 0.0)
    index = FixedIndex()
    index.requirements = {"pandas 3.1.1": ["numpy>=2"], "scipy 1.17.1": ["numpy>=1.26"]}
    solver = FixedSolver(index, {"pandas": "3.1.1", "numpy": "2.4.6", "wandb": "0.15.3", "scipy": "1.17.1"})
    guide = parse_guide(sh("pip install pandas numpy wandb scipy"), "a.md")
    commands = ("uv pip install numpy==1.25.0 pandas", "uv pip install wandb==0.15.3 numpy==1.25.0")
    found = [replace(numpy_finding(3, "1.25.0"), remedies=steps(each)) for each in commands]
    tried = with_tried_commands(found, [guide], None, "2026-11-28", solver)
    assert [commands_of(each) for each in tried] == [(commands[0],), (f"{commands[1]} pandas",)]


@each_case(("newest", "bounds"), [("26.0.1", " 'pyarrow<21'"), ("20.0.0", "")])
def test_a_command_bounds_what_breaks_its_pin(newest: str, bounds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried_commands, "_SECONDS", 0.0)
    index = FixedIndex(IndexedRelease("pyarrow", newest, "2026-10-09"))
    index.requirements = {"datasets 2.13.2": ["pyarrow>=8.0.0", "torch; extra == 'torch'"]}  # any newer pyarrow
    finding = replace(numpy_finding(3, "1.25.0"), remedies=steps("uv pip install datasets==2.13.2"))
    guide, solver = parse_guide(sh("pip install datasets==2.13.4"), "a.md"), FixedSolver(index, {"pyarrow": newest})
    (found,) = with_tried_commands([finding], [guide], None, "2026-11-28", solver)
    assert commands_of(found) == (f"uv pip install datasets==2.13.2{bounds}",)


def test_commands_are_tried_together_without_the_one_that_has_a_consequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """triton 3.4.0 has no wheel for aarch64: the other three commands need no trial of their own."""
    tried: list[object] = []
    monkeypatch.setattr(tried_commands, "build_context", lambda *given: tried.append(given) or build_context(*given))
    guide = parse_guide(sh("uv venv --python 3.12", "uv pip install torch==2.11.0", title="# GH200"), "a.md")
    commands = ("numpy==2.2.6", "pandas==2.3.3", "triton==3.4.0", "einops==0.8.1")
    found = [replace(numpy_finding(4, "2.2.6"), remedies=steps(f"uv pip install {each}")) for each in commands]
    kept = with_tried_commands(found, [guide], None, "2026-11-28", None)
    assert [bool(each.remedies) for each in kept] == [True, True, False, True]
    assert len(tried) == 4


def test_a_command_with_a_file_of_requirements_is_tried() -> None:
    """triton 3.4.0 has no wheel for aarch64."""
    guide = parse_guide(sh("uv venv --python 3.12", "uv pip install torch==2.11.0", title="# GH200"), "a.md")
    commands = (
        UserCommand(command=f"uv pip install --requirements=base.txt {each} --torch-backend=cu128")
        for each in ("einops==0.8.1", "triton==3.4.0")
    )
    found = [replace(numpy_finding(4, "2.2.6"), remedies=(remedy_of([each]),)) for each in commands]
    tried = with_tried_commands(found, [guide], None, "2026-11-28", None)
    assert [bool(each.remedies) for each in tried] == [True, False]


def test_an_action_of_a_command_has_the_requirements_of_its_file() -> None:
    command = UserCommand(command="uv pip install --requirements=base.txt einops==0.8.1")
    listed = tuple(each for text in ("numpy<2", "tqdm") if (each := parse_install_requirement(text, 1)))
    actions = [
        InstallAction(3, "pip install -r base.txt", "pip", listed),
        InstallAction(4, "pip install trl", "pip", ()),
    ]
    action = action_of(command, 9, actions)
    assert isinstance(action, InstallAction)
    assert [each.name for each in action.requirements] == ["numpy", "tqdm", "einops"]


class _OldTorch(FixedSolver):
    """torchvision 0.15.1 with torch 2.0.0, and the xformers for it; else those of torch 2.4.1."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        named = {each.name: each.pin for each in problem.requirements}
        is_old = named.get("torchvision") == "0.15.1"
        old = {"torch": "2.0.0", "torchvision": "0.15.1", "xformers": "0.0.17"}
        new = {"torch": "2.4.1", "torchvision": "0.19.1", "xformers": "0.0.28.post1"}
        names = {*named, "torch"} if is_old else {*named}
        return StepSolution({name: (old if is_old else new).get(name, "1.0") for name in names})


def test_a_further_package_is_for_the_torch_of_the_other_commands() -> None:
    guide = parse_guide(sh("uv venv --python 3.11", "pip install torch torchvision", title="# A100"), "a.md")
    commands = ("torchvision==0.15.1", "tqdm==4.67.1", "xformers")
    found = [replace(numpy_finding(4, "2.2.6"), remedies=steps(f"uv pip install {each}")) for each in commands]
    tried = with_tried_commands(found, [guide], None, "2026-11-28", _OldTorch(FixedIndex(), {}))
    assert [commands_of(each) for each in tried] == [
        (f"uv pip install {each}",) for each in (*commands[:2], "xformers torchvision==0.15.1")
    ]


def test_a_conflict_of_the_guide_is_no_consequence_of_a_command() -> None:
    solver = FixedSolver(FixedIndex(), {"tqdm": "4.67.1"})
    solver.conflicts = {"cmake": "there is no version of cmake==3.28.0"}
    text = "name: a\ndependencies:\n  - python=3.11\n  - pip:\n    - cmake==3.28.0\n    - tqdm\n"
    guide = read_input(text, "environment.yml", Files(None, "x86_64")).paths[0]
    found = replace(numpy_finding(6, "2.2.6"), fix="Install tqdm.", remedies=steps("uv pip install tqdm==4.67.1"))
    (tried,) = with_tried_commands([found], [guide], None, "2026-11-28", solver)
    assert (tried.fix, tried.remedies) == ("Install tqdm.", ())


class _NewerTimm(FixedSolver):
    """clip-torch brings a newer timm."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        versions = {each.name: each.pin or "1.0" for each in problem.requirements}
        installed = {name: package.version for name, package in problem.installed.items()}
        return StepSolution({**installed, **({"timm": "1.0.31"} if "clip-torch" in versions else {}), **versions})


def test_a_command_after_others_keeps_the_pins_of_the_guide() -> None:
    """The commands of all findings are tried together, one after the other."""
    guide = parse_guide(sh("uv venv --python 3.11", "pip install timm==0.9.16", title="# A100"), "a.md")
    found = [
        replace(numpy_finding(4, "2.2.6"), remedies=steps(f"uv pip install {each}"))
        for each in ("tqdm==4.67.1", "clip-torch")
    ]
    tried = with_tried_commands(found, [guide], None, "2026-11-28", _NewerTimm(FixedIndex(), {}))
    assert [commands_of(each) for each in tried] == [
        ("uv pip install tqdm==4.67.1",), ("uv pip install clip-torch timm==0.9.16",),
    ]  # fmt: skip


class _Gradio(FixedSolver):
    """The releases of gradio, each of which takes the newest starlette or keeps the installed one."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        named = {each.name: each.pin for each in problem.requirements}
        installed = {name: package.version for name, package in problem.installed.items()}
        gradio = named.get("gradio") or installed.get("gradio", "6.31.0")
        starlette = named.get("starlette") or installed.get("starlette", "1.10.0")
        return StepSolution({"gradio": gradio, "starlette": starlette}, {"starlette": ("gradio",)})


def test_an_installed_dependency_can_be_too_new_for_a_later_pin() -> None:
    """The first step installs starlette for gradio 6, and gradio 3 of the second one requires it as well."""
    text = sh("uv pip install gradio", "uv pip install gradio==3.50.2")
    found = audit_text(text, "README.md", None, _Gradio(FixedIndex(), {})).result.findings
    (starlette,) = [each for each in found if each.id == "RUN003"]
    assert commands_of(starlette) == ("uv pip install starlette==0.52.1",)
    assert "starlette (required by gradio 3.50.2) resolves today" in starlette.message


class _StoppingTrials(_Gradio):
    """Its trials have no time left for a command for starlette."""

    def apart(self) -> _StoppingTrials:
        other = _StoppingTrials(self.index, {})
        other.reason = "no response in time"
        return other

    def __call__(self, problem: StepProblem) -> StepSolution | None:
        return None if self.reason else super().__call__(problem)


def test_a_command_without_time_for_its_trial_is_marked() -> None:
    text = sh("uv pip install gradio", "uv pip install gradio==3.50.2")
    found = audit_text(text, "README.md", None, _StoppingTrials(FixedIndex(), {})).result.findings
    (starlette,) = [each for each in found if each.id == "RUN003"]
    assert commands_of(starlette) == ("uv pip install starlette==0.52.1",)
    assert "The command was not tried with the other packages" in starlette.fix


def test_an_uncertain_finding_installs_the_torch_of_the_certain_ones() -> None:
    certain = Finding("RUN010", "c", "error", "m", (), "f", steps("uv pip install numpy torch==2.5.1"), line=4)
    other = Finding("RUN003", "c", "unknown", "m", (), "f", steps("uv pip install torch==2.8.0"), line=4)
    same = Finding("RUN003", "c", "unknown", "m", (), "f", steps("uv pip install torch==2.5.1 timm"), line=4)
    none = Finding("RUN003", "c", "unknown", "m", (), "f", steps("uv pip install timm"), line=4)
    guide = parse_guide(sh("uv pip install torch==2.5.1 numpy"), "a.md")
    found = with_tried_commands([certain, other, same, none], [guide], None, "2026-11-28", None)
    assert [bool(each.remedies) for each in found[1:]] == [False, True, True]
    alone = with_tried_commands([other, none], [guide], None, "2026-11-28", None)
    assert all(each.remedies for each in alone)


class PinningSolver(FixedSolver):
    """Solves each step with its pins, and with its versions of other packages."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        return StepSolution({each.name: each.pin or self.versions[each.name] for each in problem.requirements})


@each_case(
    ("bound", "commands"),
    [("huggingface-hub>=1", ()), ("huggingface-hub<1", ("uv pip install huggingface-hub==0.25.2",))],
)
def test_a_command_that_an_installed_package_excludes_is_not_printed(bound: str, commands: tuple[str, ...]) -> None:
    """A package outside of the built-in tables, which the guide leaves open: an installer does not compare it."""
    index = FixedIndex()
    index.requirements = {"demo-server 1.0": [bound]}
    hub = "1.0.1" if ">=" in bound else "0.36.0"
    solver = PinningSolver(index, {"diffusers": "0.24.0", "huggingface-hub": hub, "demo-server": "1.0"})
    text = sh("pip install diffusers==0.24.0 huggingface-hub demo-server")
    findings = audit_text(text, "README.md", None, solver).result.findings
    (found,) = [each for each in findings if each.id == "RUN003"]
    assert commands_of(found) == commands


class _OlderServer(PinningSolver):
    """Selects a release of the server that accepts a pinned hub, if both are named."""

    def __call__(self, problem: StepProblem) -> StepSolution:
        """The packages."""
        solution = super().__call__(problem)
        is_old = any(each.name == "huggingface-hub" and each.pin for each in problem.requirements)
        older = {"demo-server": "0.9"} if is_old and "demo-server" in solution.versions else {}
        return StepSolution({**solution.versions, **older})


def test_a_package_that_a_command_breaks_is_named_in_it() -> None:
    """An installer leaves an installed package that no longer fits; of a named one, it selects another release."""
    index = FixedIndex()
    index.requirements = {"demo-server 1.0": ["huggingface-hub>=1"], "demo-server 0.9": ["huggingface-hub"]}
    versions = {"diffusers": "0.24.0", "huggingface-hub": "1.0.1", "demo-server": "1.0"}
    text = sh("pip install diffusers==0.24.0 huggingface-hub demo-server")
    findings = audit_text(text, "README.md", None, _OlderServer(index, versions)).result.findings
    (found,) = [each for each in findings if each.id == "RUN003"]
    assert commands_of(found) == ("uv pip install huggingface-hub==0.25.2 demo-server",)


class _Images(PinningSolver):
    """The newest scikit-image requires a newer pillow; one that permits the pin has a solution, or none."""

    has_older = True

    def __call__(self, problem: StepProblem) -> StepSolution:
        """The packages, with the pillow that scikit-image requires if nothing names one."""
        named = {each.name: each.pin for each in problem.requirements}
        if named.get("pillow") and "scikit-image" in named and not self.has_older:
            return StepSolution(conflict="scikit-image requires pillow>=10.1")
        newer = {"pillow": "12.0.0"} if "scikit-image" in named and not named.get("pillow") else {}
        return StepSolution({**newer, **{name: pin or self.versions[name] for name, pin in named.items()}})


class _NewImages(_Images):
    has_older = False


@each_case(("kind", "commands"), [(_Images, ("uv pip install scikit-image pillow==9.4.0",)), (_NewImages, ())])
def test_a_command_keeps_the_pins_of_the_guide(
    kind: type[_Images], commands: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "train.py").write_text("import PIL\nimport numpy\nimport skimage\n")
    text = sh("uv venv --python 3.10", "uv pip install pillow==9.4.0 numpy==1.26.4", "python train.py")
    solver = kind(FixedIndex(), {"scikit-image": "0.25.2"})
    findings = audit_text(text, str(tmp_path / "README.md"), None, solver).result.findings
    (found,) = [each for each in findings if each.id == "RUN181"]
    assert commands_of(found) == commands


def test_an_alternative_without_a_solution_is_named(solver: UvStepSolver, tmp_path: Path) -> None:
    """tokenizers excludes the huggingface_hub that the newest accelerate needs: only the older accelerate fits."""
    write_wheel(tmp_path / "wheels", "tokenizers", "0.14.1", requires=["huggingface-hub<0.18"])
    write_wheel(tmp_path / "wheels", "huggingface-hub", "0.17.3")
    write_wheel(tmp_path / "wheels", "huggingface-hub", "0.21.4")
    for version in ("0.31.0", "0.32.1"):
        write_wheel(tmp_path / "wheels", "accelerate", version, requires=["huggingface-hub"])
    text = sh("uv venv --python 3.11", "uv pip install tokenizers==0.14.1 accelerate")
    (finding,) = found(audit(tmp_path, text, solver), "RUN003")
    assert commands_of(finding) == ("uv pip install 'accelerate<=0.31.0' huggingface-hub==0.17.3",)
    assert "Only the command fits the other steps: with " in finding.fix
    assert "huggingface-hub<0.18" in finding.fix
