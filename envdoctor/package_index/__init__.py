"""Reads a package index: its address, its pages with upload dates, and wheels with range requests."""
