"""The parameters that a backend is made from."""

from __future__ import annotations

from holdfast.errors.secret import hiding_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TRUE = ("1", "true", "t", "yes", "y", "on")
_FALSE = ("0", "false", "f", "no", "n", "off")


class RendezvousParameters:
    """The common parameters as attributes; `get` returns the settings of a backend."""

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise _input_error("no rendezvous backend given; choose one, such as static or c10d")
        if min_nodes < 1:
            raise _input_error(f"min_nodes ({min_nodes}) must be at least 1")
        if max_nodes < min_nodes:
            raise _input_error(f"max_nodes ({max_nodes}) is less than min_nodes ({min_nodes})")
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = run_id
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.local_addr = local_addr
        self.config = kwargs

    def get(self, key: str, default: Any = None) -> Any:
        """The setting `key` as it was given."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """The setting `key` as a bool. Raises InputError if it is neither yes nor no."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise _input_error(f"--rdzv-conf {key}={value}: write {key}=true or {key}=false")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """The setting `key` as an integer. Raises InputError if it is not one."""
        value = self.get(key, default)
        if value is None:
            return None
        try:
            return int(value)
        except (TypeError, ValueError, OverflowError):
            raise _input_error(f"--rdzv-conf {key}={value}: write a whole number") from None

    def __repr__(self) -> str:
        known = vars(self) | {"config": hiding_secrets(self.config)}
        return f"RendezvousParameters({', '.join(f'{name}={value!r}' for name, value in known.items())})"


def _input_error(message: str) -> Exception:
    from holdfast.errors.tree import InputError

    return InputError(message)
