#!/bin/sh
# online.sh COMMAND...: runs a command of a Dockerfile that fetches from npm or PyPI, with what the build's
# arguments say of this machine's way out: EXTRA_CA (certificates, PEM in base64), NPM_REGISTRY, PIP_INDEX.
# Nothing of that stays in the image.
set -eu

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
if [ -n "${EXTRA_CA:-}" ]; then
    printf '%s' "$EXTRA_CA" | base64 -d >"$made/extra.pem"
    cat /etc/ssl/certs/ca-certificates.crt "$made/extra.pem" >"$made/all.pem"
    export SSL_CERT_FILE="$made/all.pem" PIP_CERT="$made/all.pem" NODE_EXTRA_CA_CERTS="$made/extra.pem"
fi
[ -z "${NPM_REGISTRY:-}" ] || export npm_config_registry="$NPM_REGISTRY"
[ -z "${PIP_INDEX:-}" ] || export PIP_INDEX_URL="$PIP_INDEX"
npm_config_cache=$made/npm HOME=$made "$@"
