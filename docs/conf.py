"""The site: `sphinx-build -j auto -c docs . site`; MMPOSENC_NOTEBOOKS=off leaves the notebooks out.

Sphinx with MyST: Material for MkDocs had its last fixes in November 2026; its successor, still at
0.0, takes no hooks. The root of the repository is the source, so that every link of a
page is right in a checkout, on a forge and here; files that are no pages are handed out as they
are.
"""
import hashlib
import logging
import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
warnings.filterwarnings('ignore')  # of packages that the API imports
import mmposenc  # noqa: E402

project = 'mmposenc'
author = 'The mmposenc authors'
copyright = f'{author}, Apache-2.0'
version = release = mmposenc.__version__
html_title = f'mmposenc {version}'

extensions = ['sphinx.ext.autodoc', 'sphinx.ext.napoleon', 'sphinx_copybutton', 'myst_nb', 'hooks']
root_doc = 'docs/index'
include_patterns = ['CONTRIBUTING.md', 'CHANGELOG.md', 'docs/**', 'configs/**/README.md']
# Sphinx walks through every folder that is not left out, .venv and what it links to as well.
exclude_patterns = ['.*', 'docs/_*', 'docs/conf.py', 'docs/hooks.py', '**/.ipynb_checkpoints']
templates_path = ['_templates']
html_additional_pages = {'index': 'redirect.html'}  # the site's first page is docs/index.html

myst_heading_anchors = 4
myst_enable_extensions = ['colon_fence']
# Notebooks are stored without outputs: what the site shows was computed for it, by this code, for
# which it is kept.
code = hashlib.sha256(b''.join(path.read_bytes() for path in sorted(
    Path(mmposenc.__file__).parent.rglob('*.py'))))
nb_execution_mode = os.environ.get('MMPOSENC_NOTEBOOKS', 'cache')
nb_execution_cache_path = str(
    Path(__file__).parents[1] / '.cache' / 'notebooks' / code.hexdigest()[:16])
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_default_options = {'members': True, 'member-order': 'bysource', 'show-inheritance': False}
autodoc_typehints = 'none'  # signatures show them as written
autoclass_content = 'class'
autodoc_inherit_docstrings = False

html_theme = 'furo'
html_static_path = ['_static']
html_extra_path = [str(path) for path in Path(__file__).parent.glob('studies/*.html')]
html_css_files = ['site.css']
html_js_files = ['site.js']
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = '.linenos, .gp, .go'
pygments_style = 'friendly'
pygments_dark_style = 'monokai'
logging.getLogger('mmengine').setLevel(logging.ERROR)
