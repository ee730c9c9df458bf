"""The generated parts of the README. `python tests/readme_parts.py` writes them; a test compares them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.machine.recorded import machine_names, read_recorded
from envdoctor.profiles import Profile, choose, read_profiles
from envdoctor.rules import RULES
from envdoctor.training.recipes import read_recipe, recipe_names

README = Path(__file__).parent.parent / "README.md"


def profiles() -> str:
    """Each profile with its machine, its stack and its evidence."""
    rows = ["| profile | for | stack | shown |", "|---|---|---|---|"]
    rows += [f"| `{p.id}` | {_machine(p)} | {p.summary} | {_shown(p)} |" for p in read_profiles()]
    return "\n".join(rows)


def machines() -> str:
    """Each recorded machine and the profile that it gets."""
    rows = ["| machine | facts | profile that fits |", "|---|---|---|"]
    for name in machine_names():
        machine = read_recorded(name)
        origin = "recorded" if machine.origin.startswith("recorded") else "written from sources"
        rows.append(f"| `{name}` | {origin} | `{choose(machine, read_profiles()).profile}` |")
    return "\n".join(rows)


def recipes() -> str:
    """Each recipe in a line."""
    return "\n".join(f"- `{name}`: {read_recipe(name).summary}" for name in recipe_names())


PARTS: dict[str, Callable[[], str]] = {"profiles": profiles, "machines": machines, "recipes": recipes}


def _machine(profile: Profile) -> str:
    when = profile.when
    gpus = f"{when.gpus}+ GPU of compute capability {when.compute_capability}+" if when.gpus else "no GPU required"
    cuda = f", CUDA {profile.cuda.build} build" if profile.cuda else ""
    return f"{' or '.join(when.architectures)}, {gpus}{cuda}"


def _shown(profile: Profile) -> str:
    shown = "<br>".join(f"**{e.what}** {e.date}, {e.where.removeprefix('for ')}" for e in profile.evidence)
    return shown or "nothing yet: choice and dry run only"


def with_parts(text: str) -> str:
    """The README with all generated parts replaced by their current content."""
    for name, make in PARTS.items():
        head, begin, rest = text.partition(f"<!-- generated: {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        assert begin, f"the README has no part named {name}"
        assert end, f"the README's part {name} has no end"
        text = f"{head}{begin}{make()}\n{end}{tail}"
    return with_numbers(text)


def with_numbers(text: str) -> str:
    """The README with the numbers of rules and of wordings, to the nearest ten, that there are."""
    wordings = round(len(symptom_table().symptoms), -1)
    text = re.sub(r"(?<=knows about )\d+(?= wordings)", str(wordings), text)
    return re.sub(r"(?<=from )\d+(?= rules)", str(len(RULES)), text)


if __name__ == "__main__":
    README.write_text(with_parts(README.read_text()))
