#!/usr/bin/env bash
# Build wheel and sdist, install the wheel into an environment of its own, and try it there.
#   tools/check_wheel.sh                both, in a temporary folder
#   tools/check_wheel.sh build DIST     only build, into DIST
#   tools/check_wheel.sh try DIST       only try what is in DIST
#   tools/check_wheel.sh describe DIST  write the bill of materials and SHA256SUMS
#   tools/check_wheel.sh release DIST   build, try with every supported Python that is here, and describe
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
supported=(3.11 3.12 3.13)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n== %s\n' "$*"; }

# An environment of its own, of the Python $1, in $2, with what else is named.
environment() {
  local interpreter=$1 folder=$2
  shift 2
  "$interpreter" -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

build() {
  say "build wheel and sdist (the wheel from the sdist)"
  environment "$python" "$work/builder" build twine pyroma
  "$work/builder/bin/python" -m build --outdir "$1" "$root"
  say "what a package index would make of them"
  "$work/builder/bin/python" -m twine check --strict "$1"/*.whl "$1"/*.tar.gz
  # Where the repository is and how to reach the authors is not in the metadata: nobody else's address may get there.
  "$work/builder/bin/pyroma" --min 10 --skip-tests "Url,AuthorEmail" "$1"/*.tar.gz
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
  environment "$python" "$env" -c "$root/constraints.txt" "$wheel[data,plot]" pytest hypothesis
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
  say "the tests of the mathematics, the wire format, runs and the examples against it"
  cp -r "$root/tests" "$root/pyproject.toml" "$root/examples" "$root/docs" .
  "$env/bin/python" -m pytest -q -p no:cacheprovider tests/algorithms/test_golden.py tests/algorithms/test_contract.py \
    tests/wire/test_golden.py tests/core tests/runs/test_run.py tests/test_old_folders.py tests/test_examples.py
}

# The bill of materials names what `pip install fedcef` brings, at the versions that were tested, with their licences.
describe() {
  local wheel bill
  wheel=$(ls "$1"/*.whl)
  bill=$1/$(basename "${wheel%-py3-none-any.whl}").cdx.json
  say "what the package is made of, without extras"
  environment "$python" "$work/core" -c "$root/constraints.txt" "$wheel"
  environment "$python" "$work/lister" cyclonedx-bom
  "$work/core/bin/python" -m pip uninstall --quiet --yes fedcef pip  # the package is the subject, not a part
  "$work/lister/bin/cyclonedx-py" environment --output-reproducible --short-PURLs --pyproject "$root/pyproject.toml" \
    --mc-type library -o "$bill" "$work/core/bin/python"
  "$python" - "$bill" "$wheel" <<'PY'
import hashlib, json, sys
from pathlib import Path
path, wheel = map(Path, sys.argv[1:])
bill = json.loads(path.read_text("utf-8"))
version = wheel.name.split("-")[1]  # which the project leaves to the build
bill["metadata"]["component"] |= {
    "version": version,
    "purl": f"pkg:pypi/fedcef@{version}",
    "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
}
path.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", "utf-8")
print(f"{bill['bomFormat']} {bill['specVersion']}:", ", ".join(f"{c['name']} {c['version']}" for c in bill["components"]))
PY
  (cd "$1" && sha256sum -- *.whl *.tar.gz *.cdx.json >SHA256SUMS && cat SHA256SUMS)
}

# The interpreter of a version: on the path, or one that uv or pyenv keeps.  A name on the path need not work.
interpreter() {
  local candidate
  for candidate in "python$1" "$(uv python find "$1" 2>/dev/null || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$candidate" -c "import ensurepip, ssl, sys, venv; assert sys.version.startswith('$1.')" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

release() {
  rm -f "$1"/*.whl "$1"/*.tar.gz "$1"/*.cdx.json "$1/SHA256SUMS"
  build "$1"
  local version found tried=() absent=()
  for version in "${supported[@]}"; do
    found=$(interpreter "$version")
    if [ -n "$found" ]; then
      PYTHON=$found "$root/tools/check_wheel.sh" try "$1"
      tried+=("$version")
    else
      absent+=("$version")
    fi
  done
  describe "$1"
  say "ready in $1; tried with Python ${tried[*]:-none}; not here and not tried: ${absent[*]:-none}"
}

case "${1:-all}" in
  build) build "$(mkdir -p "$2" && cd "$2" && pwd)" ;;
  try) try_it "$(cd "$2" && pwd)" ;;
  describe) describe "$(cd "$2" && pwd)" ;;
  release) release "$(mkdir -p "$2" && cd "$2" && pwd)" ;;
  all) build "$work/dist" && try_it "$work/dist" && say "the wheel is good" ;;
  *) echo "usage: tools/check_wheel.sh [build | try | describe | release] DIST" >&2; exit 2 ;;
esac
