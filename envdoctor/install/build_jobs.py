"""The number of parallel compiler jobs of a source build, and its estimated duration. Pure."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.core.records import Machine, Memory
from envdoctor.profiles import Build

GIB = 1 << 30


class BuildJobs(Record, frozen=True):
    """MAX_JOBS of a build, and the reason for this number."""

    count: int = 1
    why: str = ""


ONE_JOB = BuildJobs()


def count_jobs(build: Build, machine: Machine) -> BuildJobs:
    """As many jobs as the cores and the memory permit. A MAX_JOBS of the user takes precedence."""
    own = (machine.environment.value or {}).get("MAX_JOBS", "")
    if own.isdecimal() and int(own):
        return BuildJobs(int(own), "MAX_JOBS of this shell")
    cores, memory = machine.system.cpu_count.value or 1, memory_for_builds(machine.memory)
    if memory is None:
        return BuildJobs(1, "one, since the memory could not be read")
    why = f"{cores} cores, {memory / GIB:.1f} GiB of memory at {build.memory_gb_per_job:g} GiB each"
    return BuildJobs(max(1, min(cores, int(memory / GIB / build.memory_gb_per_job))), why)


def memory_for_builds(memory: Memory) -> int | None:
    """The available memory in bytes, limited by the cgroup."""
    limits = [fact.value for fact in (memory.available, memory.cgroup_limit) if fact.value is not None]
    return min(limits, default=None)


def estimated_time(build: Build, jobs: BuildJobs) -> str:
    """The estimated duration of all builds of a profile, and its basis."""
    with_jobs = "1 job" if jobs.count == 1 else f"{jobs.count} jobs"
    if not build.core_minutes:
        return f"duration unknown, with {with_jobs}"
    minutes = build.core_minutes / jobs.count
    about = f"{minutes:.0f} min" if minutes >= 1 else "1 min or less"
    return f"about {about}: {build.core_minutes:g} core-minutes measured, {with_jobs}"
