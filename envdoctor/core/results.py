"""What each command answers with: one record a command, rendered for people or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from envdoctor.core.errors import EXIT_OK
from envdoctor.core.records import Choice, Finding, Machine, Record, Stack, Verification

if TYPE_CHECKING:
    from envdoctor.install.install import InstallResult
    from envdoctor.locking.resolve import Lock, Resolution
    from envdoctor.training.recipes import Recipe, Setting
    from envdoctor.training.start import Run


class VerificationStatus(Record, frozen=True, kw_only=True):
    """What the probes showed of an environment when they last ran, and whether it still holds."""

    state: Literal["passed", "failed", "stale"]
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    lock: str
    changed: str = ""  # stale: what is different now
    passed: int = 0  # probes
    failed: tuple[str, ...] = ()  # probes with their outcome
    attention: tuple[str, ...] = ()  # by transformers' names, what passed, best first
    attention_with_sinks: tuple[str, ...] = ()


class BenchmarkStatus(Record, frozen=True, kw_only=True):
    """What `verify --bench` measured in an environment when it last ran, and whether it still holds."""

    state: Literal["healthy", "slow", "failing", "unknown", "stale"]  # the worst grade
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    lock: str
    changed: str = ""  # stale: what is different now
    low: tuple[str, ...] = ()  # measurements that are slow, failing, or could not be made


class Made(Record, frozen=True, kw_only=True):
    """What envdoctor knows of an environment that it made itself."""

    profile: str
    lock: str
    created: str
    verified: Literal["passed", "failed", "stale", "no"]  # stale: for another driver, GPU or lock
    fallbacks: dict[str, str] = {}  # attention that stands in for a package that no wheel fitted


class Checked(Record, frozen=True):
    """Facts, findings and the choice of a profile."""

    machine: Machine
    stack: Stack | None  # None: no environment was looked at
    findings: tuple[Finding, ...]
    rules: int
    choice: Choice
    report: tuple[str, ...] = ()  # what was recognised in a pasted report
    made: Made | None = None  # None: envdoctor did not make the environment
    verification: VerificationStatus | None = None  # None: its probes were not run
    benchmark: BenchmarkStatus | None = None


class RuleText(Record, frozen=True):
    """One rule in a line."""

    id: str
    title: str
    cause: str
    summary: str
    stack: bool  # about a stack, not the machine alone


class RuleList(Record, frozen=True):
    """All rules."""

    rules: tuple[RuleText, ...]


class Documentation(Record, frozen=True):
    """What is written on a rule or a cause."""

    id: str
    title: str
    cause: str
    text: str
    rules: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    check: str = ""
    url: str = ""


class Text(Record, frozen=True):
    """A text that was asked for, to be printed as it is."""

    text: str


class Written(Record, frozen=True):
    """A file that was asked for."""

    path: str
    summary: str


class Schema(Record, frozen=True):
    """A JSON Schema."""

    name: str
    schema: dict[str, Any]


class Resolved(Record, frozen=True):
    """One profile's resolution, whether the machine meets its conditions, and the error if there is no lock."""

    profile: str
    machine: str
    fits: bool | None  # None: not asked of this machine
    violated: tuple[str, ...]
    resolution: Resolution | None
    digest: str
    error: str = ""
    hint: str = ""
    findings: tuple[Finding, ...] = ()  # of the rules, on the lock


class ResolvedAll(Record, frozen=True):
    """The outcome for each profile that was asked for."""

    results: tuple[Resolved, ...]


class Planned(Record, frozen=True):
    """An install that was not carried out."""

    profile: str
    venv: str
    commands: tuple[str, ...]
    lock: Lock
    fits: bool
    violated: tuple[str, ...]


class RecipeList(Record, frozen=True):
    """The bundled recipes."""

    recipes: tuple[Recipe, ...]


class SettingList(Record, frozen=True):
    """Every setting of the trainer."""

    settings: tuple[Setting, ...]


class Trained(Record, frozen=True):
    """A run: its directory, and what the trainer wrote at its end (nothing for a dry run)."""

    run: Run
    summary: dict[str, Any] = {}
    result: dict[str, Any] = {}
    seconds: float = 0.0
    dry_run: bool = False
    job: str = ""  # SLURM's number, where the run was handed to it


class Quickstarted(Record, frozen=True):
    """The main job from end to end."""

    checked: Checked
    installed: InstallResult
    verification: Verification
    trained: Trained
    seconds: dict[str, float]


class Answer(Record, frozen=True):
    """A command's data and its exit code."""

    data: Any
    exit_code: int = EXIT_OK
