"""Overrides with which commands start programs of Hydra, against the configuration of the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding

PROGRAM = """import hydra
@hydra.main(version_base=None, config_path="../configs", config_name="config")
def main(config):
    pass
main()
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    files = {
        ".git/config": "",
        ".gitignore": "configs/model/local.yaml\n",
        "src/train.py": PROGRAM,
        "configs/config.yaml": "defaults:\n  - model: base\nlr: 0.1\nmodel:\n  sizes: {width: 3}\n",
        "configs/model/base.yaml": "block_name: a\nlayers: 3\n",
        "configs/model/large/wide.yaml": "layers: 9\n",
    }
    write_files(tmp_path, files)
    return tmp_path


def _found(clone: Path, words: str) -> list[Finding]:
    text = sh("pip install torch==2.8.0", f"python src/train.py {words}")
    (clone / "README.md").write_text(text)
    found = audit_text(text, str(clone / "README.md"), None, None).result.findings
    return [each for each in found if each.id == "RUN233"]


REFUSED = {  # overrides, and a part of the fix
    "model=bases": "Use base, if",
    "model=large/wider": "Use large/wide",
    "model.block=B": "Use the key block_name",
    "lr=1 momentum=0.9": "+momentum=0.9",
    "model.sizes.widht=4": "Use the key width",
    "--config-name=other": "Use one of config",
    "--config-name other": "Use one of config",
}
ACCEPTED = (
    "model=base", "model=base.yaml", "model=large/wide", "model.block_name=B", "lr=1", "+momentum=0.9",
    "++momentum=1", "~model.layers", "model.sizes.width=4", "--config-name=config", "--config-name config",
    "hydra.run.dir=x", "model=null", "model=$MODEL", "model=your_model", "model=NAME", "model=base,other -m",
    "--config-dir=own model=other", "model=local", "model.sizes.0=4", "model@other=base", "model=<name>", "...",
    "--config-path own --config-name other",
)  # fmt: skip


@each_case("words", [*REFUSED])
def test_an_override_that_hydra_refuses(words: str, clone: Path) -> None:
    assert [(each.line, each.status, REFUSED[words] in each.fix) for each in _found(clone, words)] == [
        (4, "error", True)
    ]


@each_case("words", list(ACCEPTED))
def test_an_override_that_hydra_accepts_or_that_is_not_known(words: str, clone: Path) -> None:
    assert not _found(clone, words)


OTHERS = {
    "a configuration in code": PROGRAM + "from hydra.core.config_store import ConfigStore\n",
    "a folder that is computed": PROGRAM.replace('"../configs"', "find()"),
    "another decorator": PROGRAM.replace("hydra.main", "other.main"),
}


@each_case("name", [*OTHERS])
def test_a_configuration_that_is_not_known(name: str, clone: Path) -> None:
    (clone / "src/train.py").write_text(OTHERS[name])
    assert not _found(clone, "model=bases momentum=0.9")


def test_a_folder_below_the_root(clone: Path) -> None:
    (clone / "src/train.py").write_text(PROGRAM.replace('"../configs"', 'f"{root}/configs"'))
    assert len(_found(clone, "model=bases")) == 1


SENTENCES = {  # a sentence, and whether it selects a file that is not there
    "For the other loss, just pass `model=bases` (same as with base).": True,
    "Use `model=bases` and `lr=1`.": True,
    "Create `configs/model/bases.yaml` and pass `model=bases`.": False,
    "Pass `model=base`, `lr=bases` or `model=some_model`.": False,
    "The option `model=bases` was removed.": False,
}


@each_case("sentence", [*SENTENCES])
def test_a_sentence_selects_a_file(sentence: str, clone: Path) -> None:
    text = sh("pip install torch==2.8.0", "python src/train.py model=base") + f"\n{sentence}\n"
    (clone / "README.md").write_text(text)
    found = audit_text(text, str(clone / "README.md"), None, None).result.findings
    assert [each.status for each in found if each.id == "RUN233"] == ["warning"] * SENTENCES[sentence]
