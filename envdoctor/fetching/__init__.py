"""Fetching what an installation needs, for a machine without a network."""
