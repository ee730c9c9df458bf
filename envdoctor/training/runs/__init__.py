"""Run directories: names, configuration, lock, events and state of a training run."""
