"""The pages of a checkout to which its README links: found, and judged in the environment of the steps before."""

from __future__ import annotations

import os
from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit import AuditRequest, AuditsResult, run
from envdoctor.commands.audit_file import FileAudit, audit_text

PAGE = "docs/TRAIN.md"
INSTALLS = sh("pip install torch==2.8.0 transformers==4.57.1")
PROGRAM = "import torch\nimport peft\n"
START = sh("python train.py")


def audited_names(folder: Path) -> list[str]:
    data = run(AuditRequest(targets=(str(folder),), resolve="never")).data
    assert isinstance(data, AuditsResult)
    return [os.path.relpath(each.name, folder) for each in data.audits]


@each_case(
    ("label", "readme", "is_audited"),
    [
        ("a relative link", f"[training]({PAGE})\n", True),
        ("with a heading", f"[training](./{PAGE}#sft)\n", True),
        ("from the root", f"[training](/{PAGE})\n", True),
        ("in HTML", f'<a class="x" href="{PAGE}">training</a>\n', True),
        ("on GitHub", f"[training](https://github.com/owner/project/blob/main/{PAGE})\n", True),
        ("by way of another page", "[all pages](docs/index.md)\n", False),
        ("on another site", f"[training](https://example.org/{PAGE})\n", False),
        ("of another name", "[training](docs/TRAINING.md)\n", False),
        ("without a link", "docs/TRAIN.md\n", False),
    ],
)
def test_pages_to_which_a_readme_links_are_audited(tmp_path: Path, label: str, readme: str, is_audited: bool) -> None:
    pages = {PAGE: INSTALLS, "docs/index.md": "[training](TRAIN.md)\n"}
    write_files(tmp_path / label, pages | {"README.md": INSTALLS + readme})
    names = audited_names(tmp_path / label)
    assert names == (["README.md", PAGE] if is_audited else ["README.md"])


@each_case(
    ("name", "text"),
    [
        ("docs/CONTRIBUTING.md", INSTALLS),
        ("docs/MODELS.md", "The models, and what `pip install` of torch brings.\n"),
        ("docs/CHECK.md", f"vLLM 0.10.2 next to torch 2.9.0:\n{sh('python check.py')}"),
        ("third_party/other/README_other.md", INSTALLS),
        ("../outside.md", INSTALLS),
    ],
)
def test_pages_without_commands_for_users_are_not_audited(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / "checkout"
    write_files(folder, {name: text, "README.md": f"{INSTALLS}[page]({name})\n"})
    assert audited_names(folder) == ["README.md"]


def imports_of(audit: FileAudit) -> list[tuple[int, str]]:
    found = [each for each in audit.result.findings if "peft" in each.message]
    return [(each.line, each.status) for each in found]


def judged(folder: Path, name: str, files: dict[str, str]) -> FileAudit:
    write_files(folder, {"train.py": PROGRAM, "setup.cfg": "", **files})
    return audit_text((folder / name).read_text(), str(folder / name), None, None)


@each_case(
    ("label", "files", "packages"),
    [
        ("after the README", {"README.md": f"{INSTALLS}[training]({PAGE})\n"}, 2),
        ("before the steps of the README", {"README.md": f"[training]({PAGE})\n\n{INSTALLS}"}, 0),
        ("after another page", {"README.md": f"[first](INSTALL.md)\n[then]({PAGE})\n", "INSTALL.md": INSTALLS}, 2),
        ("before another page", {"README.md": f"[first]({PAGE})\n[then](INSTALL.md)\n", "INSTALL.md": INSTALLS}, 0),
        ("without a link", {"README.md": INSTALLS}, 0),
        (
            "with its own environment",
            {"README.md": f"{INSTALLS}[training]({PAGE})\n", PAGE: sh("conda create -n x python=3.11") + START},
            0,
        ),
    ],
)
def test_a_page_is_judged_after_the_steps_before_its_link(
    tmp_path: Path, label: str, files: dict[str, str], packages: int
) -> None:
    audit = judged(tmp_path / label, PAGE, {PAGE: START, **files})
    installed = (audit.stack.distributions.value or {}) if audit.stack else {}
    assert len(installed.keys() & {"torch", "transformers"}) == packages


def test_a_readme_that_installs_nothing_is_judged_after_the_page_before_its_programs(tmp_path: Path) -> None:
    readme = f"See [the installation](docs/INSTALL.md).\n\n{START}"
    audit = judged(tmp_path, "README.md", {"README.md": readme, "docs/INSTALL.md": INSTALLS})
    assert audit.stack
    assert {"torch", "transformers"} <= set(audit.stack.distributions.value or {})


def test_a_finding_of_a_page_and_its_environment_file_is_listed_once(tmp_path: Path) -> None:
    environment = "name: x\ndependencies:\n  - python=3.10\n  - pip\n  - pip:\n    - torch==1.12.1\n"
    files = {
        "environment.yml": environment, "docs/INSTALL.md": sh("conda env create -f environment.yml", title=""),
        "README.md": "# Project\n", "main.py": "", "LICENSE": "",
    }  # fmt: skip
    write_files(tmp_path, files)
    data = run(AuditRequest(targets=(str(tmp_path),), resolve="never")).data
    assert isinstance(data, AuditsResult)
    own, page = sorted(data.audits, key=lambda each: each.name, reverse=True)
    assert "RUN240" in {each.id for each in own.findings}
    assert "RUN240" not in {each.id for each in page.findings}
    assert page.elsewhere == (own.name,)
