"""Python imports this first in each process that Spark starts for our source or sink: see python_path.py.

It is not imported as part of the package. A sitecustomize of the installation, which this one hides, is
imported after it, as if this one were not there.
"""

import importlib
import os
import sys

from onceflow.runtime.hosts.spark.installed_package import use_packages
from onceflow.structured_streaming.python_path import forget_startup

forget_startup(sys.path, os.environ)
use_packages()
own = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ModuleNotFoundError as missing:
    if missing.name != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", own)  # an import must not end without its module
