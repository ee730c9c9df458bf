"""Names in the sources of a wheel: re-exports, lazy modules, star imports, members and arguments."""

from __future__ import annotations

import io
import zipfile

from support.cases import each_case

from envdoctor.package_index.python_library import Library
from envdoctor.package_index.wheel_sources import COMPILED_LIST, WheelSources

FILES = {
    "lib/__init__.py": (
        "from .core import Base, make as build\nfrom .stars import *\nfrom . import extra\nimport os\n"
    ),
    "lib/core.py": (
        "from ._native import fast\n"
        "class Root:\n    def __init__(self, a, *, b=1): self.state = a\n    def step(self): pass\n"
        "class Base(Root):\n    limit: int = 0\n"
        "class Open:\n    def __init__(self, **kwargs): pass\n"
        "def make(path, size=1): pass\n"
        "def _set():\n    global CACHE\n    CACHE = 1\n"
        "try:\n    import json as codec\nexcept ImportError:\n    codec = None\n"
        "if True:\n    def branch(): pass\n"
        "@deprecate_kwarg('old', new_name='new')\ndef renamed(new): pass\n"
        "def PublicAPI(*args, **kwargs):\n    def wrap(obj): return obj\n    return wrap\n"
        "def drops_old(\n    function\n):\n    def inner(*args, **kwargs):\n"
        "        kwargs.pop('old', None)\n        return function(*args, **kwargs)\n"
        "    return inner\n"
        "@drops_old\ndef dropping(new): pass\n@another.package\ndef decorated(new): pass\n"
        "class Dropping:\n    @drops_old\n    def __init__(self, new): pass\n"
        "@PublicAPI(stability='beta')\ndef stable(a): pass\n"
        "@dataclass\nclass Config:\n    name: str\n    rate: float = 0.1\n"
    ),
    "lib/stars.py": "from .deep.leaf import *\nstarred = 1\n",
    "lib/deep/leaf.py": "def leaf(): pass\n",
    "lib/extra.py": "value = 1\n",
    "lib/lazy/__init__.py": "_names = {'impl': ['Late']}\nimport sys\nsys.modules[__name__] = _LazyModule(_names)\n",
    "lib/lazy/impl.py": "class Late: pass\n",
    "lib/hub/__init__.py": (
        "_import_structure = {'impl': ['Model']}\n_import_structure['extra'].append('Loader')\n"
        "if TYPE_CHECKING:\n    from .impl import Model\n    from .parts import *\n"
        "    from .dummy_torch_objects import *\n"
        "else:\n    import sys\n"
        "    names = define_import_structure(Path(__file__).parent / 'parts', prefix='parts')\n"
        "    sys.modules[__name__] = _LazyModule(__name__, globals()['__file__'], names)\n"
    ),
    "lib/hub/impl.py": "class Model: pass\nclass Hidden: pass\n",
    "lib/hub/dummy_torch_objects.py": "class Substitute: pass\n",
    "lib/hub/parts/__init__.py": "",
    "lib/hub/parts/part.py": "@requires(backends=('torch',))\nclass Part: pass\n",
    "lib/hub/parts/other.py": "class Inner: pass\ndef other(): pass\n__all__ = ['other']\nvendored = 1  # Unlisted\n",
    "lib/patched/__init__.py": (
        "import sys\nsys.modules[__name__] = _LazyModule(__name__, globals()['__file__'], {})\n"
        "def __getattr__(name): return load(name)\n"
    ),
    "lib/patched/impl.py": "class Late: pass\n",
    "lib/aliases.py": "from .core import *\nset_aliases({'Former': 'lib.core.Base', 'make': 'lib.core.make'})\n",
    "lib/native_user.py": "from ._native import *\n",
    "lib/listed.py": "from .exports import *\nfrom .more_exports import *\n",
    "lib/exports.py": "from .core import make\n__all__ = [  # public\n    'shown',\n]\ndef shown(): pass\n",
    "lib/more_exports.py": "from .core import Base, Open\n__all__ = ['Base']\n__all__ += ['Open']\n",
    "shared/ours/leaf.py": "x = 1\n",
    "pack/__init__.py": "from pack.core import *\nfrom pack.core.tools import make as tools\nexec('')\n",
    "pack/core/__init__.py": "from pack.core import tools\n",
    "pack/core/tools.py": "def make(): pass\npieces = 1\n",
    "lib/copied.py": (
        "def load():\n    names = globals()\n    native = importlib.import_module('lib')\n"
        "    for key, value in native.__dict__.items():\n        names[key] = value\nload()\n"
    ),
    "lib/schema_pb2.py": "FLOAT = 3\n_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'schema_pb2', _names)\n",
}


