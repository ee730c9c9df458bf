"""The load test: load every compiled file and import every library of an environment, one process for each."""

from envdoctor.verify.loading.records import LoadResult, LoadTest
from envdoctor.verify.loading.runner import run_load_test

__all__ = ["LoadResult", "LoadTest", "run_load_test"]
