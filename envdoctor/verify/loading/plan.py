"""Which compiled files of an environment are loaded, in which company, and which are left out and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from envdoctor.binaries.cache import CompiledFile
from envdoctor.binaries.extensions import CompiledPath, find_variants
from envdoctor.binaries.linkage import Linkage
from envdoctor.core.errors import BadInput
from envdoctor.rules.facts import torch_cuda
from envdoctor.verify.abi import read_environment, reason_to_leave
from envdoctor.verify.loading.records import Loaded
from envdoctor.verify.loading.standins import DRIVER_LIBRARIES, Standins


class Place(NamedTuple):
    """An environment's compiled files, and what they are beside."""

    files: dict[CompiledPath, CompiledFile]  # those that can be read
    by_name: dict[str, CompiledPath]  # by file name and by SONAME
    cuda: str  # torch's CUDA, "12.8"; empty for none
    distributions: frozenset[str]
    linkage: Linkage

    def find(self, library: str) -> str:
        """The path of a library of the system; empty for none."""
        return self.linkage.find_in_system(library)

    def driver_users(self) -> dict[str, list[str]]:
        """Files that need each of the driver's libraries."""
        return {
            library: [path.full for path, file in self.files.items() if library in file.needed]
            for library in DRIVER_LIBRARIES
        }

    def needs(self, path: CompiledPath) -> list[CompiledPath]:
        """Every file of the environment that one needs, each after what it needs itself; last the file."""
        seen, order = {path}, []
        waiting = [(path, self._needed(path))]
        while waiting:
            current, others = waiting[-1]
            following = next((other for other in others if other not in seen), None)
            if following is None:
                order.append(current)
                waiting.pop()
            else:
                seen.add(following)
                waiting.append((following, self._needed(following)))
        return order

    def _needed(self, path: CompiledPath) -> Iterator[CompiledPath]:
        names = self.files[path].needed if path in self.files else ()
        return (self.by_name[name] for name in names if name in self.by_name)

    def siblings_of(self, path: CompiledPath) -> list[CompiledPath]:
        """Files that a package loads by full path before one of its own: its libraries, and NVIDIA's."""
        return [
            each
            for each in self.needs(path)[:-1]
            if each.is_cuda_wheel or each.distribution == path.distribution != "torch"
        ]

    def needs_torch(self, path: CompiledPath) -> bool:
        """Whether a file needs libraries that importing torch brings into the process."""
        return path.distribution == "torch" or any(
            other.distribution == "torch" or other.is_cuda_wheel for other in self.needs(path)
        )


def read_place(interpreter: Path) -> Place:
    """The environment of an interpreter; BadInput where it is none, or holds nothing compiled."""
    from envdoctor.environment.select import select_stack

    stack = select_stack("", str(interpreter), search=False)
    files, by_name, linkage = read_environment(interpreter)
    if stack is None or not files:
        raise BadInput(
            f"{interpreter} has no compiled packages beside it",
            expected="the interpreter of an environment with a stack in it",
            hint="envdoctor verify --load --venv .venv",
        )
    distributions = frozenset(stack.distributions.value or {})
    return Place(files, by_name, torch_cuda(stack), distributions, linkage)


def plan_files(place: Place, standins: Standins) -> tuple[list[CompiledPath], list[CompiledPath], list[Loaded]]:
    """Files to load after `import torch`, files to load alone, and what is left out."""
    variants = find_variants(place.files, place.cuda)
    needed = {other for path in place.files for other in place.needs(path) if other != path}
    after_torch: list[CompiledPath] = []
    alone: list[CompiledPath] = []
    left_out: list[Loaded] = []
    for path, file in place.files.items():
        if path.is_cuda_wheel:
            continue
        why = file.problem or reason_to_leave(path, file.machine, variants)
        why = why or ("loaded with the files that need it" if path in needed else "")
        lacking = [name for other in place.needs(path) for name in _needed(place, other) if name in standins.lacking]
        why = why or (f"needs {lacking[0]}, and {standins.lacking[lacking[0]]}" if lacking else "")
        if why:
            kept = Loaded(name=path.path, kind="extension", distribution=path.distribution, outcome="left-out")
            left_out.append(msgspec.structs.replace(kept, message=why))
        else:
            (after_torch if place.needs_torch(path) else alone).append(path)
    if "torch" not in place.distributions:
        after_torch, alone = [], [*after_torch, *alone]
    return after_torch, alone, left_out


def _needed(place: Place, path: CompiledPath) -> tuple[str, ...]:
    return place.files[path].needed if path in place.files else ()
