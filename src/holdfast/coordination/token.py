"""Where the job's token comes from: the secret that nodes prove to each other that they know."""

from __future__ import annotations

import os
import stat

from holdfast.errors.notice import notice
from holdfast.errors.tree import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_MAX_BYTES = 4096
"""How long a token may be."""

TOKEN_MIN_BYTES = 16
"""How long it must be where other machines can connect. Whoever takes the store's place hears a proof, and can try
250,000 tokens a second on it with one core."""


def find_token(given: str | None, token_file: str | None, environ: Mapping[str, str]) -> bytes:
    """The token: as given, else from the file, else HOLDFAST_TOKEN, else from HOLDFAST_TOKEN_FILE, else empty.

    White space around it is no part of it, so that a file may end with a new line. A file that others may read is
    used, and a person is told: where a file comes from a mounted secret, its mode is often not the user's to choose.

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
        InputError: there is none, or it is too short.
    """
    if len(token) >= TOKEN_MIN_BYTES:
        return
    what = f"a token of {len(token)} bytes can be guessed" if token else "other machines need a token to be let in"
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
        notice(f"everybody on this machine may read the token in {path!r}: chmod 600 it")
    return _checked(token, f"{origin}, {path!r}")


def _checked(token: bytes, origin: str) -> bytes:
    if len(token) > TOKEN_MAX_BYTES:
        raise InputError(f"{origin}: a token has at most {TOKEN_MAX_BYTES} bytes")
    stripped = token.strip()
    if not stripped:
        raise InputError(f"{origin}: the token is empty; leave it out for a job without one")
    return stripped
