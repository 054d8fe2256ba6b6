"""A whole cluster on one virtual clock: real `Job` and `Node`, everything else played. Start reading in `world.py`."""
