"""The results of a trial installation, which the rules on trials examine."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record
from envdoctor.core.remedies import Remedy


class Cure(Record, frozen=True, kw_only=True):
    """A remedy that was tried in the environment, and after which the step or the imports succeeded."""

    remedy: Remedy
    cause: str = ""  # a slug of causes.toml
    changes: tuple[str, ...] = ()  # packages with another version afterwards


class Need(Record, frozen=True, kw_only=True):
    """What a build or an import needs from the machine."""

    name: str
    needs: str
    is_decided: bool = False  # the base image and the system packages of the file lack it
    severity: Literal["unknown", "warning"] = "unknown"
    apt: tuple[str, ...] = ()


class FailedStep(Record, frozen=True, kw_only=True):
    """A step that uv refused, or of which it could not build a package."""

    line: int
    command: str
    kind: Literal["refused", "build", "timeout"]
    reason: str
    package: str = ""  # whose build failed, or that the index does not have: "chumpy==0.70"
    need: Need | None = None
    cure: Cure | None = None
    cause: str = ""
    fix: str = ""


class FailedImport(Record, frozen=True, kw_only=True):
    """Modules whose import fails for one reason, or that import without a part that they need."""

    modules: tuple[str, ...]
    line: int
    kind: Literal["exception", "crash", "hang", "degraded"]
    reason: str  # the exception, or how the process ended
    place: str = ""  # "wandb/sdk/data_types.py, line 12"
    package: str = ""  # of that file: "wandb 0.15.3"
    need: Need | None = None
    cure: Cure | None = None
    cause: str = ""
    fix: str = ""
    depends_on_seed: bool = False  # an environment with an older setuptools does not have it
    missing: tuple[str, ...] = ()  # packages that were not tried, without which the import may fail


class Overlap(Record, frozen=True, kw_only=True):
    """Two distributions that install different files under the same path."""

    first: str
    second: str
    module: str
    files: int
    line: int


class Untried(Record, frozen=True, kw_only=True):
    """A part of a file that was not tried."""

    what: str
    reason: str
    line: int = 0


class EnvironmentTrial(Record, frozen=True, kw_only=True):
    """The trial of one environment of a file."""

    branch: str  # the alternatives that lead to this environment; empty without alternatives
    target: str  # "x86_64, Python 3.12"
    tried: bool = True
    installed: int = 0  # packages
    imported: int = 0  # modules
    steps: tuple[FailedStep, ...] = ()
    imports: tuple[FailedImport, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    untried: tuple[Untried, ...] = ()
