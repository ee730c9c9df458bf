"""The target of `--fix`: the Python of the pins, packages without wheels, and the lines of a notebook."""

from __future__ import annotations

import tomllib
from datetime import date

from msgspec.structs import replace
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_draft import Draft, packages_of, remaining_notes
from envdoctor.core.records import Finding
from envdoctor.core.remedies import either
from envdoctor.locking.set_solver import target_of
from envdoctor.locking.source_releases import releases_to_build
from envdoctor.manifests import CorrectedSet, audit_guide, audit_paths
from envdoctor.manifests.guide import parse_guide, parse_paths
from envdoctor.manifests.places import Place
from envdoctor.manifests.set_repairs import broken_rules, limits_without
from envdoctor.manifests.write_back import write_back


def corrected(*requirements: str, python: str = "", places: tuple[Place, ...] = ()) -> CorrectedSet:
    return CorrectedSet(
        architecture="x86_64",
        glibc="2.35",
        python=python,
        requirements=requirements,
        wanted=requirements,
        places=places,
    )


@each_case(
    "case",
    [
        (("torch==2.0.1", "transformers==4.35.0"), "", "3.11"),
        (("torch==2.1.2",), "", "3.11"),
        (("torch==2.8.0", "vllm==0.10.2"), "", "3.12"),
        (("ray==2.12.0",), "", "3.11"),
        (("torch==2.0.1",), "3.10", "3.10"),
    ],
)
def test_the_python_is_one_that_all_pins_support(case: tuple[tuple[str, ...], str, str]) -> None:
    requirements, python, expected = case
    assert target_of(corrected(*requirements, python=python)).pythons == (expected,)


@each_case(
    "text",
    [
        "Because antlr4-python3-runtime==4.9.3 has no usable wheels and you require it",
        "Because antlr4-python3-runtime>=4.9,<=4.9.3 has no usable wheels and only the following versions",
    ],
)
def test_a_release_with_only_a_source_archive_is_named(text: str) -> None:
    assert releases_to_build(text, (), lambda _: set()) == {("antlr4-python3-runtime", "4.9.3")}


@each_case("line", ["%pip install --upgrade pip", "!pip install -U pip", "python -m pip install --upgrade pip"])
def test_the_program_of_a_command_is_no_requirement(line: str) -> None:
    pip = corrected("pip==26.3", places=(Place(1, "pip", "pip", "pip"),))
    assert write_back(line, [(pip, "")], "notebook").text == line.removesuffix("pip") + "pip==26.3"


@each_case(
    ("line", "expected"),
    [
        ('        "!pip install typer==0.7.0"', '        "!pip install typer==0.7.0 starlette==0.52.1"'),
        ('        "!pip install typer\\n",', '        "!pip install typer==0.7.0 starlette==0.52.1\\n",'),
        (r'  "!pip install \"typer==0.7.0\" -U\n",', r'  "!pip install \"typer==0.7.0\" starlette==0.52.1 -U\n",'),
        (r'    "!pip install \"typer==0.7.0\""', r'    "!pip install \"typer==0.7.0\" starlette==0.52.1"'),
    ],
)
def test_a_pin_is_added_within_the_line_of_a_cell(line: str, expected: str) -> None:
    written = "typer==0.7.0" if "==" in line else "typer"
    pins = corrected("typer==0.7.0", "starlette==0.52.1", places=(Place(1, "typer", written, "pip"),))
    assert write_back(line, [(pins, "")], "notebook").text == expected


def sets_of(text: str, name: str = "guide.md") -> tuple[CorrectedSet, ...]:
    guide = parse_guide(text, name)
    return audit_paths(guide, parse_paths(guide, text, name), today=date(2026, 11, 21)).sets


@each_case(
    "case",
    [
        ("# Cluster", ("module load python/3.11.5", "pip install vllm==0.10.2"), "3.11"),
        ("# Tested with Python 3.10", ("pip install vllm==0.10.2",), "3.10"),
        ("# Python >= 3.9", ("pip install vllm==0.10.2",), ""),
        ("# Python 3.9 or newer", ("pip install vllm==0.10.2",), ""),
        ("# Python 3.10 and Python 3.11", ("pip install vllm==0.10.2",), ""),
        (
            "# Clone",
            ("conda create -n a python=3.10", "conda create -n b --clone a", "conda activate b", "pip install trl"),
            "3.10",
        ),
    ],
)
def test_the_python_is_that_of_the_guide(case: tuple[str, tuple[str, ...], str]) -> None:
    title, commands, python = case
    assert sets_of(sh(*commands, title=title))[0].python == python


