#!/usr/bin/env bash
# Publish the site as one version among others: `make publish-docs`.  REF is a tag (v1.2.3 becomes 1.2 and `latest`) or a
# branch, which becomes `dev`.  mike adds a commit to the branch gh-pages; PUSH= keeps it here.
set -euo pipefail
bin=$1
push=${PUSH---push}
export DOCS_VERSIONS=mike OFFLINE=false NO_MKDOCS_2_WARNING=1
if [[ ${REF:-} =~ ^v([0-9]+\.[0-9]+)\. ]]; then
  DOCS_VERSION=${BASH_REMATCH[1]} "$bin/mike" deploy $push --update-aliases "${BASH_REMATCH[1]}" latest
  "$bin/mike" set-default $push latest
else
  DOCS_VERSION=dev "$bin/mike" deploy $push dev
  "$bin/mike" list latest >/dev/null 2>&1 || "$bin/mike" set-default $push dev  # until there is a release
fi
