#!/usr/bin/env bats
# The routes that CortexPrism has, with its names.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon

setup()
{
    box_setup
    daemon_start
}

teardown()
{
    daemon_stop
    box_teardown
}

@test "code runs in a box of its own, which is gone afterwards, and its output has a bound" {
    expect 200 '.runtime == "subprocess" and .outputLimit == 100' PUT /sandbox/config \
        --data '{"runtime":"subprocess","outputLimit":100}'
    expect 200 '. | {stdout, stderr, exitCode, timedOut, truncated, language, runtime} == {"stdout": "5\n", "stderr": "no\n",
        "exitCode": 3, "timedOut": false, "truncated": false, "language": "python", "runtime": "subprocess"}' POST /code/exec \
        --data '{"language":"python","code":"import sys\nprint(2 + 3)\nprint(\"no\", file=sys.stderr)\nsys.exit(3)"}'
    expect 200 '.timedOut and .exitCode == null' POST /code/exec --data '{"language":"sh","code":"sleep 60","timeout":300}'
    # 99 bytes and a character of two: the cut leaves whole characters.
    expect 200 '.truncated and (.stdout | length) == 99' POST /code/exec \
        --data '{"language":"python","code":"print(\"x\" * 99 + chr(233) * 20)"}'
    [ "$(bellhop ls -q)" = "" ]
    expect 400 '.field == "language"' POST /code/exec --data '{"language":"cobol","code":""}'
    expect 400 '.field == "code"' POST /code/exec --data '{"language":"sh"}'
    expect 400 '.field == "timeout"' POST /code/exec --data '{"language":"sh","code":"","timeout":-1}'
}

@test "settings outlive a restart, and a wrong one changes nothing" {
    expect 200 '.runtime == "oci" and .timeout == 30000 and .memoryLimit == "512m" and (.languages | index("python"))' \
        GET /sandbox/config
    expect 200 '.timeout == 5000' PUT /sandbox/config --data '{"timeout":5000,"memoryLimit":"1g"}'
    daemon_stop
    daemon_start
    expect 200 '.timeout == 5000 and .memoryLimit == "1g" and .runtime == "oci"' GET /sandbox/config
    expect 400 '.field == "runtime"' PUT /sandbox/config --data '{"runtime":"none","timeout":7}'
    expect 400 '.field == "memoryLimit"' PUT /sandbox/config --data '{"memoryLimit":"much"}'
    expect 400 '.field == "timeout"' PUT /sandbox/config --data '{"timeout":0}'
    expect 400 '.field == "languages"' PUT /sandbox/config --data '{"languages":[]}'
    expect 200 '.timeout == 5000' GET /sandbox/config
}

@test "a backend is available only if its probe has passed" {
    expect 200 '[.backends[].name] == ["oci", "runc", "crun", "gvisor", "subprocess"]' GET /sandbox/backends
    cp "$BOX_TMP/expected" "$BOX_TMP/backends"
    bellhop providers --json | jq -e --slurpfile b "$BOX_TMP/backends" '
        (.providers[] | select(.name == "oci") | .usable) == ($b[0].backends[0].available)'
    jq -e '.backends | all(.available == (.reason == "")) and (map(select(.name == "subprocess"))[0].available)' \
        "$BOX_TMP/backends"
    # The probe runs the guest agent: one that does not work makes every runtime unavailable.
    echo '{"options":{"agent_path":"/bin/false"}}' >"$BOX_TMP/options"
    daemon_stop
    rm -f "$BELLHOP_CACHE_DIR"/oci-probe*.json
    daemon_start --options-fd 4 4<"$BOX_TMP/options"
    expect 200 '.backends[:4] | all(.available == false and .reason != "")' GET /sandbox/backends
    rm -f "$BELLHOP_CACHE_DIR"/oci-probe*.json
}

@test "the debug log is switched on and off" {
    expect 200 '.enabled == false' GET /sandbox/debug
    bellhop up --empty --provider process --agent none --name one >/dev/null 2>&1
    expect 200 true POST /v1/boxes/one/stop
    run ! grep -q state "$BOX_TMP/daemon.log"
    expect 200 '.enabled' PUT /sandbox/debug --data '{"enabled":true}'
    expect 200 true POST /v1/boxes/one/start
    grep -q state "$BOX_TMP/daemon.log"
    expect 400 '.field == "enabled"' PUT /sandbox/debug --data '{"enabled":1}'
    expect 200 '.enabled == false' PUT /sandbox/debug --data '{"enabled":false}'
    : >"$BOX_TMP/daemon.log"
    expect 200 true POST /v1/boxes/one/stop
    run ! grep -q state "$BOX_TMP/daemon.log"
}