def test_a_dependency_of_a_requirement_with_extras_is_added_after_it() -> None:
    text = 'uv pip install "core[training,dev]"'
    core = corrected("core==1.0", "torch==2.8.0", places=(Place(1, "core", "core[training,dev]", "uv"),))
    assert write_back(text, [(core, "")], "script").text == ('uv pip install "core[training,dev]==1.0" torch==2.8.0')


def test_a_build_of_a_page_that_is_not_read_is_left_to_its_command() -> None:
    page = "https://data.dgl.ai/wheels/cu116/repo.html"
    (found,) = sets_of(sh(f"pip install torch==1.12.1 transformers==4.30.0 dgl==1.0.2+cu116 -f {page}"))
    assert {each.partition("==")[0] for each in found.requirements} == {"torch", "transformers"}
    assert [(each.name, page in each.reason) for each in found.dropped] == [("dgl", True)]


def test_a_dependency_is_added_to_the_line_of_a_continued_command() -> None:
    text = sh("pip install \\", "  e3nn==0.3.3 \\", "  wandb==0.12.0")
    for number, name in ((4, "e3nn==0.3.3"), (5, "wandb==0.12.0")):
        one = corrected(name, "numpy==1.26.4", places=(Place(number, name.partition("==")[0], name, "pip"),))
        assert write_back(text, [(one, "")]).text == text.replace(name, f"{name} numpy==1.26.4")


def test_the_build_of_torch_is_selected_where_a_step_brings_it_first() -> None:
    text = sh("pip install unsloth", "pip install torch")
    places = (Place(3, "unsloth", "unsloth", "pip"), Place(4, "torch", "torch", "pip"))
    both = replace(corrected("unsloth==1.0", "torch==2.8.0", places=places), torch_place=places[0])
    assert write_back(text, [(both, "cu126")]).text == sh(
        "pip install --extra-index-url https://download.pytorch.org/whl/cu126 unsloth==1.0 torch==2.8.0",
        "pip install torch==2.8.0",
    )


@each_case(
    ("command", "is_written"),
    [
        ("bash installer/vllm/install.sh", False),
        ("bash setup.sh vllm", False),
        ("cd vllm", False),
        ("python vllm.py", False),
        ("uv pip install vllm", True),
        ("python -m pip install 'vllm'", True),
        ("PACKAGES=vllm", True),
    ],
)
def test_a_pin_is_not_an_argument_of_a_script_that_installs(command: str, is_written: bool) -> None:
    place = Place(3, "vllm", "vllm", "uv")
    one = replace(corrected("vllm==0.12.0", "torch==2.9.0", places=(place,)), torch_place=place)
    written = write_back(sh(command), [(one, "")])
    assert ("torch==2.9.0" in written.text) is is_written
    assert ("torch==2.9.0" in written.missing) is not is_written


def test_each_environment_with_a_fault_has_a_set() -> None:
    steps = ("pip install vllm==0.10.2 transformers", "pip install trl==0.23.1 transformers==5.17.0 peft accelerate")
    found = sets_of(
        sh("python -m venv a", ". a/bin/activate", steps[0], "python -m venv b", ". b/bin/activate", steps[1])
    )
    assert [each.branch for each in found] == ["", "environment b"]
    assert "transformers==4.57.6" in found[0].requirements
    assert "transformers==5.17.0" in found[1].requirements


def test_a_pin_is_added_to_the_dependencies_and_not_to_an_extra() -> None:
    text = 'dependencies = [\n  "torch",\n  "trl",\n]\n[project.optional-dependencies]\nbuild = ["build"]\n'
    places = (Place(2, "torch", "torch"), Place(3, "trl", "trl"), Place(6, "build", "build"))
    pins = corrected("torch==2.8.0", "trl==0.23.1", "build==1.3.0", "numpy==1.26.4", "click==8.3.0", places=places)
    written = write_back(text, [(replace(pins, installed=("click==8.3.0",)), "")], "pyproject", (), ("click",))
    assert written.text == (
        'dependencies = [\n  "torch==2.8.0",\n  "trl==0.23.1",\n  "numpy==1.26.4",\n]\n'
        '[project.optional-dependencies]\nbuild = ["build==1.3.0"]\n'
    )
    assert written.missing == ()
    today = replace(pins, installed=("numpy==1.26.4", "click==8.3.0"))
    assert "numpy" not in write_back(text, [(today, "")], "pyproject").text


