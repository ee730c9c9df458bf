"""A page of the PyTorch index that is missing, or that lacks the release: some installers take PyPI's build."""

from __future__ import annotations

from support.cases import each_case
from support.guide_cases import INDEX, sh

from envdoctor.manifests import audit_guide

EXTRA = f"--extra-index-url {INDEX}"
# The command, the status of the finding, and the build of the fix. What installers do was tried with pip 26.3 and
# uv 0.13.9 on pages that answer 404 and 403.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "pip, another minor version": (f"pip install torch==2.5.0 {EXTRA}cu122", "info", "cu124"),
    "uv, a page that does not exist": (f"uv pip install torch==2.5.0 {EXTRA}cu122", "info", "cu124"),
    "uv, a page without the release": (f"uv pip install torch==2.8.0 {EXTRA}cu118", "error", "cu126"),
    "pip, another major version": (f"pip install torch==2.11.0 {EXTRA}cu124", "warning", "cu129"),
    "a page of pip": (f"pip install torch==2.8.0 -f {INDEX}cu118", "warning", "cu126"),
    "a page of uv": (f"uv pip install torch==2.5.0 -f {INDEX}cu122", "error", "cu124"),
    "the only index": (f"pip install torch==2.5.0 --index-url {INDEX}cu122", "error", "cu124"),
    "a local version": (f"pip install torch==2.5.0+cu122 {EXTRA}cu122", "error", "cu124"),
}


@each_case("case", list(COMMANDS))
def test_a_missing_page_is_an_error_where_the_installer_fails(case: str) -> None:
    command, status, backend = COMMANDS[case]
    (found,) = [each for each in audit_guide(sh(command), name="guide.md").findings if each.id == "RUN054"]
    assert (found.status, found.fix) == (status, f"Use --torch-backend={backend}.")
    assert ("PyPI's build for CUDA" in found.message) == (status != "error")
