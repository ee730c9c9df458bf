"""Resolving a profile with uv, and its lock files."""
