"""The release of a library that accepts all arguments of the code in a guide."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.guides import inherited_arguments
from envdoctor.knowledge.names import Span, find_member, find_name, single_period
from envdoctor.knowledge.versions import dotted_numbers, satisfies
from envdoctor.manifests.absent_names import names_without
from envdoctor.manifests.checks.arguments import arguments
from envdoctor.manifests.checks.fitting_releases import excluding_package
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import attributes_of_guide, imports_of_guide


def release_that_accepts_all(context: GuideContext, name: str) -> str:
    """The last release that accepts what the installed one does not, and that has all else that the code uses.

    Empty if there is none, if the guide limits the package to others, or if programs of a checkout use it as well.
    """
    states = [each.state for each in context.environments if name in each.state.packages]
    package = states[-1].packages[name] if states else None
    if not package or package.is_dependency or package.pinned or package.origin != "PyPI" or context.guide.launches:
        return ""
    spans = list(_spans(context, name))
    gone = [each for each in spans if each and not _can_be_in(each, package.version)]
    lasts = [each[-1].last for each in gone]
    last = min(lasts, key=dotted_numbers, default="")
    if (
        not all(lasts)
        or satisfies(last, package.specifier) is False
        or not all(_can_be_in(each, last) for each in spans if each)
    ):
        return ""
    used = (*imports_of_guide(context), *attributes_of_guide(context))
    python = states[-1].python or context.trace.python
    index = context.index_facts
    excluding = excluding_package(index, states[-1].packages, name, last, python=python) if index else ""
    return "" if excluding or next(names_without(name, last, used), "") else last


def _spans(context: GuideContext, name: str) -> Iterator[tuple[Span, ...]]:
    """The periods of the arguments and of the imported names of a package."""
    for _, owner, argument, _ in arguments(context):
        span = single_period(find_member("arguments", owner, argument))
        if span and span.package == name and argument not in inherited_arguments(name):
            yield (span,)
    for each in imports_of_guide(context):
        if each.top == name:
            yield find_name(name, each.name or each.module)


def _can_be_in(spans: tuple[Span, ...], version: str) -> bool:
    return any(each.can_be_in(version) for each in spans)
