"""Builds of source archives that fail with the build tools of today."""

from __future__ import annotations

import io
import tarfile

from support.cases import each_case

from envdoctor.package_index.build_failures import failures_of_build
from envdoctor.package_index.source_archive import _parse

SETUP = "from setuptools import Extension, setup\n{}\nsetup(name='sample'{})\n"
MODULE = "ext = [Extension('sample.core', [join('sample', 'core.pyx')])]"
BUILTINS = "__builtins__.__NUMPY_SETUP__ = False"
SOURCES = "self.cython_sources(ext.sources, ext)"
CYTHON = '[build-system]\nrequires = ["setuptools", "cython"]\nbuild-backend = "setuptools.build_meta"\n'
OLD_TOOLS = '[build-system]\nrequires = ["setuptools<58", "wheel"]\n'
LISTED = "sample.egg-info/requires.txt"
USES = "import inspect\nold = inspect.getargspec"
PYX = {"sample/core.pyx": ""}

# The body of setup.py, its further arguments, other files, and the part of a reason; empty if the build succeeds.
CASES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "a Cython module": (MODULE, "", PYX, "Cython for core.pyx"),
    "its C++ file": (MODULE, "", {**PYX, "sample/core.cpp": ""}, ""),
    "another module of that name": (MODULE, "", {"other/core.pyx": "", "other/core.c": ""}, ""),
    "Cython is declared": (MODULE, "", {**PYX, "pyproject.toml": CYTHON}, ""),
    "Cython in setup_requires": (MODULE, ", setup_requires=['numpy', 'Cython>=0.29']", PYX, ""),
    "another package in setup_requires": (MODULE, ", setup_requires=['numpy']", PYX, "Cython for core.pyx"),
    "setup_requires of a variable": (MODULE, ", setup_requires=needed", PYX, ""),
    "arguments of a variable": (MODULE, ", **arguments", PYX, ""),
    "only where Cython is installed": (f"if has_cython:\n    {MODULE}", "", PYX, ""),
    "Cython imported": (f"from Cython.Build import cythonize\n{MODULE}", "", PYX, ""),  # missing_build_modules
    "a method of an older Cython": (SOURCES, "", {"pyproject.toml": CYTHON}, "Cython 3"),
    "with that Cython": (SOURCES, "", {"pyproject.toml": CYTHON.replace('"cython"', '"cython<3"')}, ""),
    "without Cython": (SOURCES, "", {}, ""),
    "use_2to3": ("", ", use_2to3=True", {}, "use_2to3"),
    "use_2to3 is off": ("", ", use_2to3=False", {}, ""),
    "use_2to3 with its setuptools": ("", ", use_2to3=True", {"pyproject.toml": OLD_TOOLS}, ""),
    "an attribute of builtins": ("__builtins__.__NUMPY_SETUP__ = False", "", {}, "__builtins__.__NUMPY_SETUP__"),
    "a guarded one": (
        "if isinstance(__builtins__, dict):\n    __builtins__['A'] = 0\nelse:\n    __builtins__.A = 0", "", {}, "",
    ),
    "an invalid requirement": (
        "", ", extras_require={'a': ['vision>=3.']}", {LISTED: "[a]\nvision>=3.\n"}, "requires `vision>=3.`",
    ),
    "a valid requirement": ("", ", extras_require={'a': ['numpy>=1.18']}", {LISTED: "[a]\nnumpy>=1.18\n"}, ""),
    "an invalid requirement that setup.py does not state": ("", "", {LISTED: "opencv-python>=3.\n"}, ""),
    "only without Cython": (f"try:\n    import Cython\nexcept ImportError:\n    {BUILTINS}", "", {}, ""),
    "in a class": ("class B:\n    def f(self):\n        __builtins__.A = False", "", {}, "__builtins__.A"),
    "a removed name": (USES, "", {}, "uses inspect.getargspec, which Python 3.11"),
    "a removed name in a function": ("import inspect\ndef f():\n    return inspect.getargspec", "", {}, ""),
    "a removed name that is set before": (f"{USES[:15]}inspect.getargspec = f\n{USES[15:]}", "", {}, ""),
    "a removed name in a module next to it": (
        "import own", "", {"own.py": USES}, "imports own, which uses inspect.get",
    ),
    "a removed name in a package next to it": (
        "from own import version", "", {"own/__init__.py": USES}, "imports own",
    ),
    "a module that setup.py does not import": ("", "", {"own.py": USES}, ""),
    "a comparison": ("x = __builtins__.name == 'a'", "", {}, ""),
}  # fmt: skip


@each_case("name", [*CASES])
def test_builds_that_fail(name: str) -> None:
    body, arguments, files, expected = CASES[name]
    found = failures_of_build(_parse("sample-1.tar.gz", archive(SETUP.format(body, arguments), files)), "3.12")
    assert [expected in each.reason for each in found] == ([True] if expected else [])


@each_case(
    ("body", "python", "reason"),
    [
        ("import imp", "3.12", "imports imp, which Python 3.12 removed"), ("import imp", "3.11", ""),
        ("import imp", "", ""), ("try:\n    import imp\nexcept ImportError:\n    pass", "3.12", ""),
        ("import distutils", "3.12", ""),
    ],
)  # fmt: skip
def test_modules_that_python_removed(body: str, python: str, reason: str) -> None:
    found = failures_of_build(_parse("sample-1.tar.gz", archive(SETUP.format(body, ""), {})), python)
    assert [each.reason for each in found] == ([reason] if reason else [])


def archive(setup: str, files: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as written:
        for name, text in {"setup.py": setup, **files}.items():
            member = tarfile.TarInfo(f"sample-1/{name}")
            member.size = len(text.encode())
            written.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()
