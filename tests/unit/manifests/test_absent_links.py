"""Links of a guide to files that its checkout does not have: RUN285."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

FILES = {
    ".git/HEAD": "\n", ".gitignore": "local.yaml\n", "train.py": "\n", "notebooks/sampling.ipynb": "{}\n",
    "docs/install.md": "\n", "docs/deep/more.md": "\n", "configs/base.yaml": "\n",
}  # fmt: skip


def _found(root: Path, sentence: str, guide: str = "README.md") -> list[Finding]:
    write_files(root, FILES)
    text = sh("pip install torch==2.6.0", "git clone https://github.com/a/other") + f"\n{sentence}\n"
    (root / guide).write_text(text)
    found = audit_text(text, str(root / guide), None, NoSolver()).result.findings
    return [each for each in found if each.id == "RUN285"]


@each_case("sentence, status, end", [
    ("Open [it](notebooks/sample.ipynb).", "warning", "is not in the checkout; notebooks/sampling.ipynb is"),
    ("Follow [Install](install.md).", "warning", "is not in the checkout; docs/install.md is"),
    ("See [data](pdf2txt/README.md#use).", "info", "links pdf2txt/README.md, which is not in the checkout"),
    ("Run [it](./tools/convert.py).", "warning", "links tools/convert.py, which is not in the checkout"),
])  # fmt: skip
def test_a_link_leads_to_no_file(sentence: str, status: str, end: str, tmp_path: Path) -> None:
    (found,) = _found(tmp_path, sentence)
    assert (found.status, found.message.endswith(end)) == (status, True)


@each_case("sentence", [
    "[a](train.py) [b](train.py#L3) [c](https://a.b/c.py) [d](/docs/x.md) [e](../../issues.md) ![f](g.json)",
    "The [old script](tools/convert.py) was removed.", "[Docs](docs/new.md) are coming soon.",
    "Edit [yours](configs/local.yaml).", "[x](other/demo.ipynb)", "[x](path/to/file.py)", "<!-- [x](tools/a.py) -->",
    "[x](docs/)", "Create [x](configs/own.yaml).",
])  # fmt: skip
def test_a_link_that_is_right_or_not_certain(sentence: str, tmp_path: Path) -> None:
    assert _found(tmp_path, sentence) == []


def test_links_are_relative_to_the_guide(tmp_path: Path) -> None:
    assert _found(tmp_path, "[a](../train.py) [b](train.py) [c](deep/less.md)", "docs/use.md") == []
    assert len(_found(tmp_path, "[a](../tools/a.py)", "docs/use.md")) == 1


def test_the_commands_of_a_guide_run_in_the_root(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text('[remote "origin"]\n\turl = https://github.com/a/own.git\n')
    enters = "```sh\ngit clone https://github.com/a/own\ncd own\npython train.py\n```\n"
    assert _found(tmp_path, f"{enters}[a](install.md) [b](demo.ipynb)", "docs/use.md")[0].message.count("demo.ipynb")
    (tmp_path / "docs/demo.ipynb").write_text("{}")
    assert _found(tmp_path, f"{enters}[a](install.md) [b](demo.ipynb)", "docs/use.md") == []
