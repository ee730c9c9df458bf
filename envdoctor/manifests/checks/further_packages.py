"""The remedy for a package that programs need and no step installs: it keeps the torch and the numpy of the guide."""

from __future__ import annotations

import re

from envdoctor.core.remedies import Remedy
from envdoctor.knowledge.releases import normalize_name, numpy2_releases, parse_requirement, releases_that_pin
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.absent_names import absent_by_tables, release_with_all
from envdoctor.manifests.checks.evidence import install_step
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import imports_of_guide, imports_of_programs
from envdoctor.manifests.pinned_steps import resolve_with_pin
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.torch_install import COMPANIONS


def installed_further(context: GuideContext, *packages: str) -> tuple[str, tuple[Remedy, ...]]:
    """The words and the command that install further packages, if a release of each fits the pinned torch."""
    chosen = [_with_names(context, _companion(context, each)) for each in packages]
    packages = tuple(package for package, _ in chosen)
    limits = tuple(dict.fromkeys(limit for package in packages for limit in _limits(context, package)))
    torch = next((each for each in limits if each.startswith("torch==")), "")
    if torch and (unfit := next((each for each in packages if not _fits(context, each, torch)), "")):
        fix = f"No release of {unfit} fits {torch.replace('==', ' ')}: run the program in another environment"
        return f"{fix}, or use a newer torch.", ()
    old = f"; old code can need an old release of {'them' if packages[1:] else 'it'}"
    fix = f"Install {', '.join(packages)}{'' if all('==' in each for each in packages) else old}."
    if absent := next(filter(None, (name for _, name in chosen)), ""):
        return f"{fix} The newest release does not have {absent}.", ()
    return fix, install_step(*packages, *limits)


def _with_names(context: GuideContext, package: str) -> tuple[str, str]:
    """A further package in the release that the checkout pins, or that has what programs import of it.

    With a name that the newest release does not have if that release is not known.
    """
    index, name = context.index_facts, normalize_name(package)
    newest = index.newest_release(name) if index and not set(package) & set("[<>=!~") else None
    if index is None or newest is None:
        return package, ""
    if pin := _stated_pin(context, index, name):
        return pin, ""
    used = [*imports_of_guide(context), *imports_of_programs(context)]
    only = {name: ResolvedPackage(name, newest.version, 0, package)}
    installed = installed_set(context, context.environments[-1].state, ())._replace(versions={name: newest.version})
    found = (*index.absent_imports(installed, used), *absent_by_tables(only, used))
    absent = [each for each in found if each.release.name == name]
    last, lacking = release_with_all(absent, used) if absent else ("", "")
    if absent and (lacking or not last):
        return package, absent[0].name
    return (f"{package}=={last}" if last else package), ""


def _stated_pin(context: GuideContext, index: IndexFacts, name: str) -> str:
    """The pin of a package on which the manifests of the checkout agree, such as that of an extra; else empty."""
    checkout = context.guide.checkout
    spelled = re.escape(name).replace("\\-", "[-_.]")
    stated = re.compile(rf"(?i)(?<![\w.-]){spelled}(?:\[[^\]]{{0,60}}\])?\s{{0,3}}==\s{{0,3}}(\d[\w.!+]{{0,40}})")
    versions = {*stated.findall(checkout.manifest_text)} if checkout else set()
    version = versions.pop() if len(versions) == 1 else ""
    return f"{name}=={version}" if version and index.release(name, version) else ""


def _companion(context: GuideContext, package: str) -> str:
    """The release of torchvision or torchaudio for the torch of the guide: the newest torchaudio requires none."""
    torch = context.environments[-1].state.packages.get("torch")
    if torch is None or package not in COMPANIONS:
        return package
    releases = releases_that_pin(package, "torch", public_part(torch.version))
    return f"{package}=={releases[0]}" if releases else package


def _limits(context: GuideContext, package: str) -> tuple[str, ...]:
    """What a further package must not change: the newest releases of many require NumPy 2, or a newer torch."""
    torch, index = context.environments[-1].state.packages.get("torch"), context.index_facts
    if torch is None:
        return ()
    version = public_part(torch.version)
    first = next((each.first for each in numpy2_releases() if each.package == "torch"), "")
    limits = ("numpy<2",) if first and satisfies(version, f"<{first}") is True else ()
    name = normalize_name(re.split(r"[\[<>=!~]", package)[0])
    newest = index.newest_release(name) if index and torch.pinned else None
    texts = index.requires(newest.name, newest.version) if index and newest else ()
    bounds = (bound for text in texts if (bound := parse_requirement(text)) and bound.name == "torch")
    is_replaced = any(satisfies(version, bound.specifier) is False for bound in bounds if bound.specifier)
    return (*limits, f"torch=={version}") if is_replaced else limits


def _fits(context: GuideContext, package: str, torch: str) -> bool:
    """Whether a release of a package has a solution with a torch; also if that is not known."""
    last = context.trace.installs[-1]
    pin = parse_install_requirement(torch, last.action.line)
    action = last.action._replace(tool="uv", requirements=(pin,) if pin else ())
    resolution = resolve_with_pin(last._replace(action=action), package, context.solver)
    return resolution is None or resolution.state != "conflict"
