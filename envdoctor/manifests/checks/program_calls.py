"""Checks on how the programs of a checkout call other packages: their arguments, and what they return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.call_changes import (
    CallChange,
    PassedArgument,
    PositionalArguments,
    RefusedCall,
    RefusedMethods,
    RemovedArguments,
    RequiredArgument,
    ReturnedValues,
    changing_packages,
    find_changes,
)
from envdoctor.knowledge.changed_names import periods_of, removal_of
from envdoctor.knowledge.dataclass_fields import compared_sources, fields_of
from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.knowledge.names import compared_wheels, find_argument, project_of
from envdoctor.knowledge.versions import dotted_numbers, public_part, satisfies
from envdoctor.manifests.absent_names import names_without
from envdoctor.manifests.checks.accepted_releases import rejecting_package
from envdoctor.manifests.checks.arguments import HAS_ARGUMENTS
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, table_evidence
from envdoctor.manifests.checks.fitting_releases import excluding_package
from envdoctor.manifests.compared_packages import ComparedPackage, compared_packages
from envdoctor.manifests.config_fields import RemovedField, removed_fields
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import is_started
from envdoctor.manifests.named_models import named_models
from envdoctor.manifests.patched_classes import is_accepted_by_patch
from envdoctor.manifests.program_uses import ProgramUse, program_uses, uses_in_text
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import COMPILED

CALLS = "https://docs.python.org/3/reference/expressions.html#calls"
# Classes and functions without `**kwargs`, which refuse an argument that they do not have.
_STRICT = {
    "transformers": lazy_pattern(r"(?:Seq2Seq)?(?:TrainingArguments|Trainer)"),
    "trl": lazy_pattern(r"[A-Z]\w*(?:Config|Trainer)"),
    "peft": lazy_pattern(r"(?:Lora|AdaLora|IA3|LoHa|LoKr|PrefixTuning|PromptTuning|PromptEncoder)Config"),
    "accelerate": lazy_pattern(r"Accelerator"),
    "huggingface_hub": lazy_pattern(r"hf_hub_download|snapshot_download"),
}
_NOT_ACCEPTED = "does not accept it"
_MAX_SHOWN = 4  # places of a finding
R = TypeVar("R", bound=CallChange)


class _Fault(NamedTuple):
    """A use that the installed release refuses."""

    use: ProgramUse
    place: str
    fact: str  # "evaluation_strategy"
    what: str  # the use in words
    reaction: str  # of the release: "does not accept it"
    last: str  # the last release that permits it
    source: str
    date: str
    change: str = ""  # what makes the code work with the installed release


@rule("RUN222", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=CALLS)
def program_calls_what_the_installed_release_refuses(context: GuideContext) -> Iterator[Problem]:
    """A program of the checkout, or the code of a guide, passes or expects what the installed release no longer has.

    The arguments of a call, also those of a dictionary in the code, and of a JSON, YAML or TOML file of the checkout
    that the program reads, or that a command passes to HfArgumentParser or TrlParser:
    `TrainingArguments(evaluation_strategy=...)` with transformers 4.51 or newer. A changed number of returned values,
    as of `flash_attn.bert_padding.unpad_input` with flash-attn 2.7. Methods that a base class refuses, as
    `validation_epoch_end` with Lightning 2, or calls with a further argument, as `compute_loss` with transformers
    4.46. Arguments that a function requires, and functions that only raise an exception, as `torch.stft` and
    `torch.symeig` with torch 2.

    A warning where the call is in another file than the program, or after a condition, and for the main branch of a
    package, which is compared with its newest release.
    """
    uses = [*program_uses(context), *uses_in_text(context)]
    packages = list(compared_packages(context)) if uses else []
    fields = list(removed_fields(context, {each.name: each.version for each in packages}))
    for package in packages:
        faults = {
            (each.place, each.fact): each
            for use in uses
            if (concerned := _concerned_packages(use.name)) is None or package.name in concerned
            for each in _faults(use, package)
            if not _is_accepted_by_patch(use, package, each)
        }
        faults |= {(each.path, each.key): _of_field(each) for each in fields if each.span.package == package.name}
        if faults:
            found = sorted(faults.values(), key=lambda each: _doubt(context, each.use))
            yield _problem(context, package, found, uses)


def _doubt(context: GuideContext, use: ProgramUse) -> tuple[bool, bool]:
    """Whether a program of another file, or one that no command starts, has a use: for sorting."""
    return bool(use.line) and not _is_run(context, use), not use.is_direct


def _is_run(context: GuideContext, use: ProgramUse) -> bool:
    """Whether a command starts the program with a use, or the text itself has it."""
    return use.is_of_text or is_started(context, use.line)


@cache
def _concerned_packages(name: str) -> frozenset[str] | None:
    """The packages of which a change can concern a use: few of a checkout do. None: any package."""
    top, owner = name.partition(".")[0], name.rpartition(".")[2]
    strict = _STRICT.get(top)
    if strict is not None and strict.fullmatch(owner):  # its base classes can be of any package
        return None
    return frozenset((DISTRIBUTIONS.get(top, top.replace("_", "-")), *changing_packages(name)))


def _faults(use: ProgramUse, package: ComparedPackage) -> Iterator[_Fault]:
    yield from _removed(use, package)
    yield from _removed_from_bases(use, package)
    yield from _gone(use, package)
    yield from _removed_arguments(use, package)

    def changed(kind: type[R]) -> R | None:
        return next(_changes(kind, use, package), None)

    name = use.name
    positional = changed(PositionalArguments)
    if positional and use.positional > positional.accepted:
        what = f"passes {use.positional} arguments to {name} by position"
        yield _of_row(use, positional, (name, what, f"accepts {positional.accepted} by position"))
    required = changed(RequiredArgument)
    is_without = required and required.argument not in use.arguments and not use.is_open
    if required and is_without and not use.methods and use.positional < required.position:
        what = f"calls {name} without {required.argument}"
        yield _of_row(use, required, (name, what, "requires it"))
    if (raising := changed(RefusedCall)) and not use.methods:
        yield _of_row(use, raising, (name, f"calls {name}", f"only raises {raising.exception} there"))
    returned = changed(ReturnedValues)
    if returned and use.values == returned.before:
        what = f"expects {returned.before} values of {name}"
        yield _of_row(use, returned, (name, what, f"returns {returned.after}"))
    if (passed := changed(PassedArgument)) and passed.caller not in use.methods:
        accepted = use.methods.get(passed.method)
        if accepted is not None and passed.argument not in accepted:
            what = f"defines {passed.method} without {passed.argument} in a class that derives from {name}"
            yield _of_row(use, passed, (f"{passed.method}()", what, "passes it"))
    if refused := changed(RefusedMethods):
        for method in sorted(set(use.methods) & set(refused.methods.split())):
            what = f"defines {method} in a class that derives from {name.rpartition('.')[2]}"
            yield _of_row(use, refused, (method, what, "stops with NotImplementedError"))


def _changes(kind: type[R], use: ProgramUse, package: ComparedPackage) -> Iterator[R]:
    """The changes of the function of a use that the release of the package has."""
    rows = find_changes(kind, use.name)
    return (row for row in rows if row.package == package.name and row.is_in(package.version))


def _removed_arguments(use: ProgramUse, package: ComparedPackage) -> Iterator[_Fault]:
    for removed in _changes(RemovedArguments, use, package):
        for argument in sorted(use.arguments.keys() & set(removed.arguments.split())):
            what = f"passes {argument} to {use.name}"
            fault = _of_row(use, removed, (f"{argument}=", what, _NOT_ACCEPTED), use.arguments[argument])
            yield fault._replace(change=fault.change.replace("{argument}", argument))


def _is_accepted_by_patch(use: ProgramUse, package: ComparedPackage, fault: _Fault) -> bool:
    """Whether unsloth, which the program imports, accepts an argument in place of a class of TRL."""
    owner, argument = use.name.rpartition(".")[2], fault.fact.removesuffix("=")
    is_of_trl = package.name == "trl" and use.is_patched and argument in use.arguments
    return is_of_trl and is_accepted_by_patch(owner, argument, has_config="args" in use.arguments)


def _of_field(field: RemovedField) -> _Fault:
    """A key of a configuration file that HfArgumentParser refuses."""
    source, date = compared_sources()
    use = ProgramUse(field.line, field.owner, field.path, is_direct=True)
    what = f"sets {field.key}, a field of {field.owner}"
    return _Fault(use, field.path, field.key, what, "does not have it", field.span.last, source, date)


def _of_row(use: ProgramUse, row: CallChange, texts: tuple[str, str, str], place: str = "") -> _Fault:
    return _Fault(use, place or use.place, *texts, row.last, row.source, row.date, row.change)


def _removed(use: ProgramUse, package: ComparedPackage) -> Iterator[_Fault]:
    """The arguments that the tables of names show to be gone."""
    top, owner = use.name.partition(".")[0], use.name.rpartition(".")[2]
    strict = _STRICT.get(top)
    if strict is None or project_of(top).replace("_", "-") != package.name or not strict.fullmatch(owner):
        return
    if use.is_of_text and HAS_ARGUMENTS.fullmatch(owner) and not package.is_of_main_branch:
        return  # RUN070 reads them
    if ".experimental." in use.name:
        return  # trl.experimental.gkd.GKDTrainer is not the trl.GKDTrainer of the tables
    source, date = compared_wheels(top)
    for name, place in use.arguments.items():
        spans = [each for each in find_argument(top, owner, name) if each.package == top]
        newer = satisfies(package.version, f">{spans[-1].last}") if spans and spans[-1].last else False
        if newer and _is_inherited(package, owner, name):
            continue
        if newer and not any(span.can_be_in(package.version) for span in spans):
            what = f"passes {name} to {owner}"
            yield _Fault(use, place, f"{name}=", what, _NOT_ACCEPTED, spans[-1].last, source, date)


def _removed_from_bases(use: ProgramUse, package: ComparedPackage) -> Iterator[_Fault]:
    """The fields that the base class of another package no longer has: `SFTConfig` of TRL, `TrainingArguments`.

    unsloth replaces the classes of TRL by its own.
    """
    top, owner = use.name.partition(".")[0], use.name.rpartition(".")[2]
    strict = _STRICT.get(top)
    if top == package.name or strict is None or not strict.fullmatch(owner) or "unsloth" in package.state.packages:
        return
    source, date = compared_sources()
    fields = fields_of(top, owner) or {}
    for name, place in use.arguments.items():
        spans = fields.get(name, ())
        is_of_base = bool(spans) and all(span.package == package.name and span.last for span in spans)
        if (
            is_of_base
            and satisfies(package.version, f">{spans[-1].last}")
            and not any(span.can_be_in(package.version) for span in spans)
        ):
            what = f"passes {name} to {owner}"
            yield _Fault(use, place, f"{name}=", what, _NOT_ACCEPTED, spans[-1].last, source, date)


def _is_inherited(package: ComparedPackage, owner: str, name: str) -> bool:
    """Whether a dataclass still has a field that it no longer states itself: a base class has it."""
    fields = fields_of(package.name, owner) or {}
    versions = {each.name: public_part(each.version) for each in package.state.packages.values()}
    versions[package.name] = package.version
    spans = fields.get(name)
    return spans is not None and (not spans or any(span.can_be_in(versions.get(span.package, "")) for span in spans))


def _gone(use: ProgramUse, package: ComparedPackage) -> Iterator[_Fault]:
    """The arguments of functions and classes without `**kwargs` that the table of changed names has."""
    top, owner = use.name.partition(".")[0], use.name.rpartition(".")[2]
    for argument, place in use.arguments.items():
        row = removal_of(f"{owner}({argument})")
        is_of_package = row and row.package == package.name == DISTRIBUTIONS.get(top, top.replace("_", "-"))
        if row and is_of_package and satisfies(package.version, f">={row.next}"):
            what = f"passes {argument} to {owner}"
            yield _Fault(use, place, f"{argument}=", what, _NOT_ACCEPTED, row.last, row.source, row.date)


def _needs_newer(use: ProgramUse, package: str, version: str) -> bool:
    """Whether a call has an argument that a release does not have yet: `gradio.Audio(sources=...)`."""
    top, owner = use.name.partition(".")[0], use.name.rpartition(".")[2]
    if DISTRIBUTIONS.get(top, top.replace("_", "-")) != package:
        return False
    strict = _STRICT.get(top)
    is_strict = strict is not None and strict.fullmatch(owner) is not None
    fields = fields_of(package, owner) or {}
    for name in use.arguments:
        inherited = fields.get(name)
        if inherited is not None and all(each.package != package for each in inherited):
            continue  # a base class has it where the class does not state it again: `bf16` of GRPOConfig
        spans = [each for each in periods_of(f"{owner}({name})") if each.package == package]
        spans = spans or [each for each in find_argument(top, owner, name) if is_strict and each.package == top]
        is_absent = bool(spans) and not any(span.can_be_in(version) for span in spans)
        if is_absent and any(span.first and satisfies(version, f"<{span.first}") for span in spans):
            return True
    return False


def _fix(
    package: str, last: str, excluding: str, changes: Sequence[str], model: str, *, is_newer: bool, is_built: bool
) -> str:
    """What cures the calls: the release that the code is written for, or a change of the code.

    `model` is the module of a model that this release lacks.
    """
    change = " and ".join(dict.fromkeys(changes)) if all(changes) else "change the code"
    if excluding:
        return f"{excluding} excludes {package} {last}, for which the code is written: {change}."
    if model:
        return f"The guide names a model of {model}, which {package} {last} does not have: {change}."
    if is_newer:
        return f"Other calls of the programs need a release after {package} {last}: {change}."
    if is_built and all(changes):
        return f"{change[0].upper()}{change[1:]}."
    release = f"{package} {last}" if last else f"a release of {package}"
    return f"Use {release}, for which the code is written, or {change}."


def _problem(
    context: GuideContext, package: ComparedPackage, faults: Sequence[_Fault], uses: Sequence[ProgramUse]
) -> Problem:
    first, others = faults[0], faults[1:]
    is_direct = first.use.is_direct and _is_run(context, first.use) and not package.is_dependency
    last = min((each.last for each in faults), key=dotted_numbers)
    state = package.state
    python = state.python or context.trace.python
    index = context.index_facts
    excluding = excluding_package(index, state.packages, package.name, last, python=python) if index else ""
    excluding = excluding or rejecting_package(context, state, package.name, last)
    # An older release can lack a wheel for this torch or this Python.
    is_built = package.name in COMPILED | TORCH_FAMILY
    is_newer = any(_needs_newer(each, package.name, last) for each in uses)
    model = next(names_without(package.name, last, named_models(context)), "")
    has_pin = last and not (excluding or package.condition or is_built or is_newer or model)
    pin = f"{package.name}=={last}" if has_pin else ""
    further = list(dict.fromkeys(each.fact.rstrip("=") for each in others if each.fact != first.fact))
    listed = ", ".join(further[:_MAX_SHOWN]) + (" and more" if len(further) > _MAX_SHOWN else "")
    return Problem(
        "error" if is_direct and not package.condition else "warning",
        f"{first.place} {first.what}, and {package.in_words} {first.reaction}"
        + (f" (also {listed})" if listed else ""),
        (
            guide_evidence(context, package.name, package.reason, package.line),
            *(table_evidence(each.fact, each.what, each.place) for each in faults[:_MAX_SHOWN]),
            table_evidence(
                f"{package.name} {package.version}", f"changed after {first.last}", first.source, first.date
            ),
        ),
        _fix(
            package.name,
            last,
            excluding,
            [each.change for each in faults],
            model,
            is_newer=is_newer,
            is_built=is_built,
        ),
        install_step(pin) if pin else (),
        line=_line(context, first.use, package),
    )


def _line(context: GuideContext, use: ProgramUse, package: ComparedPackage) -> int:
    """The line of the command that starts the program, or that of a later step for another environment."""
    has_environment = any(each.action.line < use.line for each in context.trace.installs)
    return package.line if not use.line or (has_environment and use.line < package.line) else use.line
