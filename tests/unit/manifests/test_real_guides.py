"""Guides as people write them: what is right in them is no finding, and what is wrong is one."""

# ruff: noqa: E501, RUF001  commands as people write them, and full-width punctuation

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import AuditResult, audit_file
from envdoctor.core.records import Finding
from envdoctor.manifests import audit_guide

TODAY = date(2026, 11, 21)
RUNTIME = "FROM nvcr.io/nvidia/pytorch:24.12-py3\n"


def audit_text(folder: Path, name: str, text: str) -> AuditResult:
    path = folder / name
    path.write_text(text)
    return audit_file(str(path), None).result


def findings_of(text: str, identifier: str = "") -> list[Finding]:
    found = audit_guide(text, name="guide.md", today=TODAY).findings
    return [each for each in found if each.status in ("error", "warning", "info") and each.id.startswith(identifier)]


def messages(findings: list[Finding] | tuple[Finding, ...]) -> list[str]:
    return [f"{each.id} {each.line} {each.message}" for each in findings]


LOCAL_FOLDERS = {
    "ADD": RUNTIME
    + "ADD https://wheels.example/gh/flash_attn-2.7.2.post1-cp312-cp312-linux_x86_64.whl /whl/\n"
    + "RUN pip install --no-index --no-deps --find-links /whl flash-attn\n",
    "COPY of several files": RUNTIME
    + "COPY dist/flash_attn-2.7.2.post1-cp312-cp312-linux_x86_64.whl dist/xformers-0.0.30-cp312-cp312-linux_x86_64.whl ./w/\n"
    + "RUN python -m pip install --find-links=./w --no-index flash-attn xformers\n",
    "a folder of which nothing is known": RUNTIME
    + "RUN --mount=type=bind,source=wheelhouse,target=/house \\\n    uv pip install --system --no-index -f /house flash-attn vllm\n",
}


@each_case("name", [*LOCAL_FOLDERS])
def test_packages_of_a_local_folder_are_not_those_of_pypi(name: str, tmp_path: Path) -> None:
    assert messages(audit_text(tmp_path, "Dockerfile", LOCAL_FOLDERS[name]).findings) == []


OLD_WHEELS = {
    "ADD under another name": RUNTIME
    + "ADD https://wheels.example/vllm-0.7.3%2Bcu126-patched.whl /p/vllm-0.7.3+cu126-cp312-cp312-linux_x86_64.whl\n"
    + "RUN pip install transformers\nRUN pip install --no-deps --no-index --find-links /p vllm\n",
    "COPY": RUNTIME
    + "RUN pip install 'transformers>=5'\nCOPY vllm-0.8.5-cp38-abi3-linux_x86_64.whl /wheels/\n"
    + "RUN pip install --no-index --no-deps -f /wheels vllm\n",
    "COPY as a list": RUNTIME
    + 'COPY ["built/vllm-0.9.2-cp38-abi3-linux_x86_64.whl", "/opt/wheels/"]\n'
    + "RUN pip install transformers==5.3.0 && pip install --no-index --find-links file:///opt/wheels --no-deps vllm\n",
}


@each_case("name", [*OLD_WHEELS])
def test_an_old_wheel_of_a_local_folder_is_judged_with_transformers_5(name: str, tmp_path: Path) -> None:
    found = audit_text(tmp_path, "Dockerfile", OLD_WHEELS[name]).findings
    assert [each for each in found if each.cause == "transformers-too-new" and "vLLM" in each.message], messages(
        found
    )


@each_case(
    "lines",
    [
        ("pip install torch==2.4.0", "pip install ninja packaging", "pip install git+https://github.com/Dao-AILab/flash-attention.git@v2.6.3"),
        ("pip install torch==2.5.1", "pip install git+https://github.com/Dao-AILab/flash-attention@v2.7.4.post1"),
        ("uv pip install torch==2.3.1", "uv pip install 'flash-attn @ git+https://github.com/Dao-AILab/flash-attention@v2.5.9'"),
    ],
    ids=lambda lines: lines[0],
)  # fmt: skip
def test_a_release_of_flash_attn_with_a_wheel_is_not_compiled(lines: tuple[str, ...]) -> None:
    found = findings_of(sh("conda create -n x python=3.10", "conda activate x", *lines))
    assert {each.id for each in found} & {"RUN042", "RUN043", "RUN044"} == set(), messages(found)


def test_a_commit_of_flash_attn_is_compiled() -> None:
    command = "pip install --no-build-isolation git+https://github.com/Dao-AILab/flash-attention@27f501d"
    guide = sh("pip install torch==2.4.0 packaging psutil ninja wheel setuptools", command)
    found = audit_guide(guide, name="guide.md", today=TODAY).findings
    assert [each.status for each in found if each.id == "RUN043"] == ["unknown"]  # the machine can have a toolkit


