"""What costs milliseconds to import, and is not needed to start a worker, to watch it, or to see it end well."""

COSTLY_IMPORTS = {
    *("typing", "dataclasses", "json", "logging", "subprocess", "tempfile", "inspect", "traceback", "pathlib"),
    *("asyncio", "msgspec", "multiprocessing", "ctypes", "datetime", "shutil", "socket", "importlib.metadata"),
}
