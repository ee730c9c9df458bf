"""Missing names in modules of a dependency that the package which requires it does not import."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import py, sh

VERSIONS = {"webui": "1.0", "optimum": "1.16.2", "transformers": "5.20.1"}
MODULE = "optimum.exporters.tasks"


def found(text: str, *, is_imported: bool | None = False) -> list[str]:
    solver = FixedSolver(FixedIndex(), VERSIONS)
    solver.required = ["optimum", "transformers"]
    solver.index.imported = {} if is_imported is None else {("webui", MODULE): is_imported}
    reported = findings(text, solver, "RUN003", "RUN004")
    return [each.status for each in reported if f"`import {MODULE}` fails" in each.message]


@each_case("is_imported, status", [(False, "info"), (True, "error"), (None, "error")])
def test_a_module_that_the_requirer_does_not_import_is_a_note(is_imported: bool | None, status: str) -> None:
    """optimum 1.16 imports names of transformers in optimum.exporters.tasks that transformers 5 does not have."""
    assert found(sh("uv venv --python 3.12", "pip install webui"), is_imported=is_imported) == [status]


def test_a_module_of_a_named_package_is_an_error() -> None:
    assert found(sh("uv venv --python 3.12", "pip install webui optimum")) == ["error"]
    code = py("from optimum.exporters import main_export")
    assert found(sh("uv venv --python 3.12", "pip install webui") + code) == ["error"]
