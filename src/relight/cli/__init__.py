"""Words: options, plans, help, and what people read on the terminal."""
