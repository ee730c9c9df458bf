"""pylock.toml (PEP 751): the lock with the URL of every file in the configured package sources.

https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.errors import BadInput
from envdoctor.core.shell_commands import shell_command
from envdoctor.export.builds import build_notes, packages_to_build, single_command_notes
from envdoctor.export.stack import ExportedFile, LockedStack, require_complete
from envdoctor.export.text import one_line, quote
from envdoctor.locking.lock import Package
from envdoctor.locking.wheel_urls import PackageFile

FILE_NAME = "pylock.toml"


def pylock(stack: LockedStack) -> ExportedFile:
    """One file for each package, with its URL or path. A lock contains neither, so `files` must have been located."""
    require_complete(stack, "pylock")
    files = {file.sha256: file for file in stack.files}
    if missing := [package.name for package in stack.lock.packages if package.sha256 not in files]:
        raise BadInput(
            f"a pylock.toml requires the URL or path of each file (PEP 751), and that of {missing[0]} is unknown",
            expected="sources that have the files of the lock, or the format 'requirements', which needs no URLs",
            hint=shell_command("envdoctor export {} --as requirements", stack.profile.id),
        )
    command = _command([package.name for package in packages_to_build(stack)])
    head = (
        f"# Profile {stack.profile.id}: {one_line(stack.profile.title)}",
        f"#   {command}",
        'lock-version = "1.0"',
        'created-by = "envdoctor"',
        f"requires-python = {quote('==' + stack.lock.python + '.*')}",
        f"environments = [{quote(_marker(stack))}]",
    )
    lines = [*head, *(line for package in stack.lock.packages for line in _package(package, files))]
    return ExportedFile(
        profile=stack.profile.id,
        form="pylock",
        file_name=FILE_NAME,
        text="\n".join(lines) + "\n",
        notes=(*_build_notes(stack), f"the URLs are those of your current sources: {command}"),
    )


def _command(names: Sequence[str]) -> str:
    """The uv command that installs the file. Packages to compile are built after the wheels are installed."""
    if not names:
        return f"uv pip sync {FILE_NAME}"
    # Measured with uv 0.13.8: `uv pip sync` has no --no-build-isolation-package; `uv pip install` does both phases.
    compiled = [word for name in names for word in ("--no-binary", name, "--no-build-isolation-package", name)]
    return shell_command("uv pip install --only-binary :all: {} -r {}", compiled, FILE_NAME)


def _build_notes(stack: LockedStack) -> list[str]:
    if not (notes := build_notes(stack)):
        return []
    isolated = "a plain `uv pip sync` would compile in isolation, with build requirements that are not locked"
    variables = stack.profile.build.environment if stack.profile.build else {}
    notes += [isolated, *single_command_notes(stack)]
    return [*notes, *([f"set before: {', '.join(variables)} (a pylock.toml cannot set them)"] if variables else [])]


def _package(package: Package, files: dict[str, PackageFile]) -> Iterator[str]:
    file = files[package.sha256]
    kind = "url" if "://" in file.url else "path"
    size = f", size = {file.size}" if file.size else ""
    yield ""
    yield "[[packages]]"
    yield f"name = {quote(package.name)}"
    yield f"version = {quote(package.version)}"
    location = f"name = {quote(file.name)}, {kind} = {quote(file.url)}{size}"
    table = f"{{ {location}, hashes = {{ sha256 = {quote(file.sha256)} }} }}"
    yield f"sdist = {table}" if package.built else f"wheels = [{table}]"


def _marker(stack: LockedStack) -> str:
    return f"sys_platform == 'linux' and platform_machine == '{stack.architecture}'"
