"""Where Flower is not installed, doctests of the modules that need it are left out (`make
test-flower` runs them). One thread a process: tests run side by side, and waiting threads
spin.
"""

import os
import warnings
from importlib.util import find_spec

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # before numpy reads it

# no tests of their own
HELPERS = (
    *("fake_grid", "real_fleet", "fuzz", "poison", "command_lines"),
    *("digits_app", "numpy_app/*"),
)
collect_ignore_glob = [f"tests/flower/{name}.py" for name in HELPERS]
if find_spec("flwr") is None:
    collect_ignore_glob += ["src/fedskew/runtime/flower/*", "src/fedskew/experiment/fleet*.py"]
    collect_ignore_glob += ["src/fedskew/experiment/strategy.py", "src/fedskew/flower.py"]
else:
    # its typer uses a name that click will drop, and here warnings are errors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import flwr.serverapp  # noqa: F401
