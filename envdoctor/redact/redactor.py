"""The redactor: it redacts by patterns, and then all other occurrences of the names that the patterns found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from envdoctor.core.printable import without_invisible
from envdoctor.redact.addresses import redact_addresses
from envdoctor.redact.field_names import classify_name
from envdoctor.redact.identifiers import expand_node_list, redact_identifiers
from envdoctor.redact.identity import Identity, is_common_name
from envdoctor.redact.secret_forms import with_letters
from envdoctor.redact.secrets import NO_VALUE, redact_private_keys, redact_secrets
from envdoctor.redact.word_lists import word_list

# Kind: placeholder, singular, plural.
KINDS = {
    "secret": ("<secret>", "secret", "secrets"),
    "user": ("<user>", "user name", "user names"),
    "host": ("<host>", "host name", "host names"),
    "address": ("<address>", "network address", "network addresses"),
    "email": ("<email>", "e-mail address", "e-mail addresses"),
    "name": ("<name>", "job or run name", "job and run names"),
    "uuid": ("<uuid>", "UUID", "UUIDs"),
    "serial": ("<serial>", "serial number", "serial numbers"),
    "machine": ("<machine-id>", "machine id", "machine ids"),
}
# Values of envdoctor's own records, which are kept even if a user has such a name.
OWN_WORDS = word_list("ours") | {"not supported", "not started", "in progress"}
LARGE_NUMBER = 10**6  # may be a serial number or a password; smaller numbers are counts
PART_LENGTH = 32 << 10  # characters
MIN_LEARNED_SECRET = 12  # characters of a secret with letters and digits that is redacted everywhere
# The directory of a user whose name is also the name of a package.
FOLDER_PATTERN = r"(?<!site-packages)(?<!dist-packages)/{}(?=[/:\s\"'),]|$)"
WORD_BEFORE, WORD_AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"


class Redactor:
    """Redacts identifying data and counts the removed values.

    `versions` and `packages` are never redacted as addresses or names. `public` are public sites. `fields` are keys
    of envdoctor's own records, which are kept.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        versions: AbstractSet[str] = frozenset(),
        packages: AbstractSet[str] = frozenset(),
        public: AbstractSet[str] = frozenset(),
        fields: AbstractSet[str] = frozenset(),
    ) -> None:
        self.versions, self.packages, self.public, self.fields = versions, packages, public, fields
        self._package_words = frozenset(part for name in packages for part in (name, *name.split("-")))
        self._found: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self._known: dict[str, set[str]] = {kind: set() for kind in KINDS}
        for kind, values in (("user", identity.users), ("host", identity.hosts)):
            self._known[kind] |= {value for value in values if not self._is_common(value)}
        named_as_packages = {user for user in identity.users if self._is_common(user) and not is_common_name(user)}
        self._folders = {user: re.compile(FOLDER_PATTERN.format(re.escape(user))) for user in named_as_packages}
        self._known["secret"] |= identity.secrets
        self._known["machine"] |= identity.machine_ids

    @property
    def removed(self) -> dict[str, int]:
        """The number of different removed values of each kind."""
        return {kind: len(values) for kind, values in self._found.items() if values}

    def text(self, text: str) -> str:
        """The redacted text."""
        return self._redact_known_values(self._redact_patterns(text))

    def data(self, data: Any) -> Any:
        """Redacted dicts, lists and texts, including keys. A name found in one text is redacted in all of them."""
        redacted = self._walk(data, "", self._redact_field)
        return self._walk(redacted, "", lambda _, text: self._redact_known_values(text))

    def _walk(self, data: Any, key: str, change: Any) -> Any:
        if isinstance(data, str):
            return data if data in OWN_WORDS else change(key, data)
        if isinstance(data, dict):
            # A piece of evidence has the name of its fact next to the value.
            fact = data.get("fact")
            named = {"value": fact.rsplit(".", 1)[-1]} if isinstance(fact, str) else {}
            return {
                name if name in self.fields else change("", str(name)): self._walk(
                    value, named.get(name, name if name != "value" else key), change
                )
                for name, value in data.items()
            }
        if isinstance(data, list | tuple):
            keys = [key, *(_option_name(item) or key for item in data[:-1])]
            return [self._walk(item, item_key, change) for item, item_key in zip(data, keys, strict=False)]
        is_large = isinstance(data, int) and abs(data) >= LARGE_NUMBER
        numbered = is_large and classify_name(key) in ("secret", "serial", "machine")
        return change(key, str(data)) if numbered else data

    def _redact_field(self, key: str, text: str) -> str:
        """Redact the text of a field by its name."""
        kind = classify_name(key) if key else None
        stripped = text.strip()
        if (
            kind
            and stripped
            and not NO_VALUE.fullmatch(stripped)
            and stripped not in ("root", "localhost", "127.0.0.1")
        ):
            return self._replace_value(kind, stripped)
        return self._redact_patterns(text)

    def _redact_patterns(self, text: str) -> str:
        text = redact_private_keys(with_letters(without_invisible(text)), self._replace_value)
        return "".join(self._redact_part(part) for part in _parts(text))

    def _redact_part(self, text: str) -> str:
        text = redact_secrets(text, self._replace_value)
        text = redact_identifiers(text, self._replace_value, self.public)
        return redact_addresses(text, self._replace_value, self.versions, self.packages)

    def _redact_known_values(self, text: str) -> str:
        """The text without all known names and secrets, longest first."""
        for kind, value in self._known_by_length():
            if value in text:
                text, count = re.subn(WORD_BEFORE + re.escape(value) + WORD_AFTER, KINDS[kind][0], text)
                if count:
                    self._found[kind].add(value)
        for user, folder in self._folders.items():
            text, count = folder.subn("/" + KINDS["user"][0], text)
            if count:
                self._found["user"].add(user)
        return text

    def _known_by_length(self) -> list[tuple[str, str]]:
        pairs = [(kind, value) for kind, values in self._known.items() for value in values]
        return sorted(pairs, key=lambda pair: (-len(pair[1]), pair))

    def _replace_value(self, kind: str, value: str) -> str:
        """Count a value, remember it if it is distinctive, and return its placeholder."""
        if value.startswith("<") and value.endswith(">"):
            return value  # a placeholder already
        if value in self._found[kind]:
            return KINDS[kind][0]
        self._found[kind].add(value)
        if kind in ("secret", "name"):
            if len(value) >= MIN_LEARNED_SECRET and re.search(r"\d", value) and re.search(r"[A-Za-z]", value):
                self._known[kind].add(value)
        elif kind == "host":
            for host in expand_node_list(value):
                short = host.split(".")[0]
                # `node07` of node07.acme.com identifies a machine; `www` or `cupy` of a site does not.
                self._learn(kind, (host, host.lower(), short if re.search(r"\d|-", short) else host))
        elif kind == "user":
            self._learn(kind, (value,))
        return KINDS[kind][0]

    def _learn(self, kind: str, names: Iterable[str]) -> None:
        self._known[kind] |= {name for name in names if not self._is_common(name)}

    def _is_common(self, name: str) -> bool:
        return is_common_name(name) or name.lower() in self._package_words or name in OWN_WORDS


def _parts(text: str) -> Iterator[str]:
    """Split a text into parts of complete lines, since most patterns are only needed for a few parts."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + PART_LENGTH)
        end = len(text) if end < 0 else end + 1
        yield text[at:end]
        at = end


def _option_name(text: object) -> str:
    """The name of a command-line option whose value is the next argument; empty for other texts."""
    plain = isinstance(text, str) and text.startswith("-") and "=" not in text and " " not in text
    return str(text).lstrip("-") if plain else ""


def summarize_removed(removed: dict[str, int]) -> str:
    """The removed values as text: "Removed: 3 secrets, 2 user names."."""
    parts = [f"{count} {KINDS[kind][1 if count == 1 else 2]}" for kind, count in removed.items() if count]
    return (
        f"Removed: {', '.join(parts)}."
        if parts
        else "Removed: nothing. No secret, name, address or serial number was found."
    )
