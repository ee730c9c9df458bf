"""Not a probe: the name starts with an underscore."""
