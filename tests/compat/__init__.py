"""relight in the shapes of torchrun's Python API."""
