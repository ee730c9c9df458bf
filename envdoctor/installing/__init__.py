"""Making an environment: its plan, what is checked before, each step, the exchange, and the record of all of it."""
