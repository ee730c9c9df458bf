"""Built-in compatibility tables: TOML files whose rows have a source and a date, and the modules that query them."""
