"""Several machines held against each other before the hours are spent: `envdoctor fleet`."""
