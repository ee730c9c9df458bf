"""The names that modules of a checkout can have."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.program_imports import audit_imports
from support.text_files import write_files

from envdoctor.manifests.own_modules import nested_modules, own_modules


@each_case("paths, own", [
    ("deepspeed deepspeed/zero2.json", False),  # configurations alone
    ("deepspeed deepspeed/conf deepspeed/conf/zero2.yaml", False),
    ("deepspeed deepspeed/kernels deepspeed/kernels/a.py", True),
    ("third_party third_party/deepspeed", True),  # a submodule without its files
    ("tools tools/deepspeed.py", True),
    ("deepspeed.json", False),
])  # fmt: skip
def test_a_folder_can_be_a_module(paths: str, own: bool) -> None:
    assert ("deepspeed" in own_modules(frozenset(paths.split()), lambda _: "")) is own


@each_case("paths, nested", [
    ("models models/transformers.py", True),
    ("models models/transformers.py transformers.py", False),
    ("lib lib/transformers lib/transformers/__init__.py", False),  # a copy of the package
    ("models models/__init__.py models/transformers", True),
    ("models models/plots.py", False),  # can be meant with another search path
    ("lib lib/datasets.py", False),
])  # fmt: skip
def test_a_module_below_the_top(paths: str, nested: bool) -> None:
    names = {"transformers", "plots", "datasets"}
    assert bool(names & nested_modules(frozenset(paths.split()))) is nested


FILES = {
    "train.py":
        "import torch, numpy\nfrom models.unet import Net\nimport deepspeed\nfrom transformers import AutoModel\n",
    "models/unet.py": "import torch\nfrom .transformers import Block\n", "models/transformers.py": "import torch\n",
    "deepspeed/zero.json": "{}",
}  # fmt: skip


def test_imports_with_the_names_of_other_files(checkout: Path) -> None:
    write_files(checkout, FILES)
    text = sh("pip install torch==2.8.0 numpy", "python train.py")
    found = audit_imports(checkout / "README.md", text, numpy="2.0")
    assert [each.message.partition(",")[0] for each in found] == ["train.py:4 imports transformers"]
    write_files(checkout, {"train.py": f"import sys\nsys.path.append('models')\n{FILES['train.py']}"})
    assert not audit_imports(checkout / "README.md", text, numpy="2.0")


@each_case("code, start, message", [
    ("from kaggle_secrets import UserSecretsClient", "# Demo", "imports kaggle_secrets, which only Kaggle has"),
    ("from google.colab import drive", "# Demo", "imports google.colab, which only Google Colab has"),
    ("from kaggle_secrets import UserSecretsClient", "# Run it on Kaggle", "imports kaggle_secrets"),
    ("import json", "# Demo", ""),
    ("try:\n    from kaggle_secrets import UserSecretsClient\nexcept ImportError:\n    pass", "# Demo", ""),
])  # fmt: skip
def test_modules_that_only_a_service_has(code: str, start: str, message: str, checkout: Path) -> None:
    write_files(checkout, {"login.py": f"import torch\n{code}\n", "train.py": "import torch, login\n"})
    text = sh("pip install torch==2.8.0", "python train.py", title=start)
    found = audit_imports(checkout / "README.md", text)
    assert [message in each.message for each in found] == ([True] if message else [])
    assert [each.status for each in found] == ([("warning" if "Kaggle" in start else "error")] if message else [])
