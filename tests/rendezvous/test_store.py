"""What only `LocalStore` promises; what it has in common with the others is in test_shared_store.py."""

from __future__ import annotations

import subprocess
import sys


def test_a_store_that_nobody_uses_imports_nothing_costly():
    program = """if True:
        import sys
        from holdfast.rendezvous.store import LocalStore
        LocalStore()
        print({"threading", "datetime", "asyncio", "msgspec"} & set(sys.modules))
    """
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "set()\n"
