"""Tests of the decisions: no clock, no sleep, no socket."""
