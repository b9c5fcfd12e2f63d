"""Where the command and the C libraries are, as seen from this package.

Three layouts: lib/python/shardledger of a prefix (`cmake --install`, a build directory), lib/pythonX.Y/site-packages/shardledger
of an environment that pip installed into, and shardledger of `pip install --target`. All have bin/shardledger and lib/ above.
"""

import os

OWN_FILES = os.path.dirname(os.path.dirname(__file__)) + "/"  # as tracebacks and code objects spell them
_PACKAGE = os.path.abspath(OWN_FILES)


def _places(*relative):
    return [os.path.normpath(os.path.join(_PACKAGE, place)) for place in relative]


def library_directories():
    return _places("../..", "../../../../lib", "../lib")


def find_command():
    """The `shardledger` binary of this installation, else the one on PATH; None when there is neither."""
    for directory in _places("../../../bin", "../../../../bin", "../bin"):
        path = os.path.join(directory, "shardledger")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    import shutil  # here, because a training job that records has no use for it

    return shutil.which("shardledger")
