"""A bearer token: a literal, or a file that is read again when it changes."""

from __future__ import annotations

from pathlib import Path

from bundlekeel.model.errors import AdminUnauthorized

_MAX_TOKEN_BYTES = 65_536


class TokenSource:
    """Returns the current token, which never appears in `repr`, errors or logs.

    A file is read again if its inode, mtime or size has changed, as when kubelet replaces it, or after `forget()`. It
    is read on the event loop, because token files are small and local.
    """

    def __init__(self, token: str | None = None, *, file: Path | None = None) -> None:
        """Set either a literal token or a file. The file need not exist yet."""
        if (token is None) == (file is None):
            raise ValueError("give either a token or a token file")
        self._token = _clean(token, "the token setting") if token is not None else ""
        self._file = file
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    def parse(cls, text: str) -> TokenSource:
        """Read `token:...` or `file:...` (also `file:///path`), as in Pulsar clients.

        Any other text is the token itself.
        """
        if text.startswith("file:"):
            rest = text.removeprefix("file:")
            return cls(file=Path(rest.removeprefix("//") if rest.startswith("///") else rest))
        return cls(text.removeprefix("token:"))

    def current(self) -> str:
        """Return the token to send now. Raises AdminUnauthorized if the file is unreadable or empty."""
        if self._file is None:
            return self._token
        try:
            stat = self._file.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if stamp != self._seen:
                with self._file.open("rb") as stream:
                    data = stream.read(_MAX_TOKEN_BYTES)
                self._token = _clean(data.decode("utf-8"), f"the token file {self._file}")
                self._seen = stamp
        except OSError as error:
            raise AdminUnauthorized(f"token file {self._file}: {error.strerror}") from error
        except UnicodeDecodeError:
            # Without the original error, which contains the bytes of the token.
            raise AdminUnauthorized(f"token file {self._file}: not UTF-8 text") from None
        return self._token

    def forget(self) -> None:
        """Read the file again next time, even if it is unchanged (after a 401)."""
        self._seen = None

    def __repr__(self) -> str:
        return f"TokenSource({'literal' if self._file is None else self._file}, token=**********)"


def _clean(text: str, where: str) -> str:
    """Return the token without surrounding whitespace. Raises AdminUnauthorized if it cannot be sent in a header."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise AdminUnauthorized(f"{where} holds no usable token")
    return token
