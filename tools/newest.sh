# Build the book with the newest Sphinx, MyST-NB and Furo, and without Jupyter Book, which only writes
# down the configuration: `sh tools/newest.sh` in the root, with the project's environment in .venv.
# Torch and the rest come from that environment.
set -eu
BIN=.venv/bin
where='import sysconfig; print(sysconfig.get_path("purelib"))'
rm -rf _build/newest
"$BIN/python" -m venv _build/newest
_build/newest/bin/python -m pip install --quiet furo myst-nb sphinx sphinx-copybutton sphinx-external-toc \
  sphinx-multitoc-numbering sphinx-notfound-page sphinx-sitemap sphinxcontrib-bibtex sphinxext-opengraph
_build/newest/bin/python -m pip list
# The project's environment has them too; the book is built with the new ones.
own='import furo, myst_nb, sphinx, sys
for module in furo, myst_nb, sphinx:
    assert module.__file__.startswith(sys.prefix), f"{module.__file__} is not of {sys.prefix}"'
"$BIN/python" -c "$where" > "$(_build/newest/bin/python -c "$where")/project.pth"
trap 'rm -f conf.py' EXIT
"$BIN/jupyter-book" config sphinx . > /dev/null
sed "s/'jupyter_book', //" conf.py > _build/conf.py
mv _build/conf.py conf.py
if grep jupyter_book conf.py; then echo "conf.py still has Jupyter Book" >&2; exit 1; fi
_build/newest/bin/python -c "$own"
PATH="$PWD/$BIN:$PATH" PYTHONPATH=_ext:. _build/newest/bin/python -m sphinx -W -n --keep-going -q -b html . _build/newest/html
