"""Write the generated pages and parts of the documentation: `python docs/generate.py`.

Whole pages come from the command line, the trainer's settings and the rules. Parts between `<!-- generated: NAME -->`
and `<!-- end -->` in the README and in docs/ come from the profiles, machines and recipes. A test compares the files
with what this script would write.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import fields
from settings_pages import cell, settings_page

from envdoctor import __version__
from envdoctor.cli.application import Command, build
from envdoctor.cli.common import CommonOptions
from envdoctor.cli.parameters import HELP, Parameter
from envdoctor.commands.registry import GROUPS, child_names, summary_of
from envdoctor.completion.scripts import SCRIPTS
from envdoctor.core.config import KEYS, PREFIX
from envdoctor.core.program import DISTRIBUTION
from envdoctor.export import FORMS
from envdoctor.integrations.tools import TOOLS, input_schema
from envdoctor.knowledge.gpu_catalogue import catalogue
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.machine.recorded import machine_names, read_recorded
from envdoctor.manifests.rules import audit_rules
from envdoctor.output.schema import NAMES as SCHEMA_NAMES
from envdoctor.profiles import choose, read_profiles
from envdoctor.rules import RULES, documentation
from envdoctor.training.launchers.records import LAUNCHERS
from envdoctor.training.recipes import Setting, read_recipe, read_settings, recipe_names
from envdoctor.verify.probe_scripts import bundled_probes

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
COMMON = {field.name for field in fields(CommonOptions)}  # parameters of every command


def rules_page() -> str:
    """docs/rules.md: every rule and every cause."""
    return documentation.rules_page(audit_rules())


def commands_page() -> str:
    """docs/reference/commands.md: every command with its arguments and options."""
    lines = [
        "# Commands",
        "",
        "Generated from the command line's own declarations; `envdoctor COMMAND --help` prints the same.",
        "",
        "## Options of every command",
        "",
        *_table(next(_commands()).parameters, names=COMMON),
    ]
    for command in _commands():
        summary, _, rest = command.details.partition("\n\n")
        lines += ["", f"## {command.path}", "", " ".join(summary.split())]
        examples = re.findall(r"Example: (.*)", rest)
        if details := "\n\n".join(part for part in rest.split("\n\n") if part and not part.startswith("Example:")):
            lines += ["", " ".join(details.split())]
        if examples:
            lines += ["", "```console", *(f"$ {example.strip()}" for example in examples), "```"]
        own = {each.name for each in command.parameters} - COMMON
        if own:
            lines += ["", *_table(command.parameters, names=own)]
    return "\n".join(lines) + "\n"


def _table(parameters: Iterable[Parameter], *, names: set[str]) -> list[str]:
    """The table of the parameters with these names."""
    rows = [_parameter_row(each) for each in parameters if each.name in names]
    return ["| argument or option | default | meaning |", "|---|---|---|", *rows]


def _commands(prefix: str = "") -> Iterator[Command]:
    """Every command, groups before their commands."""
    for child in child_names(prefix):
        yield build(prefix + child)
        if child in GROUPS:
            yield from _commands(f"{child} ")


def _parameter_row(parameter: Parameter) -> str:
    value = f" {parameter.metavar}" if parameter.takes_value else ""
    names = [f"{flag}{value}" for flag in parameter.flags] or [parameter.metavar]
    shown = f"`{parameter.shown_default}`" if parameter.shown_default else ""
    return f"| {', '.join(f'`{cell(name)}`' for name in names)} | {shown} | {cell(parameter.help)} |"


def profiles_part() -> str:
    """Each profile with the machines it is for, its stack and its evidence."""
    lines = []
    for profile in read_profiles():
        when = profile.when
        gpus = (
            f"{when.gpus} or more GPUs of compute capability {when.compute_capability} or higher"
            if when.gpus
            else "no GPU needed"
        )
        cuda = f"CUDA {profile.cuda.build} build" if profile.cuda else "CPU build"
        lines += [
            f"## {profile.id}",
            "",
            profile.summary,
            "",
            f"For {' or '.join(when.architectures)}, {gpus}; {cuda}.",
            "",
        ]
        lines += ["| shown | date | where |", "|---|---|---|"]
        lines += [
            f"| {each.what} | {each.date} | {cell(each.where.removeprefix('for '))} |" for each in profile.evidence
        ]
        lines += [""]
    return "\n".join(lines).rstrip()


def profile_names_part() -> str:
    """Each profile in a line."""
    rows = ["| profile | stack |", "|---|---|"]
    return "\n".join(rows + [f"| `{profile.id}` | {cell(profile.summary)} |" for profile in read_profiles()])


def machines_part() -> str:
    """Each bundled machine and the profile that fits it."""
    rows = ["| machine | recorded | GPU | profile that fits |", "|---|---|---|---|"]
    for name in machine_names():
        machine = read_recorded(name)
        date = machine.origin.rpartition(" ")[2]
        profile = choose(machine, read_profiles()).profile
        rows.append(f"| `{name}` | {date} | {_completed_machine(name)} | `{profile}` |")
    return "\n".join(rows)


def recipes_part() -> str:
    """Each recipe in a line."""
    rows = ["| recipe | what it trains |", "|---|---|"]
    return "\n".join(rows + [f"| `{name}` | {cell(read_recipe(name).summary)} |" for name in recipe_names()])


def mcp_tools_part() -> str:
    """Each tool of the MCP server with its arguments."""
    rows = ["| tool | what it does | arguments |", "|---|---|---|"]
    for tool in TOOLS.values():
        arguments = ", ".join(f"`{name}`" for name in input_schema(tool)["properties"])
        rows.append(f"| `{tool.name}` | {cell(tool.description)} | {arguments} |")
    return "\n".join(rows)


def repository() -> str:
    """The address of the repository, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def installation_part() -> str:
    """The line that installs envdoctor from the repository."""
    return f"```console\n$ uv tool install git+{repository()} && envdoctor quickstart\n```"


