from __future__ import annotations

import pkgutil

from costly_imports import COSTLY_IMPORTS

import holdfast.watchdog


def test_every_public_name_is_there():
    for name in holdfast.watchdog.__all__:
        assert getattr(holdfast.watchdog, name).__name__ == name
    assert set(holdfast.watchdog.__all__) <= set(dir(holdfast.watchdog))


def test_no_module_hides_behind_a_public_name():
    modules = {module.name for module in pkgutil.iter_modules(holdfast.watchdog.__path__)}
    assert not modules & set(holdfast.watchdog.__all__)


def test_an_agent_whose_workers_set_no_timers_imports_nothing_heavy(start_python, path):
    unwanted = COSTLY_IMPORTS | {"threading", "holdfast.watchdog.watching"}
    code = f"""
        import sys
        before = set(sys.modules)
        import holdfast.watchdog
        assert {{name for name in sys.modules if name.startswith("holdfast.watchdog.")}} == set()
        for name in holdfast.watchdog.__all__:
            getattr(holdfast.watchdog, name)
        server = holdfast.watchdog.FileTimerServer(sys.argv[1], "job")
        server.start(in_thread=False)
        server.read()
        server.expire()
        server.stop()
        print(sorted({unwanted!r} & (set(sys.modules) - before)))
    """
    told, errors = start_python(code, path).communicate(timeout=60)
    assert told == "[]\n", errors
