"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import gc
import importlib
import re

from support.paths import PACKAGE

from envdoctor.core.patterns import _LazyPattern, lazy_pattern


def test_a_lazy_pattern_has_the_methods_of_a_pattern() -> None:
    lazy = lazy_pattern(r"(?P<name>[a-z]+)-(\d+)", re.IGNORECASE)
    compiled = re.compile(r"(?P<name>[a-z]+)-(\d+)", re.IGNORECASE)
    assert isinstance(lazy, _LazyPattern)
    for _ in range(2):  # at first use and later
        assert lazy.findall("A-1 b-2") == compiled.findall("A-1 b-2")
        assert lazy.sub("x", "A-1 b") == "x b"
        assert lazy.groupindex == compiled.groupindex
    assert (lazy.pattern, lazy.flags) == (compiled.pattern, compiled.flags)


def test_every_lazy_pattern_compiles() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(PACKAGE / "probes")]
    for path in files:
        if path.name != "__main__.py":
            importlib.import_module(
                ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            )
    gc.unfreeze()  # a command in this process has frozen its objects, which get_objects leaves out
    patterns = [each for each in gc.get_objects() if isinstance(each, _LazyPattern)]
    assert len(patterns) > 1_000
    for each in patterns:
        assert re.compile(*each._source).pattern == each.pattern


def test_modules_do_not_compile_patterns_when_they_are_imported() -> None:
    eager = re.compile(r"^[A-Za-z_]\w*(?:: [^=\n]+)? = re\.compile\(\s*[rf]{0,2}[\"']", re.MULTILINE)
    files = [path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(PACKAGE / "probes")]
    assert [str(path) for path in files if eager.search(path.read_text())] == []
