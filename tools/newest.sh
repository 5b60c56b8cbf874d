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
"$BIN/python" -c "$where" > "$(_build/newest/bin/python -c "$where")/project.pth"
trap 'rm -f conf.py' EXIT
"$BIN/jupyter-book" config sphinx . > /dev/null
sed "s/'jupyter_book', //" conf.py > _build/conf.py
mv _build/conf.py conf.py
PATH="$PWD/$BIN:$PATH" PYTHONPATH=_ext:. _build/newest/bin/python -m sphinx -W -n --keep-going -q -b html . _build/newest/html
