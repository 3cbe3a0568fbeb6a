#!/usr/bin/env bash
# Runs a command in the project's environment, after installing uv and the environment where they are missing or out of date.
#   e2e/bootstrap.sh COMMAND [ARGUMENT…]
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS="${UV_PYTHON_DOWNLOADS:-never}"
cache="${STEELYARD_CACHE:-$HOME/.cache/steelyard}"
uv_version=0.13.9

fail() { echo "error: $*" >&2; exit 1; }

if ! command -v uv >/dev/null; then
  tool="$cache/uv-$uv_version"
  if [ ! -x "$tool/bin/uv" ]; then
    command -v python3 >/dev/null || fail "Python 3.11 or newer is needed: apt-get install python3 python3-venv"
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
      [ "$(id -u)" = 0 ] || fail "Python's venv module is missing: apt-get install python3-venv"
      apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
    fi
    echo "installing uv $uv_version" >&2
    rm -rf "$tool" && python3 -m venv "$tool" && "$tool/bin/pip" install --quiet --disable-pip-version-check "uv==$uv_version"
  fi
  export PATH="$tool/bin:$PATH"
fi

stamp=.venv/.synced
if [ ! -e "$stamp" ] || [ uv.lock -nt "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ operator/pyproject.toml -nt "$stamp" ] || [ images/engine/pyproject.toml -nt "$stamp" ]; then
  echo "installing the Python environment (.venv)" >&2
  uv sync --locked --quiet --inexact
  touch "$stamp"
fi
export PATH="$PWD/.venv/bin:$PATH"
exec "$@"
