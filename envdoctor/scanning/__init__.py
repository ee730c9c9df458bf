"""Compiled files of an environment: what they are built for, what they need, whether they load."""
