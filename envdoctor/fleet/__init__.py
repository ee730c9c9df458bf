"""Fleet checks: facts of several machines compared, and collectives over them (`envdoctor fleet`)."""
