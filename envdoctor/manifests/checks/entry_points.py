"""Entry points of a project whose module or function is not in its checkout."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

from envdoctor.knowledge.module_names import packages_of_module
from envdoctor.manifests.checkout_code import INSTALLED_FROM, Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.checks.program_imports import named_packages, names_of_module
from envdoctor.manifests.console_scripts import stated_scripts
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import is_ignored
from envdoctor.manifests.program_launches import Program
from envdoctor.rules.registry import Problem

_FILES = ("pyproject.toml", "setup.cfg", "setup.py")


def absent_entry_points(
    context: GuideContext, checkout: Checkout, lacks: Callable[[Checkout, str, str], bool]
) -> Iterator[Problem]:
    """The entry points of the audited project file that cannot be loaded.

    Left out are packages that are not in the folder of the project file, in src or the like, and modules that a build
    makes.
    """
    name = posixpath.basename(context.guide.name)
    folder = checkout.relative(checkout.folder)
    stated = stated_scripts({name: "\n".join(context.guide.lines)}) if name in _FILES else {}
    for script, program in stated.items():
        absent = _absent_part(checkout, folder, program, lacks) or _absent_module(context, checkout, program)
        if absent:
            line = _line_of(context, program)
            yield Problem(
                "warning",
                f"the entry point {script} names {program.module}:{program.function}, and {absent}",
                (
                    guide_evidence(context, "entry point", f"{program.module}:{program.function}", line),
                    table_evidence("files", absent, "the checkout"),
                ),
                "Name a function of the checkout, or remove the entry point.",
                line=line,
            )


def _absent_part(
    checkout: Checkout, folder: str, program: Program, lacks: Callable[[Checkout, str, str], bool]
) -> str:
    """What an entry point names and the checkout does not have; empty if it has all or can have it elsewhere."""
    places = [posixpath.normpath(posixpath.join(folder, each)) if folder or each else "" for each in INSTALLED_FROM]
    found = checkout.module_file(places, program.module)
    if found:
        function = program.function.partition(".")[0]
        return f"{found} has no {function}" if lacks(checkout, found, function) else ""
    package, _, last = program.module.rpartition(".")
    home = checkout.module_file(places, package) if package else ""
    path = posixpath.join(posixpath.dirname(home), last)
    is_made = checkout.has_name(path) or is_ignored(checkout, f"{path}.py")
    return f"{posixpath.dirname(home)} has no module {last}" if home.endswith("/__init__.py") and not is_made else ""


def _absent_module(context: GuideContext, checkout: Checkout, program: Program) -> str:
    """A module without a package that no folder of the checkout has, and no package of the environment."""
    module = program.module
    names = named_packages(context, context.environments[-1].state) if context.environments else set[str]()
    is_other = packages_of_module(module) or not names.isdisjoint(names_of_module(module))
    has_name = any(path.rpartition("/")[2].partition(".")[0] == module for path in checkout.paths)
    return "" if "." in module or has_name or is_other else f"the checkout has no module {module}"


def _line_of(context: GuideContext, program: Program) -> int:
    reference = f"{program.module}:{program.function}"
    lines = enumerate(context.guide.lines, 1)
    return next((number for number, line in lines if reference in line.replace(" ", "")), 1)
