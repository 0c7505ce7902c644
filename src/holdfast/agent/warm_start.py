"""The template that the workers of a warm start are forked from."""

from __future__ import annotations

import sys

from holdfast.logger import get_logger
from holdfast.warm.template import Template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.agent.group import WorkerSpec

log = get_logger(__name__)


def template_for(spec: WorkerSpec, start_method: str, warm: bool | Sequence[str]) -> Template | None:
    """A template with the modules in `warm`, or those that the program imports; None if workers cannot be forked."""
    modules = None if isinstance(warm, bool) else warm
    entrypoint = spec.entrypoint
    if isinstance(entrypoint, str):
        command = [entrypoint, *map(str, spec.args)]
        if command[1:2] != ["-u"]:
            log.warning("no warm start: %s is not a Python program that holdfast started", entrypoint)
            return None
        return Template(command, modules)
    if start_method == "fork":
        return None  # they are forked from this process
    if getattr(entrypoint, "has_own_arguments", False):  # `--run-path`: the first argument is the script
        return Template([sys.executable], modules, str(spec.args[0]))
    module = sys.modules.get(getattr(entrypoint, "__module__", ""))
    return Template([sys.executable], modules, getattr(module, "__file__", None))
