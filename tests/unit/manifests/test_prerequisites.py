"""What a step needs from earlier ones: dependencies, clones, and the Python of the system."""

from __future__ import annotations

from datetime import date

from support.cases import each_case
from support.guide_cases import VLLM_310, sh
from support.remedies import commands_of

from envdoctor.core.records import Finding
from envdoctor.manifests import audit_guide

CLONE = "git clone -b v0.12.0 https://github.com/vllm-project/vllm && cd vllm"


def findings(text: str, *identifiers: str) -> list[Finding]:
    found = audit_guide(text, name="SETUP.md", today=date(2026, 11, 21)).findings
    return [each for each in found if each.id in identifiers and each.status in ("error", "warning")]


WITHOUT_FAULT = {
    "an old release of a removed name": ("RUN060", ("pip install torch==2.8.0 sklearn==0.0 tensorflow-gpu==2.8.0",)),
    "a project that the guide builds from its clone": (
        "RUN060",
        ("git clone https://github.com/NVIDIA/apex && cd apex", "pip install .", "pip install torch apex"),
    ),
    "a name of conda": ("RUN060", ("conda install -c conda-forge pytorch apex",)),
    "torch before": ("RUN018", ("pip install torch==2.9.1", f"pip install {VLLM_310} --no-deps")),
    "torch after": ("RUN018", (f"pip install {VLLM_310} --no-deps", "pip install torch==2.9.1")),
    "requirements before": ("RUN018", ("pip install -r requirements.txt", f"pip install {VLLM_310} --no-deps")),
    "project before": ("RUN018", ("pip install -e .", f"pip install {VLLM_310} --no-deps")),
    "no torch required": ("RUN018", ("pip install numpy==1.26.4 --no-deps",)),
    "an environment names Python": ("RUN031", ("conda create -n x python=3.10", f"pip install {VLLM_310}")),
    "clone before": ("RUN019", ("git clone https://github.com/NVIDIA/Megatron-LM", "uv pip install --group build")),
    "directory before": ("RUN019", ("cd x", "uv pip install --group build", "git clone https://github.com/a/b")),
    "no clone": ("RUN019", ("uv pip install --group build",)),
    "the project with its lock before": ("RUN041", ("uv sync && uv pip install flash-attn --no-build-isolation",)),
    "repository without isolation": (
        "RUN040",
        ("pip install --no-build-isolation git+https://github.com/facebookresearch/detectron2.git",),
    ),
}


@each_case("name", [*WITHOUT_FAULT])
def test_a_step_that_has_what_it_needs(name: str) -> None:
    identifier, commands = WITHOUT_FAULT[name]
    assert findings(sh(*commands, title="# GH200, aarch64, Ubuntu 24.04"), identifier) == []


def test_torch_is_installed_only_after_the_program_runs() -> None:
    commands = (
        f"pip install {VLLM_310} --no-deps",
        "python -m vllm.entrypoints.openai.api_server",
        "pip install torch",
    )
    assert [each.line for each in findings(sh(*commands, title="# GH200 aarch64"), "RUN018")] == [3]


def test_the_tag_of_a_repository_may_be_computed() -> None:
    url = "git+https://github.com/nerfstudio-project/gsplat.git@v$(sed -n 's/x/y/p' /tmp/pyproject.toml)"
    (found,) = findings(sh("pip install torch==2.8.0", f'pip install "{url}"'), "RUN040")
    assert found.line == 4


def test_torchaudio_of_another_cuda() -> None:
    for torch, is_reported in (("2.15.0", True), ("2.14.1", False), ("2.8.0", False)):
        found = findings(sh(f"pip install torch=={torch} torchaudio==2.11.0"), "RUN009")
        assert bool(found) == is_reported, torch
    assert findings(sh("pip install torch==2.15.0 torchaudio"), "RUN009") == []  # 2.11.1 accepts it
    for_intel = "https://download.pytorch.org/whl/nightly/xpu"
    assert findings(sh(f"pip install --pre torch torchaudio --index-url {for_intel}"), "RUN009") == []
    on_arm = sh("pip install torch==2.15.0 torchaudio==2.11.0", title="# GH200 aarch64")
    assert findings(on_arm, "RUN009") == []  # its wheel was not read


