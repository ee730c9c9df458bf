"""Trial installations: the environments of a file are created, their steps run, and their modules imported."""
