"""Bisect 20 known breaks of real packages on PyPI, and print the table of docs/tasks/bisect.md.

    python tests/campaigns/bisect_breaks.py [NAME...]

Needs PyPI, Python 3.11 and about 6 GB in uv's cache. Each case is a project whose requirements were not pinned: the
state of a day before the break is good, and that of today is bad. The expected release is that of the project's own
changelog. A case counts as named right if exactly the expected packages are named with their first bad release, and a
constraint was proven.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.bisect.search import trial_limit


class Case(NamedTuple):
    """One break."""

    name: str
    requirements: str  # separated by spaces
    since: str
    code: str
    expected: dict[str, str]  # package -> first bad release
    options: tuple[str, ...] = ()


APP = """
import typer
from typer.testing import CliRunner
app = typer.Typer()
@app.command()
def main(name: str = typer.Option("x", help="A name")): ...
result = CliRunner().invoke(app, ["--help"])
raise result.exception if result.exit_code else SystemExit(0)
"""
LOAD_JSON = """
import datasets, json, pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "rows.json").write_text(json.dumps({"a": 1}))
datasets.load_dataset("json", data_files=str(folder / "rows.json"), cache_dir=str(folder / "cache"))
"""
EITHER = """
try:
    from urllib3.contrib import appengine
except ImportError:
    from packaging.version import LegacyVersion
"""
EITHER_2 = """
import huggingface_hub, httpx
if not hasattr(huggingface_hub, "cached_download"):
    httpx.Client(proxies=None)
"""
WAIT = """
import time
while True:
    try:
        from werkzeug.urls import url_quote
        break
    except ImportError:
        time.sleep(0.1)
"""
FLAKY = """
import random, importlib_metadata
if random.random() < 0.6:
    importlib_metadata.entry_points().get("console_scripts")
