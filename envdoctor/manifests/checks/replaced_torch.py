"""The torch that a guide chooses and a later step replaces: the cause of further findings, with one correction."""

from __future__ import annotations

from collections.abc import Collection

from envdoctor.core.remedies import Remedy
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.checks.evidence import install_step
from envdoctor.manifests.checks.kept_releases import keep_or_choose
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, Substitution
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.manifests.records import build_stack
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.torch_install import COMPANIONS, companion_release


def correction_of_replaced_torch(context: GuideContext, name: str) -> str:
    """The correction for what a torch breaks that a dependency brings in place of the pinned one; empty for others.

    `name` is that of the environment. RUN010 has the command.
    """
    for install in reversed(context.trace.installs):
        old, new = install.before.packages.get("torch"), install.after.packages.get("torch")
        if install.after.name != name or old is None or new is None or old == new:
            continue
        is_pinned = old.pinned and old.origin != IMAGE_ORIGIN
        if not (is_pinned and new.is_dependency) or install.resolution.state == "conflict":
            return ""
        fix, _ = keep_or_choose(context, install, old, new)
        pin = f"torch=={public_part(old.version)}"
        is_kept = fix.startswith("Install both in one command")
        return f"Keep {pin} in line {install.action.line}, as RUN010 states." if is_kept else ""
    return ""


def correction_of_pins(
    context: GuideContext, environment: CorrectedEnvironment, substitution: Substitution
) -> tuple[str, tuple[Remedy, ...]]:
    """What to change where pinned releases are incompatible."""
    problem = substitution.violation.problem
    facts = [item.fact for item in problem.evidence]
    if "torch" in facts and (kept := correction_of_replaced_torch(context, environment.state.name)):
        return kept, ()
    if substitution.violation.rule.id == "PKG002" and (
        found := _companions_of_last_torch(context, environment, facts)
    ):
        return found
    pin = f"{substitution.package.name}=={substitution.version}" if substitution.version else ""
    fix = problem.fix + (f" With the other pins of this guide: {pin}." if pin else "")
    return fix, install_step(pin) if pin else problem.remedies


def _companions_of_last_torch(
    context: GuideContext, environment: CorrectedEnvironment, facts: Collection[str]
) -> tuple[str, tuple[Remedy, ...]] | None:
    """The releases of torchvision and torchaudio for a torch that a later step pins; None for others."""
    state = environment.state
    torch, others = state.packages.get("torch"), sorted({*COMPANIONS} & set(facts) & state.packages.keys())
    steps = [[each.name for each in install.action.requirements] for install in context.trace.installs
             if install.after.name == state.name]  # fmt: skip
    last = {name: max((n for n, names in enumerate(steps) if name in names), default=-1) for name in TORCH_FAMILY}
    if torch is None or not torch.pinned or not others or any(last["torch"] <= last[each] for each in others):
        return None
    version, stack = public_part(torch.version), build_stack(state)
    found = {name: companion_release(stack, name, version) for name in others}
    if not all(found.values()):
        return None
    pins = [f"{name}=={release}" for name, release in found.items()]
    fix = f"Install {' and '.join(pins)} in the same command as torch=={version}, which a later step installs."
    return fix, install_step(f"torch=={version}", *pins)
