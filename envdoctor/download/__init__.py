"""HTTP downloads with resume and hashes; package sources as pip and uv have them configured."""
