#!/usr/bin/env bats
# A conversation with opencode on the status page, with a fake model in the box.
# early
# needs: image network

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/browser
load ../lib/coding

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
    browser_stop
    page_stop
    daemon_stop
    box_teardown
}

@test "a prompt is answered as it comes, with its tool call, and a long turn is aborted" {
    bellhop up --name main --provider "$TEST_PROVIDER" --agent opencode --agent-config "$BOX_TMP/config" \
        "$BOX_TMP/project" >/dev/null 2>&1
    remember_box main
    start_fake main
    browser_start
    browser_look 1600 900 light
    browser_open "$PAGE_URL/#/box/main/agent"
    browser_until "text('.panel').includes('The agent waits for you')"
    browser_js "type('[name=prompt]', 'please\\nRUN: echo from the page >made.txt'); press('Send')"
    browser_until "text('.messages').includes('RUN: echo from the page')"
    browser_until "text('.messages .tool').includes('✓')"
    browser_until "[...document.querySelectorAll('.message.assistant .text')].some(t => t.textContent.includes('DONE'))"
    browser_until "text('.panel').includes('The agent waits for you') && control('Abort').disabled"
    [ "$(bellhop exec -n main -- cat made.txt)" = 'from the page' ]
    [ -z "${SHOTS:-}" ] || browser_shot "$SHOTS/agent-1600-light.png"
    # Each message is there once.
    browser_is "document.querySelectorAll('.message.user').length === 1"
    browser_js "type('[name=prompt]', 'RUN: sleep 600'); press('Send')"
    browser_until "!control('Abort').disabled && [...document.querySelectorAll('.tool')].some(t => t.textContent.includes('running'))"
    browser_js "press('Abort')"
    browser_until "control('Abort').disabled && text('.panel').includes('The agent waits for you')"
    # Another view of the same conversation has the same messages.
    browser_open about:blank
    browser_open "$PAGE_URL/#/box/main/agent"
    browser_until "document.querySelectorAll('.message.user').length === 2"
    [ -z "${SHOTS:-}" ] || { browser_look 360 900 dark; browser_shot "$SHOTS/agent-360-dark.png"; }
    [ -z "$(browser_errors)" ]
}
