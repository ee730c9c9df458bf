"""Reads the settings of the trainer in the interpreter that forks for its checks."""

from settings import setting_definitions

setting_definitions()
