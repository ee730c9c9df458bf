"""No probe: its name begins with an underscore."""
