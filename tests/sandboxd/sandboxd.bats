#!/usr/bin/env bats
# agent-sandbox's runtime API: its own Python client, unmodified, and the routes with curl.

load ../lib/agent
load ../lib/venv

CLIENT_VERSION=1.0.8

teardown() { stop_agents; }

# start_work OPTION...: an agent with an empty workdir, WORK.
start_work()
{
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    export WORK=$AGENT_DIR/work
    mkdir "$WORK"
    if [ "$1" = open ]; then
        unset AGENT_TOKEN
        run_agent --listen 127.0.0.1:0 --workdir "$WORK" --auth=open
    else
        export AGENT_TOKEN=0123456789abcdef
        (umask 077 && echo "$AGENT_TOKEN" >"$AGENT_DIR/token")
        run_agent --listen 127.0.0.1:0 --workdir "$WORK" --token-file "$AGENT_DIR/token"
    fi
}

@test "k8s-agent-sandbox drives an open agent in all of its modes that are HTTP" {
    local python

    python=$(venv_python k8s-agent-sandbox $CLIENT_VERSION) || skip "k8s-agent-sandbox can't be installed"
    start_work open
    run "$python" "$BATS_TEST_DIRNAME/client.py"
    [ "$status" -eq 0 ] && [ "${lines[-1]}" = ok ] || fail "$output"
}

@test "k8s-agent-sandbox sends the token as a header of its direct connection" {
    local python

    python=$(venv_python k8s-agent-sandbox $CLIENT_VERSION) || skip "k8s-agent-sandbox can't be installed"
    start_work token
    run "$python" "$BATS_TEST_DIRNAME/client.py"
    [ "$status" -eq 0 ] && [ "${lines[-1]}" = ok ] || fail "$output"
}

@test "errors have the runtime's form, and nothing is written by a request that fails" {
    start_work token
    agent_curl / | jq -e '.status == "ok"'
    [ "$(curl -s "$AGENT_URL/" | jq -r .status)" = ok ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$AGENT_URL/list/")" = 401 ]
    agent_curl /execute -d '{"command":7}' | jq -e '.message | contains("command")'
    [ "$(agent_status /execute -d '{"command":"true","timeout_seconds":-1}')" = 400 ]
    [ "$(agent_status /execute -d '{"command":"true","timeout_seconds":null,"more":1}')" = 200 ]
    [ "$(agent_status /execute)" = 405 ]
    [ "$(agent_status /upload -F 'file=x')" = 400 ]
    [ "$(agent_status /upload -F 'other=@/etc/hostname')" = 400 ]
    [ "$(agent_status /upload -F 'file=@/etc/hostname;filename=../x')" = 403 ]
    [ "$(agent_status /upload -F 'file=@/etc/hostname;filename=a' -F 'file=@/etc/hostname;filename=b')" = 400 ]
    [ "$(agent_status /upload -d x)" = 400 ]
    [ "$(agent_status /upload -H 'Content-Type: multipart/form-data; boundary=x' --data-binary \
        $'--x\r\nContent-Disposition: form-data; name="file"; filename="cut"\r\n\r\nabc')" = 400 ]
    [ -z "$(ls -A "$WORK")" ]
    [ "$(agent_status /upload -F 'before=1' -F 'file=@/etc/hostname;filename=a' -F 'after=2')" = 200 ]
    cmp /etc/hostname "$WORK/a"
    [ "$(agent_status /download/.)" = 400 ]
    [ "$(agent_status /download/a -H 'X-Forwarded-For: 10.0.0.1')" = 200 ]
    [ "$(agent_status /exists/a%00b)" = 400 ]
    mkdir "$WORK/d" && : >"$WORK/d/"$'\xff'
    agent_curl /list/d | jq -e '.[0].name == "?"'
}

@test "metadata has the container's SANDBOX_ variables, and none that sounds like a secret" {
    SANDBOX_ID=7 SANDBOX_API_KEY=k SANDBOX_Token=t OTHER=o start_work token
    agent_curl /v1/metadata | jq -e '.env == {"SANDBOX_ID": "7"}'
}

@test "a directory among the native files is a list, unless the client takes no JSON" {
    start_work token
    mkdir "$WORK/d" && echo x >"$WORK/d/f" && chmod 750 "$WORK/d"
    agent_curl /v1/files/d | jq -e '.path == "/d" and .entries[0].name == "f" and .entries[0].type == "file"
        and .entries[0].size == 2 and .entries[0].mode == "0644" and (.entries[0].modified_at | test("^[-0-9]{10}T[:0-9]{8}Z$"))'
    agent_curl "/v1/files?path=$WORK" | jq -e '.entries[0].mode == "0750"'
    agent_curl /v1/files/ | jq -e '.entries[0].type == "directory"'
    agent_curl /v1/files/d -H 'Accept: application/octet-stream' | jq -e '.code == "failed_precondition" and .field == "path"'
    [ "$(agent_status /v1/files/d -I)" = 200 ]
    [ "$(agent_status /v1/files/d -X DELETE)" = 400 ]
    [ "$(agent_status '/v1/files/d?recursive=true' -X DELETE)" = 204 ]
    [ ! -e "$WORK/d" ]
}

@test "read-only: what looks is answered, what changes is refused" {
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    run_agent --listen 127.0.0.1:0 --workdir "$AGENT_DIR" --auth=open --read-only
    [ "$(agent_status /list/)" = 200 ]
    [ "$(agent_status /execute -d '{"command":"true"}')" = 403 ]
    [ "$(agent_status /upload -F 'file=@/etc/hostname')" = 403 ]
}
