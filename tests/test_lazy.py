"""Public names that cost nothing until they are used."""

from __future__ import annotations

import pytest
from fresh_python import run_fresh

INIT = """
from holdfast._lazy import exports
__getattr__, __dir__, __all__ = exports(__name__, {"tools": ("hammer", "saw"), "garden": ()})
"""


@pytest.fixture
def run(tmp_path):
    """Runs code beside a package with two modules: one of two names, and one that is public itself."""
    package = tmp_path / "shed"
    package.mkdir()
    (package / "__init__.py").write_text(INIT)
    (package / "tools.py").write_text("print('tools')\nhammer, saw = object(), object()\n")
    (package / "garden.py").write_text("print('garden')\nhose = 1\n")

    def fresh(code):
        done = run_fresh(code, tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return fresh


def test_the_table_imports_nothing(run):
    assert run("import shed; print(*shed.__all__); print('hammer' in dir(shed))") == ["garden", "hammer", "saw", "True"]


def test_a_name_is_imported_at_its_first_use_and_kept(run):
    assert run("""
        import shed
        first = shed.hammer
        assert "hammer" in vars(shed) and "saw" not in vars(shed)
        assert first is shed.hammer is shed.tools.hammer
        from shed import saw
    """) == ["tools"]


def test_a_module_without_names_is_public_itself(run):
    assert run("import shed; print(shed.garden.hose, shed.garden.__name__)") == ["garden", "1", "shed.garden"]


def test_all_names_can_be_imported_at_once(run):
    assert run("from shed import *; assert saw is not hammer; print(garden.hose)") == ["garden", "tools", "1"]


def test_an_unknown_name_is_an_error_as_of_any_module(run):
    assert (
        run("""
        import shed
        try:
            shed.axe
        except AttributeError as error:
            assert str(error) == "module 'shed' has no attribute 'axe'"
        assert not hasattr(shed, "hose")
    """)
        == []
    )
