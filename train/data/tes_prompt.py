"""Parse the prompts of the thermal energy storage data, and encode their facts as tokens for a tiny model.

A randomly initialised model cannot learn to read 2,800 characters of prose from 120 rows. The prompts differ in a few
numbers only, which are parsed and encoded as eight relative, quantized tokens. The tokens depend on the prompt alone:
they contain no q value, reward or best action.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ACTIONS = 4
SHARES = [0.0, 1 / 3, 2 / 3, 1.0]  # of the heat pump's rated capacity, per action

# The pattern of each fact in the prompt.
# - Current time [h]: 2025-04-14 08:00:00          - load_mean=33.7 kW (average cooling demand for next day)
# - Current TES energy [kWh]: 150.0                - co2_low5_avg=0.295 kg-CO2/kWh (average of lowest 5 hours ...)
NUMBER = r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
FACTS = {
    "current time": re.compile(r"Current time \[h\]: (\d{4}-\d\d-\d\d) (\d\d):00:00\s*$", re.MULTILINE),
    "current TES energy": re.compile(rf"Current TES energy \[kWh\]: {NUMBER}\s*$", re.MULTILINE),
    "next-day load_mean": re.compile(rf"load_mean={NUMBER} kW"),
    "next-day co2_low5_avg": re.compile(rf"co2_low5_avg={NUMBER} kg-CO2/kWh"),
    "next-day co2_min": re.compile(rf"co2_min={NUMBER} kg-CO2/kWh"),
    "ASHP rated capacity": re.compile(rf"ASHP rated capacity \[kW\]: {NUMBER}\s*$", re.MULTILINE),
    "TES capacity": re.compile(rf"TES capacity \[kWh\]: {NUMBER}\s*$", re.MULTILINE),
}
# - 08:00: load=38.0 kW, co2=0.399 kg-CO2/kWh  <-Now!!!
FORECAST = re.compile(rf"- (\d\d):00: load={NUMBER} kW, co2={NUMBER} kg-CO2/kWh(.*Now)?")


class PromptError(ValueError):
    """The prompt lacks a fact, or a fact is impossible."""


@dataclass(frozen=True)
class Facts:
    """The facts of a prompt. Energies in kWh, loads in kW, CO2 in kg per kWh; the forecast starts with this hour."""

    date: str
    hour: int
    energy: float
    capacity: float
    rated: float
    loads: tuple[float, ...]
    co2: tuple[float, ...]
    next_load: float
    next_low5: float
    next_min: float

    @property
    def moment(self) -> str:
        """Return date and hour, which are the same for a row and its copy in another chat format."""
        return f"{self.date}T{self.hour:02d}"


def parse_prompt(prompt: str) -> Facts:
    """Return every fact, or raise a PromptError that names the missing one."""
    values = {}
    for name, pattern in FACTS.items():
        matches = pattern.findall(prompt)
        if len(matches) != 1:
            raise PromptError(f"{'no' if not matches else 'more than one'} {name} in the prompt")
        values[name] = matches[0]
    date, hour = values["current time"]
    forecast = FORECAST.findall(prompt)
    if not forecast:
        raise PromptError("no forecast hour (- HH:00: load=... kW, co2=... kg-CO2/kWh) in the prompt")
    hours = [int(row[0]) for row in forecast]
    if hours != list(range(int(hour), int(hour) + len(hours))):
        raise PromptError(f"the forecast hours are {hours}, not consecutive from {int(hour)}")
    marked = [int(row[0]) for row in forecast if row[3]]
    if marked != [int(hour)]:
        raise PromptError(f"Now marks {marked or 'no hour'}, but the current time is {int(hour)}")
    facts = Facts(
        date=date,
        hour=int(hour),
        energy=float(values["current TES energy"]),
        capacity=float(values["TES capacity"]),
        rated=float(values["ASHP rated capacity"]),
        loads=tuple(float(row[1]) for row in forecast),
        co2=tuple(float(row[2]) for row in forecast),
        next_load=float(values["next-day load_mean"]),
        next_low5=float(values["next-day co2_low5_avg"]),
        next_min=float(values["next-day co2_min"]),
    )
    _check_ranges(facts)
    return facts


def _check_ranges(facts: Facts) -> None:
    if facts.capacity <= 0 or facts.rated <= 0:
        raise PromptError(
            f"TES capacity {facts.capacity} kWh and ASHP rated capacity {facts.rated} kW must be positive"
        )
    if not -1 <= facts.energy <= facts.capacity + 1:
        raise PromptError(f"current TES energy {facts.energy} kWh is outside 0 to {facts.capacity}")
    if min(facts.co2) <= 0 or facts.next_low5 <= 0 or facts.next_min <= 0:
        raise PromptError("a co2 factor is not positive")
    if min(facts.loads) < 0:
        raise PromptError("a load is negative")


# Edges between the buckets of a ratio: narrow around 1, where the best action changes.
RATIO_EDGES = (0.6, 0.75, 0.85, 0.95, 1.05, 1.15, 1.35, 1.7)
NEED_EDGES = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5)


def tokenise(facts: Facts) -> list[str]:
    """Return the eight tokens of a prompt in a fixed order.

    Sample: ["hour8", "stored5", "least0", "most3", "cleaner8", "today5", "tomorrow6", "covered3"]
    """
    now, later = facts.co2[0], facts.co2[1:]
    today = now * len(later) / sum(later) if later else None
    # The load of later hours with more CO2 than now: the stored energy that is still useful today.
    higher_co2_load = sum(load for load, co2 in zip(facts.loads[1:], later, strict=True) if co2 > now)
    return [
        f"hour{facts.hour}",
        f"stored{min(9, int(10 * max(0.0, facts.energy) / facts.capacity))}",
        f"least{least_action(facts)}",
        f"most{most_action(facts)}",
        f"cleaner{sum(co2 < now for co2 in later)}",
        f"today{'_none' if today is None else bucket(today, RATIO_EDGES)}",
        f"tomorrow{bucket(now / facts.next_low5, RATIO_EDGES)}",
        f"covered{bucket(facts.energy / higher_co2_load, NEED_EDGES) if higher_co2_load else '_none'}",
    ]


def list_symbols() -> list[str]:
    """Return every token that `tokenise` can return."""
    ratios = range(len(RATIO_EDGES) + 1)
    return [
        *(f"hour{hour}" for hour in range(24)),
        *(f"stored{tenth}" for tenth in range(10)),
        *(f"least{action}" for action in range(ACTIONS)),
        *(f"most{action}" for action in range(ACTIONS)),
        *(f"cleaner{count}" for count in range(24)),
        *(f"today{number}" for number in [*ratios, "_none"]),
        *(f"tomorrow{number}" for number in ratios),
        *(f"covered{number}" for number in [*range(len(NEED_EDGES) + 1), "_none"]),
    ]


def least_action(facts: Facts) -> int:
    """Return the lowest action that meets this hour's load with the stored energy, or the highest if none does."""
    for action, share in enumerate(SHARES):
        if facts.energy + share * facts.rated >= facts.loads[0]:
            return action
    return ACTIONS - 1


def most_action(facts: Facts) -> int:
    """Return the highest action whose surplus fits into the storage, or 0 if none does."""
    fitting = [
        action
        for action, share in enumerate(SHARES)
        if facts.energy + share * facts.rated - facts.loads[0] <= facts.capacity
    ]
    return max(fitting, default=0)


def bucket(value: float, edges: tuple[float, ...]) -> int:
    """Return the number of edges at or below the value."""
    return sum(edge <= value for edge in edges)
