"""The load test: every compiled file and every library of an environment, each in a process of its own."""

from envdoctor.verify.loading.records import Loaded, LoadTest
from envdoctor.verify.loading.running import load_all, load_test, run_load_test

__all__ = ["LoadTest", "Loaded", "load_all", "load_test", "run_load_test"]
