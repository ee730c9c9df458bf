"""Apply the remedies of findings with uv: an environment with the fault, each remedy, and the findings afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from support.release_index import PYTHONS, Release, ReleaseIndex, has_wheel, make_release, releases
from support.remedies import apply_variables

from envdoctor.core.records import Distribution, Extension, Fact, Finding, Machine, Stack, absent, known
from envdoctor.core.remedies import (
    Install,
    Remedy,
    RootCommand,
    SystemPackages,
    Uninstall,
    UserCommand,
    pip_arguments,
)
from envdoctor.environment.inspect import read_stack
from envdoctor.install.remedy_plan import with_interpreter
from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import public_part
from envdoctor.locking.uv import find_uv, summarize_error
from envdoctor.remedies import pin_remedies
from envdoctor.rules import evaluate

# Facts of an environment that METADATA does not contain: those of the example.
KEPT = ("python_version", "headers", "shadowed", "uses", "libstdcxx")
DRIVER = "580.95.05"  # of examples with a GPU whose driver is not given; `--torch-backend=auto` needs one
ROOT, COMMAND = "needs root", "a command for the user"


class Example(NamedTuple):
    """A machine and an environment that a rule reports. Packages in `without` are removed from the environment."""

    rule: str
    name: str
    machine: Machine
    stack: Stack
    without: tuple[str, ...] = ()
    found: tuple[Finding, ...] = ()  # by all rules; empty: not evaluated yet

    def findings(self) -> list[Finding]:
        """What the rule reports for the example's records."""
        found = self.found or evaluate(self.machine, self.stack)
        return [each for each in found if each.id == self.rule]


class Result(NamedTuple):
    """A remedy and what its application showed; "" if the finding is gone and there is no new error."""

    commands: tuple[str, ...]
    failure: str


def kind_of(remedy: Remedy) -> str:
    """What a remedy needs: "packages", "variables", or the reason why a test cannot apply it."""
    if any(isinstance(step, RootCommand | SystemPackages) for step in remedy.steps):
        return ROOT
    if any(isinstance(step, Install | Uninstall) for step in remedy.steps):
        return "packages"
    return COMMAND if all(isinstance(step, UserCommand) for step in remedy.steps) else "variables"


def compare(fault: Finding, before: list[Finding], after: list[Finding]) -> str:
    """Why a remedy is no cure, from the findings before and after it; empty if it is one."""
    others = {each.message for each in before if each.id == fault.id} - {fault.message}
    same = [each for each in after if each.id == fault.id and each.status != "unknown" and each.message not in others]
    if same:
        return f"still reported: {same[0].message}"
    errors = {(each.id, each.message) for each in before}
    new = [each for each in after if each.status in ("error", "crashed") and (each.id, each.message) not in errors]
    return "; ".join(f"new error {each.id}: {each.message}" for each in new)