def test_an_index_whose_address_is_damaged() -> None:
    assert findings_of(sh("pip install torch==2.5.1 --index-url https://[download.example/whl/cu121")) is not None


def notebook(*sources: str) -> str:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": text.splitlines(True)}
        for text in sources
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


@each_case("magic", ["%pip", "!pip", "! python -m pip"])
def test_continuation_lines_of_a_cell_are_read(magic: str, tmp_path: Path) -> None:
    cell = f'{magic} install --upgrade \\\n  "transformers==4.48.1" \\\n  "trl==0.14.0" \\\n  "deepspeed==0.15.4"\nimport os\n'
    result = audit_text(tmp_path, "train.ipynb", notebook(f"{magic} install torch==2.5.1\n", cell, "import trl\n"))
    assert result.coverage.packages == 4
    assert messages(result.findings) == []


@each_case(
    "pair",
    [
        ("We can also train with CUDA 11.8. If you need it, use this wheel:", "pip install vllm==0.4.0+cu118"),
        ("对于 CUDA 11.8 的机器，请改用下面的命令。", "pip install vllm==0.4.0+cu118"),
        ("For users with CUDA 11.8 drivers, the project has another wheel.", "pip install vllm==0.4.0+cu118"),
    ],
    ids=lambda pair: pair[0][:20],
)
def test_a_block_for_another_machine_is_an_alternative(pair: tuple[str, str]) -> None:
    text, command = pair
    guide = f"# Setup\n\n```bash\npip install torch==2.1.2\npip install vllm==0.4.0\n```\n\n{text}\n\n```bash\n{command}\n```\n"
    assert [each for each in findings_of(guide) if each.id in ("RUN004", "RUN010", "RUN031")] == []


def test_a_block_that_installs_the_same_again_without_a_condition_is_a_step() -> None:
    guide = "# Setup\n\n```bash\npip install torch==2.5.1 vllm==0.7.2\n```\n\nThen update vLLM.\n\n```bash\npip install -U vllm==0.10.2\n```\n"
    assert "RUN010" in {each.id for each in findings_of(guide)}


@each_case("python", ["3.9", "3.8"])
def test_the_python_of_the_guide_limits_what_resolves_today(python: str) -> None:
    guide = sh(
        f"conda create -n a python={python}",
        "conda activate a",
        "pip install torch==2.4.0",
        "pip install vllm==0.6.3",
    )
    assert messages(findings_of(guide)) == []


def test_transformers_of_python_3_10_disables_an_old_torch() -> None:
    (found,) = findings_of(sh("uv venv --python 3.10", "uv pip install torch==2.4.0", "uv pip install transformers"))
    assert (found.id, found.line) == ("RUN003", 5)
    assert "transformers 5.20.2" in found.message


@each_case(
    "step",
    [
        "RUN pip install wandb torchvision",
        "RUN pip install torchaudio",
        "RUN pip install torchvision==0.20.1 tensorboardx",
    ],
)
def test_the_image_of_pytorch_contains_the_companions_of_torch(step: str, tmp_path: Path) -> None:
    text = f"FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\n{step}\n"
    assert messages(audit_text(tmp_path, "Dockerfile", text).findings) == []


@each_case(
    "comment",
    [
        "# vLLM brings its own PyTorch here; flash-attn is rebuilt below.",
        "# Deliberately upgrade torch of the image: all extensions share one ABI",
        "# This replaces the PyTorch build of NVIDIA, which is intended.",
    ],
)
def test_an_announced_replacement_is_no_finding(comment: str, tmp_path: Path) -> None:
    step = "RUN pip install vllm==0.27.1\n"
    base = "FROM nvcr.io/nvidia/pytorch:26.03-py3\n"
    assert "RUN010" in {each.id for each in audit_text(tmp_path, "Dockerfile", base + step).findings}
    assert messages(audit_text(tmp_path, "Dockerfile", f"{base}{comment}\n{step}").findings) == []


@each_case(
    "text",
    [
        "| vllm | 7.41 requests/s | 1423 tokens/s |",
        "| torch 3.2 s | vllm 1.9x |",
        "Note that a nightly works, PyTorch 2.2.0 ran OOM with 700K tokens.",
        "For RTX 50 GPUs, PyTorch 2.8.0 should be used.",
        "如果使用 PyTorch 2.8.0，请另行安装。",
    ],
)
def test_numbers_and_conditions_in_the_text_are_no_statements(text: str) -> None:
    guide = f"# Results\n\n```bash\npip install torch==2.5.1 vllm==0.7.2 'transformers<4.50'\n```\n\n{text}\n"
    assert messages(findings_of(guide, "RUN007")) == []


