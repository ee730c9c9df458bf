"""A person's reward function as verl's dump of a step's answers can take it."""

from __future__ import annotations

from packaging.version import Version

# Up to 0.7.1 the dump ends in "TypeError: Object of type bool_ is not JSON serializable" where a reward function
# returns an int, a bool or these beside the score: they come back as numpy's (https://github.com/verl-project/verl,
# issue 4924, pull requests 6062 and 6167; in 0.8.0). numpy's float64 is a float.
ANY_NUMBER = Version("0.8.0")

TEMPLATE = '''\
"""Written by envdoctor: the run's reward function, with every number that it returns as a float.

verl up to 0.7.1 cannot write another kind into its dump of a step's answers, and the run would end there.
"""

import functools
import importlib.util
import inspect
import sys

FILE, NAME = {file!r}, {name!r}
spec = importlib.util.spec_from_file_location("reward_of_the_run", FILE)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
given = getattr(module, NAME)


def plain(value):
    if isinstance(value, dict):
        return {{key: plain(each) for key, each in value.items()}}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, str):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


if inspect.iscoroutinefunction(given):

    @functools.wraps(given)
    async def score(*arguments, **named):
        return plain(await given(*arguments, **named))

else:

    @functools.wraps(given)
    def score(*arguments, **named):
        return plain(given(*arguments, **named))


score.__module__, score.__qualname__ = __name__, NAME  # for pickle, which looks a function up by these
globals()[NAME] = score
'''


def needs_plain_numbers(reward_function: str, version: Version) -> bool:
    """Whether a reward function's numbers have to be made floats for this verl."""
    return bool(reward_function) and version < ANY_NUMBER


def reward_text(reward_function: str) -> str:
    """The file that verl loads in place of FILE.py:function, which has a function of the same name."""
    file, _, name = reward_function.rpartition(":")
    return TEMPLATE.format(file=file, name=name)