def clone_part() -> str:
    """The commands that clone the repository."""
    return f"```console\n$ git clone {repository()} envdoctor\n$ cd envdoctor\n```"


def action_part() -> str:
    """A job with the action."""
    lines = [
        "envdoctor:",
        "  runs-on: ubuntu-24.04",
        "  permissions:",
        "    contents: read",
        "    security-events: write # for sarif",
        "  steps:",
        "    - uses: actions/checkout@v7",
        f"    - uses: {repository().removeprefix('https://github.com/')}@v{__version__}",
        "      with:",
        "        arguments: |",
        "          requirements.txt",
        "          Dockerfile",
        '        sarif: "true"',
    ]
    return "\n".join(["```yaml", *lines, "```"])


def hook_part() -> str:
    """The hook in a .pre-commit-config.yaml."""
    lines = [
        "repos:",
        f"  - repo: {repository()}",
        f"    rev: v{__version__}",
        "    hooks:",
        "      - id: envdoctor-audit",
    ]
    return "\n".join(["```yaml", *lines, "```"])


def verification_part() -> str:
    """The commands that verify the files of a release."""
    name = repository().removeprefix("https://github.com/")
    wheel = f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
    lines = [
        "sha256sum --check SHA256SUMS",
        f"gh attestation verify {wheel} --repo {name}",
        f"uvx pypi-attestations verify pypi --repository {repository()} pypi:{wheel}",
    ]
    return "\n".join(["```console", *(f"$ {line}" for line in lines), "```"])