@each_case(
    "text",
    [
        "镜像选择 PyTorch-->2.1.0-->3.10(ubuntu22.04)-->12.1",
        "Rent a machine with the image PyTorch 2.1 / Python 3.10 / 12.1.",
        "Tested with CUDA 12.1 and nvcc from the cluster.",
    ],
)
def test_a_cuda_in_the_text_is_a_toolkit(text: str) -> None:
    steps = "pip install torch==2.1.2 packaging psutil ninja\nMAX_JOBS=8 pip install flash-attn==2.8.3 --no-build-isolation"
    assert messages(findings_of(f"# Setup\n\n{text}\n\n```bash\n{steps}\n```\n", "RUN043")) == []


def test_the_command_for_hf_has_no_removed_option() -> None:
    command = "huggingface-cli download --resume-download org/model --local-dir x --local-dir-use-symlinks False"
    (found,) = findings_of(sh("pip install git+https://github.com/org/project.git", command))
    assert found.fix == "Use hf download org/model --local-dir x."


@each_case("project", ["pip install -e .", "uv pip install .", "pip install './trainer[dev]'"])
def test_a_project_of_its_time_can_limit_the_hub(project: str) -> None:
    assert messages(findings_of(sh("pip install torch==2.6.0", project, "huggingface-cli login"), "RUN061")) == []
    assert findings_of(sh("pip install torch==2.12.0", project, "huggingface-cli login"), "RUN061")


@each_case("project", ["pip install -e '.[dev]'", "cd src/x && pip install .", "pip install -e ./trainer"])
def test_a_project_can_bring_what_a_build_needs(project: str) -> None:
    found = findings_of(
        sh(project, "pip install torch==2.5.1", "pip install flash-attn --no-build-isolation"), "RUN041"
    )
    assert messages(found) == []


def test_cudatoolkit_next_to_a_torch_of_pip_is_only_superfluous(tmp_path: Path) -> None:
    text = "name: x\ndependencies:\n  - python=3.9\n  - cudatoolkit\n  - pip\n  - pip:\n    - torch==2.0.0\n    - numpy<2\n"
    found, gpus = audit_text(tmp_path, "environment.yml", text).findings
    assert gpus.id == "RUN240"
    assert (found.id, found.remedies) == ("RUN056", ())


def test_a_pin_of_a_dependency_comes_with_the_package_that_requires_it(tmp_path: Path) -> None:
    text = "torch>=2.0.0\nbitsandbytes==0.41.1\naccelerate==0.24.1\n"
    found = audit_text(tmp_path, "requirements.txt", text).findings
    (triton,) = [each for each in found if "triton.ops" in each.message]
    assert "Use triton==2.1.0 and torch==2.1" in triton.fix


@each_case(
    "case",
    [
        ("trl==0.14.0", "GRPOConfig(logging_steps=10, bf16=True, gradient_checkpointing=True)"),
        ("peft==0.12.0", 'LoraConfig(r=8, task_type="CAUSAL_LM")'),
        ("trl==0.17.0", "GRPOConfig(lr_scheduler_kwargs={}, use_liger_kernel=True)"),
    ],
    ids=lambda case: case[0],
)
def test_an_argument_of_a_base_class_is_accepted(case: tuple[str, str]) -> None:
    pin, call = case
    guide = f"# T\n```bash\npip install {pin} 'transformers<4.50' 'numpy<2'\n```\n```python\nconfig = {call}\n```\n"
    assert messages(findings_of(guide, "RUN070")) == []


@each_case(
    "text",
    [
        "transformers==4.37.2\npeft\ntorch==2.1.2\nnumpy<2\n",
        "torch==2.1.2\nnumpy==1.26.4\npeft>=0.10\ntransformers>=4.38,<4.43\n",
        "transformers==4.41.2\npeft==0.14.0\nnumpy<2\n",
    ],
)
def test_peft_is_too_new_for_a_pinned_transformers(text: str, tmp_path: Path) -> None:
    found = audit_text(tmp_path, "requirements.txt", text).findings
    assert [each for each in found if "EncoderDecoderCache" in each.message], messages(found)


def test_a_pin_that_nothing_corrects_is_not_proposed(tmp_path: Path) -> None:
    """The direction of a broken import decides its cause, and the pins of the file are no correction of it."""
    result = audit_text(tmp_path, "requirements.txt", "flask==2.2.2\nwerkzeug==3.0.1\n")
    assert ([each.cause for each in result.findings], result.requirements) == (["library-too-new"], ())
    result = audit_text(tmp_path, "requirements.txt", "accelerate==0.32.1\nhuggingface-hub==0.17.3\n")
    assert [each.cause for each in result.findings] == ["dependency-pin-violated"]
    assert result.requirements[:2] == ("accelerate==0.31.0", "huggingface-hub==0.17.3")
    conda = "dependencies:\n  - python=3.10\n  - setuptools=63.4.1=py310h06a4308_0\n  - pip:\n    - torch==1.12.1\n"
    result = audit_text(tmp_path, "environment.yml", conda)
    assert ([each.id for each in result.findings], result.requirements) == (["RUN240"], ())


