"""The registry of commands: summary, module, result records and renderers.

The command line builds its commands from here, the output layer takes its renderers, and `envdoctor schema` its
records. They are dotted names, so that reading the registry imports no command.

To add a command, add its line here, its module, and a renderer. The module of `fleet check` is `fleet_check`. It has
a function `run(request)` or `run(request, reporter)`. The fields of the request record declare the options (see
`core.options`), and its docstring follows the summary in the command's help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, get_type_hints

COMMANDS_PACKAGE = "envdoctor.commands."
OUTPUT_PACKAGE = "envdoctor.output."
MODULE_NAME = str.maketrans(" -", "__")


class Command(NamedTuple):
    """A command of the command line."""

    name: str
    summary: str
    renderers: Mapping[str, str]  # result record -> its renderer for people
    has_findings: bool = False  # --format github and sarif report them
    module: str = ""  # default: the command's name in envdoctor.commands


class Group(NamedTuple):
    """A group of commands."""

    summary: str
    example: str = ""  # not needed if the group is a command as well


GROUPS = {
    "profiles": Group("List, show or create install profiles"),
    "facts": Group("Check the built-in compatibility tables", "envdoctor facts check"),
    "fleet": Group("Check and test several machines", "envdoctor fleet check node[01-16]"),
}
WRITTEN = {"envdoctor.core.results.WrittenFile": "files.render_written_file"}
TEXT = {"envdoctor.core.results.TextOutput": "files.render_text"}
VERIFICATION = {"envdoctor.core.records.Verification": "verification.render_verification"}

COMMANDS = (
    Command("quickstart", "Check, install, verify and train in one step", {
        "quickstart.QuickstartResult": "quickstart.render_quickstart", **VERIFICATION,
    }, has_findings=True),
    Command("check", "Diagnose this machine and its environment", {
        "check.CheckResult": "check.render_check", "check_image.ImageCheck": "image.render_image_check",
    }, has_findings=True),
    Command("health", "Judge this node for a scheduler", {"health.HealthReport": "health.render_health"}),
    Command("fix", "Apply remedies to a copy of an environment", {
        "envdoctor.install.fix_records.FixResult": "fix.render_fix",
    }),
    Command("explain", "Explain an error text, a log, a rule or a cause", {
        "envdoctor.explain.rank.Explanation": "diagnosis.render_explanation",
        "envdoctor.explain.documentation.Documentation": "diagnosis.render_documentation",
    }, has_findings=True),
    Command("gpus", "List the GPUs for --gpu", {"gpus.GpuList": "machine.render_gpus"}),
    Command("rules", "List all rules", {"rules.RuleList": "diagnosis.render_rules"}),
    Command("report", "Create a report to attach to an issue", {
        "report.records.IssueReport": "report.render_report", **WRITTEN,
    }, module="envdoctor.output.report"),
    Command("schema", "Print the JSON Schema of a command's output", {
        "envdoctor.output.schema.SchemaResult": "files.render_schema",
    }, module="envdoctor.output.schema"),
    Command("profiles", "List the install profiles", {"profiles.ProfileList": "profiles.render_profiles"}),
    Command("profiles show", "Show a profile", {"profiles_show.ProfileDetails": "profiles.render_profile"}),
    Command("profiles new", "Create a profile from a working environment", TEXT | WRITTEN),
    Command("facts check", "Compare built-in tables with the package index", {
        "envdoctor.knowledge_check.records.FactsCheckResult": "locks.render_facts_check",
    }, has_findings=True),
    Command("update", "Install newer compatibility tables", {"update.UpdateResult": "knowledge.render_update"}),
    Command("resolve", "Resolve profiles without installing them", {
        "resolve.ResolveResult": "profiles.render_resolutions", "resolve.Matrix": "locks.render_matrix",
    }, has_findings=True),
    Command("lock", "Create, update or check lock files of profiles", {
        "lock.LockResult": "locks.render_locks",
    }, has_findings=True),
    Command("audit", "Audit requirements, guides, locks and venvs", {
        "audit_file.AuditResult": "audit.render_audit", "audit.AuditsResult": "audit.render_audits",
    }, has_findings=True),
    Command("move", "Lock packages for another architecture or GPU", {
        "move.MoveResult": "move.render_move",
    }, has_findings=True),
    Command("bisect", "Find the release that broke a command", {
        "envdoctor.bisect.records.BisectResult": "bisect.render_bisect",
    }),
    Command("forecast", "Forecast what newer releases would break", {
        "envdoctor.forecast.records.ForecastResult": "forecast.render_forecast",
    }),
    Command("export", "Export a profile's lock to another format", {
        "envdoctor.export.stack.ExportedFile": "locks.render_export", **WRITTEN,
    }),
    Command("install", "Install a profile into a virtual environment", {
        "envdoctor.install.install.InstallResult": "environments.render_install",
        "install.InstallDryRun": "environments.render_install_plan",
        "add.AddResult": "add.render_add",
    }, has_findings=True),
    Command("add", "Add packages and keep the installed torch", {"add.AddResult": "add.render_add"}),
    Command("fetch", "Download a profile's wheels for offline use", {
        "fetch.FetchResult": "fetch.render_fetch",
    }, has_findings=True),
    Command("envs", "List the installed environments", {"envs.EnvironmentList": "environments.render_environments"}),
    Command("rollback", "Restore the previous environment", {
        "rollback.RollbackResult": "environments.render_rollback",
    }),
    Command("clean", "Remove replaced environments and unused builds", {
        "envdoctor.install.removal.RemovalResult": "environments.render_removal",
    }),
    Command("uninstall", "Remove an environment, or everything", {
        "envdoctor.install.removal.RemovalResult": "environments.render_removal",
    }),
    Command("paths", "List everything that envdoctor stores on disk", {
        "paths.PathList": "environments.render_paths",
    }),
    Command("verify", "Test an environment with numerical probes", VERIFICATION, has_findings=True),
    Command("load-test", "Load every compiled file of an environment", {
        "envdoctor.verify.loading.records.LoadTest": "load_test.render_load_test",
    }, has_findings=True),
    Command("bench", "Measure and grade the speed of the GPUs", {
        "envdoctor.verify.bench_records.BenchmarkReport": "bench.render_benchmark",
    }, has_findings=True),
    Command("archs", "List GPU architectures of compiled files", {
        "archs.ArchsReport": "archs.render_archs",
    }, has_findings=True),
    Command("abi", "Check libraries and symbols of compiled files", {
        "abi.AbiReport": "abi.render_abi",
    }, has_findings=True),
    Command("plan", "Estimate the GPU memory of a training run", {
        "plan.MemoryPlan": "planning.render_memory_plan",
    }, has_findings=True),
    Command("train", "Train a recipe in a verified environment", {
        "train.TrainResult": "train.render_training",
        "train.SettingList": "train.render_settings",
        "train.EffectiveSettings": "train.render_effective_settings",
    }, has_findings=True),
    Command("recipes", "List the training recipes", {"recipes.RecipeList": "train.render_recipes"}),
    Command("watch", "Show the progress of a training run", {
        "watch.WatchResult": "runs.render_watch",
    }),
    Command("plot", "Plot metrics of training runs", {"plot.PlotResult": "runs.render_plot"}),
    Command("pack", "Pack a training run into a zip file", {"pack.PackResult": "runs.render_pack"}),
    Command("check-pack", "Check the files of a packed run", {
        "check_pack.PackCheckResult": "runs.render_pack_check",
    }),
    Command("fleet check", "Check several machines and compare them", {
        "envdoctor.fleet.records.FleetCheckResult": "fleet.render_fleet_check",
    }, has_findings=True),
    Command("fleet collective", "Test collective operations across machines", {
        "envdoctor.fleet.ranks.CollectiveResult": "fleet.render_collective",
    }, has_findings=True),
    Command("help", "Print a page of the documentation", {
        "help.TopicList": "help.render_topics", "help.HelpPage": "help.render_page",
    }),
    Command("config", "Show the configuration and its sources", {"config.ConfigList": "config.render_config"}),
    Command("completion", "Print the completion script of a shell", TEXT | WRITTEN),
    Command("mcp", "Serve tools to coding agents (MCP)", {
        "envdoctor.integrations.mcp_command.McpSession": "envdoctor.integrations.mcp_command.render_session",
    }, module="envdoctor.integrations.mcp_command"),
)  # fmt: skip
# The sections of `envdoctor --help` and their commands and groups of commands, in this order.
HELP_SECTIONS = {
    "Start": ("quickstart",),
    "Diagnose": ("check", "fix", "explain", "bisect", "audit", "report", "archs", "abi", "rules", "gpus"),
    "Provision": (
        "install",
        "add",
        "rollback",
        "envs",
        "profiles",
        "resolve",
        "lock",
        "forecast",
        "move",
        "export",
        "fetch",
    ),
    "Prove": ("verify", "bench", "load-test"),
    "Train": ("train", "recipes", "plan", "watch", "plot", "pack", "check-pack"),
    "Fleet": ("fleet", "health"),
    "Maintain": ("update", "clean", "uninstall", "paths", "config", "completion", "facts", "mcp", "schema", "help"),
}
BY_NAME = {command.name: command for command in COMMANDS}


def summary_of(name: str) -> str:
    """The summary of a command or a group of commands."""
    return GROUPS[name].summary if name in GROUPS else BY_NAME[name].summary


def child_names(prefix: str) -> tuple[str, ...]:
    """The names of the commands and groups directly below a group. The prefix is empty or a group with a space."""
    names = [command.name.removeprefix(prefix) for command in COMMANDS if command.name.startswith(prefix)]
    return tuple(dict.fromkeys(name.split()[0] for name in names))


def help_sections(prefix: str) -> list[tuple[str, list[str]]]:
    """The sections of the help of a group, and the names in each. Only the help of the application has several."""
    names = child_names(prefix)
    if prefix:
        return [("Commands", list(names))]
    return [(title, [name for name in section if name in names]) for title, section in HELP_SECTIONS.items()]


def load_run(name: str) -> Callable[..., Any]:
    """The function that runs a command; imports the command's module."""
    run: Callable[..., Any] = load((BY_NAME[name].module or COMMANDS_PACKAGE + name.translate(MODULE_NAME)) + ".run")
    return run


@cache
def request_type(run: Callable[..., Any]) -> Any:
    """The request record of a command: the type of the first parameter of its `run`."""
    return next(iter(get_type_hints(run).values()))


def result_types(name: str) -> tuple[type, ...]:
    """The result records of a command."""
    return tuple(load(_in_package(COMMANDS_PACKAGE, record)) for record in BY_NAME[name].renderers)


def renderer_name(record: type) -> str:
    """The dotted name of the renderer of a result record."""
    name = f"{record.__module__}.{record.__qualname__}"
    for command in COMMANDS:
        for candidate, renderer in command.renderers.items():
            if _in_package(COMMANDS_PACKAGE, candidate) == name:
                return _in_package(OUTPUT_PACKAGE, renderer)
    raise KeyError(name)


def load(name: str) -> Any:
    """The object with a dotted name; imports its module."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def _in_package(package: str, name: str) -> str:
    return name if name.startswith("envdoctor.") else package + name