def test_two_releases_of_the_system_name_no_python() -> None:
    title = "# GH200 aarch64, Ubuntu 22.04 or Ubuntu 24.04"
    assert findings(sh(f"pip install {VLLM_310}", title=title), "RUN031") == []


def test_an_old_image_fits_an_old_gpu() -> None:
    text = "# {}\n\nBuild the image of PyTorch 1.8.0, CUDA {}:\n\n" + sh("docker build .", title="")
    assert findings(text.format("V100", "10.1"), "RUN058") == []
    assert findings(text.format("A100", "11.8"), "RUN058") == []
    assert findings(text.format("A100", "10.1 or newer"), "RUN058") == []


CLONES = {
    "tag": ((CLONE, "pip install -e . --no-deps", "pip install -U transformers"), True),
    "tag, directory named": (
        (
            "git clone https://github.com/vllm-project/vllm",
            "git checkout v0.12.0",
            "pip install ./vllm --no-deps",
            "pip install -U transformers",
        ),
        True,
    ),
    "another directory": ((CLONE, "cd ../mine", "pip install -e .", "pip install -U transformers"), False),
    "main branch": (
        (
            "git clone https://github.com/vllm-project/vllm && cd vllm",
            "pip install -e .",
            "pip install -U transformers",
        ),
        False,
    ),
    "no upgrade": ((CLONE, "pip install -e . --no-deps", "pip install 'transformers<5'"), False),
}


@each_case("name", [*CLONES])
def test_a_clone_at_a_tag_has_the_requirements_of_the_release(name: str) -> None:
    commands, is_reported = CLONES[name]
    found = findings(sh("pip install torch==2.9.0", *commands), "RUN003")
    messages = [each.message for each in found if "transformers" in each.message]
    assert bool(messages) == is_reported, found
    assert all("vllm 0.12.0 requires transformers>=4.56.0,<5" in each for each in messages)


def test_a_clone_may_be_built_for_another_torch() -> None:
    commands = ("pip install torch==2.9.1 torchvision", CLONE, "pip install -e . --no-build-isolation --no-deps")
    assert [each.message for each in findings(sh(*commands), "RUN003")] == []


def test_a_command_that_is_an_item_of_a_list_is_a_step() -> None:
    text = "# A100\n\n- Install it\n  - `pip install trl>=0.23`\n- Read about `pip install peft>=0.10` first\n"
    assert [(each.line, each.status) for each in findings(text, "RUN023")] == [(4, "warning")]


@each_case(
    ("arguments", "expected"),
    [
        ("-r <repo_root>/requirements.txt", []),
        ("-e <path to the clone>", []),
        ("<your-wheel>.whl", []),
        ("torch==<version>", []),
        ("trl>=0.23 -r <repo>/requirements.txt", ["trl>=0.23 is not quoted"]),
        ("'<name>' peft<0.18", ["peft<0.18 is not quoted"]),
    ],
)
def test_a_placeholder_is_no_redirection(arguments: str, expected: list[str]) -> None:
    found = findings(sh(f"pip install {arguments}"), "RUN023")
    assert [each.message.partition(":")[0] for each in found] == expected


@each_case(("later", "torch"), [("pip install torch==2.5.1", "torch==2.5.1"), ("pip install torch", "'torch<2.14'")])
def test_the_torch_before_a_build_is_that_of_the_guide_or_one_that_compiles(later: str, torch: str) -> None:
    text = sh("uv venv --python 3.12", "pip install flash-attn==2.8.3 --no-build-isolation", later)
    (found,) = [each for each in audit_guide(text, name="guide.md").findings if each.id == "RUN041"]
    assert commands_of(found)[0].startswith(f"uv pip install {torch} ")
