"""Actions. The operating system, sockets, files and the clock live only here."""
