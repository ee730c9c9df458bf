"""The qualified name of a C++ symbol, without its parameters."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern

PREFIX = lazy_pattern(r"_Z(?P<special>T[VISTC]|GV)?(?P<nested>N[rVK]*)?(?P<std>St)?")
SPECIAL = {"TV": "vtable for ", "TI": "typeinfo for ", "TS": "typeinfo name for ", "GV": "guard variable for "}
PART = lazy_pattern(r"(\d{1,4})")
OPERATORS = {
    "eq": "operator==", "ne": "operator!=", "lt": "operator<", "gt": "operator>", "le": "operator<=",
    "ge": "operator>=", "ls": "operator<<", "rs": "operator>>", "pl": "operator+", "mi": "operator-",
    "ml": "operator*", "dv": "operator/", "aS": "operator=", "cl": "operator()", "ix": "operator[]",
}  # fmt: skip


def demangle(symbol: str) -> str:
    """`_ZNK3c106SymInt6sym_neERKS0_` as "c10::SymInt::sym_ne"; returns a symbol that is not mangled unchanged.

    Itanium C++ ABI, section 5.1: a nested name is `N`, then parts prefixed by their length, then `E`.
    """
    start = PREFIX.match(symbol)
    if not start or start.end() == len(symbol):
        return symbol
    parts, position = (["std"] if start["std"] else []), start.end()
    while position < len(symbol):
        length = PART.match(symbol, position)
        if length:
            position = length.end() + int(length[1])
            if position > len(symbol):
                return symbol
            parts.append(symbol[length.end() : position])
        elif parts and symbol[position : position + 2] in ("C1", "C2", "C3", "D0", "D1", "D2"):
            parts.append(("~" if symbol[position] == "D" else "") + parts[-1])
            position += 2
        elif parts and symbol[position : position + 2] in OPERATORS and start["nested"]:
            parts.append(OPERATORS[symbol[position : position + 2]])
            position += 2
        else:
            break
        if not start["nested"]:
            break
    return SPECIAL.get(start["special"] or "", "") + "::".join(parts) if parts else symbol
