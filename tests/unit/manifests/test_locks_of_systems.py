"""Packages of a lock of Poetry 1 that are for other systems."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.core.decoding import parse_toml
from envdoctor.manifests.inputs.locks import poetry_sets

LOCK = """
[[package]]
name = "core"
version = "5.0.0"
python-versions = ">=3.8"

[package.dependencies]
pywin32 = {{version = ">=1.0", markers = "{marker}"}}
traitlets = "*"

[[package]]
name = "pywin32"
version = "305"
python-versions = "*"

[[package]]
name = "traitlets"
version = "5.1"
python-versions = "*"

[metadata]
lock-version = "1.1"
python-versions = "^3.9"
"""


@each_case(
    ("marker", "is_locked"),
    [
        ("sys_platform == 'win32' and platform_python_implementation != 'PyPy'", False),
        ("sys_platform != 'darwin'", True),
        ("python_version < '3.12'", True),
    ],
)
def test_a_package_that_others_require_on_another_system_only(marker: str, is_locked: bool) -> None:
    text = LOCK.format(marker=marker)
    data = parse_toml(text, source="poetry.lock", expected="", hint="")
    for found in poetry_sets(data, text, "x86_64"):
        names = {each.name for each in found.packages}
        assert ("pywin32" in names, "traitlets" in names) == (is_locked, True)
