"""Removal of secrets and identifying data from texts and records."""
