"""Synthetic decision data of a storage plant, in the format of the real files."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

OLDER_HEADER = ["dataset", "timestep", "tes_energy", "timestamp", "prompt", "optimal_action"]
HEADER = ["timestep", "timestamp", "prompt", "optimal_action"]
Q = [f"q_action_{action}" for action in range(4)]

# ruff: noqa: RUF001, PLR0917  (the wording of the plant's prompts; a prompt has this many facts)
BODY = """Objective:
- Minimise total CO₂ emissions = electricity consumption × time-varying CO₂ intensity over the horizon.

Current context:
- Current time [h]: {date} {hour:02d}:00:00
- Current TES energy [kWh]: {energy}

Forecast data:
Forecast features (raw values aligned with the RL look-ahead):

- Remaining business hours today (08:00-17:00, close at 18:00):
{forecast}

- Next-day planning metrics (for terminal planning):
  - load_mean=33.7 kW (average cooling demand for next day)
  - co2_low5_avg=0.295 kg-CO2/kWh (average of lowest 5 hours of CO2 factor for next day)
  - co2_min=0.281 kg-CO2/kWh (minimum CO2 factor for next day)

System parameters:
ASHP rated capacity [kW]: 100.0
ASHP base COP [-]: 4.0
TES capacity [kWh]: 300.0

Action space for the next hour:
0 → ASHP output ratio = 0.00 (ASHP off; rely on TES if demand exists)
3 → ASHP output ratio = 1.00 (full output; any surplus charges TES if capacity remains)

Return format:
- Output a single token formatted as `[action_index]` (e.g., `[0]`, `[1]`, `[2]`, `[3]`)."""
PLAIN = "system: You are an optimisation agent.\nuser: {body}"
HARMONY = "<|start|>system<|message|>You are.<|end|><|start|>user<|message|>{body}<|end|><|start|>assistant"


def make_prompt(date: str, hour: int, energy: float, loads: list[float], co2: list[float], form: str = PLAIN) -> str:
    """Return a prompt for this hour."""
    lines = [f"  - {past:02d}:00: past hour -> omitted (state uses zero)" for past in range(8, hour)]
    for number, (load, factor) in enumerate(zip(loads, co2, strict=True)):
        now = "  ←Now!!!" if number == 0 else ""
        lines.append(f"  - {hour + number:02d}:00: load={load:.1f} kW, co2={factor:.3f} kg-CO2/kWh{now}")
    return form.format(body=BODY.format(date=date, hour=hour, energy=energy, forecast="\n".join(lines)))


def make_rows(date: str, seed: int = 0, form: str = PLAIN) -> list[dict[str, Any]]:
    """Return rows for the ten business hours of one day."""
    rng = random.Random(seed)
    loads = [rng.uniform(20, 45) for _ in range(10)]
    co2 = [rng.uniform(0.2, 0.45) for _ in range(10)]
    rows = []
    for hour in range(8, 18):
        energy = rng.uniform(0, 300)
        now = co2[hour - 8]
        q = [
            -5 - now * share - (20 if energy + share * 100 < loads[hour - 8] else 0) for share in (0, 1 / 3, 2 / 3, 1)
        ]
        rows.append(
            {
                "dataset": "x.csv",
                "timestep": hour,
                "tes_energy": energy,
                "timestamp": f"{date}T{hour:02d}:00:00",
                "prompt": make_prompt(date, hour, energy, loads[hour - 8 :], co2[hour - 8 :], form),
                "optimal_action": q.index(max(q)),
                **dict(zip(Q, q, strict=True)),
            }
        )
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]], header: list[str] | None = None) -> Path:
    """Write rows as a q dataset."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header or [*HEADER, *Q], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_weeks(folder: Path, *, harmony_of_last: bool = True) -> Path:
    """Write three weeks of one day each: the first with the older columns, the last also in harmony format."""
    for number, date in enumerate(["2025-04-14", "2025-04-21", "2025-05-05"]):
        header = [*OLDER_HEADER, *Q] if number == 0 else None
        write_rows(folder / f"week_{date[5:]}_q_dataset.csv", make_rows(date, number), header)
    if harmony_of_last:
        write_rows(folder / "week_05-05_q_dataset_harmony.csv", make_rows("2025-05-05", 2, HARMONY))
    return folder
