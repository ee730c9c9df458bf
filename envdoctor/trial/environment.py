"""The temporary environment of a trial: its creation, and the calls of uv that change it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.errors import EnvdoctorError
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.locking.uv import check_cache_writable, describe_unreachable, is_unreachable, run_uv, summarize_error
from envdoctor.trial.confinement import confined, own_folders, uv_cache
from envdoctor.trial.contents import Contents
from envdoctor.trial.plan import PlannedStep, Seed

STEP_SECONDS = 1800.0
NETWORK_HINT = "check the network, or name a mirror: export PIP_INDEX_URL=ADDRESS"
_MAX_LOG = 1 << 20


class UvRun(NamedTuple):
    """The output of one call of uv."""

    ok: bool
    output: str
    timed_out: bool = False

    @property
    def is_unreachable(self) -> bool:
        """Whether a source of packages was not reachable."""
        return not self.ok and is_unreachable(self.output)


class TrialEnvironment:
    """An environment in a temporary folder."""

    def __init__(self, folder: Path, interpreter: Path, sources: Sources, *, seconds: float = 0) -> None:
        self.folder = folder
        self.interpreter = interpreter
        self.sources = sources
        self.seconds = seconds or STEP_SECONDS
        self.venv = folder / "venv"
        self.calls = 0

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.venv / "bin/python"

    def contents(self) -> Contents:
        """What is installed now."""
        return Contents(self.venv)

    def create(self, seed: Seed, *, is_newest: bool) -> None:
        """Create the environment with the pip and the setuptools that it has at its start."""
        created = self._call(["venv", "--quiet", "--no-project", "--python", self.interpreter, self.venv], {})
        if not created.ok:
            raise EnvdoctorError(
                f"uv cannot create an environment with {self.interpreter}: {summarize_error(created.output)}",
                expected="a Python interpreter",
                hint="uv python list --only-installed",
            )
        if not seed:
            return
        bundled = sorted(self.interpreter.resolve().parent.parent.glob("lib/python3*/ensurepip/_bundled/*.whl"))
        if is_newest and self.install(["pip", "setuptools", "wheel"]).ok:
            return
        if bundled:
            self._call(["pip", "install", "--python", self.python, "--no-deps", "--offline", *bundled], {})

    def run_step(
        self, step: PlannedStep, lines: Sequence[str], excluded: Sequence[str], *, with_indexes: bool = True
    ) -> UvRun:
        """Run a step without the excluded packages."""
        if step.removed:
            self.uninstall(step.removed)
        options = [*step.options, *(step.indexes if with_indexes else ())]
        options += [f"--no-build-isolation-package={name}" for name in sorted(step.built_with_torch)]
        overrides = [*step.overrides, *(f"{name} ; python_version < '3'" for name in excluded)]
        return self.install(
            lines, options, constraints=step.constraints, overrides=overrides, variables=dict(step.variables)
        )

    def install(
        self,
        lines: Sequence[str],
        options: Sequence[str] = (),
        *,
        constraints: Sequence[str] = (),
        overrides: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> UvRun:
        """Install requirements in the environment."""
        files: list[str | Path] = []
        for flag, texts in (("-r", lines), ("--constraints", constraints), ("--overrides", overrides)):
            if texts:
                path = self.folder / f"{flag.strip('-')}.txt"
                path.write_text("".join(f"{text}\n" for text in texts))
                files += [flag, path]
        links = [f"--find-links={link}" for link in self.sources.find_links]
        links = links if any(option.startswith("--find-links") for option in options) else []
        arguments = ["pip", "install", "--python", self.python, *files, *options, *links]
        return self._call([*arguments, *uv_arguments(self.sources)], variables or {})

    def uninstall(self, names: Sequence[str]) -> UvRun:
        """Remove packages."""
        return self._call(["pip", "uninstall", "--python", self.python, *names], {})

    def problems(self) -> frozenset[str]:
        """The requirements of installed packages that others do not meet."""
        output = self._call(["pip", "check", "--python", self.python], {}).output
        return frozenset(line.strip() for line in output.splitlines() if re.match(r"The package `", line))

    def restore(self, versions: Mapping[str, str]) -> None:
        """Install the versions of an earlier state again, and remove what it did not have."""
        now = self.contents().versions
        if added := [name for name in now if name not in versions]:
            self.uninstall(added)
        changed = [f"{name}=={version}" for name, version in versions.items() if now.get(name) != version]
        if changed:
            self.install(changed, ["--no-deps"])

    def _call(self, arguments: Sequence[str | Path], variables: Mapping[str, str]) -> UvRun:
        self.calls += 1
        log = self.folder / f"uv-{self.calls}.log"
        retries = os.environ.get("UV_HTTP_RETRIES") or "2"
        fixed = {"UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_RETRIES": retries, "CUDA_VISIBLE_DEVICES": ""}
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = fixed | uv_environment(self.sources) | own_folders(self.folder)
        done = run_uv(
            arguments, environment=dict(variables) | settings, timeout=self.seconds, log=log,
            launcher=confined([self.folder, uv_cache()]),
        )  # fmt: skip
        output = log.read_bytes()[-_MAX_LOG:].decode("utf-8", "replace")
        if not done.ok:
            check_cache_writable(output)
        return UvRun(done.ok, output, done.timed_out)


def require_reachable(run: UvRun) -> None:
    """Raise EnvdoctorError if the configured source of packages is not reachable."""
    if run.is_unreachable:
        raise EnvdoctorError(
            f"a trial cannot install packages: {describe_unreachable(run.output)}",
            expected="a reachable package index",
            hint=NETWORK_HINT,
        )
