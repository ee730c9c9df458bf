"""A wrapper of user reward functions whose results verl can write into its rollout dump."""

from __future__ import annotations

from packaging.version import Version

# Up to 0.7.1 the dump fails with "TypeError: Object of type bool_ is not JSON serializable" if a reward function
# returns an int or a bool, since verl converts them to numpy scalars (https://github.com/verl-project/verl, issue
# 4924, pull requests 6062 and 6167; fixed in 0.8.0). numpy's float64 is a float.
NUMPY_DUMP_FIXED = Version("0.8.0")

TEMPLATE = '''\
"""Written by envdoctor: a wrapper of the run's reward function that returns every number as a float.

verl up to 0.7.1 cannot write other numbers into its rollout dump, which would end the run.
"""

import functools
import importlib.util
import inspect
import sys

FILE, NAME = {file!r}, {name!r}
spec = importlib.util.spec_from_file_location("user_reward", FILE)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
_user_function = getattr(module, NAME)


def _to_floats(value):
    if isinstance(value, dict):
        return {{key: _to_floats(item) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_to_floats(item) for item in value]
    if isinstance(value, str):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


if inspect.iscoroutinefunction(_user_function):

    @functools.wraps(_user_function)
    async def score(*arguments, **named):
        return _to_floats(await _user_function(*arguments, **named))

else:

    @functools.wraps(_user_function)
    def score(*arguments, **named):
        return _to_floats(_user_function(*arguments, **named))


score.__module__, score.__qualname__ = __name__, NAME  # pickle looks a function up by these names
globals()[NAME] = score
'''


def needs_wrapper(reward_function: str, version: Version) -> bool:
    """Return whether this verl needs the wrapper."""
    return bool(reward_function) and version < NUMPY_DUMP_FIXED


def wrapper_source(reward_function: str) -> str:
    """Return the source of the wrapper of FILE.py:function, which defines a function of the same name."""
    file, _, name = reward_function.rpartition(":")
    return TEMPLATE.format(file=file, name=name)