@dataclass
class Trial:
    """An environment with the packages of an example. `place` is reused: uv queries its interpreter once."""

    place: Path
    index: ReleaseIndex
    example: Example
    planted: dict[str, int] = field(default_factory=dict)  # inode of METADATA by package, before any remedy
    log: list[str] = field(default_factory=list)  # commands of uv and their output

    @property
    def venv(self) -> Path:
        return self.place / "venv"

    @property
    def interpreter(self) -> Path:
        return self.venv / "bin/python"

    @property
    def site(self) -> Path:
        return self.venv / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"

    @cached_property
    def condas_torch(self) -> str:
        """The version of the example's conda package; empty without one."""
        stack = self.example.stack
        copies = [*(stack.distributions.value or {}).values(), *(stack.shadowed.value or ())]
        return next((x.version for x in copies if x.name == "pytorch" or x.source.startswith("conda")), "")

    @property
    def prefix(self) -> Path:
        """The environment to examine: the virtual environment, or one of conda with the same folders."""
        return self.place / "conda" if self.condas_torch else self.venv

    @cached_property
    def listed(self) -> dict[str, Distribution]:
        """The example's packages, without conda's."""
        build = self.example.stack.torch.value
        packages = {
            name: x for name, x in (self.example.stack.distributions.value or {}).items() if name != "pytorch"
        }
        if build and build.version.value and "torch" not in packages:
            packages["torch"] = Distribution(name="torch", version=build.version.value)
        return packages

    @cached_property
    def python(self) -> str:
        """The newest Python for which all of the example's packages have a wheel."""
        rows = [find_release(name, public_part(each.version)) for name, each in self.listed.items()]
        fits = (python for python in PYTHONS if all(has_wheel(row, python) for row in rows if row))
        return next(fits, PYTHONS[0])

    @cached_property
    def pins(self) -> dict[str, Release]:
        """The example's packages as releases."""
        stack = self.example.stack
        build = stack.torch.value
        cuda = build.cuda.value if build else None
        if build and cuda is None and stack.cuda_available.value is False:
            cuda = "cpu"
        return {
            name: make_release(
                name, each.version, find_release(name, public_part(each.version)), each.requires or None, cuda or ""
            )
            for name, each in self.listed.items()
        }

    def make(self) -> None:
        """Install the example's packages with their requirements, as on the day of the newest of them."""
        shutil.rmtree(self.venv, ignore_errors=True)
        self.site.mkdir(parents=True)
        (self.venv / "bin").mkdir()
        program = Path(os.path.realpath(sys.executable))
        self.interpreter.symlink_to(program)
        version = ".".join(map(str, sys.version_info[:3]))
        (self.venv / "pyvenv.cfg").write_text(f"home = {program.parent}\nversion_info = {version}\n")
        own = {name: [each] for name, each in self.pins.items()}
        unlisted = {name: rows for name, rows in own.items() if not releases(name, self.python)}
        self.index.python = self.python
        self.index.added = {self.index_name("made"): own, self.index_name("pypi"): unlisted}
        if own:
            self._install_pins()
        if self.condas_torch:
            self._make_conda()
        for name in self.example.without:
            shutil.rmtree(next(self.site.glob(f"{name.replace('-', '_')}-*.dist-info")))

    def _install_pins(self) -> None:
        """Install the example's versions, whatever they require of each other, and what else they require."""
        exact = [f"{name}=={each.version}" for name, each in self.pins.items()]
        pins = self.place / "pins.txt"
        pins.write_text("\n".join(exact))
        command = ["pip", "install", "--python", str(self.interpreter), *exact]
        day = max(each.day for each in self.pins.values())
        for options in (["--overrides", str(pins), "--exclude-newer", f"{day}T23:00:00Z"],
                        ["--overrides", str(pins)], ["--no-deps"]):  # fmt: skip
            if not self.uv([*command, *options], "made"):
                return
        raise AssertionError(self.log)

    def _make_conda(self) -> None:
        """Write the record of conda's pytorch, whose files pip's torch has overwritten."""
        shutil.rmtree(self.prefix, ignore_errors=True)
        (self.prefix / "conda-meta").mkdir(parents=True)
        for name in ("bin", "lib"):
            (self.prefix / name).symlink_to(self.venv / name)
        files = [str((self.site / "torch/version.py").relative_to(self.venv))]
        record = {"name": "pytorch", "version": self.condas_torch, "channel": "pytorch", "files": files}
        (self.prefix / "conda-meta/pytorch.json").write_text(json.dumps(record))

    def _conda_remove(self, command: str) -> None:
        """Delete the record and the files of a package, as `conda remove --force` does."""
        assert command == f"conda remove -p {self.prefix} --force pytorch", command
        record = self.prefix / "conda-meta/pytorch.json"
        for name in json.loads(record.read_text())["files"]:
            (self.prefix / name).unlink()
        record.unlink()

    def index_name(self, kind: str) -> str:
        """A name for each example, because uv keeps the pages of an index for minutes."""
        return f"{kind}-{abs(hash((self.example.rule, self.example.name)))}"

    def inodes(self) -> dict[str, int]:
        """The inode of the METADATA of each package and version, which an installation changes."""
        return {path.parent.name: path.stat().st_ino for path in self.site.glob("*.dist-info/METADATA")}

    def uv(self, arguments: list[str], index: str, variables: dict[str, str] | None = None) -> str:
        """Run uv; the summary of its error, empty if it succeeds."""
        machine = self.example.machine
        driver = machine.driver.version.value or (DRIVER if machine.gpus.value else "")
        environment = {
            "HOME": str(self.place), "PATH": os.environ["PATH"], "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "copy", "UV_NO_PROGRESS": "1", "UV_CACHE_DIR": str(self.place / f"cache{self.python}"),
            "UV_CUDA_DRIVER_VERSION": driver, **self.index.variables(self.index_name(index)), **(variables or {}),
        }  # fmt: skip
        if not driver:
            del environment["UV_CUDA_DRIVER_VERSION"]
        done = subprocess.run(
            [find_uv(), *arguments], capture_output=True, text=True, env=environment, cwd=self.place, check=False,
            timeout=120,
        )  # fmt: skip
        self.log.append(f"$ uv {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return summarize_error(done.stdout + done.stderr) if done.returncode else ""

    def stack(self) -> Stack:
        """The environment, read from its files, with the example's facts that no METADATA contains.

        Facts of compiled files are those of the example until their package is installed again.
        """
        found, given = read_stack(self.prefix, None, {}), self.example.stack
        here = self.inodes()
        changed = {
            normalize_name(name.partition("-")[0])
            for name in {*here, *self.planted}
            if here.get(name) != self.planted.get(name)
        }
        replaced: dict[str, Any] = {name: getattr(given, name) for name in KEPT}
        if self.condas_torch:
            del replaced["shadowed"]
        files = tuple(
            _present(each, changed) for each in given.extensions.value or () if each.distribution not in changed
        )
        if given.extensions.value:
            replaced["extensions"] = known(files, given.extensions.source) if files else absent("files")
        if "torch" not in changed:
            replaced["cuda_available"] = given.cuda_available
            replaced["torch"] = _with_build(found.torch, given.torch)
        return msgspec.structs.replace(found, **replaced)

    def findings(self, machine: Machine) -> list[Finding]:
        """What `check` reports for the environment."""
        stack = self.stack()
        return with_interpreter(pin_remedies(machine, stack, evaluate(machine, stack)), str(self.interpreter))

    def results(self) -> Iterator[Result]:
        """Apply each remedy that changes packages to a fresh copy of the environment."""
        self.make()
        self.planted = self.inodes()
        before = self.findings(self.example.machine)
        faults = [each for each in before if each.id == self.example.rule]
        if not faults:
            yield Result((), "the fault does not appear in an environment of METADATA")
        copy = self.place / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.site, copy)
        for fault in faults:
            for remedy in fault.remedies:
                if kind_of(remedy) == "packages":
                    shutil.rmtree(self.site)
                    shutil.copytree(copy, self.site)
                    if self.condas_torch:
                        self._make_conda()
                    self.planted = self.inodes()
                    yield Result(self.without_place(remedy), self._apply(fault, remedy, before))

    def without_place(self, remedy: Remedy) -> tuple[str, ...]:
        """The commands of a remedy, without the path of the environment."""
        return tuple(
            each.replace(f" --python {self.interpreter}", "").replace(str(self.prefix), "VENV")
            for each in remedy.commands
        )

    def apply_steps(self, remedy: Remedy) -> str:
        """Install and remove the packages of a remedy; why uv failed, empty if it did not."""
        for step in remedy.steps:
            if isinstance(step, Install | Uninstall):
                variables = step.variables if isinstance(step, Install) else {}
                if error := self.uv(pip_arguments(step), "pypi", variables):
                    return f"uv: {error}"
            elif isinstance(step, UserCommand) and step.command.startswith("conda remove "):
                self._conda_remove(step.command)
        return ""

    def _apply(self, fault: Finding, remedy: Remedy, before: list[Finding]) -> str:
        if failure := self.apply_steps(remedy):
            return failure
        problem = compare(fault, before, self.findings(apply_variables(self.example.machine, remedy)))
        return problem + (" (nothing changed)" if problem and self.inodes() == self.planted else "")


