"""Dependency resolution with uv, and lock files."""
