"""Lets torch programs open a store of their own, at ``tcp://HOST:PORT`` or at a MASTER_PORT that they set themselves.

The agent serves the store at MASTER_PORT, and TORCHELASTIC_USE_AGENT_STORE=True tells torch so. torch applies that to
every address: no rank opens a store anywhere, and a program with a port of its own waits until its timeout. This module
limits it to the agent's port. At any other port rank 0 opens the store, as it does without an agent.

`hooks` executes this file when a worker imports torch's rendezvous. If that module looks different, nothing is changed.
"""

import _thread
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any


def spec_of(name: str, path: "Any", agent_port: str) -> "ModuleSpec | None":
    """A spec that imports torch's rendezvous as usual and then adjusts it."""
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    spec: Any = next((spec for spec in found if spec is not None), None)
    if spec is None:
        return None
    loader = spec.loader
    execute = loader.exec_module

    def exec_module(module: "Any") -> None:
        del loader.exec_module
        execute(module)
        adjust(module, agent_port)

    loader.exec_module = exec_module
    return spec  # type: ignore[no-any-return]  # a finder that typeshed does not know


def adjust(module: "Any", agent_port: str) -> None:
    """Have torch's rendezvous use the agent's store only at the agent's port."""
    create: Any = getattr(module, "_create_c10d_store", None)
    uses_agent: Any = getattr(module, "_torchelastic_use_agent_store", None)
    names = getattr(getattr(create, "__code__", None), "co_varnames", ())
    if names[:2] != ("hostname", "port") or uses_agent is None or not agent_port.isdecimal():
        return
    own = _thread._local()  # noqa: SLF001 - threading.local, without the import

    def _torchelastic_use_agent_store() -> bool:
        return not getattr(own, "is_own", False) and uses_agent()

    def _create_c10d_store(hostname: str, port: int, *args: "Any", **options: "Any") -> "Any":
        own.is_own = port != int(agent_port)
        try:
            return create(hostname, port, *args, **options)
        finally:
            own.is_own = False

    module._torchelastic_use_agent_store = _torchelastic_use_agent_store  # noqa: SLF001 - torch has no public way
    module._create_c10d_store = _create_c10d_store  # noqa: SLF001 - likewise
