"""Checks on versions that do not fit one another: conflicting or incompatible pins, and open ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envdoctor.core.records import Evidence, Status
from envdoctor.knowledge.age import is_too_old
from envdoctor.knowledge.published import (
    date_read,
    find_release,
)
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import Install
from envdoctor.manifests.checks.accepted_releases import accepted_release
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.fitting_releases import (
    changed_requirers,
    contradicted_pin,
    excluding_range,
    keeping_pins,
    other_python,
    requirer_that_excludes,
)
from envdoctor.manifests.checks.hosted_packages import if_not_preinstalled
from envdoctor.manifests.checks.imported_modules import if_module_is_imported
from envdoctor.manifests.checks.optional_uses import if_option_is_taken
from envdoctor.manifests.checks.replaced_torch import correction_of_pins, correction_of_replaced_torch
from envdoctor.manifests.checks.source_at_main import excluding_branch
from envdoctor.manifests.checks.unlisted_releases import (
    PYPI,
)
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, Substitution, Violation
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.manifests.seeded_packages import if_not_seeded
from envdoctor.manifests.step_resolution import has_other_index
from envdoctor.manifests.unread_sources import list_sources, unread_repositories
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import COMPANIONS
from envdoctor.rules.wheel_cuda import WHEEL_CUDA


@rule(
    "RUN003",
    kind="guide",
    severity=("error", "warning", "info", "unknown"),
    cause="dependency-pin-violated",
    url=SPECIFIERS,
    needs=("release", "python"),
)
def open_range_resolves_to_an_incompatible_release(context: GuideContext) -> Iterator[Problem]:
    """A missing or open bound resolves today to a release that is incompatible with the other pins of the guide.

    Installers do not warn, because no metadata contains the bound. The finding names the release that is installed
    today, and the pin that restores the original behaviour.
    """
    for environment in context.environments:
        if environment.state.resolution == "conflict":
            continue  # a step fails, so that there is no such environment
        by_package: dict[tuple[str, bool], list[Substitution]] = {}
        for substitution in environment.substitutions:
            # What replaces the packages of an image has its own finding.
            in_image = substitution.package.origin == IMAGE_ORIGIN or _is_companion_of_image(
                environment, substitution
            )
            # What the guide does not show can limit the dependencies of its packages.
            is_known = environment.state.resolution != "partial" or not _depends_on_unread(environment, substitution)
            is_used = not substitution.package.is_dependency or _is_required(environment, substitution.package)
            is_chosen = substitution.pinned or in_image or _is_torch_of_clone(environment, substitution)
            is_judged = not _is_cpu_build(substitution) and not _is_of_other_index(context, environment, substitution)
            is_judged &= not _is_override(context, substitution)
            is_judged &= not _follows_replaced_torch(context, environment, substitution)
            if is_used and not is_chosen and is_judged:
                by_package.setdefault((substitution.package.name, is_known), []).append(substitution)
        for (_, is_known), substitutions in by_package.items():
            problem = incompatible_release(context, environment, substitutions)
            problem = if_not_seeded(context, substitutions[0].package, problem)
            violations = [each.violation for each in substitutions]
            problem = if_not_preinstalled(context, environment.state, substitutions[0].package, violations, problem)
            problem = if_option_is_taken(context, [each.rule.id for each in violations], problem)
            problem = if_module_is_imported(context, environment.state, violations, problem)
            sources = unread_repositories(context, environment.state) if _is_too_old(substitutions) else ()
            if sources:
                problem = _not_certain(problem, f"{list_sources(sources)} was not read and can require a newer one")
            is_about_torch = any(item.fact == "torch" for each in violations for item in each.problem.evidence)
            branch = excluding_branch(context, environment.state, "torch") if is_about_torch else ""
            if branch:
                problem = _not_certain(problem, f"{branch} of its main branch needs another torch")
            yield problem if is_known else _not_certain(problem)


def _not_certain(problem: Problem, reason: str = "what is not read can limit it") -> Problem:
    """A problem with a dependency that a part of the environment can limit, which is not read."""
    if problem.status not in ("error", "warning"):
        return problem
    doubt = "" if ", unless `" in problem.message else f" (not certain: {reason})"
    return replace(problem, status="unknown", message=f"{problem.message}{doubt}")


def _is_too_old(substitutions: Sequence[Substitution]) -> bool:
    """Whether a dependency is in a release that a newer one replaces: any requirement can select the newer one."""
    pairs = [(each.package, each.version) for each in substitutions]
    return all(
        each.is_dependency and version and satisfies(version, f">{public_part(each.version)}")
        for each, version in pairs
    )


def _depends_on_unread(environment: CorrectedEnvironment, substitution: Substitution) -> bool:
    """Whether a violation is about a dependency, which the parts that the guide does not show can limit."""
    packages = environment.state.packages
    named = [substitution.package.name, *(item.fact for item in substitution.violation.problem.evidence)]
    return any(packages[name].is_dependency for name in named if name in packages)


def _is_required(environment: CorrectedEnvironment, package: ResolvedPackage) -> bool:
    """Whether a dependency is still required; a later step can replace the release that it was installed for."""
    name, _, version = package.reason.removeprefix("required by ").partition(" ")
    requiring = environment.state.packages.get(name)
    if not requiring or not version or public_part(requiring.version) == version:
        return True
    texts = (
        text
        for each in environment.state.packages.values()
        for text in requirements_of_release(each.name, public_part(each.version))
    )
    return any(bound.name == package.name for text in texts if (bound := parse_requirement(text)))


def _is_companion_of_image(environment: CorrectedEnvironment, substitution: Substitution) -> bool:
    """Whether torchvision or torchaudio of an image no longer fits a torch that replaces the one of the image."""
    packages = _packages_of_evidence(environment, substitution)
    return any(name in COMPANIONS and package.origin == IMAGE_ORIGIN for name, package in packages.items())


def _follows_replaced_torch(
    context: GuideContext, environment: CorrectedEnvironment, substitution: Substitution
) -> bool:
    """Whether torchvision or torchaudio only lacks the pinned torch, which a later step replaces: RUN010."""
    is_companion = substitution.violation.rule.id == "PKG002" and environment.state.resolution != "partial"
    return is_companion and bool(correction_of_replaced_torch(context, environment.state.name))


def _is_torch_of_clone(environment: CorrectedEnvironment, substitution: Substitution) -> bool:
    """Whether a project from a clone requires another torch: guides build it with theirs on purpose."""
    packages = _packages_of_evidence(environment, substitution).values()
    return substitution.package.name in TORCH_FAMILY and any(each.origin == CLONE_ORIGIN for each in packages)


def _packages_of_evidence(
    environment: CorrectedEnvironment, substitution: Substitution
) -> dict[str, ResolvedPackage]:
    packages, evidence = environment.state.packages, substitution.violation.problem.evidence
    return {item.fact: packages[item.fact] for item in evidence if item.fact in packages}


def _is_cpu_build(substitution: Substitution) -> bool:
    """Whether vLLM is installed with a CPU build of torch. RUN010 and RUN011 report the reason."""
    return substitution.violation.rule.id == "VLLM003" and substitution.package.cuda == "cpu"


def _is_override(context: GuideContext, substitution: Substitution) -> bool:
    """Whether the project replaces a declared range on purpose, with override-dependencies of uv."""
    overridden = {each.name for install in context.trace.installs for each in install.action.overrides}
    facts = {item.fact for item in substitution.violation.problem.evidence}
    return substitution.violation.rule.id in ("PKG001", "PKG004") and not overridden.isdisjoint(facts)


def _is_of_other_index(context: GuideContext, environment: CorrectedEnvironment, substitution: Substitution) -> bool:
    """Whether a wheel of which PyPI's one is for another CUDA can come from another index."""
    violation = substitution.violation
    if violation.rule.id != WHEEL_CUDA:
        return False
    packages = environment.state.packages
    lines = {packages[item.fact].line for item in violation.problem.evidence if item.fact in packages}
    steps = (each.action for each in context.trace.installs if has_other_index(each.action))
    return any(requirement.line in lines for action in steps for requirement in action.requirements)


