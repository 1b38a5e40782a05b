"""The bearer token: a literal or a file that is read again when it changes (kubelet rotates by renaming a symlink)."""

from __future__ import annotations

from pathlib import Path

from bundlekeel.core.model.errors import AdminUnauthorized

_MAX_TOKEN_BYTES = 65_536


class TokenSource:
    """Yields the current token. It never appears in `repr`, in an error or in a log.

    A literal never changes. A file is read again when its (inode, mtime, size) differ from the last reading, or
    after `forget()`. Tokens are small local files: they are read on the event loop.
    """

    def __init__(self, token: str | None = None, *, file: Path | None = None) -> None:
        """Take exactly one of a literal token and a file. The file need not exist yet."""
        if (token is None) == (file is None):
            raise ValueError("give either a token or a token file")
        self._token = _clean(token, "the token setting") if token is not None else ""
        self._file = file
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    def parse(cls, text: str) -> TokenSource:
        """Read `token:...` or `file:...` as Pulsar clients write it (`file:///path` too); bare text is the token."""
        if text.startswith("file:"):
            rest = text.removeprefix("file:")
            return cls(file=Path(rest.removeprefix("//") if rest.startswith("///") else rest))
        return cls(text.removeprefix("token:"))

    def current(self) -> str:
        """The token to send now. AdminUnauthorized when the file cannot be read or is empty."""
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
            # Without its cause: a decoding error carries the bytes it could not read.
            raise AdminUnauthorized(f"token file {self._file}: not UTF-8 text") from None
        return self._token

    def forget(self) -> None:
        """Read the file again next time, whatever its stamp says (after a 401)."""
        self._seen = None

    def __repr__(self) -> str:
        return f"TokenSource({'literal' if self._file is None else self._file}, token=**********)"


def _clean(text: str, where: str) -> str:
    """The token without surrounding white space. It goes into a header line, so nothing else is let through."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise AdminUnauthorized(f"{where} holds no usable token")
    return token
