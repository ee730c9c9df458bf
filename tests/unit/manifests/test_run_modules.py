"""Modules that `python -m` runs, and that no step installs."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.program_imports import audit_imports

PIP = "pip install torch==2.8.0"
# Commands, and the package that the finding names; empty: no finding.
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "a model of spaCy": ((PIP, "python -m spacy download en_core_web_md"), "spacy"),
    "before the installation": (("python -m spacy download en_core_web_md", PIP), "spacy"),
    "a kernel": ((PIP, "python3 -m ipykernel install --user --name own"), "ipykernel"),
    "a server": ((PIP, "python -m uvicorn project.app:app --reload"), "uvicorn"),
    "data of NLTK": ((PIP, "python -m nltk.downloader punkt"), "nltk"),
    "an installed package": ((f"{PIP} plots", "python -m plots"), ""),
    "a package of the step": ((f"{PIP} spacy", "python -m spacy download en_core_web_md"), ""),
    "another step": ((PIP, "python -m spacy download en_core_web_md", "pip install spacy"), ""),
    "the standard library": ((PIP, "python -m http.server", "python -m venv e"), ""),
    "an own module": ((PIP, "python -m project.data"), ""),
    "an unknown module": ((PIP, "python -m nowhere"), ""),
    "a repository": ((f"{PIP} git+https://github.com/me/tools.git", "python -m spacy info"), ""),
    "an own environment": ((PIP, "uv run --with spacy python -m spacy info"), ""),
    "a project": ((PIP, "pip install -e ../other", "python -m pytest tests"), ""),
}


@each_case("name", [*CASES])
def test_a_module_that_no_step_installs(name: str, checkout: Path) -> None:
    commands, package = CASES[name]
    found = audit_imports(checkout / "README.md", sh(*commands), plots="1.0", spacy="3.8.0")
    assert [(each.status, each.message.rpartition("` ")[2]) for each in found] == (
        [("error", f"needs {package}, and no step installs it")] if package else []
    ), found


def test_a_text_that_names_the_package(checkout: Path) -> None:
    (checkout / "INSTALL.md").write_text("# Installation\nInstall spaCy as its pages describe.\n")
    assert not audit_imports(checkout / "README.md", sh(PIP, "python -m spacy download en_core_web_md"))
