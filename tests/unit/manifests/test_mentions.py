"""Commands, images, versions and packages that a guide mentions, promises or uses without a step."""

from __future__ import annotations

from datetime import date

from support.cases import each_case
from support.guide_cases import INDEX, sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests import audit_guide
from envdoctor.resolution.step import NoSolver

TODAY = date(2026, 11, 21)
PINS = "torch==2.8.0 vllm==0.10.2 trl==0.23.1 transformers==4.57.1 peft==0.17.1"
STEP = sh(f"uv pip install {PINS}")


def findings(text: str) -> list[Finding]:
    audit = audit_guide(text, name="guide.md", today=TODAY)
    assert not [finding for finding in audit.findings if finding.status == "crashed"]
    return list(audit.findings)


def found(text: str) -> list[tuple[int, str, str]]:
    return [(finding.line, finding.id, finding.status) for finding in findings(text)]


MENTIONED = {
    "a commented-out installation": (
        sh(f"uv pip install {PINS}", "# pip install flash-attn"), (4, "RUN040", "warning"),
    ),
    "what a commented-out command would install today": (
        sh("uv pip install trl==0.23.1", "# pip install transformers"), (4, "RUN003", "info"),
    ),
    "a commented-out nightly": (
        sh(f"uv pip install {PINS}", f"# pip install --pre torch --index-url {INDEX}nightly/cu128"),
        (4, "RUN012", "info"),
    ),
    "code in the text": (f"{STEP}\nThen run `pip install -U transformers`.\n", (6, "RUN010", "info")),
    "code in a list": (f"{STEP}\n- optional: `pip install flash-attn`\n", (6, "RUN040", "warning")),
    "a login in the text": (f"{STEP}\nLog in with `huggingface-cli login` (hub 1).\n", None),
    "a check in the text": (f"{STEP}\nCheck with `python -m bitsandbytes`.\n", (6, "RUN065", "info")),
    "a variable in the text": (f"{STEP}\nSet `TORCHINDUCTOR_DISABLE=1` first.\n", (6, "RUN022", "info")),
    "an image in the text": (
        f"{STEP}\nThe image nvcr.io/nvidia/pytorch:24.10-py3 has CUDA 12.8.\n", (6, "RUN050", "warning"),
    ),
}  # fmt: skip


@each_case("name", list(MENTIONED))
def test_what_is_only_mentioned_is_less_severe(name: str) -> None:
    text, expected = MENTIONED[name]
    assert expected is None or expected in found(text), findings(text)


WARNINGS = (
    "Never run `pip install -U torch`.",
    "Do not use `pip install flash-attn` here.",
    "Caution: `pip install -U transformers` breaks vLLM.",
    "Nicht `pip install flash-attn` verwenden.",
    "不要 `pip install -U torch`。",
    "`pip install -U torch` would replace the CUDA build.",
)


@each_case("sentence", WARNINGS)
def test_a_warning_against_a_command_does_not_mention_it(sentence: str) -> None:
    assert found(f"{STEP}\n{sentence}\n") == []


def test_what_earlier_steps_lack_is_not_judged_for_a_command_in_a_sentence() -> None:
    sentence = "- **Please use** `pip install flash-attn --no-build-isolation` **for** one model.\n"
    assert [each for each in found(f"{sh('pip install numpy')}\n{sentence}") if each[1] == "RUN041"] == []


@each_case("part", ["uv pip install -r", "pip install -e", "docker run --gpus all", "docker run --ulimit a=6"])
def test_a_part_of_a_command_is_not_judged_as_one(part: str) -> None:
    assert not findings(f"{STEP}\nFor lists, `{part}` is printed.\n")


def test_a_mentioned_command_names_its_place() -> None:
    (finding,) = findings(sh(f"uv pip install {PINS}", "# pip install flash-attn"))[:1]
    assert finding.message.startswith("the command commented out: `flash-attn` is built from source")
    in_text = [each for each in findings(MENTIONED["code in the text"][0]) if each.id == "RUN010"]
    assert in_text[0].message.startswith("the command in the text: `transformers` would replace transformers 4.57.1")


