"""A table of names, arguments and attributes of a library, derived from the members of its releases.

Only what differs between releases has a row: `NAME FIRST..LAST`, without FIRST if the oldest release has it, and
without LAST if the newest one has it. A member that was removed and added again has a range for each period. An
attribute that only some instances have ends with `?`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import itemgetter

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge_check.library_members import ALSO_PUBLIC, Members

SECTIONS = ("names", "arguments", "values", "attributes", "bases")
TOUCHED = ("Trainer", "Model", "LLM", "GenerationMixin")  # ends of class names
NAMES_MOVE_IN = ("vllm",)  # between its modules: of names that remain, only those of `__init__.py` are written
# `send`, `Result` and `Dataset` of these can be of the caller's program or of another library, unlike
# `init_process_group` and `RunConfig`: their members have no rows.
WITHOUT_SINGLE_WORDS = ("torch", "ray", "deepspeed")
SEVERAL_WORDS = lazy_pattern(r"[A-Z]\w*[A-Z]\w*|[a-z]\w*_\w*[a-z0-9]")

# Classes that several modules define in some releases, such as RunConfig in ray.air and ray.train: a name alone does
# not identify them, so their members have no rows.
SEVERAL_DEFINITIONS = {
    "ray": {
        "CheckpointConfig", "DataParallelTrainer", "FailureConfig", "RayTrainReportCallback", "RunConfig",
        "ScalingConfig", "TrainContext", "TrainingFailedError",
    },
    "torch": {"GradScaler", "SyncBatchNorm"},
}  # fmt: skip


def derive_table(package: str, releases: Sequence[str], read: Sequence[Members]) -> dict[str, list[str]]:
    """The rows of each section, from releases in order of version."""
    owners = [each.names for each in read]
    models = [each.names | each.model_names for each in read]
    lasting = frozenset().union(*owners)
    exported = frozenset().union(*(each.exported for each in read), ALSO_PUBLIC.get(package, ()))
    bases: dict[str, list[str]] = {}
    for each in read:
        bases |= {name: found for name, found in each.bases.items() if found}
    public = exported | {base for name in exported for base in bases.get(name, ())}
    if package in WITHOUT_SINGLE_WORDS:
        public = frozenset(filter(SEVERAL_WORDS.fullmatch, public)) - SEVERAL_DEFINITIONS.get(package, set())
    kept = exported if package in NAMES_MOVE_IN else lasting
    names = _changes(releases, models, owners)
    arguments = _changes(releases, [each.arguments for each in read], owners)
    values = _changes(releases, [each.values for each in read], owners)
    attributes = _changes(releases, [each.attributes for each in read], owners)
    partial = frozenset().union(*(each.partial for each in read))
    attributes = (f"{row}?" if row.partition(" ")[0] in partial else row for row in attributes)
    return {
        "names": [row for row in names if not row.endswith("..") or row.partition(" ")[0] in kept],
        "arguments": list(_public_rows(arguments, bases, public)),
        "values": list(_public_rows(values, bases, public)),
        "attributes": list(_public_rows(attributes, bases, public)),
        "bases": [f"{name} {' '.join(found)}" for name, found in sorted(bases.items()) if name in public],
    }


def format_table(package_sources: str, day: str, releases: Sequence[str], sections: dict[str, list[str]]) -> str:
    """The content of names/PACKAGE.toml."""
    parts = [
        "# Written by tests/campaigns/library_names.py: what differs between releases, as `NAME FIRST..LAST`.",
        "",
        f'releases = "{" ".join(releases)}"',
        f'source = "{package_sources}"',
        f'date = "{day}"',
    ]
    for section in SECTIONS:
        parts += [f'{section} = """', *sections[section], '"""']
    return "\n".join(parts) + "\n"


def owner_of(member: str) -> str:
    """The class or function of a member; a name is its own owner."""
    return member.partition(".")[0]


def _changes(
    releases: Sequence[str], members: Sequence[AbstractSet[str]], owners: Sequence[AbstractSet[str]]
) -> Iterator[str]:
    """The rows of members that some releases have and others, in which their owner exists, have not."""
    for member in sorted(frozenset().union(*members)):
        owner = owner_of(member)
        known = [n for n in range(len(releases)) if owner == member or owner in owners[n]]
        groups = groupby(((n, member in members[n]) for n in known), key=itemgetter(1))
        periods = [[n for n, _ in group] for is_present, group in groups if is_present]
        if periods and periods != [known]:
            starts = [releases[period[0]] if period[0] > known[0] else "" for period in periods]
            ends = [releases[period[-1]] if period[-1] < known[-1] else "" for period in periods]
            ranges = (f"{start}..{end}" for start, end in zip(starts, ends, strict=True))
            yield f"{member} {' '.join(ranges)}"


def _public_rows(rows: Iterable[str], bases: dict[str, list[str]], public: AbstractSet[str]) -> Iterator[str]:
    """The rows of public classes and functions that do not repeat those of a base class."""
    every = set(rows)
    for row in sorted(every):
        owner, _, rest = row.partition(".")
        inherited = any(f"{base}.{rest}" in every for base in bases.get(owner, ()))
        if owner in public and not inherited and (not rest.startswith("_") or _is_touched(owner, rest)):
            yield row


def _is_touched(owner: str, name: str) -> bool:
    """Whether programs use a private attribute of this class: subclasses of trainers and models do."""
    return owner.endswith(TOUCHED) and not name.startswith("__")
