"""Which compiled files the load test loads, what is loaded before each, and which files it skips."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from envdoctor.binaries.cache import CompiledFile
from envdoctor.binaries.extensions import CompiledPath, find_variants
from envdoctor.binaries.linkage import Linkage
from envdoctor.core.errors import BadInput
from envdoctor.rules.facts import torch_cuda
from envdoctor.verify.linked_environment import read_linked_environment, skip_reason
from envdoctor.verify.loading.driver_libraries import DRIVER_LIBRARIES, DriverLibraries
from envdoctor.verify.loading.records import LoadResult


class CompiledEnvironment(NamedTuple):
    """An environment's compiled files and how they depend on each other."""

    files: dict[CompiledPath, CompiledFile]
    by_name: dict[str, CompiledPath]  # by file name and by SONAME
    cuda: str  # torch's CUDA version, "12.8"; empty for none
    distributions: frozenset[str]
    linkage: Linkage

    def driver_library_users(self) -> dict[str, list[str]]:
        """The files that need each of the driver's libraries."""
        return {
            library: [path.full for path, file in self.files.items() if library in file.needed]
            for library in DRIVER_LIBRARIES
        }

    def load_order(self, path: CompiledPath) -> list[CompiledPath]:
        """A file and everything in the environment that it depends on, dependencies first."""
        visited, order = {path}, []
        stack = [(path, self._dependencies(path))]
        while stack:
            current, dependencies = stack[-1]
            following = next((other for other in dependencies if other not in visited), None)
            if following is None:
                order.append(current)
                stack.pop()
            else:
                visited.add(following)
                stack.append((following, self._dependencies(following)))
        return order

    def needed_names(self, path: CompiledPath) -> tuple[str, ...]:
        """The libraries that a file needs directly, by name."""
        return self.files[path].needed if path in self.files else ()

    def _dependencies(self, path: CompiledPath) -> Iterator[CompiledPath]:
        return (self.by_name[name] for name in self.needed_names(path) if name in self.by_name)

    def preloaded_files(self, path: CompiledPath) -> list[CompiledPath]:
        """The files that a package loads by full path before this one: its own libraries and NVIDIA's."""
        return [
            other
            for other in self.load_order(path)[:-1]
            if other.is_cuda_wheel or other.distribution == path.distribution != "torch"
        ]

    def needs_torch(self, path: CompiledPath) -> bool:
        """Whether a file needs libraries that `import torch` loads."""
        return path.distribution == "torch" or any(
            other.distribution == "torch" or other.is_cuda_wheel for other in self.load_order(path)
        )


class LoadPlan(NamedTuple):
    """Files to load after `import torch`, files to load in a bare interpreter, and skipped files."""

    after_torch: list[CompiledPath]
    without_torch: list[CompiledPath]
    skipped: list[LoadResult]


def read_compiled_environment(interpreter: Path) -> CompiledEnvironment:
    """Read the environment of an interpreter; BadInput if there is none or it has no compiled files."""
    from envdoctor.environment.select import select_stack

    stack = select_stack("", str(interpreter))
    files, by_name, linkage = read_linked_environment(interpreter)
    if stack is None or not files:
        raise BadInput(
            f"the environment of {interpreter} has no compiled packages",
            expected="the interpreter of an environment with torch or other compiled packages",
            hint="envdoctor load-test .venv",
        )
    distributions = frozenset(stack.distributions.value or {})
    return CompiledEnvironment(files, by_name, torch_cuda(stack), distributions, linkage)


def plan_files(environment: CompiledEnvironment, driver_libraries: DriverLibraries) -> LoadPlan:
    """Decide how each file is loaded, or why it is skipped."""
    variants = find_variants(environment.files, environment.cuda)
    dependencies = {other for path in environment.files for other in environment.load_order(path) if other != path}
    plan = LoadPlan([], [], [])
    has_torch = "torch" in environment.distributions
    for path, file in environment.files.items():
        if path.is_cuda_wheel:
            continue
        reason = file.problem or skip_reason(path, file.machine, variants)
        if not reason and path in dependencies:
            reason = "loaded with the files that need it"
        if not reason:
            reason = _missing_driver_library(environment, path, driver_libraries)
        if reason:
            plan.skipped.append(
                LoadResult(
                    name=path.path, kind="extension", distribution=path.distribution, outcome="skipped",
                    message=reason,
                )
            )  # fmt: skip
        elif has_torch and environment.needs_torch(path):
            plan.after_torch.append(path)
        else:
            plan.without_torch.append(path)
    return plan


def _missing_driver_library(
    environment: CompiledEnvironment, path: CompiledPath, driver_libraries: DriverLibraries
) -> str:
    for other in environment.load_order(path):
        for name in environment.needed_names(other):
            if name in driver_libraries.missing:
                return f"needs {name}, and {driver_libraries.missing[name]}"
    return ""
