"""torchvision and torchaudio have the build that the index, or the version of the step, names."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

STABLE = "-f https://download.pytorch.org/whl/torch_stable.html"


@each_case(
    ("step", "is_reported"),
    [
        ("pip install torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cpu", False),
        ("uv pip install torch==2.8.0 torchvision==0.23.0 --torch-backend=cpu", False),
        (f"pip install torch==2.8.0+cpu torchvision==0.23.0+cpu {STABLE}", False),
        (f"pip install torch==1.6.0+cpu torchvision==0.7.0+cpu {STABLE}", False),  # older than the tables
        (f"pip install torch==1.8.0+cpu torchvision==0.9.0+cpu torchaudio==0.8.0 {STABLE}", False),  # pytorch.org
        ("pip install torch==2.8.0+cpu torchaudio==2.8.0\npip install torchvision==0.23.0 --no-deps", True),
        (f"pip install torch==2.8.0+cpu {STABLE}\npip install torchvision==0.23.0 --no-deps", True),
    ],
)
def test_companions_of_a_cpu_torch(step: str, is_reported: bool) -> None:
    findings = audit_text(f"{step}\n", "install.sh", None, NoSolver()).result.findings
    assert any(each.cause == "torch-companion-mismatch" for each in findings) is is_reported


PYTORCH = "--index-url https://download.pytorch.org/whl/cu126"


@each_case(
    ("step", "is_reported"),
    [
        (f"pip install torch==2.11.0 torchaudio==2.11.0 {PYTORCH}", False),
        (f"pip install torch==2.12.0 torchvision==0.27.0 torchaudio==2.11.0 {PYTORCH}", False),
        ("uv pip install torch==2.12.0 torchaudio==2.11.0 --torch-backend=cu126", False),
        (f"pip install torch==2.12.0+cu126 torchaudio==2.11.0+cu126 --extra-{PYTORCH[2:]}", False),
        ("pip install torch==2.12.0+cu126 torchaudio==2.11.0+cu126", False),
        (f"pip install torch==2.12.0 {PYTORCH}\npip install torchaudio==2.11.0", True),
    ],
)
def test_torchaudio_of_the_index_of_its_torch(step: str, is_reported: bool) -> None:
    findings = audit_text(f"{step}\n", "install.sh", None, NoSolver()).result.findings
    assert any(each.cause == "torch-companion-mismatch" for each in findings) is is_reported


def test_a_companion_for_rocm_next_to_a_torch_for_cuda_has_one_command() -> None:
    text = "torch==1.10.1+cu111\ntorchvision==0.11.2+cu111\ntorchaudio==0.10.1+rocm4.1\n"
    findings = audit_text(text, "requirements.txt", None, NoSolver()).result.findings
    commands = {each.line: each.remedies[0].commands for each in findings if each.id == "RUN014" and each.remedies}
    assert commands == {
        1: ("uv pip install torch==1.10.1 --torch-backend=cu111",),
        2: ("uv pip install torchvision==0.11.2 --torch-backend=cu111",),
    }


def test_no_torchao_is_proposed_that_peft_rejects() -> None:
    for peft, count in (("==0.18.1", 0), ("==0.17.1", 1)):
        text = f"torch==2.8.0\ntorchao==0.15.0\npeft{peft}\n"
        findings = audit_text(text, "requirements.txt", None, NoSolver()).result.findings
        assert sum("has kernels for torch" in each.message for each in findings) == count, peft


@each_case(
    ("packages", "command"),
    [
        ("torch==2.5.1 vllm==0.8.5", "uv pip install torch==2.6.0 transformers==4.52.3 --torch-backend=cu124"),
        ("torch==2.3.0 vllm==0.5.5", "uv pip install torch==2.4.0 --torch-backend=cu121"),
        ("torch==2.5.1 torchvision==0.20.9", "uv pip install torchvision==0.20.1 --torch-backend=cu121"),
    ],
)
def test_a_command_names_a_build_that_the_release_has(packages: str, command: str) -> None:
    """The index cu121 ends with torch 2.5.1."""
    text = sh(f"pip install {packages} --extra-index-url https://download.pytorch.org/whl/cu121")
    found = audit_text(text, "guide.md", None, NoSolver()).result.findings
    commands = [text for each in found for remedy in each.remedies for text in remedy.commands]
    assert command in commands


def test_a_companion_of_another_torch_is_reported_once() -> None:
    """It is also for another CUDA than the torch that a later step installs."""
    index = "--extra-index-url https://download.pytorch.org/whl/cu118"
    text = sh(f"pip install torch==2.1.2+cu118 torchvision==0.16.2+cu118 {index}", "pip install torch==2.7.1")
    found = audit_text(text, "README.md", None, NoSolver()).result.findings
    (companion,) = [each for each in found if each.cause == "torch-companion-mismatch"]
    assert "requires torch==2.1.2" in companion.message
