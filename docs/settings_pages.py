"""The pages of the trainer's settings, from the TOML files of train/."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

from envdoctor.training.recipes import read_settings

ROOT = Path(__file__).resolve().parents[1]


def settings_page(file: str, title: str) -> str:
    """A page of the trainer's settings, from a TOML file of train/."""
    table = tomllib.loads((ROOT / "train" / file).read_text(encoding="utf-8"))
    lines = [
        f"# {title}",
        "",
        f"Generated from `train/{file}`. Change a setting with `envdoctor train RECIPE --set KEY=VALUE`.",
        "",
    ]
    of_library = file == "settings.toml"  # verl's options are mapped from words of this trainer
    if of_library:
        lines += [
            "The second column has the library whose word a setting is, in its newest release. A name works with",
            "every supported release. The others are this trainer's own: the libraries have no word for them.",
            "",
        ]
    for group, rows in table.items():
        of, rule = (" of |", "---|") if of_library else ("", "")
        lines += [f"## {group}", "", f"| setting |{of} default | values | meaning |", f"|---|{rule}---|---|---|"]
        lines += [
            f"| `{name}` |{f' {_library(name)} |' * of_library} {_defaults(row)} | {_allowed(row)} | {_help(row)} |"
            for name, row in rows.items()
        ]
        lines.append("")
    if file == "settings.toml":
        lines += _field_sections()
    return "\n".join(lines).rstrip("\n") + "\n"


PEFT = ("r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters")
LOADING = ("model", "revision", "trust_remote_code", "dtype", "attn_implementation", "device_map")


CONFIGS = {"grpo": "GRPOConfig", "sft": "SFTConfig", "dpo": "DPOConfig"}


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads((ROOT / "train/trl_fields.toml").read_text(encoding="utf-8"))


def _fields(trainer: str = "grpo") -> dict[str, Any]:
    """The fields of a trainer's configuration, with the library of each."""
    table = _table()
    defaults = table["defaults"][trainer]
    shared = {name: row | {"package": "transformers"} for name, row in table["transformers"].items()}
    changed = {name: shared[name] | {"default": default} for name, default in defaults.items()}
    own = {name: row | {"package": "trl"} for name, row in table[trainer].items()}
    return dict(sorted((shared | changed | own).items()))


def _library(name: str) -> str:
    """The library that has the name; empty for one of this trainer."""
    fields = _fields()
    if name in PEFT:
        return "PEFT"
    if name.startswith(("load_in_", "bnb_")):
        return "bitsandbytes"
    if name in fields:
        return "TRL" if fields[name]["package"] == "trl" else "transformers"
    return "transformers" if name in LOADING else ""


def _field_sections() -> list[str]:
    """The fields of TRL and transformers that pass as they are, and those that cannot be set."""
    fields = _fields()
    refused = _rules()["refused"]
    renamed = tomllib.loads((ROOT / "train/renamed_settings.toml").read_text(encoding="utf-8"))
    settings = {setting.name for setting in read_settings("grpo")}
    own, older = (
        settings | renamed.keys(),
        refused.keys() - _rules()["allowed"] | set(_rules()["older_names"].values()),
    )
    lines = [
        "## Fields of TRL and transformers", "",
        "Each passes by its own name to `GRPOConfig` if the installed release has it. Objects are JSON.", "",
        "| field | of | releases | default |", "|---|---|---|---|",
    ]  # fmt: skip
    lines += [_field_row(name, row) for name, row in fields.items() if name not in own and name not in refused]
    for trainer in ("sft", "dpo"):
        more = _rules()["refused_by"][trainer]
        rows = _fields(trainer).items()
        only = [
            (name, row)
            for name, row in rows
            if row["package"] == "trl" or trainer in _rules()["allowed"].get(name, ())
        ]
        lines += [
            "", f"## Fields of {CONFIGS[trainer]}", "",
            f"With `--trainer {trainer}`, next to the fields of transformers above.", "",
            "| field | of | releases | default |", "|---|---|---|---|",
            *(_field_row(name, row) for name, row in only if name not in settings | more.keys() | older),
        ]  # fmt: skip
    lines += ["", "## Fields that cannot be set", "", "| field | reason | instead |", "|---|---|---|"]
    return [*lines, *(f"| `{name}` | {reason} | `{hint}` |" for name, (reason, hint) in refused.items())]


def _field_row(name: str, row: dict[str, Any]) -> str:
    first, _, last = row["releases"].partition("..")
    releases = f"{first} to {last}" if first and last else f"up to {last}" if last else f"from {first}" * bool(first)
    return f"| `{name}` | {row['package']} | {releases} | {_value(row['default'])} |"


@functools.cache
def _rules() -> dict[str, Any]:
    return tomllib.loads((ROOT / "train/trl_field_rules.toml").read_text(encoding="utf-8"))


def _defaults(row: dict[str, Any]) -> str:
    """The default, and those of the trainers that have another one."""
    others = {trainer: row[trainer] for trainer in ("sft", "dpo") if trainer in row}
    changed = {
        trainer: _value(other.get("default"))
        for trainer, other in others.items()
        if {"default", "type"} & other.keys()
    }
    return ", ".join([_value(row.get("default")), *(f"{name}: {value}" for name, value in changed.items())])


def _help(row: dict[str, Any]) -> str:
    """The meaning, and the trainers that have the setting or give it another meaning."""
    owners = f"{' and '.join(row['trainers'])}: " if "trainers" in row else ""
    others = {trainer: row[trainer]["help"] for trainer in ("sft", "dpo") if "help" in row.get(trainer, {})}
    if len(set(others.values())) == 1:
        others = {" and ".join(others): next(iter(others.values()))}
    return cell(". ".join([owners + row["help"], *(f"{name}: {text}" for name, text in others.items())]))


def _allowed(row: dict[str, Any]) -> str:
    if "choices" in row:
        return ", ".join(f"`{choice}`" if choice else "empty" for choice in row["choices"])
    if row.get("type") == "bool" or isinstance(row.get("default"), bool):
        return "`true`, `false`"
    bounds = [f"{word} {_number(row[key])}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in row]
    return " ".join(bounds)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e12 else f"{value:g}"


def _value(default: object) -> str:
    if default is None:
        return "TRL's"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`{','.join(map(str, default))}`" if default else ""
    return f"`{default}`" if default != "" else ""


def cell(text: str) -> str:
    """A text in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")
