"""Verification of an environment: probes, load test, benchmark, stored results."""
