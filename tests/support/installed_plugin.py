"""A package that offers entry points, installed as pip would."""

from __future__ import annotations


def install_plugin(directory, module, code, entry_points):
    """`directory` is on the module path of who is to find it; `entry_points` is the text of the file of that name."""
    (directory / f"{module}.py").write_text(code)
    installed = directory / f"{module}-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(entry_points)
    return directory
