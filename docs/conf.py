"""How the pages are built: `make docs`, or the command in the Makefile. Nothing is fetched from the network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

# The defaults of options are those of an environment that says nothing.
for variable in [name for name in os.environ if name.startswith(("PET_", "TORCHELASTIC_", "HOLDFAST_"))]:
    del os.environ[variable]

from holdfast import __version__  # noqa: E402 - its environment had to be prepared

project = "holdfast"
author = "the holdfast authors"
copyright = author  # noqa: A001 - the name is Sphinx's
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated", "docstrings"]
exclude_patterns = ["_ext"]
default_role = "py:obj"

myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
add_module_names = False
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"holdfast {release}"
html_static_path = ["_static"]
html_css_files = ["holdfast.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b6e6e",
        "color-brand-content": "#0b6e6e",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fc9c0",
        "color-brand-content": "#5fc9c0",
    },
}
pygments_style = "tango"
pygments_dark_style = "github-dark"
