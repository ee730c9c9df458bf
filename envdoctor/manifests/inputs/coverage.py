"""How much of an input was read, and whether that decides anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from envdoctor.core.record import Record
from envdoctor.knowledge.images import image_contents
from envdoctor.knowledge.published import published_releases
from envdoctor.manifests.actions import Install, UseImage
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.batch_jobs import checked_parts
from envdoctor.manifests.inputs.records import Document
from envdoctor.manifests.step_resolution import CONDA_NAMES, other_indexes
from envdoctor.manifests.write_back import MANIFESTS
from envdoctor.redact.variables import redact_variable

_INDEX = "the index "
_NO_PACKAGES = "the packages of its programs: no step that was read names them"


class Coverage(Record, frozen=True, kw_only=True):
    """What was read of an input."""

    packages: int  # different packages that it names
    judged: int  # those of them, and images, that the built-in tables contain; launches without packages
    steps: int  # commands and instructions
    unread: tuple[str, ...] = ()  # what could not be read, with the reason
    origin: str = ""  # of the packages of a guide without install commands

    @property
    def has_unread_index(self) -> bool:
        """Whether a step takes packages from an index that was not read."""
        return any(each.startswith(_INDEX) for each in self.unread)


def coverage_of(document: Document) -> Coverage:
    """The coverage of a document."""
    guides = (*document.paths, *((document.guide,) if document.guide else ()))
    names = {name for guide in guides for name in _installed_names(guide)}
    names = {CONDA_NAMES.get(name, name) for name in names}
    names |= {package.name for each in document.sets for package in each.packages}
    names |= set((document.stack.distributions.value or {}) if document.stack else {})
    actions = [action for guide in guides for action in guide.actions]
    images = {f"{each.name}:{each.tag}" for each in actions if isinstance(each, UseImage) and _is_known(each)}
    has_steps = document.kind not in MANIFESTS
    code = bool(names) and any(guide.python_blocks for guide in guides)  # decides with the releases of packages
    launches = max(map(checked_parts, guides), default=0) if document.kind == "script" else 0
    programs = max(map(_started_files, guides), default=0) if document.kind == "guide" and not names else 0
    return Coverage(
        packages=len(names),
        judged=sum(1 for name in names if published_releases(name)) + len(images) + code + launches + programs,
        steps=len({(action.line, action.command) for action in actions if action.command} if has_steps else ()),
        unread=(*document.unread, *((_NO_PACKAGES,) if programs else ())),
        origin=document.origin,
    )


def with_unread_indexes(coverage: Coverage, document: Document, partial: Collection[int]) -> Coverage:
    """The coverage with the indexes of steps whose open versions or absent packages come from them."""
    installs = [each for guide in document.paths for each in guide.actions if isinstance(each, Install)]
    lines = [
        f"{_INDEX}{redact_variable('', url)} (line {each.line}): its releases were not read"
        for each in installs
        if each.line in partial or not all(requirement.pin or requirement.url for requirement in each.requirements)
        for url in other_indexes(each)
    ]
    return replace(coverage, unread=tuple(dict.fromkeys((*coverage.unread, *lines))))


def _installed_names(guide: Guide) -> Iterator[str]:
    for action in guide.actions:
        if isinstance(action, Install):
            yield from (each.name for each in (*action.requirements, *action.unknown) if each.name)


def _started_files(guide: Guide) -> int:
    """The number of files of the checkout that commands start: their options and paths can be compared."""
    checkout = guide.checkout
    if checkout is None or not checkout.is_clone or any(isinstance(each, UseImage) for each in guide.actions):
        return 0
    return len({path for each in guide.launches if each.line and (path := checkout.script(each))})


def _is_known(image: UseImage) -> bool:
    contents = image_contents(image.name, image.tag)
    return bool(contents.versions or contents.cuda)
