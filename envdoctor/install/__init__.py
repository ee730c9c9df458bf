"""Installation of a lock into an environment: plan, preflight, steps, journal, atomic swap."""
