"""Checks on classes of a checkout that derive from classes of an installed release."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.manifests.certain_packages import certain_packages
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.fitting_releases import excluding_package
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.inherited_members import inherited_members
from envdoctor.resolution.index_facts import AbsentMember
from envdoctor.rules.registry import Problem, rule

CLASSES = "https://docs.python.org/3/tutorial/classes.html#inheritance"


@rule(
    "RUN221", kind="guide", severity="warning", cause="dependency-pin-violated", url=CLASSES,
    needs=("release", "python"),
)  # fmt: skip
def class_expects_what_the_installed_base_lacks(context: GuideContext) -> Iterator[Problem]:
    """A class of the checkout derives from one of an open package, whose newest release no longer fits it.

    It calls a method of its base class that the installed release does not have, or it overrides a method with
    required arguments that the installed release no longer passes: `_from_pretrained(*, proxies, resume_download)`
    with huggingface-hub 1. Only packages that a step names without a version are compared.
    """
    index, members = context.index_facts, tuple(dict.fromkeys(inherited_members(context)))
    if index is None or not members:
        return
    for environment in context.environments[-1:]:
        state = environment.state
        if state.resolution in ("unresolved", "conflict") or state.image:
            continue
        certain = certain_packages(context.trace, state)
        reported: set[tuple[str, str]] = set()
        for absent in index.absent_members(installed_set(context, state, ()), members):
            package = state.packages[absent.release.name]
            key = package.name, absent.member.cls
            if package.name in certain and not package.pinned and key not in reported:
                reported.add(key)
                yield _absent(context, state, absent)


def _absent(context: GuideContext, state: EnvironmentState, absent: AbsentMember) -> Problem:
    member, package = absent.member, state.packages[absent.release.name]
    index, python = context.index_facts, state.python or context.trace.python
    excluding = excluding_package(index, state.packages, package.name, absent.last, python=python) if index else ""
    pin = f"{package.name}=={absent.last}" if absent.last and not excluding else ""
    fault = (
        f"requires {absent.missing} in {member.member}, which {member.base} of {absent.release} does not pass to it"
        if member.required
        else f"calls super().{member.member}, which {member.base} of {absent.release} does not have"
    )
    return Problem(
        "warning",
        f"{member.place}: {member.cls} {fault}",
        (
            guide_evidence(context, package.name, package.reason, package.line),
            table_evidence(f"class {member.cls}", f"{member.base} of {member.module}", member.place),
            table_evidence(str(absent.release), f"{member.base}.{member.member}", "the wheel on the package index"),
        ),
        f"Use {pin}, which passes it."
        if pin
        else f"Name the release of {package.name} that the code was written for, or change the class.",
        install_step(pin) if pin else (),
        line=line_of(context, package.line, package.reason),
    )
