"""The source of the job's token: the secret that nodes prove to each other."""

from __future__ import annotations

import os
import stat

from holdfast.errors.notice import notice
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_MAX_BYTES = 4096
"""The longest token."""

TOKEN_MIN_BYTES = 16
"""The shortest token where other machines can connect. An impostor of the store receives a proof, and can try 250,000
tokens a second on it with one core."""


def find_token(given: str | None, token_file: str | None, environ: Mapping[str, str]) -> bytes:
    """The token: as given, else from the file, else HOLDFAST_TOKEN, else from HOLDFAST_TOKEN_FILE, else empty.

    White space around it is stripped, so that a file may end with a new line. A file that others can read is accepted
    with a warning: for a mounted secret, the user often cannot choose the mode.

    Raises:
        InputError: a token is empty where one was given, or too long, or its file cannot be read.
    """
    if given is not None:
        return _checked(given.encode(errors="surrogateescape"), "token in --rdzv-conf")
    if token_file is not None:
        return _read(token_file, "token_file in --rdzv-conf")
    if environ.get("HOLDFAST_TOKEN"):
        return _checked(environ["HOLDFAST_TOKEN"].encode(errors="surrogateescape"), "HOLDFAST_TOKEN")
    if environ.get("HOLDFAST_TOKEN_FILE"):
        return _read(environ["HOLDFAST_TOKEN_FILE"], "HOLDFAST_TOKEN_FILE")
    return b""


def check_strength(token: bytes, where: str) -> None:
    """Refuse a token that does not protect a store which other machines can reach.

    Raises:
        InputError: there is no token, or it is too short.
    """
    if len(token) >= TOKEN_MIN_BYTES:
        return
    missing = "other machines can reach this store, so it needs a token"
    what = f"a token of {len(token)} bytes can be guessed" if token else missing
    raise InputError(
        f"{where}: {what}; set HOLDFAST_TOKEN to the same secret of {TOKEN_MIN_BYTES} bytes or more on all nodes, such "
        "as the output of `holdfast token`, or give --rdzv-conf token_file=PATH"
    )


def _read(path: str, origin: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(TOKEN_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{origin}: the token cannot be read from {path!r}: {error.strerror}") from None
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        notice(f"{path!r} holds the token and is readable by every user; run: chmod 600 {path}")
    return _checked(token, f"{origin}, {path!r}")


def _checked(token: bytes, origin: str) -> bytes:
    if len(token) > TOKEN_MAX_BYTES:
        raise InputError(f"{origin}: a token can have at most {TOKEN_MAX_BYTES} bytes")
    stripped = token.strip()
    if not stripped:
        raise InputError(
            f"{origin}: the token is empty; make one with `holdfast token`, or leave it out to run without one"
        )
    return stripped
