"""The event records: of an agent or a worker, and of a rendezvous.

As JSON they have exactly the fields of torch.distributed.elastic's events, so that either side can read the other's.
"""

from __future__ import annotations

import time
from enum import StrEnum

from holdfast.errors.text import headline
from holdfast.errors.tree import InputError
from holdfast.record_types import like_dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self

EventMetadataValue = str | int | float | bool | None

QUOTE_MAX_CHARS = 200
"""How much of a text that is not an event the error quotes."""


class EventSource(StrEnum):
    """Where the event happened."""

    AGENT = "AGENT"
    WORKER = "WORKER"


class NodeState(StrEnum):
    """The state of a node in a rendezvous."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class _Record:
    """An event with fields that can be compared, printed, and written as one line of JSON.

    A recorded event may be written later, so it must not change.
    """

    __slots__ = ("timestamp",)

    FIELDS: ClassVar[tuple[str, ...]]

    timestamp: float
    """When it happened, in Unix seconds; 0 if the text it was read from does not say."""

    def fields(self) -> dict[str, Any]:
        """The fields, as torch names them."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def serialize(self) -> str:
        """The fields as one line of JSON. A value that JSON does not support is written as its text."""
        return to_json(self.fields())

    @classmethod
    def deserialize(cls, data: str | Self) -> Self:
        """Parse `data`, which `serialize` made here or in torch. An event is returned as it is.

        Raises:
            InputError: `data` is not such an event.
        """
        if isinstance(data, cls):
            return data
        import json

        try:
            fields = json.loads(str(data))
            event = cls(**{name: fields[name] for name in cls.FIELDS if name in fields})
        except (TypeError, ValueError, RecursionError) as problem:
            quote = headline(str(data), QUOTE_MAX_CHARS)
            raise InputError(f"not JSON of the type {cls.__name__} ({problem}): {quote}") from problem
        event.timestamp = fields.get("timestamp", 0)
        return event

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.fields() == self.fields()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.fields().items())})"

    def __str__(self) -> str:
        return self.serialize()


@like_dataclass
class Event(_Record):
    """An event of an agent or a worker.

    A `timestamp` of 0, the default, becomes the current time.
    """

    __slots__ = ("metadata", "name", "source")

    FIELDS = ("name", "source", "timestamp", "metadata")

    def __init__(
        self,
        name: str,
        source: EventSource,
        timestamp: float = 0,
        metadata: dict[str, EventMetadataValue] | None = None,
    ) -> None:
        self.name = name
        self.source = EventSource(source)
        self.timestamp = timestamp or time.time()
        self.metadata = {} if metadata is None else metadata


@like_dataclass
class RdzvEvent(_Record):
    """An event of a rendezvous.

    `timestamp` is not among the fields, because torch's reader rejects unknown ones.
    """

    __slots__ = (
        "error_trace",
        "hostname",
        "local_id",
        "master_endpoint",
        "message",
        "name",
        "node_state",
        "pid",
        "rank",
        "run_id",
    )

    FIELDS = (
        *("name", "run_id", "message", "hostname", "pid", "node_state"),
        *("master_endpoint", "rank", "local_id", "error_trace"),
    )

    def __init__(
        self,
        name: str,
        run_id: str,
        message: str,
        hostname: str,
        pid: int,
        node_state: NodeState,
        master_endpoint: str = "",
        rank: int | None = None,
        local_id: int | None = None,
        error_trace: str = "",
    ) -> None:
        self.name = name
        self.run_id = run_id
        self.message = message
        self.hostname = hostname
        self.pid = pid
        self.node_state = NodeState(node_state)
        self.master_endpoint = master_endpoint
        self.rank = rank
        self.local_id = local_id
        self.error_trace = error_trace
        self.timestamp = time.time()


AnyEvent = Event | RdzvEvent


def to_json(fields: dict[str, Any]) -> str:
    import json

    return json.dumps(fields, default=str)
