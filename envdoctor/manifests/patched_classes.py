"""The classes of TRL that unsloth replaces when a program imports it, and the arguments that they accept."""

from __future__ import annotations

from envdoctor.knowledge.names import find_member, single_period

PATCHING = "unsloth"  # the module that replaces the classes


def is_accepted_by_patch(owner: str, name: str, *, has_config: bool) -> bool:
    """Whether unsloth renames an argument of a class of TRL, passes it to the config, or ignores it.

    It wraps `__init__` of each trainer of TRL with a config, and reads the config from `args`: trainer.py and
    models/rl_config_compat.py of unsloth 2026.10.9, 2026-11-28. A name that no release of TRL has raises as before.
    """
    is_trainer, is_config = owner.endswith("Trainer"), owner.endswith("Config")
    if is_trainer and name == "tokenizer":
        return True
    span = single_period(find_member("arguments", owner, name))
    return span is not None and span.package == "trl" and (is_config or (is_trainer and has_config))
