"""An up-to-date copy of the entries under a prefix."""

from __future__ import annotations

from holdfast.coordination.errors import CompactedError
from holdfast.coordination.model import Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast.coordination.model import Changes, Entry
    from holdfast.coordination.store import CoordinationStore


async def follow(store: CoordinationStore, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
    """Yield a snapshot of the entries, then their changes. Yield a new snapshot whenever changes were forgotten.

    It ends when the store is closed. If you leave it early, close it with `aclose`.

    Raises:
        StoreUnavailableError: start again once the store is available.
    """
    while True:
        snapshot = await store.get_prefix(prefix)
        watch = store.watch(prefix, snapshot.revision + 1)
        try:
            yield snapshot
            async for changes in watch:
                yield changes
        except CompactedError:
            continue
        finally:
            watch.close()
        return


class Mirror:
    """The entries under a prefix by key, as of `revision`: 0 before the first snapshot."""

    def __init__(self) -> None:
        self.revision = 0
        self.entries: dict[str, Entry] = {}

    def apply(self, news: Snapshot | Changes) -> None:
        """Apply an item of `follow`. Changes older than this copy are ignored."""
        if isinstance(news, Snapshot):
            self.entries = {entry.key: entry for entry in news.entries}
        elif news.revision <= self.revision:
            return
        else:
            for change in news.changes:
                if change.entry is None:
                    self.entries.pop(change.key, None)
                else:
                    self.entries[change.key] = change.entry
        self.revision = news.revision
