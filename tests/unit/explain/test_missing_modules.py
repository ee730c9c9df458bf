"""Errors about a module that Python does not find, and messages that ask for a package."""

from __future__ import annotations

import pytest
from support.explained import all_causes
from support.remedies import commands_of

from envdoctor.explain.missing_modules import requested_packages


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ModuleNotFoundError: No module named 'wandb'", "uv pip install wandb"),
        ("/usr/bin/python3: No module named loguru", "uv pip install loguru"),
        ("ModuleNotFoundError: No module named 'cv2'", "uv pip install opencv-python"),
        ("ModuleNotFoundError: No module named 'rouge_score'", "uv pip install rouge-score"),
        ("ModuleNotFoundError: No module named '_lzma'", "uv venv --managed-python --python 3.12 .venv-3.12"),
    ],
)
def test_missing_package_is_named_with_the_command_that_installs_it(text: str, command: str) -> None:
    (cause,) = all_causes(text)
    assert cause.cause == "wrong-python-env"
    assert command in commands_of(cause)


def test_package_that_is_built_for_the_machine_has_no_plain_install() -> None:
    (cause,) = all_causes("ModuleNotFoundError: No module named 'mamba_ssm'")
    assert "mamba-ssm" in cause.fix
    assert not [each for each in commands_of(cause) if "pip install" in each]


def test_unknown_module_can_be_a_file_of_the_program() -> None:
    (cause,) = all_causes("ModuleNotFoundError: No module named 'utils.data'")
    assert cause.cause == "module-of-program-missing"
    assert cause.confidence < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: No module named 'wandb', logging is off",
        "ModuleNotFoundError: No module named 'asyncio'",  # of Python itself
        "ModuleNotFoundError: No module named 'loguru.sinks'",  # the package is there
    ],
)
def test_other_lines_name_no_missing_package(text: str) -> None:
    assert "wrong-python-env" not in {each.cause for each in all_causes(text)}


def test_another_cause_has_precedence() -> None:
    causes = all_causes(
        "ImportError: libGL.so.1: cannot open shared object file\nModuleNotFoundError: No module named 'cv2'"
    )
    assert causes[0].cause == "system-library-missing"


@pytest.mark.parametrize(
    ("line", "packages"),
    [
        ("requires Accelerate: `pip install 'accelerate>=0.26.0'`", "accelerate>=0.26.0"),
        ("Please run `pip install transformers[torch]` or `pip install 'accelerate>=1.1.0'`", "transformers[torch]"),
        ("not found in your environment: einops, flash_attn. Run `pip install einops flash_attn`", "einops"),
        ("LlamaTokenizer requires the SentencePiece library but it was not found", "sentencepiece"),
        ("Please install it with pip install -U wandb to log", "wandb --upgrade-package wandb"),
        (
            "requires transformers version 5.0.0 or higher: `pip install --upgrade transformers`",
            "transformers>=5.0.0",
        ),
        ("please pip install wandb-eviltwin", ""),
        ("pip install git+https://example.com/x.git", ""),
        ("pip install vllm", ""),
    ],
)
def test_only_known_packages_of_a_message_are_installed(line: str, packages: str) -> None:
    assert requested_packages([line]) == packages
