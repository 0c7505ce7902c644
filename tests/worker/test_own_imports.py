"""Modules of the user's with the names of the standard library's, or of ours, beside a program that fails."""

from __future__ import annotations

import os
import sys
import threading

import pytest

import holdfast
from holdfast.worker.own_imports import OwnImports

ROOT = os.path.dirname(os.path.dirname(holdfast.__file__))


@pytest.fixture
def shadowed(tmp_path, monkeypatch):
    """A directory that is first on the path of this process, with a `plistlib` that the standard library has too."""
    (tmp_path / "plistlib.py").write_text("x = 'of the user'\n")
    (tmp_path / "only_the_users.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("plistlib", "only_the_users"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("plistlib", "only_the_users"):
        sys.modules.pop(name, None)


class TestInside:
    def test_a_module_of_the_standard_library_is_the_installed_one_and_gone_afterwards(self, shadowed):
        with OwnImports(ROOT):
            import plistlib

            assert plistlib.__file__ == os.path.join(os.path.dirname(os.__file__), "plistlib.py")
        assert "plistlib" not in sys.modules
        import plistlib

        assert plistlib.x == "of the user"

    def test_a_module_that_the_program_has_loaded_comes_back(self, shadowed):
        import plistlib as theirs

        with OwnImports(ROOT):
            import plistlib as ours

            assert ours is not theirs
        assert sys.modules["plistlib"] is theirs

    def test_the_modules_of_a_package_of_the_users_come_back_with_it(self, tmp_path, monkeypatch, shadowed):
        (tmp_path / "xmlrpc").mkdir()
        (tmp_path / "xmlrpc/__init__.py").write_text("")
        (tmp_path / "xmlrpc/inner.py").write_text("")
        for name in [name for name in sys.modules if name.partition(".")[0] == "xmlrpc"]:
            monkeypatch.delitem(sys.modules, name)
        import xmlrpc.inner

        theirs = [sys.modules["xmlrpc"], sys.modules["xmlrpc.inner"]]
        with OwnImports(ROOT):
            import xmlrpc.client  # noqa: F401 - its package is the one that is looked for

            assert "xmlrpc.inner" not in sys.modules
        assert "xmlrpc.client" not in sys.modules
        assert [sys.modules.pop("xmlrpc"), sys.modules.pop("xmlrpc.inner")] == theirs

    def test_a_module_that_only_the_user_has_is_found(self, shadowed):
        with OwnImports(ROOT):
            import only_the_users
        assert sys.modules["only_the_users"] is only_the_users

    def test_modules_that_nobody_hides_stay_loaded(self):
        import json

        with OwnImports(ROOT):
            assert sys.modules["json"] is json
        assert sys.modules["json"] is json
        assert sys.modules["holdfast"] is holdfast

    def test_another_thread_imports_as_always(self, shadowed):
        found = []

        def load():
            import plistlib

            found.append(plistlib.x)

        with OwnImports(ROOT):
            thread = threading.Thread(target=load)
            thread.start()
            thread.join()
        assert found == ["of the user"]

    def test_it_ends_with_an_exception_too(self):
        before = sys.path[:], sys.meta_path[:]
        with pytest.raises(ValueError, match="x"), OwnImports(ROOT):
            raise ValueError("x")
        assert (sys.path, sys.meta_path) == before


class TestAModuleOfTheUsersWithTheNameOfOneOfOurs:
    NAMES = ("json", "traceback", "re", "enum", "signal", "linecache", "token", "contextlib", "holdfast")

    @pytest.mark.parametrize("name", NAMES)
    def test_it_fails(self, programs, name):
        programs.file(f"{name}.py", "raise ValueError('that of the user')")
        ended = programs.worker(programs.file("script.py", f"import sys\nsys.modules.pop('{name}', 0)\nimport {name}"))
        assert ended.message == "ValueError: that of the user"
        assert f'{name}.py", line 1' in ended.traceback

    @pytest.mark.parametrize("name", NAMES)
    def test_it_is_imported(self, programs, name):
        programs.file(f"{name}.py", "x = 1")
        source = f"import sys\nsys.modules.pop('{name}', 0)\nimport {name}\n1 / 0"
        ended = programs.worker(programs.file("script.py", source))
        assert ended.message.startswith("ZeroDivisionError")

    @pytest.mark.parametrize("name", ["json", "traceback", "token", "holdfast"])
    def test_a_thread_fails_and_the_program_goes_on(self, programs, name):
        programs.file(f"{name}.py", "x = 1")
        source = f"""
import sys, threading
before = sys.path[:], sys.meta_path[:]
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
import {name}
assert {name}.x == 1
assert (sys.path, sys.meta_path) == before
raise ValueError("later")
"""
        ended = programs.worker(programs.file("script.py", source))
        assert ended.message == "ValueError: later"
        assert "> ZeroDivisionError" in ended.traceback
