"""Packages of a guide that a set of requirements does not have, with what installs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envdoctor.core.record import Record

WITHOUT_NEED = "a package of conda, which wheels do not need"
BEFORE_WITH_CONDA = "from conda: install `{}` with conda before these requirements"
NOT_FROM_INDEX = "not from an index: install it after these requirements with `{}`"
NOT_COMPARED = "not from an index: its requirements were not compared with these, so that `{}` can fail"
SOURCE_UNFIT = "not from an index: it cannot be installed into this set, because {}"
OF_ANOTHER_MACHINE = "a folder of the machine that wrote the requirement: add the release that the programs need"
OF_PAGE = "a build of a page that was not read: install it after these requirements with `{}`"
OF_INDEX = "of an index that was not read: install it after these requirements with `{}`"
WITHOUT_WHEEL = "no wheel on PyPI: install it after the others, with --no-build-isolation or a wheel's URL"
NO_WHEEL = "the index has no wheel: install it after these requirements with `{}`"
BUILT_FROM_SOURCE = (
    "only a source archive on the index: build after these requirements with "
    "`uv pip install pip 'setuptools<82' wheel` and `uv pip install --no-build-isolation {}`"  # pkg_resources
)
BUILT_WITHOUT_TORCH = (  # in isolation, with what its build requires and a setuptools that has pkg_resources
    "only a source archive on the index: build after these requirements with "
    "`uv pip install --build-constraints <(echo 'setuptools<82') {}`"
)
FAILING_BUILD = "only a source archive on the index, and its build fails: {}"
OF_ADDRESSES = ("not from an index: install it", "not from an index: its")
INSTALLED_LATER = (
    *OF_ADDRESSES,
    "from conda",
    "of an index that",
    "only a source",
    "no wheel",
    "the index has no",
)
_JOINED = (BEFORE_WITH_CONDA, BUILT_FROM_SOURCE, BUILT_WITHOUT_TORCH)  # one command takes several packages


class DroppedPackage(Record, frozen=True):
    """A package of the guide that is not among the corrected requirements."""

    name: str
    reason: str


def dropped_lines(dropped: Iterable[DroppedPackage]) -> Iterator[str]:
    """A line for each package with its reason, and one for all packages that one command installs."""
    joined: dict[str, tuple[list[str], list[str]]] = {}
    others: list[str] = []
    for each in dropped:
        template = next((text for text in _JOINED if _argument(each.reason, text)), "")
        if template:
            names, arguments = joined.setdefault(template, ([], []))
            names.append(each.name)
            arguments.append(_argument(each.reason, template))
        else:
            others.append(f"{each.name}: {each.reason}")
    for template, (names, arguments) in joined.items():
        yield f"{', '.join(names)}: {template.format(' '.join(arguments))}"
    yield from others


def _argument(reason: str, template: str) -> str:
    """The argument of a command in a reason; empty if it is another reason."""
    start, _, end = template.partition("{}")
    found = reason.removeprefix(start).removesuffix(end)
    return found if reason == template.replace("{}", found) and "`" not in found else ""
