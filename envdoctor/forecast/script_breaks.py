"""Programs that a release no longer installs, and that the shell files of the user's code call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from envdoctor.core.files import read_file_text
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.forecast.records import YOUR_CODE, Break
from envdoctor.forecast.wheels import Pin, Wheels, is_foreign
from envdoctor.package_index.wheel_metadata import console_scripts_of

SHELL_FILES = lazy_pattern(r".*\.(?:sh|bash|slurm|sbatch|ya?ml|mk)|(?:.*\.)?(?:Docker|Container|Make)file(?:\..*)?")
# A program at the beginning of a line, after an operator, or after a word that starts another one.
PROGRAM = lazy_pattern(
    r"(?:^[ \t-]*|[;&|][ \t]*)(?:(?:RUN|srun|exec|run:|nohup|time|uv run)[ \t]+)*([A-Za-z][\w.-]+)(?![\w=:(])"
)
MAX_LINES = 20_000  # of one file

Programs = dict[str, str]  # program -> the first place that calls it


def read_programs(folder: Path, wheels: Wheels) -> Programs:
    """The programs that the shell files of a folder call, with file and line."""
    programs: Programs = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if is_foreign(relative) or not SHELL_FILES.fullmatch(path.name) or not path.is_file():
            continue
        try:
            lines = read_file_text(path).splitlines()
        except OSError as error:
            wheels.add_unread(str(relative), f"cannot be read: {error.strerror or error}", is_failed=True)
            continue
        for number, line in enumerate(lines[:MAX_LINES], start=1):
            for name in PROGRAM.findall(line[:2000]):
                programs.setdefault(name, f"{relative}:{number}")
    return programs


class ScriptJudge:
    """Judges an upgrade by the entry points of two wheels."""

    def __init__(self, wheels: Wheels, programs: Programs | None = None) -> None:
        self.wheels, self.programs = wheels, programs or {}

    def judge(self, versions: Mapping[str, str], pin: Pin) -> Iterator[Break]:
        """The programs of the locked release that the new one has not, and that the code calls."""
        if not self.programs:
            return
        locked = Pin(pin.name, versions[pin.name])
        old, new = self.wheels.library(locked), self.wheels.library(pin)
        if old is None or new is None:
            return
        after = console_scripts_of(new.sources.entry_points)
        for name in console_scripts_of(old.sources.entry_points):
            if name not in after and name in self.programs:
                yield Break(
                    kind="script",
                    package=pin.name,
                    locked=locked.version,
                    release=pin.version,
                    day=self.wheels.day(pin),
                    user=YOUR_CODE,
                    message=f"{YOUR_CODE} calls the program {name}, which is not installed any more",
                    evidence=(Evidence(self.programs[name], name, "entry_points.txt of both wheels"),),
                )
