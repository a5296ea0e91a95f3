#!/bin/sh
# e2b-suites.sh REPOSITORY [js|python [open|secured]]: the SDKs' own test suites, unmodified, against the agent.
#
# REPOSITORY is a git directory (or work tree) of e2b-dev/E2B; its files are unpacked under build/cache and
# never committed. Their dependencies come from npm and PyPI. Each run has its own network and mount
# namespace, in which the agent listens on E2B's port, a user `user` with a fresh home exists, and (secured)
# tests/fakes/e2b_control.py is the control plane. As root.
set -eu

COMMIT=b802997
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BELLHOP_BUILD:-$root/build/release}
suites=$root/build/cache/e2b-suites-$COMMIT
E2B_API_KEY=e2b_0000000000000000000000000000000000000000
export E2B_API_KEY

die()
{
    echo "e2b-suites: $*" >&2
    exit 1
}

unpack()
{
    [ ! -e "$suites/.unpacked" ] || return 0
    rm -rf "$suites"
    mkdir -p "$suites"
    git -C "$1" archive "$COMMIT" packages/js-sdk packages/python-sdk | tar -x -C "$suites"
    : >"$suites/.unpacked"
}

# Of the package's development dependencies only those that its tests need.
prepare_js()
{
    [ ! -e "$suites/.js" ] || return 0
    (
        cd "$suites/packages/js-sdk"
        python3 - <<'END'
import json
p = json.load(open("package.json"))
tools = "vitest msw dotenv @types/node @types/platform error-stack-parser-es json-schema-to-typescript".split()
p["devDependencies"] = {k: v for k, v in p["devDependencies"].items() if k in tools}
p.pop("scripts", None)
json.dump(p, open("package.json", "w"), indent=1)
END
        cat >vitest.bellhop.mts <<'END'
import { defineConfig } from 'vitest/config'
export default defineConfig({ test: {
  include: ['tests/**/*.test.ts'], isolate: true, testTimeout: 30_000, environment: 'node',
  setupFiles: ['tests/globalFetchFallback.setup.ts'], deps: { interopDefault: true },
} })
END
        npm install --silent --no-audit --no-fund --ignore-scripts
    )
    : >"$suites/.js"
}

prepare_python()
{
    [ ! -e "$suites/.python" ] || return 0
    python3 -m venv "$suites/venv"
    "$suites/venv/bin/pip" install -q --disable-pip-version-check "$suites/packages/python-sdk" \
        'pytest>=9.0.3,<10' 'python-dotenv<2' 'pytest-dotenv<0.6' 'pytest-asyncio>=1.3.0,<2' 'pytest-timeout<3' \
        'pytest-xdist<4'
    : >"$suites/.python"
}

wait_for()
{
    n=0
    until curl -s -o /dev/null --max-time 2 "$1"; do
        n=$((n + 1))
        [ "$n" -lt 100 ] || die "nothing answers at $1"
        sleep 0.1
    done
}

# In the namespaces: the agent, the control plane, the tests; all of it ends with this shell.
inside()
{
    ip link set lo up
    pids=
    # shellcheck disable=SC2154 # it is the loop's own
    trap 'for p in $pids; do kill "$p" 2>/dev/null || true; done' EXIT
    if [ "$2" = secured ]; then
        umask 077
        printf '0123456789abcdef0123456789abcdef\n' >"$suites/token"
        umask 022
        set -- "$1" "$2" --token-file "$suites/token"
    else
        set -- "$1" "$2" --auth=open
    fi
    "$root/tests/lib/e2b_box.sh" "$build/bellhopd" --listen 127.0.0.1:49983 "$3" ${4+"$4"} --user user &
    pids=$!
    wait_for http://127.0.0.1:49983/health
    if [ "$2" = secured ]; then
        python3 "$root/tests/fakes/e2b_control.py" --guest http://127.0.0.1:49983 --port 3000 \
            --token 0123456789abcdef0123456789abcdef &
        pids="$pids $!"
        E2B_API_URL=http://127.0.0.1:3000 E2B_SANDBOX_URL=http://127.0.0.1:49983
        export E2B_API_URL E2B_SANDBOX_URL
        unset E2B_DEBUG
    else
        E2B_DEBUG=true
        export E2B_DEBUG
    fi
    "run_$1" "$2"
}

run_js()
{
    cd "$suites/packages/js-sdk"
    set -- "$1" tests/sandbox/commands tests/sandbox/pty tests/sandbox/files tests/sandbox/git
    if [ "$1" = open ]; then
        shift
        npx vitest run --config vitest.bellhop.mts "$@" tests/sandbox/host.test.ts
    else
        # One guest serves all sandboxes: a test that creates another sandbox must not run beside a test of the first.
        # The death of a guest with its sandbox is not the agent's part.
        shift
        npx vitest run --config vitest.bellhop.mts --no-file-parallelism \
            --exclude tests/sandbox/commands/sandboxKilledDuringRun.test.ts "$@" tests/sandbox/secure.test.ts
    fi
}

run_python()
{
    cd "$suites/packages/python-sdk"
    dirs=
    for way in sync async; do
        for area in commands pty files git; do
            [ ! -d "tests/$way/sandbox_$way/$area" ] || dirs="$dirs tests/$way/sandbox_$way/$area"
        done
    done
    if [ "$1" = open ]; then
        # Without a control plane there is no token. The async twin of test_host asks a server before it is up and
        # accepts no refusal, which E2B's proxy would hide.
        secured=files/test_write.py::test_write_with_secured_envd
        dirs="$dirs tests/sync/sandbox_sync/test_host.py --deselect tests/sync/sandbox_sync/$secured"
        dirs="$dirs --deselect tests/async/sandbox_async/$secured"
    else
        dirs="$dirs tests/sync/sandbox_sync/test_secure.py tests/async/sandbox_async/test_secure.py"
        for way in sync async; do # as with JavaScript's
            dirs="$dirs --ignore tests/$way/sandbox_$way/commands/test_sandbox_killed_during_run.py"
        done
    fi
    # shellcheck disable=SC2086
    "$suites/venv/bin/python" -m pytest -q -p no:cacheprovider --timeout 60 $dirs
}

if [ "${1:-}" = --inside ]; then
    shift
    inside "$@"
    exit
fi

[ $# -ge 1 ] || die "usage: e2b-suites.sh REPOSITORY [js|python [open|secured]]"
[ "$(id -u)" = 0 ] || die "needs root"
unpack "$1"
failed=0
for language in ${2:-js python}; do
    "prepare_$language"
    for how in ${3:-open secured}; do
        echo "== $language, $how"
        unshare --net --mount --propagation private "$0" --inside "$language" "$how" || failed=1
    done
done
exit "$failed"