def _present(extension: Extension, changed: set[str]) -> Extension:
    """A compiled file without the missing libraries and symbols that a changed package contains."""
    libraries = tuple(each for each in extension.missing_libraries if package_of_library(each) not in changed)
    owners = {each: package_of_symbol(each, "12") for each in extension.missing_symbols}
    symbols = tuple(name for name, owner in owners.items() if owner not in changed)
    return msgspec.structs.replace(extension, missing_libraries=libraries, missing_symbols=symbols)


def _with_build(found: Fact[Any], given: Fact[Any]) -> Fact[Any]:
    """torch as it was found, with the facts of its compiled files."""
    if not (found.value and given.value):
        return found
    build = given.value
    return known(msgspec.structs.replace(found.value, hip=build.hip, architectures=build.architectures), found.source)


def results_of(example: Example, place: Path, index: ReleaseIndex) -> list[Result]:
    """The result of each remedy of an example; the reason for those that no test can apply."""
    remedies = [(fault, each) for fault in example.findings() for each in fault.remedies]
    results = []
    before = evaluate(example.machine, example.stack)
    for fault, remedy in remedies:
        kind = kind_of(remedy)
        if kind == "variables":
            after = evaluate(apply_variables(example.machine, remedy), example.stack)
            results.append(Result(remedy.commands, compare(fault, before, after)))
        elif kind != "packages":
            results.append(Result(remedy.commands, kind))
    if any(kind_of(remedy) == "packages" for _, remedy in remedies):
        results += Trial(place, index, example).results()
    return results
