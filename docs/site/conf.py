"""The settings of the documentation site, which `make docs` builds with Sphinx from the pages of the repository.

The pages are the Markdown files as they lie in the repository, so that their relative links are the same on a code host
and here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
sys.path[:0] = [str(SITE), str(ROOT)]
os.environ["MPLBACKEND"] = "Agg"

from syno_site import SITE_PAGES  # noqa: E402
from syno_site.files import SCHEME  # noqa: E402

import syno  # noqa: E402

project = "Syno"
author = "the authors of Syno"
project_copyright = "the authors of Syno"
version = release = syno.__version__
language = "en"

# ---- pages: the source folder is the root of the repository --------------------------------------------------------------
root_doc = "docs/index"
include_patterns = list(SITE_PAGES)
exclude_patterns = ["docs/site", "build", "results", ".*", "**/.*", "**/__pycache__", "syno", "tests", "benchmarks", "slurm"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "syno_site",
]
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, SCHEME: None}
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "off"  # a test runs the notebook
nb_render_markdown_format = "myst"
highlight_language = "text"
default_role = "py:obj"  # `name` in a docstring: a link where the site has the name, else code

# ---- the reference -------------------------------------------------------------------------------------------------------
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
viewcode_line_numbers = True

# ---- the look: everything comes with the site, nothing from other hosts ---------------------------------------------------
html_theme = "furo"
html_title = "Syno"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": False}
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