def remedies_part() -> str:
    """The remedies of the rules' examples, how many of them a test proves, and why the others are not proven."""
    data = ROOT / "tests/data"
    rows = [json.loads(line) for line in (data / "recorded_results/applied-remedies.jsonl").read_text().splitlines()]
    reasons = tomllib.loads((data / "unproven_remedies.toml").read_text())["reason"]
    counts: Counter[tuple[str, str]] = Counter()
    rules: dict[str, set[str]] = {}
    for row in rows:
        for commands, result in row["results"]:
            kind = "install or remove packages" if any("uv pip" in line for line in commands) else "set variables"
            kind = {"needs root": "need root", "a command for the user": "examine something, or start a program"}.get(
                result, kind
            )
            counts[kind, "all"] += 1
            counts[kind, "proven"] += not result
            for reason in reasons:
                if row["rule"] in reason["rules"] and result.startswith(reason["result"]):
                    rules.setdefault(reason["text"], set()).add(row["rule"])
    why = {"need root": "envdoctor prints them and never runs them",
           "examine something, or start a program": "they change nothing that the rules read"}  # fmt: skip
    texts = (data / "recorded_results/applied-symptom-remedies.jsonl").read_text().splitlines()
    of_texts = [failure for row in map(json.loads, texts) for _, failure in row["results"]]
    return "\n".join([
        "| Remedies | Number | Proven | Others |",
        "|---|---|---|---|",
        *(
            f"| {kind} | {counts[kind, 'all']} | {counts[kind, 'proven']} | {why.get(kind, 'see below')} |"
            for kind in sorted({kind for kind, _ in counts}, key=lambda kind: (-counts[kind, "proven"], kind))
        ),
        f"| of error texts: install or remove packages | {len(of_texts)} | {of_texts.count('')} | none |",
        "",
        "| Not proven: the remedy ... | Rules |",
        "|---|---|",
        *(f"| {text} | {', '.join(sorted(rules[text]))} |" for text in rules),
    ])  # fmt: skip


# Metavars and options whose values the completion knows; it completes all other values as files.
COMPLETED_VALUES: dict[str, str | list[str]] = {
    "NAME|FILE": "profiles", "PROFILE": "profiles", "FILE|NAME": "machines", "FILE|NAME|all": "machines",
    "GPU": "gpus", "GPU|FILE": "gpus",
    "PROBE": "probes", "ID": "rules", "TEXT|FILE|-|RULE|CAUSE": "rules", "RECIPE": "recipes", "SHELL": list(SCRIPTS),
    "TOPIC": "topics", "VENV|RULE": "rules",
    "--set": "settings", "--launcher": list(LAUNCHERS), "--arch": ["x86_64", "aarch64"], "--as": list(FORMS),
    "schema": list(SCHEMA_NAMES),
}  # fmt: skip


def completion_words() -> str:
    """envdoctor/completion/words.json: commands with their options, and the names of profiles, settings and rules."""
    values = {
        "profiles": {profile.id: profile.summary for profile in read_profiles()},
        "machines": {name: _completed_machine(name) for name in machine_names()},
        "gpus": {gpu.id: gpu.name for gpu in catalogue().values()},
        "probes": {probe.name: probe.summary for probe in bundled_probes()},
        "rules": {rule.id: rule.title.replace("-", " ") for rule in sorted(RULES.values(), key=lambda rule: rule.id)},
        "recipes": {name: read_recipe(name).summary for name in recipe_names()},
        "topics": dict.fromkeys(
            (path.stem for path in sorted(DOCS.glob("[tr]*/*.md")) if path.parent.name != "trainer"), ""
        ),
    }
    recipes = {}
    for name in recipe_names():
        recipe = read_recipe(name)
        default = next(setting.default for setting in read_settings(recipe.engine) if setting.name == "task")
        recipes[name] = {"engine": recipe.engine, "task": recipe.settings.get("task", default)}
    settings = {
        engine: {setting.name: _completed_setting(setting) for setting in read_settings(engine)}
        for engine in ("grpo", "verl")
    }
    root = _completed_command("")
    words = {"commands": root, "values": values, "recipes": recipes, "settings": settings}
    return json.dumps(words, indent=0, ensure_ascii=False, sort_keys=True) + "\n"


def _completed_machine(name: str) -> str:
    gpus = read_recorded(name).gpus.value or ()
    return f"{len(gpus)} x {gpus[0].name.value}" if gpus else "no GPU"


