"""Resolves requirements to releases from the built-in tables, without network access."""
