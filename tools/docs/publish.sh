#!/usr/bin/env bash
# Publish the site as one version among others: `make publish-docs`.  REF is a tag (v1.2.3 becomes 1.2 and `latest`) or a
# branch, which becomes `dev`.  mike adds a commit to the branch gh-pages; PUSH= keeps it here.
set -euo pipefail
push=${PUSH---push}
PATH=$(cd "$1" && pwd):$PATH  # mike calls mkdocs
# Where the pages will be, as GitHub serves them; SITE_URL says otherwise.
if [[ -z ${SITE_URL:-} && ${REPOSITORY_URL:-} =~ ^https://github\.com/([^/]+)/([^/]+)$ ]]; then
  export SITE_URL=https://${BASH_REMATCH[1],,}.github.io/${BASH_REMATCH[2]}/
fi
export DOCS_VERSIONS=mike OFFLINE=false NO_MKDOCS_2_WARNING=1
if [[ ${REF:-} =~ ^v([0-9]+\.[0-9]+)\. ]]; then
  DOCS_VERSION=${BASH_REMATCH[1]} mike deploy $push --update-aliases "${BASH_REMATCH[1]}" latest
  mike set-default $push latest
else
  DOCS_VERSION=dev mike deploy $push dev
  mike list latest >/dev/null 2>&1 || mike set-default $push dev  # until there is a release
fi
