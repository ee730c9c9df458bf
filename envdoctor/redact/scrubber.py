"""The scrubber: patterns first, which also learn names; then every learnt name wherever else it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from envdoctor.redact.addresses import replace_addresses
from envdoctor.redact.identity import Identity, is_common
from envdoctor.redact.naming import kind_of
from envdoctor.redact.places import expand_nodes, replace_places
from envdoctor.redact.secrets import NOTHING, replace_keys, replace_secrets
from envdoctor.redact.words import words

# Kind: placeholder, and what one and several are called.
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
OURS = words("ours") | {"not supported", "not started", "in progress"}  # a user who is called so is not told by them
LARGE = 10**6  # a number that may be a serial or a password, and no count
PART = 32 << 10  # characters
LEARNT_SECRET = 12  # characters, with letters and digits, from which a secret is taken out wherever it stands
FOLDER = r"(?<!site-packages)(?<!dist-packages)/{}(?=[/:\s\"'),]|$)"  # of a user who is called as a package is
WORD_BEFORE, WORD_AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"


class Scrubber:
    """Takes out what identifies, and counts it.

    `versions` and `packages` are known to be no addresses and no names; `public` are sites that are everybody's;
    `fields` are keys of our own records, which stay as they are.
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
        self._words = frozenset(part for name in packages for part in (name, *name.split("-")))
        self._found: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self._known: dict[str, set[str]] = {kind: set() for kind in KINDS}
        for kind, values in (("user", identity.users), ("host", identity.hosts)):
            self._known[kind] |= {value for value in values if not self._is_common(value)}
        named_as_packages = {user for user in identity.users if self._is_common(user) and not is_common(user)}
        self._folders = {user: re.compile(FOLDER.format(re.escape(user))) for user in named_as_packages}
        self._known["secret"] |= identity.secrets
        self._known["machine"] |= identity.machine_ids

    @property
    def removed(self) -> dict[str, int]:
        """How many different values of each kind were taken out."""
        return {kind: len(values) for kind, values in self._found.items() if values}

    def text(self, text: str) -> str:
        """One text."""
        return self._literals(self._patterns(text))

    def data(self, data: Any) -> Any:
        """Plain values (dicts, lists, texts): every text in them, keys too; names learnt in one are known in all."""
        return self._walk(self._walk(data, "", self._keyed), "", lambda _, text: self._literals(text))

    def _walk(self, data: Any, key: str, change: Any) -> Any:
        if isinstance(data, str):
            return data if data in OURS else change(key, data)
        if isinstance(data, dict):
            # An evidence names its fact beside its value.
            fact = data.get("fact")
            named = {"value": fact.rsplit(".", 1)[-1]} if isinstance(fact, str) else {}
            return {
                name if name in self.fields else change("", str(name)): self._walk(
                    value, named.get(name, name if name != "value" else key), change
                )
                for name, value in data.items()
            }
        if isinstance(data, list | tuple):
            keys = [key, *(_option(each) or key for each in data[:-1])]
            return [self._walk(each, own, change) for each, own in zip(data, keys, strict=False)]
        numbered = isinstance(data, int) and abs(data) >= LARGE and kind_of(key) in ("secret", "serial", "machine")
        return change(key, str(data)) if numbered else data

    def _keyed(self, key: str, text: str) -> str:
        """A text that stands under a name."""
        kind = kind_of(key) if key else None
        stripped = text.strip()
        if (
            kind
            and stripped
            and not NOTHING.fullmatch(stripped)
            and stripped not in ("root", "localhost", "127.0.0.1")
        ):
            return self._note(kind, stripped)
        return self._patterns(text)

    def _patterns(self, text: str) -> str:
        text = replace_keys(text, self._note)
        return "".join(self._part(part) for part in _parts(text))

    def _part(self, text: str) -> str:
        text = replace_secrets(text, self._note)
        text = replace_places(text, self._note, self.public)
        return replace_addresses(text, self._note, self.versions, self.packages)

    def _literals(self, text: str) -> str:
        """The text without the names and secrets that are known by now, longest first."""
        for kind, value in self._by_length():
            if value in text:
                text, count = re.subn(WORD_BEFORE + re.escape(value) + WORD_AFTER, KINDS[kind][0], text)
                if count:
                    self._found[kind].add(value)
        for user, folder in self._folders.items():
            text, count = folder.subn("/" + KINDS["user"][0], text)
            if count:
                self._found["user"].add(user)
        return text

    def _by_length(self) -> list[tuple[str, str]]:
        pairs = [(kind, value) for kind, values in self._known.items() for value in values]
        return sorted(pairs, key=lambda pair: (-len(pair[1]), pair))

    def _note(self, kind: str, value: str) -> str:
        """Count a value, learn it if it is telling, and answer with its placeholder."""
        if value.startswith("<") and value.endswith(">"):
            return value  # a placeholder already
        if value in self._found[kind]:
            return KINDS[kind][0]
        self._found[kind].add(value)
        if kind in ("secret", "name"):
            if len(value) >= LEARNT_SECRET and re.search(r"\d", value) and re.search(r"[A-Za-z]", value):
                self._known[kind].add(value)
        elif kind == "host":
            for host in expand_nodes(value):
                short = host.split(".")[0]
                # `node07` of node07.acme.com is a machine's name; `www` or `cupy` of a site is not.
                self._learn(kind, (host, host.lower(), short if re.search(r"\d|-", short) else host))
        elif kind == "user":
            self._learn(kind, (value,))
        return KINDS[kind][0]

    def _learn(self, kind: str, names: Iterable[str]) -> None:
        self._known[kind] |= {name for name in names if not self._is_common(name)}

    def _is_common(self, name: str) -> bool:
        return is_common(name) or name.lower() in self._words or name in OURS


def _parts(text: str) -> Iterator[str]:
    """A long text in parts of whole lines: most patterns need a word that most parts do not have."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + PART)
        end = len(text) if end < 0 else end + 1
        yield text[at:end]
        at = end


def _option(text: object) -> str:
    """The name of an option whose value is the next argument; empty for anything else."""
    plain = isinstance(text, str) and text.startswith("-") and "=" not in text and " " not in text
    return str(text).lstrip("-") if plain else ""


def removed_line(removed: dict[str, int]) -> str:
    """What was taken out, in words: "Removed: 3 secrets, 2 user names"."""
    parts = [f"{count} {KINDS[kind][1 if count == 1 else 2]}" for kind, count in removed.items() if count]
    return (
        f"Removed: {', '.join(parts)}."
        if parts
        else "Removed: nothing; no secret, name, address or serial was found."
    )
