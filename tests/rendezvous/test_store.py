"""What only `LocalStore` promises; what it has in common with the others is in test_shared_store.py."""

from __future__ import annotations

import subprocess
import sys
import threading

from holdfast.rendezvous.store import LocalStore


def test_a_store_that_nobody_uses_imports_nothing_costly():
    program = """if True:
        import sys
        from holdfast.rendezvous.store import LocalStore
        LocalStore()
        print({"threading", "datetime", "asyncio", "msgspec"} & set(sys.modules))
    """
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "set()\n"


def test_threads_that_use_a_new_store_at_the_same_time_share_one_condition(monkeypatch):
    store, used, real = LocalStore(), [], threading.Condition
    made = threading.Barrier(2)

    def both_make_one():
        condition = real()
        made.wait(20)
        return condition

    users = [threading.Thread(target=lambda: used.append(store._changed)) for _ in range(2)]
    monkeypatch.setattr(threading, "Condition", both_make_one)
    for user in users:
        user.start()
    for user in users:
        user.join(20)
    assert used[0] is used[1]
