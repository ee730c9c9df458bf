"""What the `__getattr__` of a module does for a name."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.package_index.module_getattr import ModuleGetattr

TABLE = "from ._gone import GONE\n"
RAISES, OLD = "raise AttributeError\n", "    if n == 'old':\n        "
IN_GONE = f"    if n in GONE:\n        {RAISES}"
LOOKUP = "    try:\n        v = T[n]\n    except KeyError:\n        pass\n    else:\n        return v\n"
PAIRS = "I = [('old', 1)]\nT = {n: 1 for n, _ in I}\nI = [('b', 1)]\n"
# What is before the function, and its body.
BODIES: dict[str, tuple[str, str, str]] = {
    "a constant that raises": ("", OLD + RAISES, "raises"),
    "a constant that returns": ("", f"{OLD}return 1\n", "returns"),
    "a final raise without the name": ("", f"    {RAISES}", "unknown"),
    "an imported table": (TABLE, IN_GONE, "raises"),
    "another condition first": (TABLE, f"    if ready():\n        return 1\n{IN_GONE}", "unknown"),
    "a table that a call extends": (
        "T = ['a']\nT.append(x)\n", f"    if n in T:\n        return 1\n{OLD}{RAISES}", "unknown",
    ),
    "a lookup with KeyError": ("T = {}\nT.update({'old': 1})\n", f"{LOOKUP}    {RAISES}", "returns"),
    "the first of two assigned tables": (PAIRS, f"    if n in T:\n        {RAISES}", "raises"),
    "not in a table": (TABLE, f"    if n not in GONE:\n        return 1\n    {RAISES}", "unknown"),
    "a loop": ("", f"    for m in M:\n        return m\n{OLD}{RAISES}", "unknown"),
}  # fmt: skip


@each_case("name", [*BODIES])
def test_the_outcome_for_a_name(name: str) -> None:
    before, body, outcome = BODIES[name]
    read = {"base._gone": "GONE = {'old': 'reason'}\n"}.get
    source = f"{before}def __getattr__(n):\n{body}"
    assert ModuleGetattr(source, "base", is_package=True, read=read).outcome("old") == outcome
    assert ModuleGetattr(before, "base", is_package=True, read=read).outcome("old") == "unknown"
