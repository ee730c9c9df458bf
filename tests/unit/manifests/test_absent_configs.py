"""Configuration files that commands pass to programs of a checkout, and that it does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in (".git/config", "train.py", "tools/measure.py", "tools/local.yaml", "configs/pretrain.yaml",
                 "fsdp.yaml", "configs/ds/zero2.json", "configs/a/base.yaml", "data/list.json"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n")
    (tmp_path / ".gitignore").write_text("configs/local.yaml\n")
    return tmp_path


def _found(clone: Path, *commands: str, guide: str = "README.md") -> list[Finding]:
    text = sh("pip install torch==2.8.0", *commands)
    (clone / guide).write_text(text)
    found = audit_text(text, str(clone / guide), None, None).result.findings
    return [each for each in found if each.id == "RUN218"]


ABSENT = {  # a command, and a part of the fix
    "another case": ("python train.py --config ./configs/Pretrain.yaml", "Use configs/pretrain.yaml"),
    "an argument without an option": ("torchrun train.py configs/pretrained.yaml", "Use configs/pretrain.yaml"),
    "a value after =": ("deepspeed train.py --deepspeed=configs/ds/zero3.json", "Use configs/ds/zero2.json"),
    "another inner folder": ("python train.py --cfg configs/b/base.yaml", "Use configs/a/base.yaml"),
    "no file is alike": ("python train.py --config configs/other/unlike.yaml", "Name a file of the checkout"),
    "a folder in the singular": ("python train.py ./config/pretrain.yaml", "Use configs/pretrain.yaml"),
    "an abbreviated folder": ("python train.py --config conf/a/base.yaml", "Use configs/a/base.yaml"),
    "an option of another file": ("python train.py --ds_config config/ds/zero2.json", "Use configs/ds/zero2"),
    "another suffix": ("python train.py --config configs/pretrain.yml", "Use configs/pretrain.yaml"),
    "an option of a launcher": ("nohup accelerate launch --config_file fsdp.yml train.py", "Use fsdp.yaml"),
    "a letter": ("cd tools && python measure.py --config locl.yaml", "Use tools/local.yaml"),
}
PRESENT: dict[str, tuple[str, ...]] = {
    "a file": ("python train.py --config configs/pretrain.yaml",),
    "next to the program": ("python tools/measure.py --config local.yaml",),
    "of the reader": ("python train.py --config config.yaml",),
    "a placeholder": ("python train.py --config configs/your_config.yaml",),
    "the name of a scene": ("python train.py --config configs/scene_name.yaml",),
    "a copy": ("cp configs/pretrain.yaml configs/own.yaml", "python train.py --config configs/own.yaml"),
    "an output": ("python train.py --save_config configs/out.yaml",),
    "a data set": ("python train.py --data data/other.json",),
    "another program": ("other-train --config configs/other.yaml", "python absent.py --config configs/other.yaml"),
    "another folder": ("python train.py --config experiments/other.yaml",),
    "a variable": ("python train.py --config configs/$NAME.yaml",),
    "a file that git ignores": ("python train.py --config configs/local.yaml",),
    "a file that the text shows": ("python train.py --config configs/own.yaml\n```\n```yaml\n# own.yaml\na: 1",),
    "a folder of a reader with another file": ("python train.py --config config/own.yaml",),
    "a folder of another name": ("python train.py --config settings/pretrain.yaml",),
    "a folder that is made": ("cp -r configs config", "python train.py config/pretrain.yaml"),
    "options of launchers": (
        "accelerate launch --config_file fsdp.yaml train.py",
        "accelerate launch --config_file own.yml train.py",
    ),
    "a file that accelerate writes": (
        "accelerate config --config_file fsdp.yml",
        "accelerate launch --config_file fsdp.yml train.py",
    ),
    "an absolute path": ("python train.py --config /opt/configs/a.yaml",),
}


@each_case("name", [*ABSENT])
def test_a_configuration_file_that_does_not_exist(name: str, clone: Path) -> None:
    command, fix = ABSENT[name]
    assert [(each.line, each.status, fix in each.fix) for each in _found(clone, command)] == [(4, "error", True)]


@each_case("name", [*PRESENT])
def test_a_configuration_file_that_exists_or_is_made(name: str, clone: Path) -> None:
    assert not _found(clone, *PRESENT[name])


def test_a_folder_can_be_a_part_of_a_checkout(clone: Path) -> None:
    (clone / ".git/config").unlink()
    (clone / ".git").rmdir()
    assert not _found(clone, ABSENT["another case"][0], guide="SETUP.md")
    assert _found(clone, ABSENT["another case"][0])  # a README next to code: an unpacked archive


def test_a_script_is_audited_alone(clone: Path) -> None:
    text = "#!/bin/bash\nset -e\nnohup accelerate launch \\\n  --config_file fsdp.yml train.py\n"
    (clone / "run.sh").write_text(text)
    found = audit_text(text, str(clone / "run.sh"), None, None).result.findings
    assert [(each.line, each.fix) for each in found if each.id == "RUN218"] == [
        (4, "Use fsdp.yaml, if it is the file that is meant.")
    ]
