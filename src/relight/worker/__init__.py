"""The library inside a training process. Leans on the core only; imports torch lazily or not at all."""
