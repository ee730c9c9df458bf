"""Source packages with a C extension and their own build backend (PEP 517), which calls the C compiler."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

# Compiled in: MAX_JOBS of the build and what it was built against, so that a test sees what the build saw.
SOURCE = """\
#include <Python.h>
static PyObject *jobs(PyObject *self, PyObject *none) { return PyLong_FromLong(JOBS); }
static PyObject *against(PyObject *self, PyObject *none) { return PyUnicode_FromString(AGAINST); }
static PyMethodDef methods[] = {{"jobs", jobs, METH_NOARGS, ""}, {"against", against, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "MODULE", "", -1, methods};
PyMODINIT_FUNC PyInit_MODULE(void) { return PyModule_Create(&module); }
"""

BACKEND = '''\
import importlib.metadata
import os
import subprocess
import sysconfig
import zipfile
from pathlib import Path

NAME, MODULE, VERSION, REQUIRES = {name!r}, {module!r}, {version!r}, {requires!r}


def against():
    """The packages in the build environment."""
    for name in ("torch",):
        try:
            return name + " " + importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "nothing"


def build_wheel(folder, config_settings=None, metadata_directory=None):
    Path(os.environ.get("BUILD_COUNTER", os.devnull)).open("a").write("built\\n")
    library = MODULE + sysconfig.get_config_var("EXT_SUFFIX")
    subprocess.run(["gcc", "-shared", "-fPIC", "-I", sysconfig.get_path("include"), "-o", library, "module.c",
                    "-DJOBS=" + os.environ.get("MAX_JOBS", "0"), '-DAGAINST="%s"' % against()], check=True)
    python = "cp" + sysconfig.get_config_var("py_version_nodot")
    tag = python + "-" + python + "-" + sysconfig.get_platform().replace("-", "_")
    info = MODULE + "-" + VERSION + ".dist-info"
    metadata = "Metadata-Version: 2.1\\nName: " + NAME + "\\nVersion: " + VERSION + "\\n"
    files = {{
        library: Path(library).read_bytes(),
        info + "/METADATA": metadata + "".join("Requires-Dist: " + each + "\\n" for each in REQUIRES),
        info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: false\\nTag: " + tag + "\\n",
    }}
    files[info + "/RECORD"] = "".join(name + ",,\\n" for name in files) + info + "/RECORD,,\\n"
    name = "-".join((MODULE, VERSION, tag)) + ".whl"
    with zipfile.ZipFile(Path(folder, name), "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return name
'''


def write_sdist(
    folder: Path, name: str, version: str, *, requires: Iterable[str] = (), source: str = SOURCE, start: str = ""
) -> Path:
    """Write a source distribution with one C extension, without building it. `start`: code that its build runs."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": start + BACKEND.format(name=name, module=module, version=version, requires=list(requires)),
        "module.c": source.replace("MODULE", module),
    }
    path = folder / f"{module}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{module}-{version}/{file}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path
