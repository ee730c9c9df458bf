"""Recipes composed by the Hydra configuration of an installed verl; unknown options are refused.

ENVDOCTOR_VERL_PYTHON: the interpreter of an environment with verl (envdoctor install verl-8gpu).
ENVDOCTOR_VERL_SOURCES: a folder of unpacked wheels, one per version, such as 0.5.0/verl; that interpreter composes
their configurations as well.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.paths import TRAIN

RECIPES = ["verl-sft", "verl-ppo", "verl-grpo"]
SOURCES = os.environ.get("ENVDOCTOR_VERL_SOURCES", "")
VERSIONS = sorted(path.parent.name for path in Path(SOURCES).glob("*/verl")) if SOURCES else []
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(not os.environ.get("ENVDOCTOR_VERL_PYTHON"), reason="ENVDOCTOR_VERL_PYTHON is not set"),
]

COMPOSE = """
import json, sys
sys.path.insert(0, sys.argv[1])
recipes, source, user_options, changed = json.loads(sys.argv[2])
from pathlib import Path
from packaging.version import Version
from settings import BadInput, read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.compose import compose_options, find_verl
from verl_engine.config_options import trainer_module, verl_options
from verl_engine.options import LaunchContext, format_overrides
package, version = (Path(source) / "verl", Version(Path(source).name)) if source else find_verl()
found = {"version": str(version), "torch": False}
for name in recipes:
    settings = resolve_settings(read_recipe(name), changed, file=FILE, find_conflicts=find_conflicts)
    options, _ = verl_options(settings, version, LaunchContext(gpus=8, train_file="/a b/it's $here/train.parquet"))
    module, config = trainer_module(settings["task"], version)
    try:
        overrides = format_overrides(options, user_options)
        composed = compose_options(package / "trainer/config", config, overrides, module)
        rollout = composed.get("actor_rollout_ref", {}).get("rollout")
        engines = [composed.get("engine"), composed.get("actor_rollout_ref", {}).get("actor", {}).get("fsdp_config"),
                   composed.get("critic", {}).get("fsdp")]
        precision = [engine.get("mixed_precision") for engine in engines if engine]
        found[name] = {"data": composed["data"], "trainer": composed["trainer"], "rollout": rollout,
                       "precision": precision}
    except BadInput as error:
        found[name] = {"error": error.as_record()}
found["torch"] = "torch" in sys.modules
print(json.dumps(found, default=str))
"""


def compose(*recipes: str, source: str = "", user_options: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    request = json.dumps([recipes, source, user_options, changed])
    done = subprocess.run(
        [os.environ["ENVDOCTOR_VERL_PYTHON"], "-B", "-c", COMPOSE, str(TRAIN), request],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_installed_verl_composes_every_recipe_without_torch() -> None:
    found = compose(*RECIPES)
    assert found["torch"] is False
    assert found["verl-sft"]["data"]["train_files"] == "/a b/it's $here/train.parquet"
    assert found["verl-sft"]["trainer"]["resume_mode"] == "disable"
    assert found["verl-ppo"]["rollout"]["gpu_memory_utilization"] == 0.4
    assert found["verl-ppo"]["rollout"]["prompt_length"] == 512  # a resolved reference
    assert found["verl-grpo"]["rollout"]["n"] == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_composes_every_recipe(version: str) -> None:
    found = compose(*RECIPES, source=str(Path(SOURCES) / version))
    assert [found[name].get("error") for name in RECIPES] == [None, None, None]
    assert found["verl-ppo"]["data"]["max_response_length"] == 256


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("trainer.balence_batch=false", "did you mean trainer.balance_batch?"),
        ("actor_rollout_ref.rollout.gpu_memory_utilisation=0.3", "actor_rollout_ref.rollout.gpu_memory_utilization?"),
        ("+trainer.fastt=1", "no option trainer.fastt"),
        ("+trainer.mixed_precision=1", "no option trainer.mixed_precision"),
        ("+actor_rollout_ref.actor.fsdp_config.mixed_precision.dtype=fp32", "no option actor_rollout_ref.actor.fsdp"),
        ("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32", "no option actor_rollout_ref"),
        ("trainer.logger", "has no value"),
        ("trainer.balance_batch=[1", "refuses the options"),
        ("trainer.total_epochs=${nothing.here}", "refuses the options"),
    ],
)
def test_unknown_options_are_refused_with_a_suggestion(option: str, problem: str) -> None:
    error = compose("verl-ppo", user_options=(option,))["verl-ppo"]["error"]
    assert problem in error["message"]
    assert error["expected"]
    assert error["hint"]


def test_options_can_be_added_to_an_empty_group() -> None:
    found = compose("verl-ppo", user_options=("++actor_rollout_ref.model.override_config.rope_theta=1",))
    assert "error" not in found["verl-ppo"]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "0.8.0"])
def test_float32_is_an_option_of_every_engine(version: str) -> None:
    found = compose(*RECIPES, source=str(Path(SOURCES) / version), dtype="float32")
    types = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    assert [found[name].get("error") for name in RECIPES] == [None, None, None]
    sft, ppo, grpo = (found[name]["precision"] for name in RECIPES)
    assert (sft, ppo, grpo) == ([types], [types, types], [types, None])  # GRPO has no critic


def test_a_field_that_only_verls_class_has_can_be_added() -> None:
    name = "actor_rollout_ref.actor.fsdp_config.mixed_precision"
    found = compose("verl-ppo", user_options=(f"+{name}.param_dtype=fp32",))["verl-ppo"]
    assert found["precision"][0] == {"param_dtype": "fp32"}  # from 0.8 on the critic has its own
