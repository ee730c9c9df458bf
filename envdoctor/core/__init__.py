"""Records, errors, results, directories, decoding and processes: imported by every other package."""
