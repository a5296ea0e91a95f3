#!/bin/sh
# online.sh COMMAND...: runs a command of a Dockerfile that fetches from npm or PyPI, with the network settings in the
# build arguments EXTRA_CA (certificates, PEM in base64), NPM_REGISTRY and PIP_INDEX. None of them stays in the image.
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
