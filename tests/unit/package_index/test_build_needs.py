"""What an isolated build of a source archive lacks, by its setup.py and pyproject.toml."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.package_index.build_needs import build_system, missing_build_modules, needs_rust, source_requires
from envdoctor.package_index.source_archive import SourceArchive

BACKEND = '\nbuild-backend = "setuptools.build_meta"\n'

CASES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "pkg_resources of setuptools 82": ("import pkg_resources", "", "3.10", ("pkg_resources",)),
    "Python 3.8 has an older setuptools": ("import pkg_resources", "", "3.8", ()),
    "a capped setuptools": ("import pkg_resources", '[build-system]\nrequires = ["setuptools<81"]', "3.10", ()),
    "an open setuptools": (
        "import pkg_resources", '[build-system]\nrequires = ["setuptools>=61"]', "3.10", ("pkg_resources",)
    ),
    "torch and numpy": ("import numpy\nfrom torch.utils import cpp_extension", "", "3.12", ("numpy", "torch")),
    "declared": ("import numpy", '[build-system]\nrequires = ["setuptools", "numpy>=1"]' + BACKEND, "3.12", ()),
    "another backend": ("import torch", '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"',
                        "3.12", ()),
    "guarded": ("try:\n    import torch\nexcept ImportError:\n    pass\nif x:\n    import numpy", "", "3.12", ()),
    "in a function that is called": (
        "def extensions():\n    import torch\nsetup(ext_modules=extensions())", "", "3.12", ("torch",)
    ),
    "in a function that is not called": ("def extensions():\n    import torch\n", "", "3.12", ()),
    "own modules": ("import helpers\nimport version", "", "3.12", ()),
    "what setuptools brings": ("from packaging.version import Version\nimport wheel.wheelfile", "", "3.12", ()),
    "a setuptools without it": (
        "import packaging", '[build-system]\nrequires = ["setuptools<70"]' + BACKEND, "3.12", ("packaging",)
    ),
    "setuptools of Python 3.7": ("import packaging", "", "3.7", ("packaging",)),
    "standard library": ("import os, setuptools, distutils.core\nfrom wheel import bdist_wheel", "", "3.12", ()),
}  # fmt: skip


@each_case("name", [*CASES])
def test_modules_that_an_isolated_build_lacks(name: str) -> None:
    setup, pyproject, python, expected = CASES[name]
    texts = {"setup.py": setup} | ({"pyproject.toml": pyproject} if pyproject else {})
    archive = SourceArchive("sample-1.0.tar.gz", ("setup.py", "helpers.py", "sample/version.py"), texts)
    assert tuple(module for module, _ in missing_build_modules(archive, python)) == expected


def test_a_damaged_pyproject_counts_as_none() -> None:
    assert build_system("[build-system") == build_system("") == build_system("[build-system]\nrequires = 3")


def test_the_requirements_that_an_archive_lists() -> None:
    listed = "one>=1\ntwo\n\n[:python_version < '3.9']\nthree\n\n[extra]\nfour\n"
    archive = SourceArchive("a-1.tar.gz", (), {"a.egg-info/requires.txt": listed})
    assert source_requires(archive) == ("one>=1", "two", "three; python_version < '3.9'")
    assert source_requires(SourceArchive("a-1.tar.gz", (), {})) == ()


def test_a_build_that_compiles_rust() -> None:
    for requires, expected in (
        ('["setuptools", "setuptools-rust"]', True),
        ('["maturin>=1,<2"]', True),
        ("[]", False),
    ):
        text = f"[build-system]\nrequires = {requires}\n"
        assert needs_rust(SourceArchive("a-1.tar.gz", (), {"pyproject.toml": text})) is expected
