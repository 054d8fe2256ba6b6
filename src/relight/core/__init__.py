"""Decisions. Values in, values out: no clock, socket, file, thread, log, randomness or environment."""
