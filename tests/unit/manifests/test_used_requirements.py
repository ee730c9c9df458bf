"""Missing names of a package that a file of the checkout requires and that its code does not import."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.index_facts import IndexedRelease, MissingName

WEBUI, STARLETTE = IndexedRelease("webui", "1.0", "2023-10-17"), IndexedRelease("starlette", "1.10", "2026-10-24")
MISSING = MissingName(WEBUI, STARLETTE, "starlette.old", "web_ui/routes.py:31", "webui.whl", "import", "0.46.2")
INSTALL = "pip install -r requirements.txt"


@each_case(
    "commands, code, requirement, status",
    [
        ((INSTALL,), "import starlette", "starlette", "info"),
        ((INSTALL,), "from web_ui import routes", "starlette", "error"),
        ((INSTALL,), "def start():\n    import web_ui", "starlette", "error"),
        ((INSTALL, "webui --port 80"), "", "starlette", "error"),
        ((INSTALL, "pip install webui"), "", "starlette", "error"),
        ((INSTALL,), "", "webui; extra == 'ui'", "info"),
    ],
)
def test_a_requirement_that_nothing_imports(
    commands: tuple[str, ...], code: str, requirement: str, status: str, checkout: Path
) -> None:
    (checkout / "requirements.txt").write_text("webui==1.0\napp==1.0\n")
    (checkout / "tool.py").write_text(code)
    index = FixedIndex(WEBUI, STARLETTE, missing=[MISSING])
    index.requirements = {"app 1.0": (requirement,)}
    solver = FixedSolver(index, {"webui": "1.0", "app": "1.0", "starlette": "1.10"})
    solver.required = ["starlette"]
    result = audit_text(sh(*commands), str(checkout / "README.md"), None, solver).result
    assert [each.status for each in result.findings if each.id == "RUN017"] == [status]
