"""Write train/trl_fields.toml: the fields of TRL's configurations and TrainingArguments of each release.

    python tests/campaigns/config_fields.py DIRECTORY

DIRECTORY has one folder per release, `trl-1.16.0` or `transformers-5.17.0`, with the package's source
(`trl-1.16.0/trl/trainer/grpo_config.py`), from `uv pip install --no-deps --target trl-1.16.0 trl==1.16.0`. The source
is parsed only. A field of both is one of transformers.
"""

from __future__ import annotations

import ast
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

TARGET = Path(__file__).resolve().parents[2] / "train/trl_fields.toml"
KINDS = {
    "int": "int", "float": "float", "bool": "bool", "str": "text", "list": "list", "List": "list", "dict": "dict",
    "Dict": "dict", "None": "none",
}  # fmt: skip
SOURCES = [
    ("transformers", "transformers", "transformers", ("TrainingArguments",)),
    *(
        ("trl", "trl/trainer", trainer, (config, "_BaseConfig"))
        for trainer, config in (("grpo", "GRPOConfig"), ("sft", "SFTConfig"), ("dpo", "DPOConfig"))
    ),
]
TESTED = {"trl": "1.16.0", "transformers": "5.17.0"}  # as in train/trl_config/defaults.py


def read_fields(folder: Path, classes: tuple[str, ...]) -> dict[str, tuple[list[str], str]]:
    """The fields that a user can set, with their kinds and the source text of the default."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                found |= dict(read_class_fields(node))
    return found


def read_class_fields(node: ast.ClassDef) -> Iterator[tuple[str, tuple[list[str], str]]]:
    """The fields of one class that a user can set."""
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        call = line.value if isinstance(line.value, ast.Call) else None
        options = {word.arg: word.value for word in call.keywords} if call else {}
        settable = options.get("init")
        name = line.target.id
        if name.startswith("_") or "ClassVar" in ast.unparse(line.annotation):
            continue
        if isinstance(settable, ast.Constant) and settable.value is False:
            continue
        value = options.get("default", options.get("default_factory", None if call else line.value))
        yield name, (sorted(_kinds(line.annotation)), _default(value))


def _kinds(annotation: ast.expr) -> set[str]:
    """The kinds of values of an annotation; an enumeration or another class is written as text."""
    if isinstance(annotation, ast.Constant):
        if isinstance(annotation.value, str):
            return _kinds(ast.parse(annotation.value, mode="eval").body)
        return {"none"} if annotation.value is None else {"bool" if annotation.value is False else "text"}
    if isinstance(annotation, ast.BinOp):
        return _kinds(annotation.left) | _kinds(annotation.right)
    if isinstance(annotation, ast.Subscript):
        outer = ast.unparse(annotation.value).rpartition(".")[2]
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if outer in ("Union", "Optional", "Literal"):
            return set().union({"none"} if outer == "Optional" else set(), *map(_kinds, inner))
        return {KINDS.get(outer, "text")}
    return {KINDS.get(ast.unparse(annotation), "text")}


def _default(value: ast.expr | None) -> str:
    """The default as a setting is written; empty for one that is computed."""
    try:
        constant = ast.literal_eval(value) if value is not None else None
    except ValueError:
        return ""
    return "none" if constant is None else str(constant).lower() if isinstance(constant, bool) else str(constant)


def main() -> None:
    """Read all releases and write the table."""
    directory = Path(sys.argv[1])
    lines = [
        "# Written by tests/campaigns/config_fields.py: the fields of TrainingArguments, and by trainer those that",
        "# TRL's configuration adds, as NAME = { kinds of values, releases FIRST..LAST, default of the newest tested",
        "# release }. [defaults] has the defaults by which a configuration replaces those of TrainingArguments.",
        "",
        f'source = "the wheels of trl and transformers, {datetime.datetime.now(tz=datetime.UTC).date()}"',
    ]
    rows: dict[str, dict[str, str]] = {}
    for package, folder, owner, classes in SOURCES:
        folders = {path.name.removeprefix(f"{package}-"): path for path in directory.glob(f"{package}-*")}
        releases = sorted(folders, key=Version)
        note = f'{package}_releases = "{" ".join(releases)}"'
        lines += [note] if note not in lines else []
        tables = {release: read_fields(folders[release] / folder, classes) for release in releases}
        rows[owner] = {
            name: _row(name, tables, TESTED[package])
            for name in sorted({name for table in tables.values() for name in table})
        }
    shared = rows["transformers"]
    for owner, found in rows.items():
        lines += [
            "",
            f"[{owner}]",
            *(
                f"{name} = {{ {row} }}"
                for name, row in found.items()
                if owner == "transformers" or name not in shared
            ),
        ]
    for owner, found in rows.items():
        if owner != "transformers":
            changed = {name: row.partition("default = ")[2] for name, row in found.items() if name in shared}
            lines += ["", f"[defaults.{owner}]", *(f"{name} = {default}" for name, default in changed.items())]
    TARGET.write_text("\n".join(lines) + "\n")


def _row(name: str, tables: dict[str, dict[str, tuple[list[str], str]]], tested: str) -> str:
    """The kinds, releases and default of a field."""
    releases = list(tables)
    with_field = [release for release in releases if name in tables[release]]
    kinds = sorted({kind for release in with_field for kind in tables[release][name][0]})
    first = "" if with_field[0] == releases[0] else with_field[0]
    last = "" if with_field[-1] == releases[-1] else with_field[-1]
    known = [release for release in with_field if Version(release) <= Version(tested)] or with_field
    quoted = ", ".join(f'"{kind}"' for kind in kinds)
    return f'kinds = [{quoted}], releases = "{first}..{last}", default = {_toml_text(tables[known[-1]][name][1])}'


def _toml_text(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


if __name__ == "__main__":
    main()
