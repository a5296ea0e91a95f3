# coding.bash: coding agents in boxes with the fake model beside them. Used by bats files, after
# box.bash:
#
#   make_dirty_project DIR        a git repository with every kind of change in it
#   make_opencode_config DIR      for --agent-config: opencode with the fake model
#   make_pi_config DIR            the same for pi, DIR being its .pi
#   start_fake NAME               the fake model in the box, on FAKE_PORT there
#   nothing_is_left               no process of this test's boxes, no directory, and nothing in the engine
#
# The model runs inside the box: with `--network user` nothing on the host's loopback can be
# reached from there, and a fake needs no network.

load ../lib/engine_objects

CODING_ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
FAKE_PORT=${FAKE_PORT:-4010}
TEST_PROVIDER=${TEST_PROVIDER:-oci} # "process" while something is being developed

make_dirty_project()
{
    mkdir -p "$1"
    (
        cd "$1"
        export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.org
        export GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.org
        git init -q -b main .
        printf 'one\n' >kept.txt
        printf 'two\n' >changed.txt
        printf 'three\n' >removed.txt
        printf '#!/bin/sh\necho ran\n' >run.sh
        chmod +x run.sh
        printf 'build/\n' >.gitignore
        git add -A
        git commit -q -m first
        printf 'changed\n' >changed.txt
        printf 'staged\n' >staged.txt
        git add staged.txt
        rm removed.txt
        printf 'new\n' >'untracked file.txt'
        mkdir build
        printf 'no\n' >build/ignored.o
    )
}

make_opencode_config()
{
    mkdir -p "$1"
    cat >"$1/opencode.json" <<CONFIG
{
  "provider": {
    "fake": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Fake",
      "options": {"baseURL": "http://127.0.0.1:$FAKE_PORT/v1", "apiKey": "sk-test"},
      "models": {"fake": {"name": "Fake"}}
    }
  },
  "model": "fake/fake",
  "small_model": "fake/fake",
  "permission": {"edit": "allow", "bash": "allow", "webfetch": "allow"},
  "autoupdate": false,
  "share": "disabled"
}
CONFIG
}

make_pi_config()
{
    mkdir -p "$1/agent"
    echo '{"defaultProvider": "fake", "defaultModel": "fake"}' >"$1/agent/settings.json"
    cat >"$1/agent/models.json" <<MODELS
{
  "providers": {
    "fake": {
      "baseUrl": "http://127.0.0.1:$FAKE_PORT/v1",
      "api": "openai-completions",
      "apiKey": "FAKE_KEY",
      "authHeader": true,
      "models": [
        {"id": "fake", "name": "Fake", "reasoning": false, "input": ["text"],
         "contextWindow": 1000000, "maxTokens": 4096,
         "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}
      ]
    }
  }
}
MODELS
}

start_fake()
{
    bellhop put "$1" "$CODING_ROOT/tests/fakes/openai.py" :/tmp/fake/
    bellhop exec -d "$1" -- python3 /tmp/fake/openai.py --port "$FAKE_PORT" \
        --ready /tmp/fake/ready --record /tmp/fake/record >/dev/null
    wait_for 60 bellhop exec -n "$1" -- test -s /tmp/fake/ready
}

nothing_is_left()
{
    local boxes

    boxes=$(bellhop ls -q) && [ -z "$boxes" ] || return 1
    no_traces || wait_for 10 no_traces || true
    traces >"$BOX_TMP/left"
    # Before gc, which would remove it.
    [ "$TEST_PROVIDER" != docker ] ||
        engine_list "${DOCKER_HOST#unix://}" "dev.bellhop.store=$(cat "$BELLHOP_STATE_DIR/mark")" >>"$BOX_TMP/left"
    [ ! -s "$BOX_TMP/left" ] || { cat "$BOX_TMP/left" >&2; return 1; }
}
