"""How many compilers run at once for a source build, and how long it will take. Pure."""

from __future__ import annotations

from envdoctor.core.records import Machine, Memory, Record
from envdoctor.profiles import Build

GIB = 1 << 30


class Jobs(Record, frozen=True):
    """MAX_JOBS of a build, and what it follows from."""

    count: int = 1
    why: str = ""


ONE_JOB = Jobs()


def count_jobs(build: Build, machine: Machine) -> Jobs:
    """As many as there are cores and memory for; the user's own MAX_JOBS wins."""
    own = (machine.environment.value or {}).get("MAX_JOBS", "")
    if own.isdecimal() and int(own):
        return Jobs(int(own), "MAX_JOBS of this shell")
    cores, memory = machine.system.cpu_count.value or 1, memory_for_builds(machine.memory)
    if memory is None:
        return Jobs(1, "one, since the memory could not be read")
    told = f"{cores} cores, {memory / GIB:.1f} GiB of memory at {build.memory_gb_per_job:g} GiB each"
    return Jobs(max(1, min(cores, int(memory / GIB / build.memory_gb_per_job))), told)


def memory_for_builds(memory: Memory) -> int | None:
    """Bytes that a build can take: what is available, and no more than the cgroup may have."""
    limits = [fact.value for fact in (memory.available, memory.cgroup_limit) if fact.value is not None]
    return min(limits, default=None)


def estimated_time(build: Build, jobs: Jobs) -> str:
    """How long all of a profile's builds take, and how that is known."""
    with_jobs = "1 job" if jobs.count == 1 else f"{jobs.count} jobs"
    if not build.core_minutes:
        return f"with {with_jobs}, for a time that nobody has measured"
    minutes = build.core_minutes / jobs.count
    about = f"{minutes:.0f} min" if minutes >= 1 else "1 min or less"
    return f"about {about}: {build.core_minutes:g} core-minutes measured, {with_jobs}"
