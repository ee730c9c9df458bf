"""Solves the packages of a state with uv, for the interpreter of the trials."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from envdoctor.bisect.records import PackageSet, has_version
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.locking.resolve import NO_UPLOAD_DATE
from envdoctor.locking.uv import describe_unreachable, is_unreachable, lookup_environment, run_uv, summarize_error

SOLVE_SECONDS = 300.0
NETWORK_HINT = "check the network, or name a mirror: export PIP_INDEX_URL=ADDRESS"
DIRECT = lazy_pattern(r"([A-Za-z0-9][\w.-]*) (@ \S+)")


class Requirements(Record, frozen=True, kw_only=True):
    """What is solved: the requirements of the user, or the packages that no other one requires."""

    file: str = ""  # a requirements file or pyproject.toml
    roots: tuple[str, ...] = ()  # instead of a file: names of packages
    index: tuple[str, ...] = ()  # lines of the file that name an index or a folder of wheels
    python: str  # interpreter of the trials
    python_version: str = ""
    build: bool = False  # whether uv may build source archives
    backend: str = ""  # of the PyTorch index


class Solver:
    """Runs `uv pip compile`. A set that was solved before is not solved again."""

    def __init__(self, requirements: Requirements, sources: Sources) -> None:
        self.requirements = requirements
        self.sources = sources
        self.backend = requirements.backend
        self.reason = ""  # why the last set has no solution
        self._solved: dict[tuple[object, ...], tuple[PackageSet | None, str]] = {}

    def solve(
        self,
        *,
        extra: Sequence[str] = (),
        constraints: Sequence[str] = (),
        until: str = "",
        undated: Sequence[str] = (),
        preferred: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
    ) -> PackageSet | None:
        """The packages for these requirements and constraints, of releases up to a time; None without a solution.

        `undated`: packages to which the time does not apply. `preferred` versions are kept where that is possible.
        `without`: roots that are left out.
        """
        key = (
            tuple(extra),
            tuple(constraints),
            until,
            tuple(undated),
            tuple((preferred or {}).items()),
            tuple(without),
        )
        if key not in self._solved:
            dated = ["--exclude-newer", until] if until else []
            dated += [word for name in undated if until for word in ("--exclude-newer-package", f"{name}=false")]
            lines = [*(root for root in self.requirements.roots if root not in without), *extra]
            solved = self._run(lines, constraints, dated, preferred or {})
            if solved[0] is None and dated and NO_UPLOAD_DATE.search(solved[1]):
                solved = self._run(lines, constraints, [], preferred or {})
            self._solved[key] = solved
        packages, output = self._solved[key]
        self.reason = "" if packages is not None else summarize_error(output)
        return packages

    def _run(
        self, lines: Sequence[str], constraints: Sequence[str], dated: Sequence[str], preferred: Mapping[str, str]
    ) -> tuple[PackageSet | None, str]:
        needs = self.requirements
        with tempfile.TemporaryDirectory(prefix="envdoctor-bisect-") as folder:
            wanted, limits, solved = (Path(folder, name) for name in ("wanted.in", "limits.txt", "solved.txt"))
            wanted.write_text("".join(f"{line}\n" for line in (*(() if needs.file else needs.index), *lines)))
            limits.write_text("".join(f"{line}\n" for line in constraints))
            solved.write_text("".join(f"{line}\n" for line in lines_of(preferred)))
            command: list[str | Path] = [
                "pip", "compile", *([needs.file] if needs.file else []), wanted, "--constraints", limits,
                "--output-file", solved, "--python", needs.python, "--no-header", "--no-annotate",
                "--no-strip-extras",
                *self.options, *uv_arguments(self.sources), *dated,
            ]  # fmt: skip
            result = run_uv(
                command, environment=lookup_environment() | uv_environment(self.sources), timeout=SOLVE_SECONDS
            )
            if result.ok:
                return parse_packages(solved.read_text()), result.output
        if is_unreachable(result.output) and self.backend:  # another source may have this build of torch
            self.backend = ""
            return self._run(lines, constraints, dated, preferred)
        if is_unreachable(result.output) or result.timed_out or result.signal:
            what = describe_unreachable(result.output) if is_unreachable(result.output) else f"uv {result.ending}"
            raise EnvdoctorError(
                f"the packages cannot be solved: {what}", expected="a reachable package index", hint=NETWORK_HINT
            )
        return None, result.output

    @property
    def options(self) -> list[str]:
        """The options of uv for the kinds of packages."""
        options = [] if self.requirements.build else ["--only-binary", ":all:"]
        return [*options, *(["--torch-backend", self.backend] if self.backend else [])]


def lines_of(packages: Mapping[str, str]) -> list[str]:
    """The packages as lines of a requirements file."""
    return [
        f"{name}=={version}" if has_version(version) else f"{name} {version}".rstrip()
        for name, version in sorted(packages.items())
    ]


def parse_packages(text: str) -> PackageSet:
    """The packages of uv's output.

    Sample: `numpy==1.26.4`, `uvicorn[standard]==0.30.1`, `tool @ https://example.com/tool-1.0-py3-none-any.whl`, and
    `-e file:///home/user/project`, which is its own name.
    """
    packages: PackageSet = {}
    for line in text.splitlines():
        name, equals, version = line.partition(";")[0].strip().partition("==")
        if equals:
            packages[canonicalize_name(name.partition("[")[0])] = version.split()[0]
        elif line.startswith("-e "):
            packages[line.strip()] = ""
        elif direct := DIRECT.match(line):
            packages[canonicalize_name(direct[1])] = direct[2]
    return packages