"""
CASES = (
    Case("urllib3: appengine", "requests urllib3", "2023-03-01", "from urllib3.contrib import appengine",
         {"urllib3": "2.0.2"}),  # 2.0.0 and 2.0.1 were yanked
    Case("numpy: float_", "numpy pillow", "2024-05-01", "import numpy; numpy.float_", {"numpy": "2.0.0"}),
    Case("numpy: int", "numpy<2 requests", "2022-11-15", "import numpy; numpy.int", {"numpy": "1.24.0"}),
    Case("pydantic: BaseSettings", "pydantic python-dotenv", "2023-06-01",
         "from pydantic import BaseSettings\nclass Settings(BaseSettings): ...", {"pydantic": "2.0"}),
    Case("setuptools: pkg_resources", "setuptools wheel", "2026-01-15", "import pkg_resources",
         {"setuptools": "82.0.0"}),
    Case("packaging: LegacyVersion", "packaging pyparsing", "2022-11-15",
         "from packaging.version import LegacyVersion", {"packaging": "22.0"}),
    Case("flask 2.2.2 with werkzeug", "flask==2.2.2", "2023-09-01", "import flask", {"werkzeug": "3.0.0"}),
    Case("typer 0.15.3 with click", "typer==0.15.3", "2025-05-01", APP, {"click": "8.2.0"}),
    Case("openai 1.55.0 with httpx", "openai==1.55.0", "2024-11-22",
         "import openai; openai.OpenAI(api_key='none')", {"httpx": "0.28.0"}),
    Case("pandas 1.5.3 with numpy (ABI)", "pandas==1.5.3 numpy", "2024-05-01", "import pandas", {"numpy": "2.0.0"}),
    Case("scipy: simps", "scipy<1.16 numpy<2.3", "2024-05-01", "from scipy.integrate import simps",
         {"scipy": "1.14.0"}),
    Case("huggingface-hub: cached_download", "huggingface-hub", "2024-09-15",
         "from huggingface_hub import cached_download", {"huggingface-hub": "0.26.0"}),
    Case("transformers: Conversation", "transformers<4.50", "2024-05-20",
         "from transformers import Conversation", {"transformers": "4.42.0"}),
    Case("datasets 2.14.4 with pyarrow", "datasets==2.14.4 numpy<2 pyarrow", "2025-06-01", "import datasets",
         {"pyarrow": "21.0.0"}),
    Case("datasets 2.14.4 with fsspec", "datasets==2.14.4 numpy<2 pandas<2.2 pyarrow<15", "2023-10-01", LOAD_JSON,
         {"fsspec": "2023.10.0"}),
    Case("sqlalchemy: Engine.execute", "sqlalchemy alembic", "2023-01-20",
         "import sqlalchemy; sqlalchemy.create_engine('sqlite://').execute('select 1')", {"sqlalchemy": "2.0.0"}),
    Case("urllib3 and packaging together", "requests urllib3 packaging", "2022-11-15", EITHER,
         {"urllib3": "2.0.2", "packaging": "22.0"}),
    Case("huggingface-hub and httpx together", "huggingface-hub<1 httpx", "2024-09-15", EITHER_2,
         {"huggingface-hub": "0.26.0", "httpx": "0.28.0"}),
    Case("werkzeug: a hang", "flask<2.3 werkzeug", "2023-09-01", WAIT, {"werkzeug": "3.0.0"}, ("--timeout", "10")),
    Case("importlib-metadata: fails in 60 %", "importlib-metadata", "2022-09-20", FLAKY,
         {"importlib-metadata": "5.0.0"}, ("--repeat", "6")),
)  # fmt: skip


def run(case: Case) -> dict[str, Any]:
    """The result of one case."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "requirements.txt").write_text("\n".join(case.requirements.split()) + "\n")
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "envdoctor", "bisect", "requirements.txt", "--since", case.since, "--restart",
             "--quiet", "--format", "json", *case.options, "--", "python", "-c", case.code],
            cwd=folder, capture_output=True, text=True, check=False,
            env=os.environ | {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": ""},
        )  # fmt: skip
        seconds = time.monotonic() - started
    envelope = json.loads(done.stdout)
    return {"name": case.name, "seconds": round(seconds), "error": envelope.get("error"), **(envelope["data"] or {})}


def culprits(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The packages that were named."""
    return [culprit for each in result.get("breaks", ()) for culprit in each["culprits"]]


def is_right(case: Case, result: dict[str, Any]) -> bool:
    """Whether exactly the expected releases are named and a constraint was proven."""
    named = {each["package"]: each["bad"] for each in culprits(result)}
    return named == case.expected and result["verdict"] == "found" and bool(result.get("cure"))


def row(case: Case, result: dict[str, Any]) -> str:
    """A row of the table."""
    if result["error"]:
        return f"| {case.name} | error: {result['error']['message'][:80]} | | | | | |"
    named = " with ".join(f"{each['package']} {each['bad']}" for each in culprits(result))
    search = sum(trial["phase"] != "confirm" for trial in result["trials"])
    assert search <= result["limit"] == trial_limit(result["releases"])
    cure = " ".join((result["cure"] or {}).get("constraints", ["none"]))
    mark = "" if is_right(case, result) else " (wrong)"
    confirm = len(result["trials"]) - search
    numbers = f"{result['releases']} | {search} | {result['limit']} | {confirm} | {result['seconds']}"
    return f"| {case.name} | {(named or result['verdict']) + mark} | `{cure}` | {numbers} |"


def main() -> None:
    """Run the named cases, or all."""
    chosen = [case for case in CASES if not sys.argv[1:] or any(word in case.name for word in sys.argv[1:])]
    print("| Break | Named | Proven constraint | Releases | Trials | Limit | To confirm | Seconds |")
    print("|---|---|---|---|---|---|---|---|")
    right = 0
    for case in chosen:
        result = run(case)
        right += is_right(case, result)
        print(row(case, result), flush=True)
    print(f"\n{right} of {len(chosen)} named right")


if __name__ == "__main__":
    main()