def incompatible_release(
    context: GuideContext, environment: CorrectedEnvironment, substitutions: list[Substitution]
) -> Problem:
    """All violations by one package."""
    violations = [substitution.violation for substitution in substitutions]
    version = next((substitution.version for substitution in reversed(substitutions) if substitution.version), "")
    package = environment.state.packages.get(substitutions[0].package.name, substitutions[0].package)
    place = _wheel_of(environment, violations) or package
    line = line_of(context, place.line, place.reason)
    release = find_release(package.name, public_part(package.version))
    resolved = f"{package.name} {package.version}" + (f" of {release.date}" if release else "")
    requirement = f"{package.name} ({package.reason})" if package.is_dependency else f"`{package.reason}`"
    messages = "; ".join(dict.fromkeys(violation.problem.message for violation in violations))
    excluding = requirer_that_excludes(context, environment, package, version)
    if not excluding:
        rules = list({each.rule.id: each.rule for each in violations}.values())
        version, excluding = accepted_release(context, environment, package, version, rules)
    worst = violations[0]
    fix, remedies = worst.problem.fix, keeping_pins(worst.problem.remedies, environment)
    if excluding:
        fix, remedies = f"{excluding} excludes {package.name} {version}: use another release of it.", ()
        requirer = environment.state.packages.get(excluding.partition(" ")[0])
        if requirer and not requirer.pinned:  # uv selects a release of it that accepts the other one
            pin = f"{package.name}=={version}"
            own = excluding_range(context, requirer, package.name, version, environment.state.python)
            fix = f"Use {pin} with another release of {requirer.name}: {excluding} excludes it."
            fix += f" Each release that `{own}` permits excludes it as well: change this requirement." if own else ""
            named = "" if requirer.is_dependency else requirer.specifier
            remedies = () if own else install_step(pin, f"{requirer.name}{named}")
    elif version:
        pin = f"{package.name}=={version}"
        python = other_python(context, environment, package.name, version)
        requirers = changed_requirers(environment, package)
        fix, remedies = f"Use {pin}.", install_step(pin, *requirers)
        if contradicted := contradicted_pin(context, environment, package.name, version):
            fix, remedies = f"No release of {package.name} is known to fit the other pins: {contradicted}.", ()
        if python:  # the command would find no release
            fix, remedies = f"Use {' and '.join((pin, *requirers))}, {python}.", ()
    if package.name == "torch" and (kept := correction_of_replaced_torch(context, environment.state.name)):
        fix, remedies = kept, ()
    project = _project_install(context) if package.is_dependency else None
    is_error = project is None and any(violation.problem.status == "error" for violation in violations)
    unless = f", unless `{project.command[:80]}` of line {project.line} limits it" if project else ""
    status: Status = "error" if is_error else "warning"
    if doubt := _doubt(environment, package, messages):
        status = "info"
        resolved += doubt
    return Problem(
        "unknown" if is_too_old(context.trace.today) else status,  # a newer release may be compatible
        f"{requirement} resolves today to {resolved}{unless}: {messages}",
        (
            guide_evidence(context, package.name, package.reason, line),
            table_evidence(package.name, resolved, PYPI, date_read(package.name)),
            *(_rule_evidence(violation) for violation in violations),
        ),
        fix,
        remedies,
        line=line,
        cause=worst.problem.cause or worst.rule.cause,
        url=worst.rule.url,
    )


