"""Real clients under relight: what people run with torchrun, unmodified, and what they must find."""
