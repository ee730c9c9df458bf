"""Checks of generated HTML pages: valid, self-contained, accessible."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from xml.etree.ElementTree import Element

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import html5lib

URL_ATTRIBUTES = {"src", "srcset", "href", "action", "formaction", "poster", "data", "background", "cite", "ping"}


def parse_page(text: str) -> Element:
    """The tree of a page, after checks that hold for every page."""
    root = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    assert root.get("lang") == "en"
    policy = next(each.get("content") for each in root.iter("meta") if each.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert [len(list(root.iter(name))) for name in ("script", "style", "h1", "main")] == [1, 1, 1, 1]
    for element in root.iter():
        if isinstance(element.tag, str):
            check_element(element)
    levels = [int(element.tag[1]) for element in root.iter() if re.fullmatch(r"h\d", str(element.tag))]
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    return root


def check_element(element: Element) -> None:
    """Check one element of a page."""
    for name, value in element.items():
        assert not name.lower().startswith("on"), "an event handler"
        assert name != "style", "the policy blocks it"
        if name.lower() in URL_ATTRIBUTES:
            is_link = element.tag == "a" and value.startswith(("https://", "http://"))
            assert is_link or (element.tag, value) == ("link", "data:,"), (element.tag, value)
    if element.tag.rpartition("}")[2] == "svg":
        assert element.get("aria-label") or element.get("aria-hidden") == "true"
    if element.tag == "table":
        assert element.find("caption") is not None
        assert all(cell.get("scope") == "col" for cell in element.iterfind("thead/tr/th"))
        assert all(row.find("th").get("scope") == "row" for row in element.iterfind("tbody/tr"))  # type: ignore[union-attr]


def page_text(element: Element) -> str:
    """The text of an element, as a person reads it."""
    return " ".join("".join(element.itertext()).split())