def test_versions_are_written_into_commands_and_not_into_sentences() -> None:
    text = "Uses diffusers here.\n```bash\n# torch 2.8 and diffusers\npip install -r a.txt\ndiffusers-cli env\n```\n"
    places = (Place(4, "torch", "torch"), Place(4, "diffusers", "diffusers"))
    pins = corrected("torch==2.8.0", "diffusers==0.35.0", places=places)
    assert write_back(text, [(pins, "")]).text == text


def test_a_pin_is_added_to_a_row_of_items() -> None:
    text = '[project]\ndependencies = [\n    "lm_eval==0.3.0", "texttable",\n    "toml",\n]\n'
    both = corrected("texttable==1.7.0", "setuptools==81.0.0", places=(Place(3, "texttable", "texttable", "uv"),))
    written = write_back(text, [(both, "")], "pyproject").text
    assert tomllib.loads(written)["project"]["dependencies"] == [
        "lm_eval==0.3.0", "texttable==1.7.0", "setuptools==81.0.0", "toml",
    ]  # fmt: skip


def test_a_package_that_an_extra_pins_gets_an_upper_bound() -> None:
    text = '[project]\ndependencies = [\n  "torch>=2.0",\n  "numpy",\n]\n'
    places = (Place(3, "torch", "torch>=2.0", "uv"), Place(4, "numpy", "numpy", "uv"))
    both = corrected("torch==2.8.0", "numpy==2.2.6", places=places)
    found = write_back(text, [(both, "")], "pyproject", limited={"torch"}).text
    assert '"torch>=2.0,<=2.8.0"' in found
    assert '"numpy==2.2.6"' in found
    older = replace(both, requirements=("torch==1.13.1",))  # the lower bound excludes it
    assert '"torch<=1.13.1"' in write_back(text, [(older, "")], "pyproject", limited={"torch"}).text


def test_packages_that_other_programs_need_are_no_requirements_of_a_project() -> None:
    def found(rule: str, package: str) -> Finding:
        return Finding(rule, "a", "error", "m", remedies=either(f"uv pip install {package}"))

    others = [found("RUN181", "wandb==0.31.0"), found("RUN220", "gradio==6.31.0")]
    assert packages_of([*others, found("RUN003", "torch==2.1.0")]) == {"torch"}


def test_the_installer_is_no_part_of_a_set() -> None:
    (found,) = sets_of(sh("pip install -U pip uv", "pip install trl==0.23.1"))
    assert "trl==0.23.1" in found.requirements
    assert [text for text in found.requirements if text.startswith(("pip", "uv"))] == []


def test_an_old_torch_gets_the_build_that_has_code_for_the_gpu() -> None:
    """The wheel of torch 2.0.1 on PyPI is for CUDA 11.7, without code for an H100. That for CUDA 11.8 has it."""
    assert sets_of(sh("pip install torch==2.0.1", title="# H100"))[0].cuda == "11.8"


def test_a_pin_that_is_older_than_the_tables_stays() -> None:
    text = sh("pip install torch==2.8.0 numba==0.48.0")
    (found,) = sets_of(text)
    assert "numba==0.48.0" in found.own
    findings = audit_guide(text, name="guide.md", today=date(2026, 11, 21)).findings
    (unknown,) = (each for each in findings if each.id == "RUN001")
    assert unknown.status == "unknown"
    assert unknown.message.startswith("numba==0.48.0 is older than the built-in tables (oldest 0.53.0")


def test_each_environment_of_a_guide_has_a_set() -> None:
    one, other = "pip install torch==2.2.2 transformers==4.44.2", "pip install torch==2.6.0 vllm==0.8.5"
    steps = ("conda create -n sim python=3.10", "conda activate sim", one,
             "conda create -n inpo python=3.10", "conda activate inpo", other)  # fmt: skip
    found = sets_of(sh(*steps))
    assert {each.branch for each in found} == {"environment sim", ""}
    assert {"torch==2.2.2", "torch==2.6.0"} == {text for each in found for text in each.own if "torch==" in text}


