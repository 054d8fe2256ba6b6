"""Free ports, for the one case in which relight cannot hold a port itself: worker rank 0 will."""

from __future__ import annotations

import socket


def free_port(address: str) -> int:
    """A port that is free at this moment. Somebody else may take it before the worker does; nobody can prevent that."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
