"""The drop-in proof: one case, two launchers, the same world. Start reading in `case.py`."""