def test_a_pin_that_a_later_step_replaces_is_one_of_the_guide() -> None:
    text = sh(
        "pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu121", "pip install vllm==0.10.2"
    )
    (found,) = sets_of(text)
    assert {"torch==2.5.1", "vllm==0.10.2"} <= set(found.own)
    assert found.cuda == "12.1"


def test_a_pin_without_a_wheel_is_corrected_in_its_place() -> None:
    places = (Place(1, "torch", "torch==2.3.1", "pip"), Place(2, "deepspeed", "deepspeed==0.9.5", "pip"))
    both = replace(corrected("torch==2.3.1", places=places), built_later=("deepspeed==0.14.4",))
    written = write_back("torch==2.3.1\ndeepspeed==0.9.5", [(both, "")], "requirements")
    assert written.text == "torch==2.3.1\ndeepspeed==0.14.4"


def test_a_dependency_is_limited_before_a_package_that_the_text_names() -> None:
    versions = {"gradio": "4.8.0", "starlette": "1.7.0"}
    named = corrected("gradio==4.8.0", places=(Place(1, "gradio", "gradio", "pip"),))
    (limit,) = limits_without(broken_rules(versions, named), versions, named, ())
    assert limit.startswith("starlette<")


@each_case("requirement", ["apex", "git+https://github.com/NVIDIA/apex.git"])
def test_a_set_has_no_other_package_of_the_same_name(requirement: str) -> None:
    (found,) = sets_of(f"```sh\npip install torch==2.6.0 {requirement}\n```\n")
    assert not [each for each in found.requirements if each.startswith("apex")]


def test_a_package_whose_version_is_not_valid_is_in_the_set() -> None:
    (found,) = sets_of(sh("pip install einops rotary_embedding_torch==rotary-embedding-torch tqdm==abc"))
    assert {"rotary-embedding-torch", "tqdm"} <= {text.partition("=")[0] for text in found.own}


def test_a_package_whose_version_is_a_variable_is_named() -> None:
    (found,) = sets_of(sh("pip install einops timm==$TIMM"))
    assert [text.partition("=")[0] for text in found.own] == ["einops"]
    assert [(each.name, "`timm==$TIMM`" in each.reason) for each in found.dropped] == [("timm", True)]


CONDA = ("conda create -n a python=3.8", "conda activate a")  # torch 2.4.1 is the last for Python 3.8


@each_case("steps", [
    ("conda install pytorch torchvision cudatoolkit=11.1 -c pytorch", ("torch==2.4.1", "12.1", "11.1")),
    ("conda install pytorch==1.12.1 cudatoolkit=11.3 -c pytorch", ("torch==1.12.1", "11.3", "")),
    ("conda install pytorch==1.12.1 cudatoolkit=10.2 -c pytorch", ("torch==1.12.1", "10.2", "")),
    ("conda install pytorch cpuonly -c pytorch", ("torch==2.4.1", "", "")),
])  # fmt: skip
def test_the_torch_of_conda_and_its_cuda_are_those_of_the_set(steps: tuple[str, tuple[str, str, str]]) -> None:
    step, expected = steps
    (found,) = sets_of(sh(*CONDA, step, "pip install transformers==4.30.0"))
    torch = next(text for text in found.requirements if text.startswith("torch=="))
    assert (torch, found.cuda, found.stated_cuda.version) == expected


TESTED = "\n".join([
    "# Environment", "```sh", "conda create -n a", "conda activate a",
    "conda install pytorch cudatoolkit=11.3 -c pytorch", "conda install -c conda-forge wandb biopython rdkit",
    "pip install transformers==4.20.1 tqdm", "```", "The code was tested with these versions:", "",
    "| Software | Version |", "|---|---|", "| Python | 3.9.12 |", "| PyTorch | 1.12.1 |", "| WandB | 0.13.1 |",
    "| BioPython | 1.79 |", "| Transformers | 4.21.0 |", "| NumPy | 1.22.4 |",
])  # fmt: skip


