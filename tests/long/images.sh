#!/bin/sh
# images.sh [PART...]: builds every image of image/templates in every form, boots each form and Docker's build of the
# Dockerfile, and tries each tool there. More parts: `agents`, `up` with the coding agents of full, without a network;
# `own`, a typical template with commands and variables; `builders`, slim's Dockerfile by every builder; `daytona`, the
# Dockerfiles parsed by Daytona's SDK. The result of each part is kept, so that a part can be repeated alone; together
# they are docs/image-test-results.md. Needs root, and about an hour.
set -eu

cd "$(dirname "$0")/../.."
top=$PWD
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=npm_config_registry,PIP_INDEX_URL "$0" "$@"
images="slim base full lang-ruby lang-go lang-rust lang-ts"
all="slim base full agents lang-ruby lang-go lang-rust lang-ts own builders daytona"
# shellcheck disable=SC2086 # words
[ $# -gt 0 ] || set -- $all

work=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-images-XXXXXX")
ENGINES=$work/engines
. tests/lib/engines.sh
bellhop=$top/build/release/bellhop
results=$top/build/long/images
bad=0
export BELLHOP_STATE_DIR="$work/state" BELLHOP_QEMU_ACCEL=tcg DOCKER_BUILDKIT=1
finish()
{
    stop_engines
    rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# The report of `bellhop image test --json` as a table.
table()
{
    jq -r '
        def ms: if . < 100 then "\(.) ms" else "\(. / 10 | round / 100) s" end;
        def cell: if . == null then ""
            elif .state == "ok" then "ok, \(.ms | ms)"
            else "**\(.state)**: \(.message)" end;
        (.forms | keys_unsorted) as $forms
        | "| tool | version | \($forms | join(" | ")) |",
          "|---|---|\($forms | map("---|") | join(""))",
          "| boot | | \([.forms[] | {state: .boot, ms: .boot_ms, message} | cell] | join(" | ")) |",
          (.checks[] | select(.in_image) | .results as $r
            | "| \(.tool) | \([$r[].version] | unique | join(", ")) | \($forms | map($r[.] | cell) | join(" | ")) |"),
          "", "Not in it: \([.checks[] | select(.in_image | not) | .tool] | join(", ")).", ""' "$1" |
        awk '
            /^Not in it/ {
                while (length > 116) {
                    for (n = 116; substr($0, n, 1) != " "; n--)
                        ;
                    print substr($0, 1, n - 1)
                    $0 = substr($0, n + 1)
                }
            }
            { print }'
}

size()
{
    stat -L -c %s "$1" | awk '{ printf "%.1f MB", $1 / 1000000 }'
}

# test_image NAME WHAT: the image of that name or place, into the part's file.
test_image()
{
    echo "== $1"
    began=$(date +%s)
    image=$("$bellhop" image build "$2" --form squashfs --form oci --form vm --form dockerfile)
    built=$(($(date +%s) - began))
    status=0
    "$bellhop" image test "$2" --form oci --form docker --form podman --form qemu --form dockerfile --json \
        >"$work/report.json" || status=$?
    [ "$status" -eq 0 ] || bad=1
    {
        printf '## %s %s\n\n' "$1" "$(jq -r .version "$image/manifest.json")"
        printf 'squashfs %s, OCI archive %s, %s packages of Debian; missing forms were made in %s s. Tried on %s.\n\n' \
            "$(size "$image/rootfs.squashfs")" "$(size "$image/oci.tar")" \
            "$(jq '.packages | length' "$image/manifest.json")" "$built" "$(date -u +%Y-%m-%d)"
        table "$work/report.json"
    } >"$results/$1.md"
    jq -r 'if .ok then "ok" else "failed" end' "$work/report.json"
}

# Checks the coding agents of the image: there is no network, and this machine has no package of them.
test_agents()
{
    {
        printf '### The coding agents of full\n\n'
        # shellcheck disable=SC2016 # Markdown's
        printf '`up --image full --network none`, with an empty cache on the host, until the agent is healthy. '
        printf 'Tried on %s.\n\n' "$(date -u +%Y-%m-%d)"
        printf '| agent | result | time |\n|---|---|---|\n'
    } >"$results/agents.md"
    "$bellhop" image build full --form squashfs
    for agent in opencode pi; do
        word=ok
        start=$(date +%s%N)
        BELLHOP_CACHE_DIR=$work/nothing "$bellhop" up --empty -n baked -a "$agent" --network none --image full \
            >"$work/up" 2>&1 || {
            word="**failed**: $(tail -n 1 "$work/up")"
            bad=1
        }
        printf '| %s | %s | %s |\n' "$agent" "$word" "$((($(date +%s%N) - start) / 10000000))" |
            sed 's/\([0-9]*\)\([0-9][0-9]\) |$/\1.\2 s |/' >>"$results/agents.md"
        [ -z "$(find "$work/nothing" -type f -size +100k 2>/dev/null)" ] || {
            echo "$agent was fetched" >&2
            bad=1
        }
        echo "$agent: $word"
        "$bellhop" rm baked >/dev/null 2>&1 || true
    done
    echo >>"$results/agents.md"
}

# A typical template: a server that is started, waited for and given a variable, in every form.
test_own()
{
    mkdir -p "$work/own"
    cat >"$work/own/e2b.toml" <<'END'
template_name = "own"
start_cmd = """
mkdir -p www && echo "$GREETING" >www/index
exec bellhopd --listen 127.0.0.1:8080 --auth=open --root www"""
ready_cmd = "curl -fsS http://127.0.0.1:8080/v1/files/index | grep -qx 'hello box'"
cpu_count = 2
memory_mb = 1024
[bellhop]
from = "slim"
version = "1"
packages = ["hello"]
env = ["GREETING=hello box"]
END
    test_image own "$work/own"

    # A box that never becomes ready is an error with the end of its command and the output of start_cmd.
    sed -e "s/^ready_cmd.*/ready_cmd = \"echo not yet >\&2; exit 3\"/" "$work/own/e2b.toml" >"$work/e2b.toml"
    if "$bellhop" up --empty -n never -a none --network none --image "$work" --start-timeout 2m >"$work/never" 2>&1 ||
        ! grep -q 'ready_cmd did not succeed in .*; the last time: status 3: not yet$' "$work/never" ||
        ! grep -q '^start_cmd: still running$' "$work/never"; then
        cat "$work/never" >&2
        bad=1
    fi
    "$bellhop" image rm own
}

# try_builder WHAT BUILDER: slim's Dockerfile by it; WHAT is what the table calls it.
try_builder()
{
    start=$(date +%s)
    word=ok
    BUILDER=$2 "$bellhop" image test slim --form dockerfile --form oci --json >"$work/builder.json" || {
        word="failed: $(jq -r '.forms.dockerfile.message' "$work/builder.json")"
        bad=1
    }
    printf '| %s | %s | %s s |\n' "$1" "$word" "$(($(date +%s) - start))" >>"$results/builders.md"
    echo "$1: $word"
}

try_builders()
{
    {
        printf '## The builders of a Dockerfile\n\n'
        printf 'slim, built, booted and tried with every check on %s; the versions are those of the box.\n\n' \
            "$(date -u +%Y-%m-%d)"
        printf '| builder | result | build and checks |\n|---|---|---|\n'
    } >"$results/builders.md"
    DOCKER_BUILDKIT=1 try_builder 'docker build (BuildKit)' docker
    docker builder prune -af >/dev/null
    DOCKER_BUILDKIT=0 try_builder 'docker build (legacy builder)' docker
    try_builder 'podman build' podman
    try_builder 'buildah bud' buildah
    echo >>"$results/builders.md"
}

try_daytona()
{
    version=0.226.1
    dir=$top/build/cache/venv-daytona-$version
    [ -x "$dir/bin/python" ] || python3 -m venv "$dir"
    "$dir/bin/pip" install -q --disable-pip-version-check "daytona==$version" || {
        echo "the SDK could not be installed" >&2
        bad=1
        return 0
    }
    for name in $images; do
        "$bellhop" image build "$name" --form dockerfile >/dev/null
        "$dir/bin/python" - "$top/build/image/$name/Dockerfile" <<'PY' || bad=1
import os, sys
from daytona import Image

image = Image.from_dockerfile(sys.argv[1])
paths = [c.source_path for c in image._context_list]
assert len(paths) >= 5 and all(os.path.exists(p) for p in paths), paths
PY
    done
    [ "$bad" -ne 0 ] ||
        printf "Daytona's SDK %s reads the Dockerfiles of all of them, and finds all that they copy.\n" \
            "$version" >"$results/daytona.md"
}

# All results, in the order of the parts, whatever their dates.
write_results()
{
    {
        cat <<END
# Test results of the images

Written by tests/long/images.sh (\`make test-long\` runs all its parts; each can be run alone, and has its
date): Linux $(uname -r | cut -d - -f 1), $(nproc) processors, Docker $docker, $(podman --version), QEMU $qemu
without KVM. \`oci\` is a box; \`dockerfile\` is what Docker makes of the Dockerfile. A time is that of a whole
check, on a machine that had other work as well. \`start\` and \`ready\` are a template's own commands.

END
        for part in $all; do
            [ ! -e "$results/$part.md" ] || cat "$results/$part.md"
        done
    } >"$work/results.md"
    cp "$work/results.md" docs/image-test-results.md
}

start_dockerd
set_up_podman
"$bellhop" image build slim --form squashfs
image/base.sh >"$work/base.tar"
docker import "$work/base.tar" localhost/bellhop-base >/dev/null
export BASE=localhost/bellhop-base
docker=$(docker version --format "{{.Server.Version}}")
qemu=$(qemu-system-"$(uname -m)" --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
podman import --quiet "$work/base.tar" "$BASE" >/dev/null
rm "$work/base.tar"
mkdir -p "$results"
for part; do
    case $part in
    agents) test_agents ;;
    own) test_own ;;
    builders) try_builders ;;
    daytona) try_daytona ;;
    *) test_image "$part" "$part" ;;
    esac
    write_results
done
echo "docs/image-test-results.md"
exit "$bad"