def _doubt(environment: CorrectedEnvironment, package: ResolvedPackage, messages: str) -> str:
    """The condition on which a release is installed, or the one that it does not fit, if no solver selected it."""
    if environment.state.resolution == "unresolved" or (package.origin == "conda" and not package.specifier):
        is_solved = environment.state.resolution != "unresolved"
        return " if conda selects it" if is_solved else " if nothing else limits it (not resolved)"
    of_conda = (each for each in environment.state.packages.values() if each.origin == "conda")
    guessed = (f"{each.name} {each.version}" for each in of_conda if not re.search("<|==|~=", each.specifier))
    return next((f" if conda selects {each}" for each in guessed if each in messages), "")


def _wheel_of(environment: CorrectedEnvironment, violations: list[Violation]) -> ResolvedPackage | None:
    """The wheel that a set is judged for, if its libraries are the only problem."""
    facts = [each.problem.evidence[0].fact for each in violations if each.rule.id == WHEEL_CUDA]
    return environment.state.packages.get(facts[0]) if len(facts) == len(violations) else None


def _project_install(context: GuideContext) -> Install | None:
    """A step that installs a project or a file whose requirements the guide does not show."""
    for install in context.trace.installs:
        requirements = install.action.requirements
        urls = [each.url for each in requirements if each.url not in install.action.read]
        is_file = not install.action.requirements and re.search(r" -r\b| --requirement", install.action.command)
        if is_file or any(re.match(r"\.{0,2}/?(?:\[|$)|\.{1,2}/", url) for url in urls if url):
            return install.action
    return None


