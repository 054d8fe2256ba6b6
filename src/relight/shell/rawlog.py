"""A file of raw bytes that never stops its writer: what cannot be kept is counted, and tried again later.

When a full disk takes bytes again, a line in the file says how many are missing there and why.
"""

from __future__ import annotations

import os

RETRY_S = 1.0


class RawLog:
    """One log file, made empty, written at its end, read back where a console lagged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0  # bytes that went into the file
        self.missing = 0  # bytes that did not, since the file last heard about it
        self.trouble: str | None = None  # why writing does not work at the moment
        self._retry_at = float("-inf")
        self._in_mid_line = False
        self._fd = -1
        self._open()

    def append(self, data: bytes, now: float) -> int:
        """Writes `data`; says how much of its beginning is in the file now."""
        works = self.trouble is None or (now >= self._retry_at and self._recovers())
        kept = self._write(data) if works else 0
        if kept < len(data):
            self.missing += len(data) - kept
            if now >= self._retry_at:
                self._retry_at = now + RETRY_S
        return kept

    def read(self, offset: int, size: int) -> bytes:
        """Bytes that were written before; nothing where that cannot be had."""
        try:
            return os.pread(self._fd, size, offset) if self._fd >= 0 else b""
        except OSError:
            return b""

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError as error:  # where writing is put off (NFS), closing may be what fails
                self.trouble = error.strerror

    def _open(self) -> None:
        kind = os.O_CREAT | os.O_TRUNC | os.O_APPEND
        try:
            try:
                self._fd = os.open(self.path, os.O_RDWR | kind, 0o666)
            except PermissionError:
                self._fd = os.open(self.path, os.O_WRONLY | kind, 0o666)
        except OSError as error:
            self.trouble = error.strerror

    def _recovers(self) -> bool:
        """Tries to write what should stand where bytes are missing; True if everything works again."""
        if self._fd < 0:
            self._open()
        if self._fd < 0:
            return False
        note = f"[relight: {self.missing} bytes are missing here: {self.trouble}]\n" if self.missing else ""
        whole = (b"\n" if self._in_mid_line and note else b"") + note.encode()
        if self._write(whole) < len(whole):
            return False
        self.trouble = None
        self.missing = 0
        return True

    def _write(self, data: bytes) -> int:
        kept = 0
        try:
            while kept < len(data):
                written = os.write(self._fd, data[kept:] if kept else data)
                kept += written
                self.size += written
                self._in_mid_line = data[kept - 1] != 10
        except OSError as error:
            self.trouble = error.strerror
        return kept