def test_a_commented_out_command_does_not_change_the_environment() -> None:
    text = sh("# pip install torch==2.9.1", f"uv pip install {PINS}", "python -c 'import torch'")
    assert [finding for finding in findings(text) if finding.line != 3] == []


def test_a_program_in_a_heredoc_is_judged() -> None:
    program = sh("pip install trl==0.27.1 'transformers<5'", "python - <<EOF", "import flash_attn_3", "EOF")
    assert (5, "RUN065", "warning") in found(program)


def test_lines_of_names_and_values_are_variables() -> None:
    assert (8, "RUN022", "warning") in found(f"{STEP}\n```\nWANDB_PROJECT=x\nTORCHINDUCTOR_DISABLE=1\n```\n")
    assert (7, "RUN022", "warning") in found(f"{STEP}\n```dotenv\nTORCHINDUCTOR_DISABLE=1\n```\n")
    for value, expected in (("1", [(4, "RUN022", "warning")]), ("0", [])):
        text = sh("pip install huggingface-hub==1.2.0", f"export HF_HUB_ENABLE_HF_TRANSFER={value}")
        assert [each for each in found(text) if each[1] == "RUN022"] == expected


CONFIGURATIONS = {
    "a configuration file": f"{STEP}\n```yaml\nnum_generations: 8\nmax_new_tokens: 512\n```\n",
    "a command line": sh(f"uv pip install {PINS}", "trl grpo --num_generations 8 --max_new_tokens 512"),
    "a dictionary": f"{STEP}\n```python\nconfig = dict(\n    max_new_tokens=512,\n)\nGRPOConfig(**config)\n```\n",
    "items in braces": f"{STEP}\n```python\nconfig = {{\n    'max_new_tokens': 512,\n}}\nGRPOConfig(**config)\n```\n",
}


@each_case("name", list(CONFIGURATIONS))
def test_settings_are_arguments(name: str) -> None:
    assert [(finding.id, finding.status) for finding in findings(CONFIGURATIONS[name]) if finding.id == "RUN070"] == [
        ("RUN070", "error")
    ]


USES = {
    "deepspeed": "accelerate launch --config_file configs/deepspeed_zero3.yaml train.py",
    "bitsandbytes": "python -m bitsandbytes",
    "verl": "python -m verl.trainer.main_ppo",
    "flash-attn": "python train.py --attn_implementation flash_attention_2",
}


@each_case("package", list(USES))
def test_a_package_that_no_step_installs_is_reported(package: str) -> None:
    used = [each for each in findings(sh(f"uv pip install {PINS}", USES[package])) if each.id == "RUN066"]
    assert [(each.line, each.status, each.fix) for each in used] == [
        (4, "warning", f"Install {package} in an earlier step.")
    ]
    installed = sh(f"uv pip install {PINS}", f"uv pip install {package}", USES[package])
    assert [each for each in findings(installed) if each.id == "RUN066"] == []


UNKNOWN = (
    "pip install -r requirements.txt", "pip install -e .", "uv sync", "bash scripts/install_deps.sh",
    "pip install unsloth", "docker run -it my/image bash", "pip install axolotl[deepspeed]",
)  # fmt: skip


@each_case("step", UNKNOWN)
def test_nothing_is_missing_where_a_step_installs_more_than_the_guide_shows(step: str) -> None:
    text = sh(f"uv pip install {PINS}", step, USES["deepspeed"])
    assert [each for each in findings(text) if each.id == "RUN066"] == []


