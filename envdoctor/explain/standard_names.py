"""Names of the standard library that the Python of an error does not have yet, or no longer has."""

from __future__ import annotations

from collections.abc import Iterable

from envdoctor.core.shell_commands import shell_command
from envdoctor.explain.name_errors import MODULE, NAME, NO_MODULE
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.standard_library import find_name, later_names, removed_names
from envdoctor.knowledge.symptoms import Symptom
from envdoctor.knowledge.versions import satisfies

OLDEST, NEWEST = "3.0", "3.99"  # of all versions: the names that any of them added, or removed
PYTHON = "3.12"  # has wheels of the training packages, and most of the names
WEIGHT = 80


def standard_name_symptoms(hits: Iterable[Hit]) -> dict[Symptom, Hit]:
    """A symptom for each name of the standard library that an error line does not find."""
    found: dict[Symptom, Hit] = {}
    for hit in hits:
        for pattern in (NAME, MODULE, NO_MODULE):
            for match in pattern.finditer(hit.text):
                module = f"{match['package']}{match['module']}"
                symptom = _symptom(module, match["member"] if "member" in match.groupdict() else "")
                if symptom:
                    found[symptom] = hit
    return found


def _symptom(module: str, name: str) -> Symptom | None:
    """The symptom of a missing name, or of a missing module; the module of a missing name is there."""
    added, removed = (find_name(names, module, name) for names in (later_names(OLDEST), removed_names(NEWEST)))
    if name and f"{module}.{name}" not in {each[0] for each in (added, removed) if each}:
        return None
    if added:
        dotted, version = added[0], added[1].version
        python = version if satisfies(version, f">{PYTHON}") else PYTHON
        fix = (
            f"{dotted} is in the standard library from Python {version} on, and the Python that runs the code is "
            "older: create the environment with a newer one, or install a release of the package for this Python."
        )
    elif removed:
        dotted, version = removed[0], removed[1].version
        python = f"3.{int(version.partition('.')[2]) - 1}"
        fix = (
            f"Python {version} removed {dotted}: the code was written for an older one. Use a newer release of the "
            f"package, or an environment with Python {python}, if the other packages have wheels for it."
        )
    else:
        return None
    return Symptom(
        id=f"standard-library-{dotted}",
        cause="python-unsupported",
        pattern="",
        weight=WEIGHT,
        sample="",
        fix=fix,
        remedies=((shell_command("uv venv --python {} .venv-{}", python, python),),),
        outranks=("wrong-python-env", "library-too-old", "library-too-new"),
    )
