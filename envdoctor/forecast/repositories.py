"""The repositories that addresses name."""

from __future__ import annotations

from collections.abc import Iterable

from envdoctor.core.patterns import lazy_pattern

_PAGES = lazy_pattern(r"https?://([\w-]+)\.github\.io/([\w.-]+)")
REPOSITORY = lazy_pattern(r"(?:github|gitlab)\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?(?:[@/#]|$)")


def repositories(urls: Iterable[str]) -> set[str]:
    """The repositories of addresses such as github.com/OWNER/NAME and OWNER.github.io/NAME."""
    found = {match[1] for url in urls if (match := REPOSITORY.search(url))}
    found |= {f"{match[1]}/{match[2]}" for url in urls if (match := _PAGES.match(url))}
    return {each.lower() for each in found}