def _rule_evidence(violation: Violation) -> Evidence:
    return Evidence(violation.rule.id, violation.rule.title, violation.rule.url or "rules of envdoctor")


@rule(
    "RUN004",
    kind="guide",
    severity=("error", "warning", "info"),
    cause="dependency-pin-violated",
    url=SPECIFIERS,
    needs=("release", "python"),
)
def pinned_releases_are_incompatible(context: GuideContext) -> Iterator[Problem]:
    """The guide pins releases that are known to be incompatible, although installers accept them."""
    for environment in context.environments:
        packages = environment.state.packages
        for substitution in _unfit_pins(context, environment):
            package, violation = substitution.package, substitution.violation
            problem = violation.problem
            involved = [packages[item.fact] for item in problem.evidence if item.fact in packages]
            if environment.state.resolution == "conflict" and not all(package.pinned for package in involved):
                continue  # a step fails, so that the versions of other packages are not known
            last = max(involved, key=lambda package: package.line, default=package)
            fix, remedies = correction_of_pins(context, environment, substitution)
            problem = if_option_is_taken(context, [violation.rule.id], Problem(
                problem.status,
                problem.message,
                (
                    *(guide_evidence(context, other.name, other.reason, other.line) for other in involved),
                    _rule_evidence(violation),
                ),
                fix,
                remedies,
                line=line_of(context, last.line, last.reason),
                cause=violation.problem.cause or violation.rule.cause,
                url=violation.rule.url,
            ))  # fmt: skip
            yield if_module_is_imported(context, environment.state, [violation], problem)


def _unfit_pins(context: GuideContext, environment: CorrectedEnvironment) -> list[Substitution]:
    """The substitutions of pinned releases that no other check reports."""
    conflicts = (conflict.name for install in context.trace.installs for conflict in install.resolution.conflicts)
    conflicting = frozenset(conflicts)
    found = [
        each
        for each in environment.substitutions
        if each.pinned
        and not conflicting & _named(each)
        and not _is_cpu_build(each)
        and not _is_of_other_index(context, environment, each)
        and not _is_override(context, each)
        and not _follows_replaced_torch(context, environment, each)
    ]
    # The companion for the right torch is one for its CUDA as well.
    for_torch = [
        _named(each)
        for each in found
        if each.violation.rule.id == "PKG002" and each.violation.problem.status == "error"
    ]
    return [each for each in found if each.violation.rule.id != "PKG011" or _named(each) not in for_torch]


def _named(substitution: Substitution) -> frozenset[str]:
    return frozenset((substitution.package.name, *(item.fact for item in substitution.violation.problem.evidence)))
