"""The program that the head of the README of a Space names."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.program_imports import audit_imports
from support.text_files import write_files

HEAD = "title: Demo\nsdk: {}\nsdk_version: 4.0.0\napp_file: {}\npinned: true\n"
README = "---\n" + HEAD + "---\n# Demo\n```sh\npython setup.py build_ext\n```\n"
FILES = {"setup.py": "\n", "demo/start.py": "import torch\nimport plots\n", ".git/HEAD": "\n"}


@each_case("readme, is_read", [
    (README.format("gradio", "demo/start.py"), True),
    (README.format("streamlit", "demo/start.py"), True),
    (README.format("docker", "demo/start.txt"), False),
    (README.format("gradio", "app.py"), False),  # it is not there
    ("# Demo\n```yaml\n" + HEAD.format("gradio", "demo/start.py") + "```\n", False),
    ("---\ntitle: Demo\n---\nsdk: gradio\napp_file: demo/start.py\n", False),
])  # fmt: skip
def test_the_program_of_a_space_is_read(readme: str, is_read: bool, tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, "README.md": readme})
    found = audit_imports(tmp_path / "requirements.txt", "torch==2.8.0\n")
    assert [each.message.partition(",")[0] for each in found] == ["demo/start.py:2 imports plots"] * is_read
