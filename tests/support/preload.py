"""Fills the caches of pure functions in the interpreter that forks for envdoctor's commands.

These caches depend on the files of the package only, not on variables, the home directory or the working directory.
"""

from __future__ import annotations

import io
import os

from envdoctor.explain import explain
from envdoctor.integrations import calls
from envdoctor.machine.recorded import read_recorded
from envdoctor.manifests import audit_guide
from envdoctor.profiles import list_profiles
from envdoctor.rules import evaluate
from envdoctor.training import recipes

evaluate(read_recorded("h200"))
explain(io.BytesIO(b"RuntimeError: CUDA error: out of memory\n"))
explain(io.BytesIO(b"hello\n"))  # without a symptom: patterns in any case
audit_guide("```bash\npip install torch==2.8.0 vllm==0.10.2 transformers==4.57.1 trl==0.23.1\n```\n", name="SETUP.md")
list_profiles({"XDG_CONFIG_HOME": "/nonexistent"})
calls.INTERPRETER = os.environ["FORKING_INTERPRETER"]
recipes.CHECK_INTERPRETER = os.environ["ENVDOCTOR_CHECK_INTERPRETER"]
