"""Secrets on their way into a zip: taken out of what the trainer wrote, refused in what a model is made of.

A log or a table without its token is as good as before. A tokenizer or a configuration must not be changed at all,
since the model would not be the trained one: there a secret ends the packing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from envdoctor.core.errors import Refused
from envdoctor.redact.identity import read_identity
from envdoctor.redact.naming import is_secret_name
from envdoctor.redact.secrets import NOTHING, SHAPES, replace_keys, replace_secrets

CHUNK = 1 << 20
LINE = 8 << 20  # bytes of a line that are read at once
OVERLAP = 4096  # no shape is longer; a secret may lie over the border of two pieces
PLACEHOLDER = "<secret>"
TEXT = (".json", ".jsonl", ".txt", ".md", ".py", ".jinja", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".model", ".sh")
LOGS = (".log", ".txt", ".md", ".out", ".err", "")


class Secrets:
    """Takes out tokens by their shape, values under a secret's name, and the secrets of this environment."""

    def __init__(self) -> None:
        self.known = sorted(read_identity().secrets, key=len, reverse=True)
        self.removed = 0

    def pieces(self, name: str, source: IO[bytes]) -> Iterator[bytes]:
        """A file of the run as it goes into the zip, in pieces."""
        path = PurePosixPath(name)
        if len(path.parts) > 1:
            yield from self._of_model(name, source) if path.suffix in TEXT else _chunks(source)
        elif path.suffix == ".csv":
            yield from self._table(source)
        elif path.suffix == ".jsonl":
            yield from (self._json_line(line) for line in _lines(source))
        elif path.suffix == ".json":
            yield self._json(source.read())
        elif path.suffix in LOGS:
            yield from (self._log(block) for block in _blocks(source))
        else:
            yield from _chunks(source)

    def data(self, value: Any, name: str = "") -> Any:
        """Plain values without secrets; a text under a secret's name is one."""
        if isinstance(value, str):
            if name and is_secret_name(name) and value.strip() and not NOTHING.fullmatch(value.strip()):
                return self._note("secret", value)
            return self.text(value)
        if isinstance(value, dict):
            return {self.shapes(key): self.data(each, key) for key, each in value.items()}
        return [self.data(each, name) for each in value] if isinstance(value, list) else value

    def text(self, text: str) -> str:
        """A text without secrets, by shape and by the name before them."""
        return self._literal(replace_secrets(replace_keys(text, self._note), self._note))

    def shapes(self, text: str) -> str:
        """A text without what has a secret's shape: what a model wrote under `password:` is data."""
        for literal, shape in SHAPES:
            if literal in text:
                text = shape.sub(lambda found: self._note("secret", found[0]), text)
        return self._literal(text)

    def _literal(self, text: str) -> str:
        for secret in self.known:
            if secret in text:
                self.removed += text.count(secret)
                text = text.replace(secret, PLACEHOLDER)
        return text

    def _note(self, kind: str, value: str) -> str:
        """Hosts and users are found on the way; they are no secrets."""
        if kind != "secret" or value == PLACEHOLDER:
            return value
        self.removed += 1
        return PLACEHOLDER

    def _log(self, block: bytes) -> bytes:
        return self._changed(block, self.text)

    def _json_line(self, line: bytes) -> bytes:
        """An event; one that is half written is a text like any other."""
        return self._changed(line, self._json_text)

    def _json(self, content: bytes) -> bytes:
        return self._changed(content, self._json_text)

    def _json_text(self, text: str) -> str:
        """The text as it was where it holds no secret, since JSON can be written in many ways."""
        try:
            before = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        after = self.data(before)
        if after == before:
            return text
        indent = 1 if "\n" in text.strip() else None
        return json.dumps(after, ensure_ascii=False, indent=indent) + ("\n" if text.endswith("\n") else "")

    def _table(self, source: IO[bytes]) -> Iterator[bytes]:
        """A table: what stands in place of a token has neither comma nor quote, so its cells stay what they are."""
        for block in _blocks(source):
            yield self._changed(block, self.shapes)

    def _changed(self, data: bytes, change: Any) -> bytes:
        """Bytes that are no UTF-8 come back as they were."""
        text = data.decode("utf-8", "surrogateescape")
        return bytes(change(text).encode("utf-8", "surrogateescape"))

    def _of_model(self, name: str, source: IO[bytes]) -> Iterator[bytes]:
        """A file of a model, unchanged; Refused where it holds a secret."""
        before, tail = self.removed, ""
        for piece in _chunks(source):
            text = tail + piece.decode("utf-8", "replace")
            self.shapes(text)
            if self.removed > before:
                raise Refused(
                    f"{name} holds a secret, by its shape",
                    expected="a model without one: its files are packed as they are or not at all",
                    hint="take the secret out of that file, revoke it, and pack again",
                )
            tail = text[-OVERLAP:]
            yield piece


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(CHUNK):
        yield piece


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline(LINE):
        yield line


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    """About a mebibyte at a time, up to the end of a line: no secret but a private key goes over lines."""
    while block := source.read(CHUNK):
        yield block + source.readline(LINE)
