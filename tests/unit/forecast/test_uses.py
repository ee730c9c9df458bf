"""What Python files use of other packages, and which uses are guarded."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.forecast.uses import FileKey, FileUses, read_uses


def uses_of(source: str, path: str = "own/a.py") -> set[str]:
    found = read_uses([path, "own/__init__.py"], {path: source, "own/__init__.py": ""}.__getitem__)
    return {
        f"{use.module}:{use.name}" + (f"({use.argument}=)" if use.argument else "") + ("?" if use.is_deferred else "")
        for use in found.uses
    }


@each_case(
    ("source", "expected"),
    [
        ("import lib.core as c\nc.make(size=1)", {"lib.core:", "lib.core:make", "lib.core:make(size=)"}),
        ("import lib.core\nlib.core.make()", {"lib.core:", "lib:core.make"}),
        ("from lib.core import make as m\nm(size=1)", {"lib.core:make", "lib.core:make(size=)"}),
        ("def f():\n    from lib import x\n    x.y.z", {"lib:x?", "lib:x.y.z?"}),
        ("import os\nfrom own import b\nfrom . import c", set()),
        ("from lib import *", {"lib:"}),
        ("try:\n    from lib import x\nexcept ImportError:\n    from lib import y", set()),
        ("try:\n    import lib as c\n    y = c.x\nexcept ImportError:\n    pass", {"lib:x"}),
        ("try:\n    import lib as c\n    y = c.x\nexcept (ImportError, AttributeError):\n    pass", set()),
        ("try:\n    import lib.core as c\n    y = c.x\nexcept ImportError:\n    pass", set()),
        ("try:\n    from lib import core\n    y = core.x\nexcept ImportError:\n    pass", set()),
        ("try:\n    import lib\nexcept ImportError:\n    lib = None\nelse:\n    lib.x", set()),
        ("try:\n    from lib import x\nexcept KeyError:\n    pass", {"lib:x"}),
        ("try:\n    from lib import x\nfinally:\n    pass", {"lib:x"}),
        ("import lib\nlib.part.name = 1\nlib.other = 2", {"lib:", "lib:part"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lib import x", set()),
        ("import lib\nif lib.__version__ >= '2':\n    lib.x", {"lib:", "lib:__version__"}),
        ("import lib\nif hasattr(lib, 'x'):\n    lib.x", {"lib:"}),
        ("import lib\ny = lib.x if hasattr(lib, 'x') else None", {"lib:"}),
        ("import lib\ny = hasattr(lib, 'x') and lib.x", {"lib:"}),
        ("if is_lib_available():\n    from lib import x", {"lib:x"}),
        ("if is_other_available():\n    from lib import x", set()),
        ("from contextlib import suppress\nwith suppress(ImportError):\n    import lib", set()),
        ("with LazyImport('pip install lib') as lib_import:\n    from lib import x", set()),
        ("with optuna._imports.try_import() as _imports:\n    from lib import x", set()),
        ("with warnings.catch_warnings():\n    from lib import x", {"lib:x"}),
        ("with open('import.txt'):\n    from lib import x", {"lib:x"}),
        ("from lib import x\nx = 1\nx.name", {"lib:x"}),
        ("from lib import x\n@x.wrap(key=1)\ndef f(a=x.d): pass",
         {"lib:x", "lib:x.wrap", "lib:x.wrap(key=)", "lib:x.d"}),
    ],
)  # fmt: skip
def test_uses(source: str, expected: set[str]) -> None:
    assert uses_of(source) == expected


def test_tests_of_packages_are_left_out_and_files_that_do_not_parse_are_named() -> None:
    files = {
        "own/tests/t.py": "import lib",
        "own/b.py": "import lib\nprint 'x'",
        "own/a.py": "import lib\nq.attribute_name",
    }
    found = read_uses(files, files.__getitem__)
    assert {use.file for use in found.uses} == {"own/a.py"}
    assert found.unparsed == ("own/b.py",)
    assert [(each.file, each.tops, each.lines) for each in found.attributes] == [
        ("own/a.py", ("lib",), {"attribute_name": 2}),
    ]
    assert {use.file for use in read_uses(files, files.__getitem__, is_user_code=True).uses} == {
        "own/a.py", "own/tests/t.py",
    }  # fmt: skip


def test_a_file_that_a_release_does_not_change_is_parsed_once() -> None:
    old = {"own/a.py": "import lib\nlib.first", "own/b.py": "import lib\nlib.second"}
    new = {**old, "own/b.py": "import lib\nlib.third"}
    known: dict[FileKey, FileUses] = {}
    read_uses(old, old.__getitem__, known=known)
    files = list(known)
    found = read_uses(new, new.__getitem__, known=known)
    assert [use.name for use in found.uses] == ["", "first", "", "third"]
    assert found == read_uses(new, new.__getitem__)
    assert [path for path, *_ in list(known)[len(files) :]] == ["own/b.py"]
