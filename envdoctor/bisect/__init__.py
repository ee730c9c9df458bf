"""Finds the release that broke a command: resolves by upload date, installs trials, and runs the command in each."""
