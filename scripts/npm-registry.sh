#!/bin/sh
# Prints this machine's npm registry, without a slash at the end. No registry is built into Bellhop: the script takes
# npm's answer, else npm's settings in files and environment, else the default in Debian's npm package (which is
# downloaded and read, not installed).
set -eu

from_environment()
{
    printf '%s\n' "${npm_config_registry:-${NPM_CONFIG_REGISTRY:-}}"
}

from_npm()
{
    command -v npm >/dev/null 2>&1 || return 0
    (cd / && npm config get registry 2>/dev/null) || true
}

from_files()
{
    for file in "${HOME:-/root}/.npmrc" /etc/npmrc /usr/etc/npmrc /usr/local/etc/npmrc; do
        [ -r "$file" ] || continue
        sed -n 's/^[[:space:]]*registry[[:space:]]*=[[:space:]]*"\{0,1\}\([^"[:space:]]*\).*/\1/p' "$file"
    done | head -n 1
}

# Downloads to $tmp, with separate lists if the machine has none.
download_npm()
{
    # shellcheck disable=SC2086 # empty, or one option
    (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root ${private:-} download npm)
}

from_package()
{
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    chmod 755 "$tmp"
    download_npm >/dev/null 2>&1 || {
        mkdir -p "$tmp/lists/partial"
        private="-o Dir::State::lists=$tmp/lists"
        # shellcheck disable=SC2086 # one option
        apt-get -qq -o APT::Sandbox::User=root $private update >/dev/null 2>&1 || true
        download_npm >/dev/null 2>&1 || return 0
    }
    dpkg-deb --fsys-tarfile "$tmp"/npm_*.deb |
        tar -xO --wildcards '*/config/lib/definitions/definitions.js' '*/config/definitions.js' \
            '*/utils/config/definitions.js' 2>/dev/null |
        awk '/define\(.registry.,/ { inside = 1 }
             inside && match($0, /https?:[^\x27"]*/) { print substr($0, RSTART, RLENGTH); exit }' || true
}

for source in environment npm files package; do
    registry=$("from_$source")
    case $registry in
    http://* | https://*)
        printf '%s\n' "${registry%/}"
        exit 0
        ;;
    esac
done
echo "npm-registry: no npm registry is set (environment, npmrc), and Debian's npm package could not be read" >&2
exit 1
