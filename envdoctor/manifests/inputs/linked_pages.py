"""The pages of a checkout to which its guides link: docs/INSTALL.md, docs/TRAIN.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.files import small_text

GUIDE = lazy_pattern(r".*\.(?:md|markdown|rst)", re.IGNORECASE)
# Pages on the project itself, whose commands are for those who change it.
_NO_GUIDE = lazy_pattern(
    r"(?:change|release|history|news|contributing|security|code[_-]of[_-]conduct|licen[sc]e).*", re.IGNORECASE
)
_LINK = lazy_pattern(
    r"\]\(\s*<?(?P<markdown>[^)\s>#?]+)|\bhref\s*=\s*[\"'](?P<html>[^\"'#?]+)|`[^`<]*<(?P<rst>[^>#\s]+)>`_"
)
_OF_GITHUB = lazy_pattern(r"https?://github\.com/[^/]+/[^/]+/(?:blob|tree)/[^/]+/(?P<path>.+)")
_COMMAND = lazy_pattern(
    r"^[ \t>$`]*(?:sudo )?(?:[A-Z_]+=\S+ )*(?:pip3? install|python3? |uv (?:sync|add|run|pip)|conda |torchrun |"
    r"accelerate launch|deepspeed |(?:ba)?sh \S+\.sh|docker (?:run|build|compose)|srun |sbatch )",
    re.MULTILINE,
)


def is_page_of_commands(path: Path) -> bool:
    """Whether a page can be a guide: it has commands, and is not one such as CONTRIBUTING.md."""
    is_guide = GUIDE.fullmatch(path.name) and not _NO_GUIDE.match(path.name)
    return bool(is_guide and _COMMAND.search(small_text(path)))


def linked_pages(guides: Iterable[Path], root: Path) -> list[Path]:
    """The other pages with commands to which guides link, relative to `root`.

    Links of these pages are not followed: the documentation of a library has commands for the projects of its users.
    """
    root, own = root.resolve(), {each.resolve() for each in guides}
    pages = dict.fromkeys(page for guide in sorted(own) for _, page in links_of(guide, root))
    return [page.relative_to(root) for page in pages if page not in own and is_page_of_commands(page)]


def links_of(guide: Path, root: Path) -> Iterator[tuple[int, Path]]:
    """The lines of the links of a guide, and the existing pages below `root` that they name, as resolved paths."""
    root = root.resolve()
    for number, line in enumerate(small_text(guide).splitlines(), 1):
        for match in _LINK.finditer(line):
            for page in _pages(next(filter(None, match.groups())), guide, root):
                yield number, page


def _pages(link: str, guide: Path, root: Path) -> Iterator[Path]:
    """The pages that a link names: relative to its guide or the root, or on GitHub."""
    on_github = _OF_GITHUB.fullmatch(link)
    if not GUIDE.fullmatch(link) or ("://" in link and not on_github):
        return
    folders = (root,) if on_github or link.startswith("/") else (guide.parent, root)
    path = (on_github["path"] if on_github else link).lstrip("/")
    pages = ((folder / path).resolve() for folder in folders)
    yield from (page for page in pages if page.is_relative_to(root) and page.is_file())
