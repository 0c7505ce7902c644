"""Protobuf messages, made when they are first needed.

protobuf is an optional package, so it is not imported before that. Each schema has its own descriptor pool: in
protobuf's default pool every name can be used once, and a process may have stubs of the same protocol from another
package. Code that protoc generates for Python requires certain versions of protobuf; a descriptor does not.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Schema:
    """The contents of a `.proto` file: its `FileDescriptorProto`, in base64."""

    def __init__(self, package: str, descriptor: str) -> None:
        self._package = package
        self._descriptor = descriptor
        self._lock = Lock()
        self._pool: Any = None

    def message(self, name: str) -> Any:
        """The class of a message. Use it as `__getattr__` of a module.

        Raises:
            AttributeError: there is no message of this name.
        """
        if not name.startswith("_"):
            from google.protobuf import message_factory

            try:
                return message_factory.GetMessageClass(self._find().FindMessageTypeByName(f"{self._package}.{name}"))
            except KeyError:
                pass
        raise AttributeError(f"the protocol {self._package!r} has no message {name!r}")

    def caller(
        self, channel: Any, service: str, method: str, reader: Callable[[Callable[[bytes], Any]], Callable[..., Any]]
    ) -> Any:
        """A callable for a method on a gRPC channel. `reader` turns a parser into the function that reads answers."""
        from google.protobuf import message_factory

        name = f"{self._package}.{service}"
        found = self._find().FindServiceByName(name).methods_by_name[method]
        kinds = ("unary", "stream")
        make = getattr(channel, f"{kinds[found.client_streaming]}_{kinds[found.server_streaming]}")
        return make(
            f"/{name}/{method}",
            request_serializer=message_factory.GetMessageClass(found.input_type).SerializeToString,
            response_deserializer=reader(message_factory.GetMessageClass(found.output_type).FromString),
        )

    def _find(self) -> Any:
        with self._lock:
            if self._pool is None:
                from base64 import b64decode

                from google.protobuf.descriptor_pool import DescriptorPool

                pool = DescriptorPool()
                pool.AddSerializedFile(b64decode(self._descriptor))
                self._pool = pool
            return self._pool
