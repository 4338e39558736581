#!/bin/sh
# Makes .venv with onceflow in it, editable, and the development tools. Called by `make setup`, which runs
# it again only when pyproject.toml has changed.
set -eu

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if ! is_new_enough .venv/bin/python; then
    rm -rf .venv
    python=""
    for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
        if is_new_enough "$candidate"; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        found=$(python3 -V 2>/dev/null || echo "none")
        echo "Python 3.11 or newer is needed, and $found was found: install it with" \
            "'sudo apt install python3 python3-venv' (Debian, Ubuntu), 'sudo dnf install python3.13' (Fedora)" \
            "or 'brew install python@3.13' (macOS), or call 'make setup PYTHON=/path/to/python'." >&2
        exit 1
    fi
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        echo "$python has no venv module: install it with 'sudo apt install python3-venv'" \
            "(Debian, Ubuntu; for a Python that is not the system's own, 'sudo apt install python3.13-venv'" \
            "with its number)." >&2
        exit 1
    fi
    echo "making .venv with $("$python" -V)"
    "$python" -m venv .venv
fi

echo "installing onceflow and its tools in .venv (some minutes the first time, PySpark is large)"
.venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
.venv/bin/python -m pip install --quiet --editable . --group dev
.venv/bin/onceflow prepare --kernels-only
touch .venv/.ready
