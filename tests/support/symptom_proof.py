"""Apply the remedies of symptoms with uv: an environment in which the text occurs, and what each remedy changes."""

from __future__ import annotations

import io
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from support.paths import DATA
from support.release_index import ReleaseIndex, make_release
from support.remedy_proof import Example, Result, Trial, kind_of
from support.report_stack import make_machine, make_stack

from envdoctor.core.records import Distribution, Machine, Stack, known
from envdoctor.core.remedies import Notation
from envdoctor.explain import explain
from envdoctor.explain.rank import Cause
from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.knowledge.versions import cuda_of_local
from envdoctor.rules import evaluate

H100 = "NVIDIA H100 80GB HBM3"


class Occurrence(NamedTuple):
    """A symptom or a cause, and an environment in which its text occurs."""

    of: str
    packages: str
    text: str
    cause: str
    machine: Machine


def occurrences() -> Iterator[Occurrence]:
    """The rows of tests/data/symptom_environments.toml."""
    symptoms = {each.id: each for each in symptom_table().symptoms}
    for row in tomllib.loads((DATA / "symptom_environments.toml").read_text())["environment"]:
        symptom = symptoms.get(row["of"])
        cause = symptom.cause if symptom else row["of"]
        text = row.get("text") or (symptom.sample if symptom else "")
        yield Occurrence(row["of"], row["packages"], text, cause, make_machine([row.get("gpu", H100)]))


def installs_packages(notation: Notation) -> bool:
    """Whether one of the remedies of a table installs or removes packages."""
    return any("uv pip install" in line or "uv pip uninstall" in line for each in notation
               for line in ([each] if isinstance(each, str) else each))  # fmt: skip


def names_with_packages() -> set[str]:
    """The symptoms and the causes whose remedies install or remove packages."""
    named = {each.id for each in symptom_table().symptoms if installs_packages(each.remedies or ())}
    return named | {slug for slug, each in causes().items() if installs_packages(each.remedies)}


def stack_of(packages: str) -> Stack:
    """The environment of a list such as "torch 2.8.0+cu128, vllm 0.10.2"."""
    listed = dict(each.split() for each in packages.split(", "))
    cuda = cuda_of_local(listed["torch"])
    requires = make_release("torch", listed["torch"]).requires
    torch = Distribution(name="torch", version=listed["torch"], requires=requires)
    return make_stack(listed["torch"], cuda=cuda, packages=listed, distributions=(torch,))


def first_cause(found: Occurrence, stack: Stack, interpreter: str) -> Cause:
    """The first cause of the text in an environment, without the remedies of rules."""
    stack = msgspec.structs.replace(stack, python=known(interpreter, "files"))
    explained = explain(io.BytesIO(found.text.encode()), found.machine, stack, pin=lambda *_: [])
    return (*explained.causes, *explained.program_errors)[0]


def commands_of(found: Occurrence) -> list[list[str]]:
    """The present commands of each remedy that changes packages, without an environment's path."""
    cause = first_cause(found, stack_of(found.packages), "PYTHON")
    return [
        [command.replace(" --python PYTHON", "") for command in each.commands]
        for each in cause.remedies if kind_of(each) == "packages"
    ]  # fmt: skip


class SymptomTrial(Trial):
    """An environment with the packages of an occurrence."""

    def prove(self, found: Occurrence) -> list[Result]:
        """Apply each remedy of the text that changes packages to a fresh copy of the environment."""
        self.make()
        cause = self.explain(found)
        if cause.cause != found.cause:
            return [Result((), f"the text is explained as {cause.cause}")]
        before, conflicts = self.errors(), self.conflicts()
        copy = self.place / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.site, copy)
        results = []
        for remedy in cause.remedies:
            if kind_of(remedy) == "packages":
                shutil.rmtree(self.site)
                shutil.copytree(copy, self.site)
                self.planted = self.inodes()
                failure = self.apply_steps(remedy) or self.effect(before, conflicts)
                results.append(Result(self.without_place(remedy), failure))
        return results or [Result((), "no remedy installs or removes packages")]

    def explain(self, found: Occurrence) -> Cause:
        """The first cause of the text in this environment."""
        return first_cause(found, self.stack(), str(self.interpreter))

    def errors(self) -> set[tuple[str, str]]:
        """The errors of all rules."""
        found = evaluate(self.example.machine, self.stack())
        return {(each.id, each.message) for each in found if each.status in ("error", "crashed")}

    def conflicts(self) -> set[str]:
        """The violated requirements that `uv pip check` prints."""
        self.uv(["pip", "check", "--python", str(self.interpreter)], "pypi")
        return set(re.findall(r"The package `.*", self.log[-1]))

    def effect(self, before: set[tuple[str, str]], conflicts: set[str]) -> str:
        """Why the environment is not better; empty if it changed, without a new error or violated requirement."""
        if self.inodes() == self.planted:
            return "nothing changed"
        new = [f"new error {name}: {message}" for name, message in sorted(self.errors() - before)]
        return "; ".join([*new, *sorted(self.conflicts() - conflicts)])


def results_of_symptom(found: Occurrence, place: Path, index: ReleaseIndex) -> list[Result]:
    """The result of each remedy that installs or removes packages."""
    example = Example(found.of, found.packages, found.machine, stack_of(found.packages))
    return SymptomTrial(place, index, example).prove(found)
