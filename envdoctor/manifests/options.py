"""Parser for the command-line options of pip, uv, conda and other installers."""

from __future__ import annotations

from typing import NamedTuple

_OPTIONS_WITH_VALUE = frozenset({
    "-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-i", "--index-url",
    "--extra-index-url", "-f", "--find-links", "--torch-backend", "--index", "--default-index", "-p", "--python",
    "--python-version", "--prefix", "-t", "--target", "-e", "--editable", "--config-settings", "-C",
    "--exclude-newer", "--index-strategy", "--no-binary", "--only-binary", "--platform", "--abi", "--implementation",
    "-d", "--dest", "--cache-dir", "--timeout", "--retries", "--trusted-host", "--root", "--src", "-P",
    "--upgrade-package", "--reinstall-package", "--no-build-isolation-package", "--python-platform", "--resolution",
    "--prerelease", "--link-mode", "--prompt", "--proxy", "--extra", "--group", "--report", "--upgrade-strategy",
    "--no-build-package", "--override", "--overrides", "--keyring-provider", "--directory", "--global-option",
    "--build-option", "-n", "--name", "--channel", "--file", "-b", "--branch", "--depth", "-o", "--output", "-O",
    "--output-document", "--project", "--env-file", "--platforms", "--token",
})  # fmt: skip


_MAX_JOINED = 4  # letters of options that are one word


class Options(NamedTuple):
    """A parsed command line: option values in order, flags, and positional arguments."""

    values: dict[str, list[str]]
    flags: frozenset[str]
    arguments: list[str]

    def all(self, *names: str) -> tuple[str, ...]:
        """All values of an option under any of its names."""
        return tuple(value for name in names for value in self.values.get(name, []))

    def last(self, *names: str) -> str:
        """The last value of an option, which takes precedence; empty if the option is not given."""
        return next(reversed(self.all(*names)), "")

    def has(self, *names: str) -> bool:
        """Whether a flag is given."""
        return any(name in self.flags for name in names)


def parse_options(
    words: tuple[str, ...], *, with_value: frozenset[str] = frozenset(), without_value: frozenset[str] = frozenset()
) -> Options:
    """Parse a command line such as `-U torch --index-url=X`.

    `with_value` and `without_value` list options of this program that differ from the common ones.
    """
    values: dict[str, list[str]] = {}
    flags: set[str] = set()
    arguments: list[str] = []
    takes_value = (_OPTIONS_WITH_VALUE | with_value) - without_value
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            arguments.append(word)
        elif equals and word.startswith("--"):
            values.setdefault(name, []).append(value)
        elif word in takes_value:
            values.setdefault(word, []).append(next(remaining, ""))
        elif word[:2] in takes_value and not word.startswith("--"):
            values.setdefault(word[:2], []).append(word[2:])
        else:
            flags.add(word)
            letters = "" if word.startswith("--") else word[1:]
            last = f"-{letters[-1:]}"
            if last in takes_value and letters.isalpha() and len(letters) <= _MAX_JOINED:  # `-qr FILE`
                values.setdefault(last, []).append(next(remaining, ""))
                letters = letters[:-1]
            flags.update(f"-{letter}" for letter in letters)
    return Options(values, frozenset(flags), arguments)
