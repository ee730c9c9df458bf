"""Forecasts what the releases since a lock would break, from metadata and sources of the wheels."""
