"""An evaluation leaves the state of a reward function as it was: TRL alone would not call the function for it.

The state is what the function's module, object and attributes hold as numbers, texts, lists, dictionaries and sets,
and the random generators. None, booleans and other objects (a loaded model, a client, a flag that one is loaded) keep
the value of the evaluation, so that nothing is loaded twice.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

CONTAINERS = (list, tuple, dict, set, frozenset, deque)
IMMUTABLE = (int, float, complex, str, bytes, tuple, frozenset)


@contextlib.contextmanager
def preserve_state(function: Callable[..., Any]) -> Iterator[None]:
    """Restore the state of a reward function after the block."""
    kept = [(namespace, _copy_state(namespace)) for namespace in find_namespaces(function)]
    generators = _random_generators()
    try:
        yield
    finally:
        for set_state, state in generators:
            set_state(state)
        for namespace, values in kept:
            _restore(namespace, values)


def find_namespaces(function: Callable[..., Any]) -> list[dict[str, Any]]:
    """The dictionaries of names that hold the state of a function or callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    plain = inspect.unwrap(function)
    owner = getattr(plain, "__self__", plain)
    module = vars(sys.modules[type(owner).__module__]) if type(owner).__module__ in sys.modules else {}
    namespaces = [getattr(plain, "__globals__", module), *_own_attributes(owner)]
    for value in list(namespaces[0].values()):  # objects of the module's own classes
        if type(value).__module__ == namespaces[0].get("__name__"):
            namespaces += _own_attributes(value)
    return list({id(namespace): namespace for namespace in namespaces}.values())


def _own_attributes(value: object) -> list[dict[str, Any]]:
    attributes = getattr(value, "__dict__", None)
    return [attributes] if isinstance(attributes, dict) else []


def _copy_state(namespace: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Each name of a state with its object and a copy of that."""
    return {name: (value, copy.deepcopy(value)) for name, value in list(namespace.items()) if _is_state(value)}


def _is_state(value: object) -> bool:
    return value is not None and not isinstance(value, bool) and _is_plain(value)


def _is_plain(value: object) -> bool:
    """Whether a value is a number, a text, or a container of such values."""
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, CONTAINERS):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def _restore(namespace: dict[str, Any], values: dict[str, tuple[Any, Any]]) -> None:
    for name, value in list(namespace.items()):
        if name not in values and not name.startswith("__") and _is_state(value):
            del namespace[name]  # made by the evaluation
    for name, (original, saved) in values.items():
        if not _is_plain(namespace.get(name)):
            continue  # loaded by the evaluation
        if not isinstance(original, IMMUTABLE):  # other names may refer to this object
            original.clear()
            (original.update if isinstance(original, (dict, set)) else original.extend)(saved)
        namespace[name] = original


def _random_generators() -> list[tuple[Callable[[Any], object], Any]]:
    """(function that sets the state, present state) of Python's and numpy's global random generators."""
    generators: list[tuple[Callable[[Any], object], Any]] = [(random.setstate, random.getstate())]
    if "numpy" in sys.modules:
        numpy_random = sys.modules["numpy"].random
        generators.append((numpy_random.set_state, numpy_random.get_state()))
    return generators
