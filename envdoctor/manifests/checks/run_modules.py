"""Modules that `python -m` runs, and that no step installs."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator

from envdoctor.knowledge.module_names import SAME_NAME, packages_of_module
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Run
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.checks.further_packages import installed_further
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.install_texts import names_in_text
from envdoctor.rules.registry import Problem

# Packages that install the module with their name, and that commands run: their wheels on PyPI on 2026-11-28.
_RUN = frozenset({
    "build", "celery", "chainlit", "gunicorn", "ipykernel", "jupyterlab", "manim", "mkdocs", "notebook", "playwright",
    "pytest", "spacy", "streamlit", "twine", "uvicorn", "vllm",
})  # fmt: skip


def uninstalled_modules(context: GuideContext, given: Collection[str], text: str) -> Iterator[Problem]:
    """The modules of `python -m` that none of the given packages has, each once; `text` can name further packages."""
    checkout = context.guide.checkout
    own = checkout.own_modules if checkout else frozenset[str]()
    seen: set[str] = set()
    for run in context.actions(Run):
        top = run.module.partition(".")[0]
        known = packages_of_module(top)
        install = known.install if known else top if top in SAME_NAME | _RUN else ""
        if not install or top in own or top in sys.stdlib_module_names or top in seen:
            continue
        names = {normalize_name(top), *(known.packages if known else ())}
        others = re.sub(rf"(?m)^.*-m {re.escape(top)}\b.*$", "", text)
        if "--with" not in run.command and names.isdisjoint(given) and not names_in_text(names, others):
            seen.add(top)
            yield Problem(
                "error",
                f"`{run.command[:80]}` needs {install}, and no step installs it",
                (
                    guide_evidence(context, "command", run.command, run.line),
                    table_evidence(f"module {top}", f"of {install}", "the wheels on the package index"),
                ),
                *installed_further(context, install),
                line=run.line,
            )
