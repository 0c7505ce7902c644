"""The configuration of a job, in the shape that torch has it. Unlike `JobSettings` it can change."""

from __future__ import annotations

from holdfast.settings import JobSettings, SettingsFields

RENDEZVOUS_TIMEOUT_S = 900
"""How long a static rendezvous waits for its store by default."""


class LaunchConfig(SettingsFields):
    def __post_init__(self) -> None:
        super().__post_init__()
        # As in torch, the older argument still wins.
        self.rdzv_configs.setdefault("timeout", RENDEZVOUS_TIMEOUT_S)
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout

    def settings(self) -> JobSettings:
        """The settings as they are now."""
        return JobSettings(**{name: getattr(self, name) for name in self.names()})
