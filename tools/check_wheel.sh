#!/usr/bin/env bash
# Build wheel and sdist, install the wheel into an environment of its own, and try it there.
#   tools/check_wheel.sh               both, in a temporary folder
#   tools/check_wheel.sh build DIST    only build, into DIST
#   tools/check_wheel.sh try DIST      only try what is in DIST
#   tools/check_wheel.sh release DIST  build, try with every supported Python that is here, and write SHA256SUMS
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n== %s\n' "$*"; }

build() {
  say "build wheel and sdist (the wheel from the sdist)"
  "$python" -m venv "$work/builder"
  "$work/builder/bin/python" -m pip install --quiet --disable-pip-version-check build twine
  "$work/builder/bin/python" -m build --outdir "$1" "$root"
  say "what a package index would make of them"
  "$work/builder/bin/python" -m twine check --strict "$1"/*.whl "$1"/*.tar.gz
  say "every file of the package is in the wheel"
  "$python" - "$root/src" "$1" <<'PY'
import sys, zipfile
from pathlib import Path
source, dist = map(Path, sys.argv[1:])
(wheel,) = dist.glob("*.whl")
there = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedcef/")}
wanted = {p.relative_to(source).as_posix() for p in source.glob("fedcef/**/*") if p.is_file() and "__pycache__" not in p.parts}
assert wanted == there, f"missing {sorted(wanted - there)}, too many {sorted(there - wanted)}"
print(f"{wheel.name}: {len(there)} files, {wheel.stat().st_size:,} bytes")
PY
}

try_it() {
  local wheel env=$work/env
  wheel=$(ls "$1"/*.whl)
  say "install $(basename "$wheel") with $("$python" --version)"
  "$python" -m venv "$env"
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" \
    "$wheel[data,plot]" pytest hypothesis
  mkdir "$work/elsewhere" && cd "$work/elsewhere"  # so that nothing comes from the checkout
  export OMP_NUM_THREADS=1
  say "the command"
  "$env/bin/fedcef" version
  "$env/bin/fedcef" list >/dev/null
  "$env/bin/fedcef" run demo --set rounds=3 --out runs/one
  "$env/bin/fedcef" plot runs/one --out figures && ls figures
  say "from Python, with types"
  "$env/bin/python" - <<'PY'
import importlib.metadata as metadata
from pathlib import Path
import fedcef
assert metadata.version("fedcef") == fedcef.__version__
home = Path(fedcef.__file__).parent
assert "site-packages" in home.parts and (home / "py.typed").exists(), home
for name in fedcef.__all__:
    getattr(fedcef, name)
print(f"{len(fedcef.__all__)} public names from {home.name} {fedcef.__version__}")
PY
  say "some of the tests against it"
  cp -r "$root/tests" "$root/pyproject.toml" "$root/examples" "$root/docs" .
  "$env/bin/python" -m pytest -q -p no:cacheprovider tests/algorithms/test_golden.py tests/algorithms/test_contract.py \
    tests/wire/test_golden.py tests/runs/test_run.py tests/test_examples.py
}

release() {
  rm -f "$1"/*.whl "$1"/*.tar.gz "$1/SHA256SUMS"
  build "$1"
  local version tried=()
  for version in 3.11 3.12 3.13; do
    if command -v "python$version" >/dev/null; then
      PYTHON=python$version "$root/tools/check_wheel.sh" try "$1"
      tried+=("$version")
    else
      say "no python$version here: not tried with it"
    fi
  done
  (cd "$1" && sha256sum ./*.whl ./*.tar.gz >SHA256SUMS && cat SHA256SUMS)
  say "ready in $1; tried with Python ${tried[*]:-none}"
}

case "${1:-all}" in
  build) build "$(mkdir -p "$2" && cd "$2" && pwd)" ;;
  try) try_it "$(cd "$2" && pwd)" ;;
  release) release "$(mkdir -p "$2" && cd "$2" && pwd)" ;;
  all) build "$work/dist" && try_it "$work/dist" && say "the wheel is good" ;;
  *) echo "usage: tools/check_wheel.sh [build DIST | try DIST | release DIST]" >&2; exit 2 ;;
esac
