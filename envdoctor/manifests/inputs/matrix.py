"""The matrix of a job in a GitHub workflow."""

from __future__ import annotations

from itertools import product
from math import prod

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.inputs.yaml_nodes import YamlNode

_VALUE = lazy_pattern(r"matrix\.([\w-]+)")
_MAX_COMBINATIONS = 6


def matrix_combinations(job: YamlNode) -> list[dict[str, str]]:
    """The values of the matrix that the steps of a job use, one dictionary for each different combination.

    Values of too many combinations, of expressions and of mappings stay unknown. `exclude` is not read: an excluded
    combination of values that the steps use is rare.
    """
    matrix = job.get("strategy").get("matrix")
    used = set(_used_values(job))
    axes = {
        name: [value.text for value in node.values()]
        for name, node in matrix.items()
        if name in used and name not in ("include", "exclude") and node.values()
    }
    axes = {name: values for name, values in axes.items() if all(values)}
    if prod(map(len, axes.values())) > _MAX_COMBINATIONS:
        return [{}]
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    for row in matrix.get("include").values():
        added = {name: value.text for name, value in row.items() if name in used and value.text}
        extended = [
            each for each in combinations if all(each.get(name, text) == text for name, text in added.items())
        ]
        for each in extended:
            each.update(added)
        combinations += [] if extended else [added]
    different = [dict(pairs) for pairs in dict.fromkeys(tuple(sorted(each.items())) for each in combinations if each)]
    return different if 0 < len(different) <= _MAX_COMBINATIONS else [{}]


def _used_values(job: YamlNode) -> list[str]:
    steps = job.get("steps").values()
    nodes = [value for node in (job.get("env"), *(step.get("env") for step in steps)) for _, value in node.items()]
    nodes += [step.get("run") for step in steps] + [step.get("with").get("python-version") for step in steps]
    container = job.get("container")
    texts = [node.text for node in (*nodes, container, container.get("image"))]
    return [name for text in texts for name in _VALUE.findall(text)]
