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
            f"| `{name}` |{f' {_library(name)} |' * of_library} {_value(row.get('default'))} | {_allowed(row)} | "
            f"{cell(row['help'])} |"
            for name, row in rows.items()
        ]
        lines.append("")
    if file == "settings.toml":
        lines += _field_sections()
    return "\n".join(lines).rstrip("\n") + "\n"


PEFT = ("r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters")
LOADING = ("model", "revision", "trust_remote_code", "dtype", "attn_implementation", "device_map")


@functools.cache
def _fields() -> dict[str, Any]:
    fields: dict[str, Any] = tomllib.loads((ROOT / "train/trl_fields.toml").read_text(encoding="utf-8"))["fields"]
    return fields


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
    refused = tomllib.loads((ROOT / "train/trl_field_rules.toml").read_text(encoding="utf-8"))["refused"]
    renamed = tomllib.loads((ROOT / "train/renamed_settings.toml").read_text(encoding="utf-8"))
    own = {setting.name for setting in read_settings("grpo")} | renamed.keys()
    lines = [
        "## Fields of TRL and transformers", "",
        "Each passes by its own name to `GRPOConfig` if the installed release has it. Objects are JSON.", "",
        "| field | of | releases | default |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, row in fields.items():
        if name not in own and name not in refused:
            first, _, last = row["releases"].partition("..")
            releases = (
                f"{first} to {last}" if first and last else f"up to {last}" if last else f"from {first}" * bool(first)
            )
            lines.append(f"| `{name}` | {row['package']} | {releases} | {_value(row['default'])} |")
    lines += ["", "## Fields that cannot be set", "", "| field | reason | instead |", "|---|---|---|"]
    return [*lines, *(f"| `{name}` | {reason} | `{hint}` |" for name, (reason, hint) in refused.items())]


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
