"""Readers of manifests, scripts, lock files and guides. Each returns what the rules examine."""
