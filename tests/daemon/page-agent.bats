#!/usr/bin/env bats
# The status page with boxes that isolate: a conversation with opencode, which has a fake model in the box;
# memory in use; snapshots.
# early
# needs: image network

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/browser
load ../lib/coding

setup_file()
{
    browser_start
}

teardown_file()
{
    browser_stop
}

setup()
{
    box_setup
    mkdir "$BOX_TMP/project"
    make_opencode_config "$BOX_TMP/config"
    daemon_start
    page_start
}

teardown()
{
    browser_leave
    page_stop
    daemon_stop
    box_teardown
}

agent_waits()
{
    browser_until "text('.panel').includes('The agent waits for you') && control('Abort').disabled"
}

# opencode's own web UI at the host name of its port, with its login: the page, its API and its events. For the opencode
# that runs already: to start one takes longer than all of this.
own_page_works()
{
    local port login host session dir

    ask GET /v1/boxes/main/agent >"$BOX_TMP/agent"
    port=$(jq .port "$BOX_TMP/agent")
    login=$(jq -r '"\(.username):\(.password)"' "$BOX_TMP/agent")
    host=$port-main.localhost:${PAGE_URL##*:}
    [ "$(curl -sS -o /dev/null -w '%{http_code}' -H "Host: $host" "$PAGE_URL/")" = 401 ] # opencode's own answer
    session=$(curl -sS -u "$login" -H "Host: $host" --json '{}' "$PAGE_URL/session")
    dir=$(jq -r .directory <<<"$session" | tr -d '\n' | base64 -w 0 | tr '+/' '-_' | tr -d =)
    browser_open "http://$login@$host/"
    browser_until "document.title === 'OpenCode' && document.body.innerText.includes('Add project')"
    browser_open "http://$host/$dir/session/$(jq -r .id <<<"$session")"
    browser_until "document.querySelector('[role=textbox][contenteditable]')"
    browser_js "document.querySelector('[role=textbox]').focus()"
    browser_type $'a prompt of its own page\uE007'
    browser_until "document.body.innerText.includes('a prompt of its own page') && document.body.innerText.includes('RECEIVED')"
    [ -z "${SHOTS:-}" ] || browser_shot "$SHOTS/opencode-own-page.png"
}

@test "a box with an agent is made on the page; a prompt is answered with its tool call, asks for leave, and is aborted" {
    browser_reset
    browser_look 1600 900 light
    browser_open "$PAGE_URL/"
    browser_until "text('#connection') === 'Live'"
    browser_js "press('New box')"
    browser_until "control('Make the box')"
    browser_js "type('dialog [name=name]', 'main'); type('dialog [name=image]', '$BELLHOP_IMAGE')
        type('dialog [name=agent]', 'opencode'); press('Make the box')"
    browser_until "row('main').textContent.includes('running')"
    remember_box main
    start_fake main
    # The fake model, and no command without leave: settings of the project, which opencode reads anew.
    jq '.permission.bash = "ask"' "$BOX_TMP/config/opencode.json" >"$BOX_TMP/opencode.json"
    bellhop put main "$BOX_TMP/opencode.json" :/workspace/
    browser_js "press('Agent')"
    agent_waits
    login=$(ask GET /v1/boxes/main/agent)
    ask POST "/v1/boxes/main/proxy/$(jq .port <<<"$login")/instance/dispose" \
        -u "$(jq -r '.username + ":" + .password' <<<"$login")" >/dev/null
    [ "$ASK_STATUS" = 200 ]
    browser_js "type('[name=prompt]', 'please\\nRUN: echo from the page >made.txt'); press('Send')"
    browser_until "text('.messages').includes('RUN: echo from the page')"
    browser_until "seen('.conflict') && text('.conflict').includes('echo from the page') && control('Allow once')"
    # A page that comes later asks as well.
    browser_open about:blank
    browser_open "$PAGE_URL/#/box/main/agent"
    browser_until "control('Allow once') && text('.messages').includes('RUN: echo') && !control('Abort').disabled"
    [ -z "${SHOTS:-}" ] || browser_shot "$SHOTS/agent-ask-1600-light.png"
    ! bellhop exec -n main -- test -e made.txt || fail "it ran without leave"
    browser_js "press('Allow once')"
    browser_until "!seen('.conflict') && text('.messages .tool').includes('✓')"
    browser_until "[...document.querySelectorAll('.message.assistant .text')].some(t => t.textContent.includes('DONE'))"
    agent_waits
    [ "$(bellhop exec -n main -- cat made.txt)" = 'from the page' ]
    # Each message is there once.
    browser_is "document.querySelectorAll('.message.user').length === 1"
    browser_js "type('[name=prompt]', 'RUN: printf \"<img src=x onerror=window.owned=1>\"; sleep 600'); press('Send')"
    browser_until "control('Always allow')"
    browser_js "press('Always allow')"
    browser_until "!control('Abort').disabled && [...document.querySelectorAll('.tool')].some(t => t.textContent.includes('running'))"
    browser_js "press('Abort')"
    agent_waits
    browser_js "type('[name=prompt]', 'RUN: touch refused.txt'); press('Send')"
    browser_until "control('Refuse')"
    browser_js "press('Refuse')"
    agent_waits
    ! bellhop exec -n main -- test -e refused.txt || fail "it ran though it was refused"
    # Another view of the same conversation has the same messages.
    browser_open about:blank
    browser_open "$PAGE_URL/#/box/main/agent"
    browser_until "document.querySelectorAll('.message.user').length === 3"
    browser_is "window.owned === undefined && document.images.length === 1"
    [ -z "${SHOTS:-}" ] || { browser_look 360 900 dark; browser_shot "$SHOTS/agent-360-dark.png"; }
    [ -z "$(browser_errors)" ]
    own_page_works
}

@test "a snapshot is made, restored, forked from and removed on the page, which shows the memory in use" {
    bellhop up --name one --provider "$TEST_PROVIDER" --agent none --memory 512M --label owner=ann "$BOX_TMP/project" >/dev/null 2>&1
    remember_box one
    bellhop exec one -- sh -c 'echo first >note'
    browser_reset
    browser_open "$PAGE_URL/#/box/one"
    browser_until "/[1-9][0-9.]* [KM]iB of 512 MiB/.test(text('.now')) && /GiB-hours0[.]0/.test(text('.now'))"
    browser_js "press('Snapshot…')"
    browser_js "type('dialog [name=name]', 'kept'); press('Make the snapshot')"
    browser_until "!one('dialog') && text('.lines').includes('kept')"
    bellhop exec one -- sh -c 'echo second >note'
    browser_js "press('Restore')"
    browser_until "text('dialog').includes('are lost')"
    browser_js "pressInDialog('Restore')"
    browser_until "!one('dialog') && text('#notices').includes('as it was in kept')"
    browser_until "text('.head .state') === 'running'"
    [ "$(bellhop exec one -- cat note)" = first ]
    browser_js "press('Snapshot…'); type('dialog [name=name]', 'later'); press('Make the snapshot')"
    browser_until "!one('dialog') && text('.lines').includes('later')"
    browser_js "one('[aria-label=\"Remove later\"]').click(); pressInDialog('Remove')"
    browser_until "!one('dialog') && !text('.lines').includes('later')"
    [ "$(ask GET /v1/boxes/one/snapshots | jq -c '[.snapshots[].name]')" = '["kept"]' ]
    browser_js "press('Fork…')"
    browser_js "type('dialog [name=name]', 'two'); press('Fork')"
    browser_until "text('h1') === 'two' && text('.head .state') === 'running'"
    remember_box two
    [ "$(bellhop exec two -- cat note)" = first ]
    # The limits of both count for their owner.
    bellhop quota set ann --memory 4G
    browser_js "one('#access').click()"
    browser_until "text('.quotas tbody').includes('1.0 GiB of 4.0 GiB')"
    # A snapshot that a box needs stays, and the page says why.
    browser_js "row('one').querySelector('a').click()"
    browser_until "text('h1') === 'one' && control('Remove')"
    browser_js "press('Remove'); pressInDialog('Remove')"
    browser_until "text('dialog .problem').includes('has the snapshot')"
    [ -z "$(browser_errors)" ]
}
