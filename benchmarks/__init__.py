"""Measures relight beside torchrun, in one run, so that any reader can check the README's table."""