def _completed_setting(setting: Setting) -> dict[str, Any]:
    choices = [each for each in setting.choices if each]
    entry = {"help": setting.help, "choices": choices, "tasks": setting.tasks}
    return {key: value for key, value in entry.items() if value}


def _completed_command(name: str) -> dict[str, Any]:
    """A command or a group: its options, and what its arguments are."""
    command = build(name)
    options: dict[str, Any] = {}
    arguments = []
    repeats = False
    for parameter in (HELP, *command.parameters):
        if parameter.flags:
            values = _completed_values(name, parameter) if parameter.takes_value else None
            entry = {"help": parameter.help, "values": values}
            options |= dict.fromkeys((flag for flag in parameter.flags if flag.startswith("--")), entry)
        else:
            arguments.append(_completed_values(name, parameter))
            repeats = parameter.repeats
    prefix = f"{name} ".lstrip()
    children = child_names(prefix) if command.is_group else ()
    subcommands = {
        child: {"help": summary_of(prefix + child), **_completed_command(prefix + child)} for child in children
    }
    entry = {"options": options, "arguments": arguments, "repeats": repeats, "commands": subcommands}
    return {key: value for key, value in entry.items() if value}


def _completed_values(command: str, parameter: Parameter) -> str | list[str]:
    if parameter.choices:
        return parameter.choices
    name = command if command == "schema" else parameter.label
    return COMPLETED_VALUES.get(name, COMPLETED_VALUES.get(parameter.metavar.strip("[]."), "files"))


def config_keys_part() -> str:
    """The keys of the configuration."""
    rows = ["| key | variable | values | in a project | meaning |", "|---|---|---|---|---|"]
    for name, key in KEYS.items():
        kind = ", ".join(f"`{each}`" for each in key.kind) if isinstance(key.kind, tuple) else CONFIG_KINDS[key.kind]
        allowed = {"venv": "below the project", "profile": "a name", "machine": "a name"}.get(name, "yes")
        allowed = allowed if key.in_projects else "no"
        rows.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {kind} | {allowed} | {key.help} |")
    return "\n".join(rows)


CONFIG_KINDS = {"path": "a path", "name": "a text", "list": "a list; the variable: `A,B`", "flag": "`true`, `false`"}
PAGES: dict[str, Callable[[], str]] = {
    "envdoctor/completion/words.json": completion_words,
    "docs/rules.md": rules_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/settings.md": lambda: settings_page("settings.toml", "Trainer settings"),
    "docs/reference/verl-settings.md": lambda: settings_page("verl_settings.toml", "verl settings"),
}
PARTS: dict[str, Callable[[], str]] = {
    "config-keys": config_keys_part,
    "profiles": profiles_part,
    "profile-names": profile_names_part,
    "machines": machines_part,
    "recipes": recipes_part,
    "installation": installation_part,
    "clone": clone_part,
    "action": action_part,
    "hook": hook_part,
    "verification": verification_part,
    "mcp-tools": mcp_tools_part,
    "remedies": remedies_part,
}
PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_parts(text: str) -> str:
    """The text with each generated part written again, and with the current numbers of rules and wordings."""
    text = PART.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}\n{match[3]}", text)
    wordings = round(len(symptom_table().symptoms), -1)
    text = re.sub(r"(?<=knows about )\d+(?= wordings)", str(wordings), text)
    return re.sub(r"(?<=from )\d+(?= rules)", str(len(RULES)), text)


def pages_with_parts() -> list[Path]:
    """The README and the hand-written pages."""
    generated = {ROOT / name for name in PAGES}
    return [ROOT / "README.md", *(path for path in sorted(DOCS.rglob("*.md")) if path not in generated)]


def generated_files() -> dict[Path, str]:
    """Every file that this script writes, with its text."""
    files = {ROOT / name: page() for name, page in PAGES.items()}
    return files | {path: with_parts(path.read_text(encoding="utf-8")) for path in pages_with_parts()}


if __name__ == "__main__":
    for path, text in generated_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
