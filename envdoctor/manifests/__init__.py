"""Setup guides in Markdown: followed in order as one environment, and judged against what is true today."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from envdoctor.core.decoding import FILE_BYTES
from envdoctor.core.errors import BadInput
from envdoctor.core.records import Finding, Machine, Record, Stack
from envdoctor.manifests.actions import (
    Action,
    Clone,
    Download,
    Environment,
    Image,
    Install,
    Modules,
    Run,
    System,
    Uninstall,
    Variables,
)
from envdoctor.manifests.case import open_case
from envdoctor.manifests.checks import GUIDE_RULES, evaluate_guide
from envdoctor.manifests.corrected import corrected_pins, main_environment, profile_toml
from envdoctor.manifests.guide import parse_guide
from envdoctor.manifests.journey import State
from envdoctor.manifests.stack import stack_of

__all__ = ["GUIDE_RULES", "RunbookAudit", "Step", "audit_runbook"]


class Step(Record, frozen=True):
    """One step of a guide: where it stands, the command, and what it does."""

    line: int
    command: str
    does: str


class RunbookAudit(Record, frozen=True, kw_only=True):
    """What an audit of a guide says."""

    name: str
    architecture: str
    steps: tuple[Step, ...]
    judged: int  # requirements that the steps name, other steps, and pieces of Python
    findings: tuple[Finding, ...]  # in the order of the lines
    environment: Stack  # what the guide ends up with today
    requirements: tuple[str, ...]  # exact pins that work together
    profile_toml: str  # the same as a profile; empty where the guide installs nothing


def audit_runbook(text: str, *, name: str, machine: Machine | None = None, today: date | None = None) -> RunbookAudit:
    """Follow a guide and judge each step; nothing of it is run and nothing is fetched.

    `machine` stands for the one that the guide is meant for; without one its own words decide. `today` is the day for
    which open bounds are resolved. Raises BadInput for texts above 4 MiB.
    """
    if len(text) > FILE_BYTES or len(text.encode("utf-8", "replace")) > FILE_BYTES:
        raise BadInput(
            f"{name} has more than {FILE_BYTES >> 20} MiB", expected="a setup guide in Markdown", hint="split it"
        )
    day = (today or date.today()).isoformat()
    case = open_case(parse_guide(text, name), machine, day)
    pins = corrected_pins(case)
    where = main_environment(case)
    return RunbookAudit(
        name=name,
        architecture=case.platform,
        steps=tuple(Step(each.line, each.command, _does(each)) for each in case.guide.actions if each.command),
        judged=sum(len(each.wanted) if isinstance(each, Install) else 1 for each in case.guide.actions)
        + len(case.guide.code),
        findings=tuple(evaluate_guide(case)),
        environment=stack_of(where.state if where else State()),
        requirements=tuple(each.spec for each in pins),
        profile_toml=profile_toml(case, pins, name),
    )


def _does(action: Action) -> str:
    """What a step does, in words."""
    return next(words(action) for kind, words in _WORDS if isinstance(action, kind))


def _installs(action: Install) -> str:
    names = ", ".join(each.text for each in action.wanted[:12]) or "nothing that is named here"
    return f"installs {names} with {action.tool}"


def _enters(action: Environment) -> str:
    python = f" with Python {action.python}" if action.python else ""
    return f"{'makes' if action.new else 'enters'} the environment {action.name}{python}"


_WORDS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Install, _installs),
    (Environment, _enters),
    (Image, lambda a: f"{'runs in' if a.entered else 'fetches'} the image {a.name}:{a.tag}"),
    (Uninstall, lambda a: f"removes {', '.join(a.names)}"),
    (Download, lambda a: f"downloads {a.file}"),
    (Modules, lambda a: f"loads {', '.join(a.names)}"),
    (System, lambda a: f"installs {', '.join(a.names[:12])} with the system's package manager"),
    (Variables, lambda a: f"sets {', '.join(name for name, _ in a.values)}"),
    (Clone, lambda a: f"fetches {a.address or a.reference}"),
    (Run, lambda a: f"runs {a.module or ' '.join(a.words[:2])}"),
)
