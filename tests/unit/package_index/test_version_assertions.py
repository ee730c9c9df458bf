"""The releases of other packages that a module accepts at its import."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.package_index.version_assertions import accepted_releases

HEAD = "import base\nMINIMUM = '2.0'\nMAXIMUM = '2.2'\nfound = parse(base.__version__)\n"
RANGE = "found >= parse(MINIMUM) and found < parse(MAXIMUM)"
SOURCES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "an assertion": (f"{HEAD}assert {RANGE}, 'message'\n", [("base", ">=2.0,<2.2")]),
    "a chain": (f"{HEAD}assert parse('2.0') <= found < parse('2.2')\n", [("base", ">=2.0,<2.2")]),
    "a raise": (f"{HEAD}if not ({RANGE}):\n    raise ImportError\n", [("base", ">=2.0,<2.2")]),
    "one of two conditions": (
        f"{HEAD}if found < parse('2.0') or found >= parse('2.2'):\n    raise ImportError\n", [("base", ">=2.0,<2.2")],
    ),
    "require_version": ("require_version('base>=2', 'message')\n", [("base", ">=2")]),
    "in a function": (f"{HEAD}def f():\n    assert found < parse('1')\n", []),
    "with another condition": (f"{HEAD}assert found < parse('2.2') or ready()\n", []),
    "both conditions of a raise": (f"{HEAD}if found < parse('2.0') and old():\n    raise ImportError\n", []),
    "a replaced name": (f"{HEAD}found = other()\nassert found < parse('2.2')\n", []),
    "a warning": (f"{HEAD}if found < parse('2.0'):\n    warn()\n", []),
    "no Python": ("assert (\n", []),
}  # fmt: skip


@each_case("name", [*SOURCES])
def test_the_accepted_releases(name: str) -> None:
    source, expected = SOURCES[name]
    assert [(each.module or each.name, each.specifier) for each in accepted_releases(source)] == expected
