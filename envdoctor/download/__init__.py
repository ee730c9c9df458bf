"""HTTP downloads with resume and hashes; package sources from the configuration of pip and uv."""