def test_tested_versions_of_the_text_are_those_of_open_packages() -> None:
    (found,) = sets_of(TESTED)
    assert (found.python, found.cuda) == ("3.9", "11.3")
    assert {"torch==1.12.1", "wandb==0.13.1", "biopython==1.79.*", "transformers==4.20.1", "tqdm"} <= set(found.own)
    assert [text for text in found.own if text.startswith("numpy")] == []  # no step installs it
    assert [each.name for each in found.dropped] == ["cudatoolkit", "rdkit"]


@each_case("text", ["| PyTorch | 1.12.1 or newer |", "| PyTorch | 1.12.1 / 2.0.1 |", "| PyTorch | >= 1.12.1 |"])
def test_what_the_text_does_not_state_exactly_stays_open(text: str) -> None:
    (found,) = sets_of(TESTED.replace("| PyTorch | 1.12.1 |", text))
    assert "torch" in found.own


def test_the_torch_of_conda_is_not_added_to_a_command_of_pip() -> None:
    text = sh("conda install pytorch cudatoolkit=11.1 -c pytorch", "pip install numpy")
    places = (Place(3, "pytorch", "pytorch", "conda"), Place(4, "numpy", "numpy", "pip"))
    both = corrected("torch==1.8.1", "numpy==1.19.2", "tqdm==4.60.0", places=places)
    written = write_back(text, [(both, "cu111")])
    assert written.text == text.replace("pip install numpy", "pip install numpy==1.19.2 tqdm==4.60.0")
    assert written.missing == ("torch==1.8.1",)
    same = replace(both, installed=("torch==1.8.1",))
    assert write_back(text, [(same, "")]).missing == ()


@each_case("other", ["pip install trl==0.23.1", "ls"])
def test_a_set_names_the_alternative_unless_all_lead_to_it(other: str) -> None:
    (found,) = sets_of(sh("if [ $A = 1 ]; then", "  pip install trl==0.23.1", "else", f"  {other}", "fi"))
    assert "trl==0.23.1" in found.own
    assert bool(found.branch) == (other == "ls")


def test_a_dependency_is_added_after_an_item_with_a_marker() -> None:
    item = "flash-attn>=2.8.0; sys_platform == 'linux'"
    text = f'[dependency-groups]\nflash = [\n    # a comment\n    "{item}",\n]\n'
    one = corrected("flash-attn==2.8.3", "numpy==1.26.4", places=(Place(4, "flash-attn", item, "uv"),))
    written = tomllib.loads(write_back(text, [(one, "")], "pyproject").text)
    assert written["dependency-groups"]["flash"] == ["flash-attn==2.8.3 ; sys_platform == 'linux'", "numpy==1.26.4"]


def test_a_dependency_is_added_after_an_item_with_two_bounds() -> None:
    text = '[project]\ndependencies = [\n    "fschat", "a>=4.34,<5", "c"\n]\n'
    one = corrected("a==4.38.2", "numpy==1.26.4", places=(Place(3, "a", "a>=4.34,<5", "uv"),))
    written = tomllib.loads(write_back(text, [(one, "")], "pyproject", frozenset({"a"})).text)
    assert written["project"]["dependencies"][2:] == ["numpy==1.26.4", "c"]


def test_what_remains_has_the_fix_whose_command_was_tried() -> None:
    audit = audit_guide(sh("pip install 'transformers<4.40' trl==0.24.0 torch==2.99.0"), name="guide.md")
    untried = [each for each in audit.findings if each.status == "error"]
    assert untried
    tried = [replace(each, fix="Tried.") for each in untried[:1]]
    notes = remaining_notes(Draft("", audit), "guide.md", tried)
    assert [each.endswith(" Tried.") for each in notes[:2]] == [True, False][: len(notes)]


@each_case(
    ("fixed", "limit"),
    [((), "numpy<2"), (("numpy",), "deepspeed>=0.14.4"), (("deepspeed",), "numpy<2"), (("deepspeed", "numpy"), "")],
)
def test_a_break_that_newer_releases_do_not_have_is_cured_by_these(fixed: tuple[str, ...], limit: str) -> None:
    corrected = CorrectedSet(architecture="x86_64", glibc="2.35", python="3.11")
    versions = {"deepspeed": "0.14.3", "numpy": "2.0.0"}
    violations = broken_rules(versions, corrected)
    assert limits_without(violations, versions, corrected, fixed) == ([limit] if limit else [])
