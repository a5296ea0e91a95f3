#!/bin/sh
# render.sh DEF OUT_DIR: writes the Dockerfile of a definition to OUT_DIR, with the files that it copies: Dockerfile,
# .dockerignore and context/. BASE is the image to build on, BELLHOP_AGENT the agent to put into it. DEF may be NAME:
# the definition of build/image/NAME.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=${here%/*}
# shellcheck source=image/lib.sh
. "$here/lib.sh"

[ $# -eq 2 ] || {
    echo "usage: image/render.sh DEF OUT_DIR" >&2
    exit 2
}
definition=$1
[ -d "$definition" ] || definition=$image_build/$1/definition
[ -e "$definition/name" ] || {
    echo "render: there is no definition '$1'" >&2
    exit 1
}
out=$2
agent=${BELLHOP_AGENT:-$top/build/release/bellhopd}
context=$out/context

value()
{
    head -n 1 "$definition/$1"
}

lines()
{
    sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$1"
}

# ---- the files that it copies -------------------------------------------------------------------

make_context()
{
    rm -rf "$context"
    mkdir -p "$context/etc"
    {
        lines "$here/excludes.txt" | sed 's/^/path-exclude=/'
        echo path-include=/usr/share/locale/locale.alias
    } >"$context/dpkg.cfg"
    printf 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n' >"$context/apt.conf"
    cp "$here/customize.sh" "$context/customize.sh"
    install -m 755 "$agent" "$context/bellhopd"
    for name in name version user workdir start_cmd ready_cmd env; do
        cp "$definition/$name" "$context/etc/$name"
    done
    image_start_file "$definition" "$context/etc"
    # Only this is sent to the builder: the folder has the other forms of the image too.
    printf '*\n!context\n!Dockerfile\n' >"$out/.dockerignore"
}

# ---- its steps ----------------------------------------------------------------------------------

# In the order of layers.sh: for each base definition, and then for this one, packages, Node.js, npm's packages,
# pip's.
steps()
{
    [ ! -d "$1/from" ] || steps "$1/from"
    excludes "$1"
    packages "$1"
    [ "$(head -n 1 "$1/node")" != true ] || node
    online "$1/npm" npm install --global --no-audit --no-fund --no-update-notifier
    online "$1/pip" python3 -m pip install --no-compile --no-cache-dir \
        --root-user-action=ignore --break-system-packages --disable-pip-version-check
}

excludes()
{
    [ -s "$1/exclude" ] || return 0
    file=context/dpkg-$(head -n 1 "$1/name").cfg
    lines "$1/exclude" | sed 's/^/path-exclude=/' >"$out/$file"
    printf 'COPY %s /etc/dpkg/dpkg.cfg.d/99bellhop-%s\n' "$file" "$(head -n 1 "$1/name")"
}

packages()
{
    [ -s "$1/packages" ] || return 0
    echo "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\"
    lines "$1/packages" | sed 's/.*/    & \\/'
    printf '    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*\n\n'
}

# Fetched and verified against npm.lock on this machine.
node()
{
    image_unpack_node "$context/local" >&2
    echo "# Node.js $(image_locked node 4) and npm $(image_locked npm 4)."
    printf 'COPY context/local/ /usr/local/\n\n'
}

# online LIST COMMAND...: installs the list's packages by a command that uses the network. The first call adds
# online.sh.
online()
{
    list=$1
    shift
    [ -s "$list" ] || return 0
    if [ ! -e "$context/online.sh" ]; then
        cp "$here/online.sh" "$context/online.sh"
        echo "# What a machine behind a proxy may have to say: certificates (PEM in base64), registries."
        printf 'ARG EXTRA_CA=\nARG NPM_REGISTRY=\nARG PIP_INDEX=\n'
        echo "COPY context/online.sh /usr/local/sbin/bellhop-online"
    fi
    echo "RUN sh /usr/local/sbin/bellhop-online $* \\"
    lines "$list" | sed -e "s/.*/    '&' \\\\/" -e '$s/ \\$//'
    echo
}

# One line per agent: NAME VERSION TARBALL COMMAND...; installed where bootstrap looks for them. Agents of base
# definitions come first.
agents()
{
    [ ! -d "$1/from" ] || agents "$1/from"
    while read -r name version tarball command; do
        [ -n "$name" ] || continue
        mkdir -p "$context/agents"
        file=context/agents/$(basename "$tarball")
        cp "$tarball" "$out/$file"
        dir=/home/$(value user)/.bellhop/agents/$name-$version
        # shellcheck disable=SC2016 # "$@" is the new script's
        printf '#!/bin/sh\nexec %s "$@"\n' "$command" >"$context/agents/$name"
        chmod 755 "$context/agents/$name"
        echo
        echo "# The coding agent $name $version."
        echo "COPY $file /mnt/$name.tar"
        echo "RUN mkdir -p $dir && tar -xaf /mnt/$name.tar -C $dir --no-same-owner \\"
        echo "    && rm /mnt/$name.tar && chown -R $(value user): /home/$(value user)/.bellhop"
        echo "COPY context/agents/$name /usr/local/bin/$name"
    done <"$1/agents"
}

# Further options of the agent, as in the OCI image (forms.sh): the directory of commands, if it is not the user's
# home; the file to start, if there is one.
start_words()
{
    [ "$(value workdir)" = "/home/$(value user)" ] || printf ', "--workdir", "%s"' "$(value workdir)"
    [ ! -s "$definition/start_cmd" ] || printf ', "--start-file", "/etc/bellhop/start"'
}

env_lines()
{
    lines "$definition/env" | sed -e 's/["\\$]/\\&/g' -e 's/^\([^=]*\)=\(.*\)$/ENV \1="\2"/'
}

# fill MARK FILE: replaces the line @MARK@ by the lines of the file.
fill()
{
    sed -i -e "/^@$1@\$/{r $2" -e 'd}' "$out/.Dockerfile"
}

[ -x "$agent" ] || {
    echo "render: there is no agent '$agent': run make first" >&2
    exit 1
}
mkdir -p "$out"
work=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-render-XXXXXX")
trap 'rm -rf "$work" "$out/.Dockerfile"' EXIT
trap 'exit 130' INT TERM
make_context
steps "$definition" >"$work/steps"
[ ! -e "$context/online.sh" ] || printf 'RUN rm -f /usr/local/sbin/bellhop-online\n\n' >>"$work/steps"
agents "$definition" >"$work/agents"
env_lines >"$work/env"

suite=$(value suite)
sed -e "s|@NAME@|$(value name)|g" -e "s|@VERSION@|$(value version)|g" -e "s|@SUITE@|$suite|g" \
    -e "s|@BASE@|${BASE:-debian:$suite-slim}|g" -e "s|@USER@|$(value user)|g" \
    -e "s|@WORKDIR@|$(value workdir)|g" -e "s|@START@|$(start_words)|g" -e "s|@PORT@|4711|g" \
    "$top/Dockerfile.template" >"$out/.Dockerfile"
fill STEPS "$work/steps"
fill AGENTS "$work/agents"
fill ENV "$work/env"
if grep -n '@[A-Z_]*@' "$out/.Dockerfile" >&2; then
    echo "render: the template has placeholders nobody fills in (above)" >&2
    exit 1
fi
sh "$here/subset.sh" "$out/.Dockerfile" || {
    echo "render: not every builder would take the Dockerfile (above)" >&2
    exit 1
}
mv -f "$out/.Dockerfile" "$out/Dockerfile"
