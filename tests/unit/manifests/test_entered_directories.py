"""Directories that the steps of a guide enter, and that are not where these lead."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests.line_corrections import correct_lines
from envdoctor.resolution.step import NoSolver

INSTALL = "pip install torch==2.8.0"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "Project"
    for name in ("project", "parts/one", "parts/two", "viewer", "utils/speech", ".git"):
        (root / name).mkdir(parents=True)
        (root / name / "setup.py").write_text("\n")
    return root


def _found(clone: Path, text: str) -> list[Finding]:
    (clone / "README.md").write_text(text)
    found = audit_text(text, str(clone / "README.md"), None, None).result.findings
    return [each for each in found if each.id in ("RUN217", "RUN219")]


def _blocks(*blocks: str, between: str = "Then:") -> str:
    return f"\n{between}\n".join(f"```bash\n{each}\n```" for each in (INSTALL, *blocks))


WRONG: dict[str, tuple[str, str]] = {  # a guide, and its fix
    "in one block": (_blocks("cd parts\ncd viewer && pip install -e ."), "Use cd ../viewer."),
    "a step that returns": (
        _blocks("cd parts\ncd one && pip install -e . && cd ..", "cd viewer && pip install -e . && cd .."),
        "Use cd ../viewer.",
    ),
    "a path from the root": (
        _blocks("cd parts", "cd parts/two && pip install -e . && cd ..", between="## 2. Step"), "Use cd two.",
    ),
    "after a clone of the project": (
        _blocks("git clone https://github.com/a/Project\ncd Project/parts\ncd viewer"), "Use cd ../viewer.",
    ),
    "a wrong letter": (_blocks("cd uitls/speech\nwget https://a.b/c"), "Use cd utils/speech."),
    "a hidden directory": (_blocks("cd ~/.simulator\nwget https://a.b/c.tar.gz"), "Run mkdir -p ~/.simulator first."),
    "a download": (_blocks("cd weights\ngit lfs install\ngit clone https://a.b/c/d"), "Run mkdir -p weights first."),
    "a download into two directories": (
        _blocks("cd datasets/raw\nwget https://a.b/c.zip"), "Run mkdir -p datasets/raw first.",
    ),
    "a download below a directory": (_blocks("cd parts/models\ngdown 1abc"), "Run mkdir -p parts/models first."),
    "two home directories": (_blocks("mkdir -p ~/${HOME}/models"), "Use ~/models."),
}  # fmt: skip
SOUND: dict[str, str] = {
    "steps from the root": _blocks("cd parts\npip install -e .", "cd viewer\npip install -e ."),
    "another section": _blocks("cd parts", "cd viewer && cd ..", between="## Viewer"),
    "a return": _blocks("cd parts\npip install -e .\ncd ..\ncd viewer"),
    "a relative path": _blocks("cd parts/one\ncd ../two && cd ../../viewer"),
    "a subshell": _blocks("(cd parts && pip install -e .)\ncd viewer"),
    "a script with a cd": _blocks("bash utils/enter.sh\ncd viewer"),
    "a clone of another project": _blocks("git clone https://github.com/a/other\ncd other\ncd viewer"),
    "a directory that a step makes": _blocks("mkdir -p parts/viewer\ncd parts\ncd viewer"),
    "the package of the same name": _blocks("git clone https://github.com/a/Project\ncd Project\ncd project"),
    "a variable": _blocks("cd parts\ncd $DIR\ncd viewer"),
    "a placeholder": _blocks("cd path/to/utls"),
    "a letter of the clone": _blocks("cd Projects\npip install -e ."),
    "a usual directory": _blocks("cd ~/.cache\nwget https://a.b/c"),
    "a directory that a step made": _blocks("mkdir -p ~/.simulator\ncd ~/.simulator\nwget https://a.b/c"),
    "a directory of the text": "Create ~/.simulator.\n" + _blocks("cd ~/.simulator\nwget https://a.b/c"),
    "a download into a directory of a step": _blocks("mkdir weights", "cd weights\nwget https://a.b/c"),
    "a download into a directory of the text": "Create a folder weights.\n"
    + _blocks("cd weights\nwget https://a.b/c"),
    "a download into an archive": _blocks("unzip weights.zip\ncd weights\nwget https://a.b/c"),
    "a download into a directory of the reader": _blocks("cd your_folder\nwget https://a.b/c"),
    "a download into a directory that is elsewhere": _blocks("cd speech\nwget https://a.b/c"),
    "a directory without a download": _blocks("cd weights\nls"),
    "a directory of another project": _blocks("git clone https://a.b/c/other\ncd other\nwget https://a.b/c"),
    "an expansion": _blocks("mkdir -p ${ROOT/#\\~/$HOME}/models"),
}


@each_case("name", [*WRONG])
def test_a_directory_that_is_elsewhere(name: str, clone: Path) -> None:
    text, fix = WRONG[name]
    found = _found(clone, text)
    assert [each.fix for each in found] == [fix]
    corrected = correct_lines(text, "guide", found).text
    assert not _found(clone, corrected), corrected


@each_case("name", [*SOUND])
def test_a_directory_that_exists(name: str, clone: Path) -> None:
    (clone / "utils/enter.sh").write_text("cd parts\n")
    assert not _found(clone, SOUND[name])


def test_indented_code_that_begins_with_cd(clone: Path) -> None:
    first = f"1.install\n\n    {INSTALL}\n    cd parts\n\n---\n\n"
    text = f"{first}2.viewer\n\n    cd viewer && pip install -e . && cd ..\n"
    assert [each.fix for each in _found(clone, text)] == ["Use cd ../viewer."]


def test_a_directory_with_a_blank_is_quoted(clone: Path) -> None:
    (clone / "third party/one").mkdir(parents=True)
    (clone / "third party/one/setup.py").write_text("\n")
    (finding,) = _found(clone, _blocks('cd "third partty"\nwget https://a.b/c'))
    assert finding.fix == "Use cd 'third party'."


CLONES = (
    "git clone <address>", "git clone https://github.com/your-name/tool.git", "git clone YOUR_REPO_URL",
    "git clone https://github.com/<user>/tool", "git clone [repo-url]",
)  # fmt: skip


@each_case("clone", [*CLONES])
def test_a_clone_of_an_address_that_a_reader_replaces(clone: str, tmp_path: Path) -> None:
    """The package of the project has its name: `cd tool` enters the clone, and not the package."""
    root = tmp_path / "checkout"
    files = {"tool/__init__.py": "", "src/train.py": "", "requirements.txt": "numpy\n", ".git/HEAD": ""}
    write_files(root, files)
    text = sh(clone, "cd tool", "pip install -r requirements.txt", "pip install -r requirements-dev.txt", "cd src")
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, NoSolver()).result.findings
    assert [(each.id, each.line) for each in found if each.id in ("RUN217", "RUN207")] == [("RUN207", 6)]


HOMES = {  # a command, and whether its path is in the home of another person
    "export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/home/alice/.mujoco/bin": True,
    "$ export PATH=/Users/alice/miniconda3/bin:$PATH": True,
    "export PATH=/home/ubuntu/bin:$PATH": False,
    "export PATH=/home/username/bin:$PATH": False,
    "export PATH=$HOME/bin:$PATH": False,
    "export DATA=/home/alice/data": False,
    "sudo useradd alice && export PATH=/home/alice/bin:$PATH": False,
    "# for alice\nexport PATH=/home/alice/bin:$PATH": False,
}


@each_case("command", [*HOMES])
def test_a_search_path_in_the_home_of_another_person(command: str, clone: Path) -> None:
    found = _found(clone, sh("pip install torch==2.8.0", *command.split("\n")))
    assert [each.fix.startswith("Write $HOME in place of /") for each in found] == [True] * HOMES[command]
