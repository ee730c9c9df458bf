"""VerificationStatus that an environment works: probes, load test, benchmark, stored results."""