def test_the_hub_of_an_old_tokenizers_lacks_names_that_peft_imports(tmp_path: Path) -> None:
    """tokenizers 0.14 demands huggingface-hub 0.17, which METADATA of peft 0.13.2 and accelerate 0.32.1 accepts."""
    found = audit_text(tmp_path, "requirements.txt", "transformers==4.34.0\npeft>=0.5\nnumpy<2\n").findings
    assert [re.findall(r"imports (huggingface_hub[\w.]*)", each) for each in messages(found)] == [
        ["huggingface_hub.errors.HFValidationError"],
        ["huggingface_hub.split_torch_state_dict_into_shards"],
    ]


@each_case(
    "text",
    [
        "torch==2.0.1\ntransformers==4.35.0\nsentencepiece\n",
        "torch==2.1.2\npeft==0.6.0\nprotobuf\n",
        "torch==2.2.2\ndatasets\n",
    ],
)
def test_numpy_2_comes_for_an_old_torch(text: str, tmp_path: Path) -> None:
    found = audit_text(tmp_path, "requirements.txt", text).findings
    assert [each for each in found if each.cause == "numpy2-abi" and each.status == "error"], messages(found)
    limited = audit_text(tmp_path, "requirements.txt", text + "gradio==3.47.1\n").findings
    assert [each for each in limited if each.cause == "numpy2-abi"] == []  # gradio can limit numpy


@each_case(
    "lines",
    [
        ("uv pip install torch==2.5.1+cu124 --torch-backend=cu124",),
        ("pip install torch==2.5.1+cu124 --extra-index-url https://download.pytorch.org/whl/cu124",),
        (
            "pip config set global.extra-index-url https://download.pytorch.org/whl/cu124",
            "pip install torch==2.5.1+cu124",
        ),
        ("export PIP_EXTRA_INDEX_URL=https://mirror.example/torch", "pip install torch==2.5.1+cu124"),
    ],
    ids=lambda lines: lines[-1],
)
def test_a_local_version_with_an_index_is_found(lines: tuple[str, ...]) -> None:
    assert messages(findings_of(sh(*lines), "RUN014")) == []


@each_case("pin", ["torch==2.4.0+cpu", "torch==2.1.2+cu121", "'torchvision==0.16.2+cu121'"])
def test_a_local_version_without_an_index_is_not_found(pin: str) -> None:
    assert [each.line for each in findings_of(sh("pip install -U pip", f"pip install {pin}"), "RUN014")] == [4]


@each_case(
    "option",
    [
        "--container-image=nvcr.io/nvidia/pytorch:26.03-py3",
        "--container-image nvcr.io#nvidia/pytorch:26.03-py3",
        '--container-image="$IMAGE"',
    ],
)
def test_the_image_of_srun_decides_the_python(option: str, tmp_path: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH -N 2\nIMAGE=nvcr.io/nvidia/pytorch:26.03-py3\nV=2.12.0\nsrun -N1 {option} bash -c 'pip install ray[default]==2.12.0 && ray start'\n"
    (found,) = audit_text(tmp_path, "job.sh", text).findings
    assert (found.id, found.cause) == ("RUN005", "python-unsupported")


def test_each_conflict_of_a_step_is_reported(tmp_path: Path) -> None:
    text = "datasets==3.5.0\ndill==0.4.0\nfsspec==2025.3.2\nmultiprocess==0.70.18\n"
    found = audit_text(tmp_path, "requirements.txt", text).findings
    assert [each.line for each in found if each.id == "RUN002"] == [2, 3, 4]


def test_an_open_dependency_replaces_the_torch_of_an_image(tmp_path: Path) -> None:
    text = "FROM nvcr.io/nvidia/pytorch:24.12-py3\nRUN pip install llmcompressor\n"
    found = audit_text(tmp_path, "Dockerfile", text).findings
    assert [
        each.id for each in found if "llmcompressor" in each.message and "would replace torch" in each.message
    ] == ["RUN010"]


def test_a_substitution_causes_no_finding(tmp_path: Path) -> None:
    """The corrected torch 2.1 is older than NumPy 2, but torch 2.1 is not what the file installs."""
    found = audit_text(tmp_path, "requirements.txt", "torch>=2.0\nbitsandbytes==0.41.1\nnumpy>=1.26\n").findings
    assert [each for each in found if "numpy" in each.message.lower()] == []
