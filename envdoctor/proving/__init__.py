"""Proof that a stack works and how fast it is: probes, each in a process of its own."""