def library() -> Library:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in FILES.items():
            archive.writestr(path, text)
        archive.writestr(COMPILED_LIST, "lib/_native.cpython-312-x86_64-linux-gnu.so")
    return Library(WheelSources("lib-1.0-py3-none-any.whl", zipfile.ZipFile(data)))


@each_case(
    ("module", "name", "state"),
    [
        ("lib", "Base", "present"), ("lib", "build", "present"), ("lib", "make", "absent"),
        ("lib.listed", "shown", "present"), ("lib.listed", "make", "absent"), ("lib.listed", "Open", "present"),
        ("lib", "leaf", "present"), ("lib", "starred", "present"), ("lib", "gone", "absent"),
        ("lib", "extra.value", "present"), ("lib", "extra.gone", "absent"), ("lib", "os.path", "unknown"),
        ("lib", "Base.step", "unknown"), ("lib", "Base.state", "unknown"), ("lib", "Base.vanished", "absent"),
        ("lib.core", "Root.step", "present"),
        ("lib.core", "fast", "present"), ("lib.core", "CACHE", "present"), ("lib.core", "codec", "present"),
        ("lib.core", "branch", "present"), ("lib.gone", "", "absent"), ("lib.gone", "name", "absent"),
        ("lib.deep.leaf", "", "present"), ("lib.deep", "gone", "absent"), ("lib._native", "any", "unknown"),
        ("lib.lazy", "Late", "unknown"), ("lib.lazy", "Vanished", "absent"), ("lib.native_user", "x", "unknown"),
        ("lib.copied", "encode", "unknown"), ("lib.copied", "load", "present"),
        ("other", "name", "unknown"), ("lib.aliases", "Former", "unknown"), ("lib.aliases", "make", "present"),
        ("lib.aliases", "gone", "absent"), ("shared.others", "", "unknown"), ("shared.ours", "gone", "absent"),
        ("lib.hub", "Model", "present"), ("lib.hub", "Loader", "unknown"), ("lib.hub", "Hidden", "absent"),
        ("lib.hub", "Substitute", "present"), ("lib.hub", "Part", "unknown"), ("lib.hub", "other", "present"),
        ("lib.hub", "Unlisted", "absent"), ("lib.hub", "parts", "present"), ("lib.patched", "Late", "present"),
        ("lib", "schema_pb2.FLOAT", "unknown"), ("lib.schema_pb2", "INT", "unknown"),
        ("lib", "schema_pb2", "present"), ("lib.gone_pb2", "", "absent"),
        ("pack", "tools", "present"), ("pack.tools", "make", "absent"), ("pack.pieces", "", "absent"),
    ],
)  # fmt: skip
def test_find(module: str, name: str, state: str) -> None:
    assert library().find(module, name).state == state


@each_case(
    ("name", "argument", "state"),
    [
        ("build", "size", "present"), ("build", "width", "absent"), ("core.Root", "b", "present"),
        ("core.Root", "c", "absent"), ("Base", "a", "unknown"), ("core.Open", "x", "unknown"),
        ("core.Config", "rate", "present"), ("core.Config", "speed", "absent"), ("gone", "x", "unknown"),
        ("core.renamed", "old", "present"), ("core.renamed", "other", "absent"), ("core.stable", "beta", "absent"),
        ("core.dropping", "old", "unknown"), ("core.dropping", "new", "present"), ("core.Dropping", "old", "unknown"),
        ("core.decorated", "old", "unknown"),
    ],
)  # fmt: skip
def test_accepts(name: str, argument: str, state: str) -> None:
    assert library().accepts("lib", name, argument).state == state


def test_what_is_defined() -> None:
    assert [library().defines(name) for name in ("step", "state", "limit", "Base", "kwargs")] == [
        True, True, True, True, False,
    ]  # fmt: skip
