"""Options of pip, uv and conda: which take a value, and what the ones mean that matter here."""

from __future__ import annotations

from typing import NamedTuple

_WITH_VALUE = frozenset({
    "-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-i", "--index-url",
    "--extra-index-url",
    "-f", "--find-links", "--torch-backend", "--index", "--default-index", "-p", "--python",
    "--python-version", "--prefix",
    "-t", "--target", "-e", "--editable", "--config-settings", "-C", "--exclude-newer", "--index-strategy",
    "--no-binary",
    "--only-binary", "--platform", "--abi", "--implementation", "-d", "--dest", "--cache-dir", "--timeout",
    "--retries",
    "--trusted-host", "--root", "--src", "-P", "--upgrade-package", "--reinstall-package",
    "--no-build-isolation-package",
    "--python-platform", "--resolution", "--prerelease", "--link-mode", "--prompt", "--proxy", "--extra", "--group",
    "--report", "--upgrade-strategy", "--no-build-package", "--override", "--overrides", "--keyring-provider",
    "--directory",
    "--global-option", "--build-option", "-n", "--name", "--channel", "--file", "-b", "--branch", "--depth", "-o",
    "--output", "-O", "--output-document", "--project", "--env-file", "--platforms", "--token",
})  # fmt: skip


class Options(NamedTuple):
    """A command line by its parts: values in order, and what belongs to no option."""

    values: dict[str, list[str]]
    flags: frozenset[str]
    rest: list[str]

    def all(self, *names: str) -> tuple[str, ...]:
        """Every value of an option under any of its names."""
        return tuple(value for name in names for value in self.values.get(name, []))

    def last(self, *names: str) -> str:
        """The value that wins."""
        found = self.all(*names)
        return found[-1] if found else ""

    def has(self, *names: str) -> bool:
        """Whether a flag is there."""
        return any(name in self.flags for name in names)


def parse_options(
    words: tuple[str, ...], *, valued: frozenset[str] = frozenset(), plain: frozenset[str] = frozenset()
) -> Options:
    """`-U torch --index-url=X` as a flag, a value and the rest. `valued` and `plain` say what differs here."""
    values: dict[str, list[str]] = {}
    flags: set[str] = set()
    rest: list[str] = []
    known = (_WITH_VALUE | valued) - plain
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif equals and word.startswith("--"):
            values.setdefault(name, []).append(value)
        elif word in known:
            values.setdefault(word, []).append(words[at] if at < len(words) else "")
            at += 1
        elif word[:2] in known and not word.startswith("--"):
            values.setdefault(word[:2], []).append(word[2:])
        else:
            flags.add(word)
            flags.update(f"-{letter}" for letter in word[1:] if not word.startswith("--") and len(word) > 2)
    return Options(values, frozenset(flags), rest)
