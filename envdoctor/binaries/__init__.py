"""ELF files, CUDA fat binaries and the dynamic loader's view of them, read without running anything."""
