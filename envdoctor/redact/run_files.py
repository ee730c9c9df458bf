"""Redaction of the files of a training run that are packed into a zip.

Secrets are removed from logs, tables and settings, in subdirectories as well. The other files there belong to a model
and are never changed: a secret in one of them is an error. training_args.bin can have the Hub's token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from envdoctor.core.errors import Refused
from envdoctor.redact.field_names import is_secret_name
from envdoctor.redact.identity import read_identity
from envdoctor.redact.secrets import NO_VALUE, redact_colored, redact_private_keys, redact_secrets, redact_tokens

CHUNK = 1 << 20
LINE = 8 << 20  # longest part of a line that is read at once
OVERLAP = 4096  # longer than any token, which may extend over two chunks
PLACEHOLDER = "<secret>"
LOGS = (".log", ".csv", ".tsv", ".out", ".err")
LARGE_BINARY = 4 << 20  # bytes; weights above it are not searched
BINARY = (".safetensors", ".bin", ".pt", ".pth", ".png", ".gz", ".zip", ".parquet")


class RunFileRedactor:
    """Removes tokens by their format, values of secret fields, and the secrets of environment variables."""

    def __init__(self) -> None:
        self.known = sorted(read_identity().secrets, key=len, reverse=True)
        self.removed = 0

    def redact_file(self, name: str, source: IO[bytes]) -> Iterator[bytes]:
        """The redacted content of a file of the run, in chunks."""
        path = PurePosixPath(name)
        if path.suffix in BINARY and _size(source) > LARGE_BINARY:
            yield from _chunks(source)
        elif (len(path.parts) > 1 and path.suffix not in LOGS) or path.suffix in BINARY:
            yield from self._check_model_file(name, source)
        elif path.suffix in (".csv", ".tsv"):
            yield from self._table(source)
        elif path.suffix == ".jsonl":
            yield from (self._redact_bytes(line, self._json_text) for line in _lines(source))
        elif path.suffix == ".json":
            yield self._redact_bytes(source.read(), self._json_text)
        else:
            yield from (self._redact_bytes(block, self.text) for block in _blocks(source))

    def data(self, value: Any, name: str = "") -> Any:
        """Redacted dicts, lists and texts. The text of a secret field is redacted completely."""
        if isinstance(value, str):
            if name and is_secret_name(name) and value.strip() and not NO_VALUE.fullmatch(value.strip()):
                return self._replace_value("secret", value)
            return self.text(value)
        if isinstance(value, dict):
            return {self.redact_tokens(key): self.data(item, key) for key, item in value.items()}
        return [self.data(item, name) for item in value] if isinstance(value, list) else value

    def text(self, text: str) -> str:
        """A text without secrets, recognized by their format or by the name before them."""
        return redact_colored(text, self._redact_plain_text)

    def _redact_plain_text(self, text: str) -> str:
        text = redact_private_keys(text, self._replace_value)
        return self._redact_known_values(redact_secrets(text, self._replace_value))

    def redact_tokens(self, text: str) -> str:
        """A text without tokens. Text after a name such as `password:` is kept, as in a completion of a model."""
        return redact_colored(
            text, lambda plain: self._redact_known_values(redact_tokens(plain, self._replace_value))
        )

    def _redact_known_values(self, text: str) -> str:
        for secret in self.known:
            if secret in text:
                self.removed += text.count(secret)
                text = text.replace(secret, PLACEHOLDER)
        return text

    def _replace_value(self, kind: str, value: str) -> str:
        """Replace secrets; host and user names, which are also found, are kept."""
        if kind != "secret" or value == PLACEHOLDER:
            return value
        self.removed += 1
        return PLACEHOLDER

    def _json_text(self, text: str) -> str:
        """Redact JSON, or an incomplete line of it as plain text. Text without a secret is returned unchanged."""
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
        """Redact a CSV file. The placeholder contains neither comma nor quote, so the cells are preserved."""
        for block in _blocks(source):
            yield self._redact_bytes(block, self.redact_tokens)

    def _redact_bytes(self, data: bytes, change: Any) -> bytes:
        """Redact bytes. Bytes that are not UTF-8 are preserved."""
        text = data.decode("utf-8", "surrogateescape")
        return bytes(change(text).encode("utf-8", "surrogateescape"))

    def _check_model_file(self, name: str, source: IO[bytes]) -> Iterator[bytes]:
        """The unchanged content of a file of a model; Refused if it contains a secret."""
        before, tail = self.removed, ""
        for piece in _chunks(source):
            text = tail + piece.decode("utf-8", "replace")
            self.redact_tokens(text)
            if self.removed > before:
                raise Refused(
                    f"{name} contains text in the format of a secret",
                    expected="model files without secrets, since they are packed unchanged",
                    hint="remove the secret from that file, revoke it, and pack again",
                )
            tail = text[-OVERLAP:]
            yield piece


def _size(source: IO[bytes]) -> int:
    size = source.seek(0, 2)
    source.seek(0)
    return size


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(CHUNK):
        yield piece


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    while line := source.readline(LINE):
        yield line


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Blocks of about 1 MiB that end at a line break, since only private keys extend over several lines."""
    while block := source.read(CHUNK):
        yield block + source.readline(LINE)
