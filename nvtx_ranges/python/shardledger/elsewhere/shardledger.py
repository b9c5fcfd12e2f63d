"""The package, for a Python that it is not installed in. This directory on sys.path brings it, and nothing else of the environment
that has it: no other environment's packages may come before or after those of a job."""

import importlib.util
import os
import sys

_package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_spec = importlib.util.spec_from_file_location(__name__, os.path.join(_package, "__init__.py"))
sys.modules[__name__] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[__name__])
