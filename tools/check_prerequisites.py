"""Say in one line what is missing before anything is installed.

The Python that is to make the environment runs this, and may be old: the syntax is that of 2.7.
"""

import sys

NEEDED = (3, 11)


def problem():
    # type: () -> str | None
    """Return what keeps this Python from making the environment, or None."""
    version = "%d.%d" % sys.version_info[:2]
    this = "%s is Python %s" % (sys.executable or "this", version)
    if sys.version_info[:2] < NEEDED:
        remedy = "and %d.%d or newer is needed. Name a newer one: make book PYTHON=python3.12"
        return "%s, %s" % (this, remedy % NEEDED)
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            remedy = "On Debian and Ubuntu install the package python%s-venv" % version
            return "%s without its module %s. %s" % (this, module, remedy)
    return None


if __name__ == "__main__":
    found = problem()
    if found:
        sys.stderr.write("Cannot start: %s.\n" % found)
        sys.exit(1)