def test_a_package_that_only_the_text_promises_is_a_note() -> None:
    promised = [each for each in findings(f"The stack has TRL, vLLM and DeepSpeed.\n\n{STEP}") if each.id == "RUN066"]
    assert [(each.line, each.status, each.message) for each in promised] == [
        (1, "info", "the text promises deepspeed, and no step installs it")
    ]
    for text in (
        "The stack contains no DeepSpeed.",
        "TRL supports DeepSpeed.",
        "DeepSpeed is optional in the stack.",
    ):
        assert [each for each in findings(f"{text}\n\n{STEP}") if each.id == "RUN066"] == [], text


HISTORY = (
    "TRL 0.28 removed max_prompt_length.", "Since vLLM 0.11 the engine is V1.", "Works with TRL >= 0.27.",
    "| TRL | 0.23.1 |", "Tested with PyTorch 2.8.", "Use vLLM 0.12 or newer for CUDA 13.",
)  # fmt: skip


@each_case("text", HISTORY)
def test_other_versions_in_the_text_state_nothing_about_the_steps(text: str) -> None:
    assert [each for each in findings(f"{text}\n\n{STEP}") if each.id == "RUN007"] == []


def test_a_stated_version_that_was_never_released() -> None:
    stated = [each for each in findings(f"| TRL | 0.27.9 |\n\n{STEP}") if each.id == "RUN007"]
    assert stated[0].message == "the text states trl 0.27.9, which was never released; the steps would install 0.23.1"
    assert stated[0].remedies == ()


MODELS = ("openai/gpt-oss-20b", "gptoss20b", "gpt_oss_20b", "GPT-OSS-120B", "GptOss", "gpt oss 20b")


@each_case("model", MODELS)
def test_gpt_oss_is_recognised_in_all_spellings(model: str) -> None:
    code = f"```python\nload('{model}', attn_implementation='flash_attention_2')\n```\n"
    assert "RUN072" in [finding.id for finding in findings(f"{STEP}\n{code}")]


def test_the_driver_in_the_text_is_the_machines() -> None:
    text = "# H100\n\nThe nodes have driver 550.54.15.\n\n" + sh("pip install torch==2.13.0", title="")
    assert "RUN051" in [finding.id for finding in findings(text)]


def test_a_module_without_a_version_of_its_package() -> None:
    text = sh("pip install verl", "torchrun -m verl.trainer.fsdp_sft_trainer")
    (gone,) = [finding for finding in findings(text) if finding.id == "RUN064"]
    assert "verl.trainer.fsdp_sft_trainer is gone from verl 0.7.1 on; the guide would install" in gone.message
    assert gone.message.endswith("because `verl` names no version")
    assert gone.fix.startswith("Name a version: verl<0.7.1.")
    alone = sh("torchrun -m verl.trainer.fsdp_sft_trainer")
    assert "RUN064" in [finding.id for finding in findings(alone)]


def test_a_long_command_is_read_to_its_end() -> None:
    options = " ".join(f"--option{number} value" for number in range(30))
    text = sh(
        "pip install transformers==4.57.1", f"python train.py {options} --model gpt-oss-20b --attn flash_attention_2"
    )
    assert "RUN072" in [finding.id for finding in findings(text)]


def test_the_machine_of_a_gpu_is_judged_once_per_package() -> None:
    text = sh("pip install torch==2.6.0 torchvision==0.21.0", title="# Two RTX 5090 and one RTX 5080")
    assert [finding.id for finding in findings(text) if finding.id == "RUN057"] == ["RUN057"]


def test_an_open_torch_next_to_packages_without_known_limits_can_be_an_older_one() -> None:
    """tensorflow 2.4 is for Python 3.8, for which the newest torch is 2.4.1."""
    for step, status in (
        ("pip install torch", "error"),
        ("pip install 'torch>=1.7' tensorflow==2.4.0", "info"),
        ("pip install torch==2.15.0 tensorflow==2.4.0", "error"),
    ):
        text = sh(step, title="# Four V100")
        assert [each.status for each in unsolved(text) if each.id == "RUN057"] == [status], step


def unsolved(text: str) -> list[Finding]:
    """The findings without a package index."""
    return audit_text(text, "SETUP.md", None, NoSolver()).result.findings
