"""A copy of what is under a prefix that is kept up to date."""

from __future__ import annotations

from holdfast.coordination.errors import CompactedError
from holdfast.coordination.model import Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast.coordination.model import Changes, Entry
    from holdfast.coordination.store import CoordinationStore


async def follow(store: CoordinationStore, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
    """What is there, and then what changes; and again what is there where changes were forgotten.

    It ends when the store is closed. Close it (`aclose`) when it is left early.

    Raises:
        StoreUnavailableError: begin anew once the store is there again.
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
    """The entries under a prefix by key, as of `revision`: 0 until there was a snapshot."""

    def __init__(self) -> None:
        self.revision = 0
        self.entries: dict[str, Entry] = {}

    def apply(self, news: Snapshot | Changes) -> None:
        """Take in what `follow` gives. Changes that are older than what is here are left out."""
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
