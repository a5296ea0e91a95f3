#!/usr/bin/env bats
# The status page's view of tokens, quotas and the record of calls, in Debian's Chromium. With the provider `process`.
# early

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/browser

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
    daemon_start --listen 127.0.0.1:0
    page_start
    URL=http://$(jq -r '.tcp[0]' <<<"$DAEMON_READY")
}

teardown()
{
    browser_leave
    page_stop
    daemon_stop
    box_teardown
}

make_box() # NAME [OPTION...]
{
    bellhop up --provider process --agent none --name "$1" "${@:2}" "$BOX_TMP/project" >/dev/null 2>&1
}

status_with() # TOKEN METHOD PATH
{
    curl -sS --max-time 20 -X "$2" -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $1" "$URL$3"
}

is_refused() # TOKEN
{
    [ "$(status_with "$1" GET /v1/boxes)" = 401 ]
}

# The text of the row of a table whose first cell has this text.
row_of() # TABLE TEXT
{
    echo "[...document.querySelectorAll('.$1 tbody tr')].find(r => r.cells[0].textContent.startsWith('$2')).textContent"
}

@test "an admin makes a token, which is shown once and copied, and revokes it after a question" {
    bellhop token create -q --scope read --name old --expires 1h >/dev/null
    browser_reset
    browser_command Browser.grantPermissions '{"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}' >/dev/null
    browser_open "$PAGE_URL/"
    browser_until "seen('#access') && text('#connection') === 'Live'"
    browser_js "one('#access').click()"
    browser_until "$(row_of tokens old).includes('read')"
    browser_is "document.title === 'Access – Bellhop' && $(row_of tokens old).includes('not yet')"
    # A name that is none is refused by the daemon's rules, before it is sent.
    browser_js "control('New token…').focus(); press('New token…'); type('dialog [name=name]', 'a b'); press('Make the token')"
    browser_is "one('dialog [name=name]').matches(':invalid') && !one('[name=new-token]')"
    # An admin has no owner: the daemon says so, in the dialog.
    browser_js "type('dialog [name=name]', 'new'); type('dialog [name=owner]', 'ann'); type('dialog [name=scope]', 'admin')
        press('Make the token')"
    browser_until "text('dialog .problem').includes('admin')"
    browser_js "type('dialog [name=scope]', 'use'); press('Make the token')"
    browser_until "one('[name=new-token]')"
    made=$(browser_js "return one('[name=new-token]').value" | jq -r .)
    [ "$(status_with "$made" GET /v1/boxes)" = 200 ]
    browser_js "one('.copy').focus()"
    browser_type $'\n'
    browser_until "text('.copy') === 'Copied'"
    [ "$(browser_js 'return navigator.clipboard.readText()' | jq -r .)" = "$made" ]
    browser_js "press('Done')"
    browser_until "$(row_of tokens new).includes('ann')"
    browser_is "!document.documentElement.outerHTML.includes('$made')"
    browser_until "document.activeElement.textContent === 'New token…'"
    bellhop token ls --json | jq -e '.tokens | map([.name, .scope, .owner, .expires_ms > 0]) ==
        [["old", "read", "", true], ["new", "use", "ann", true]]'
    # Another one, of the command line, comes by itself.
    bellhop token create -q --scope use --name later >/dev/null
    browser_until "$(row_of tokens later)"
    browser_js "one('[aria-label=\"Revoke new\"]').click()"
    browser_until "text('dialog').includes('cannot be undone')"
    browser_js "press('Cancel')"
    browser_until "!one('dialog')"
    [ "$(status_with "$made" GET /v1/boxes)" = 200 ]
    browser_js "one('[aria-label=\"Revoke new\"]').focus()"
    browser_type $'\n'
    browser_js "press('Revoke the token')"
    browser_until "!one('[aria-label=\"Revoke new\"]') && one('[aria-label=\"Revoke later\"]')"
    browser_until "document.activeElement.textContent === 'New token…'"
    is_refused "$made"
    [ -z "$(browser_errors)" ]
}

@test "a token that is no admin's is shown no access, asks for none, and gets it with an admin's token" {
    use=$(bellhop token create -q --scope use --name user)
    admin=$(bellhop token create -q --scope admin --name boss)
    make_box one
    browser_reset
    browser_open "$URL/#token=$use"
    browser_until "row('one') && text('#connection') === 'Live'"
    browser_is "!seen('#access')"
    browser_js "location.hash = '#/access'"
    browser_until "text('main').includes('takes a token with the scope admin') && text('main').includes('token is use')"
    browser_is "!one('.tokens')"
    browser_js "return performance.getEntriesByType('resource').map(r => new URL(r.name).pathname)" >"$BOX_TMP/asked"
    jq -e 'index("/v1/access") and all(test("^/v1/(tokens|quotas|audit)") | not)' "$BOX_TMP/asked"
    [ "$(status_with "$use" GET /v1/tokens)" = 403 ]
    # The same tab, with another token.
    bellhop token revoke user
    browser_until "one('[name=token]')"
    browser_js "type('[name=token]', '$admin'); press('Continue')"
    browser_until "$(row_of tokens boss).includes('of this page') && seen('#access')"
    # Its own token: the page asks for another one, and shows nothing with one that is not an admin's.
    browser_js "one('[aria-label=\"Revoke boss\"]').click()"
    browser_until "text('dialog').includes('This page uses it')"
    browser_js "press('Revoke the token')"
    browser_until "one('[name=token]') && !seen('.tokens')"
    read=$(bellhop token create -q --scope read --name reader)
    browser_js "type('[name=token]', '$read'); press('Continue')"
    browser_until "text('main').includes('token is read') && !one('.tokens') && !seen('#access')"
}

@test "the quota of an owner is set, shown with the use of its boxes as they come and go, and removed" {
    make_box one --label owner=ann
    browser_reset
    browser_open "$PAGE_URL/#/access"
    browser_until "$(row_of quotas ann)"
    browser_is "!$(row_of quotas ann).includes(' of ')"
    browser_js "one('[aria-label=\"Set the quota of ann\"]').click()"
    browser_is "control('Set the quota').disabled"
    browser_js "type('dialog [name=boxes]', '2'); press('Set the quota')"
    browser_until "$(row_of quotas ann).includes('1 of 2')"
    bellhop quota ls --json | jq -e '.quotas == [{owner: "ann", boxes: 2, cpu_millis: 0, memory_bytes: 0, disk_bytes: 0}]'
    make_box two --label owner=ann
    browser_until "$(row_of quotas ann).includes('2 of 2')"
    run ! make_box three --label owner=ann
    bellhop rm two
    browser_until "$(row_of quotas ann).includes('1 of 2')"
    # Changed: the form has the bounds in force.
    bellhop quota set ann --boxes 2 --memory 1536M
    browser_until "$(row_of quotas ann).includes('0 B of 1.5 GiB')"
    browser_js "one('[aria-label=\"Change the quota of ann\"]').click()"
    browser_is "one('dialog [name=boxes]').value === '2' && one('dialog [name=memory]').value === '1.5'"
    browser_js "type('dialog [name=boxes]', ''); type('dialog [name=cpus]', '2.5'); press('Set the quota')"
    browser_until "!one('dialog') && $(row_of quotas ann).includes('0 of 2.5')"
    bellhop quota ls --json | jq -e '.quotas == [{owner: "ann", boxes: 0, cpu_millis: 2500, memory_bytes: 1610612736, disk_bytes: 0}]'
    # Of an owner that has nothing yet.
    browser_js "press('Set a quota…'); type('dialog [name=owner]', 'bob'); type('dialog [name=disk]', '3'); press('Set the quota')"
    browser_until "$(row_of quotas bob).includes('0 B of 3.0 GiB')"
    browser_js "one('[aria-label=\"Remove the quota of bob\"]').click()"
    browser_until "text('dialog').includes('no longer bounded')"
    browser_js "press('Remove the quota')"
    browser_until "!one('[aria-label=\"Remove the quota of bob\"]')"
    bellhop quota ls --json | jq -e '.quotas | map(.owner) == ["ann"]'
    [ -z "$(browser_errors)" ]
}

@test "the newest calls are listed, and a record that was changed is found" {
    make_box one
    for _ in 1 2 3; do
        ask POST /v1/boxes/none/stop >/dev/null
    done
    browser_reset
    browser_open "$PAGE_URL/#/access"
    browser_until "$(row_of calls 'POST /v1/boxes/none/stop').includes('404')"
    browser_is "text('.calls tbody tr').includes('/v1/boxes/none/stop')"
    bellhop stop one
    browser_js "press('Read again')"
    browser_until "text('.calls tbody tr').includes('bellhop stop one')"
    n=$(bellhop audit ls --json | jq '.calls | length')
    browser_is "document.querySelectorAll('.calls tbody tr').length === $n"
    browser_js "press('Verify')"
    browser_until "text('.panel').includes('The chain is whole: $n calls.')"
    # The newest alone, however many there are.
    ask GET '/v1/audit?last=2' | jq -e --argjson n "$n" '(.calls | map(.seq)) == [$n - 1, $n] and .next_since == $n and .more == false'
    ask GET '/v1/audit?last=1001' | jq -e '.code == "invalid_argument" and .field == "last"'
    sed -i '2s/404/200/' "$BELLHOP_STATE_DIR/audit.jsonl"
    browser_js "press('Verify')"
    browser_until "text('.panel .problem').includes('chain is broken here')"
}

@test "owners and calls with markup in their names are shown as text, at 360 and 1600 pixels, with contrast, and nothing moves" {
    evil='<img src=x onerror="window.owned = 1"><script>window.owned = 1</script>'
    long=$(printf 'w%.0s' {1..300})
    make_box one --label "owner=$evil"
    make_box two --label "owner=$long"
    ask POST "/v1/boxes/%3Cimg%20src=x%20onerror=owned=1%3E$long/stop" >/dev/null
    bellhop token create -q --scope use --owner ann --name "$(printf 'n%.0s' {1..64})" >/dev/null
    bellhop quota set ann --boxes 5
    browser_reset
    for width in 360 1600; do
        for theme in light dark; do
            browser_look "$width" 900 "$theme"
            browser_open about:blank
            browser_open "$PAGE_URL/#/access"
            browser_until "text('.quotas').includes('<img src=x onerror=') && text('.calls').includes('<img src=x onerror=')"
            browser_js "window.shifts = []; new PerformanceObserver(l => shifts.push(...l.getEntries())).observe({type: 'layout-shift'})"
            browser_is "window.owned === undefined && document.images.length === 1 && document.scripts.length === 1"
            browser_is 'document.documentElement.scrollWidth <= innerWidth'
            browser_is "[...document.querySelectorAll('.panel button')].every(b => b.getBoundingClientRect().right <= innerWidth)"
            [ "$(browser_js 'return faintTexts()')" = '[]' ] || fail "faint: $(browser_js 'return faintTexts()')"
            browser_js "press('Verify')"
            browser_until "text('.panel').includes('The chain is whole')"
            browser_js "one('[aria-label^=\"Set the quota of <img\"]').click()"
            browser_until "text('dialog h2').includes('<script>')"
            browser_is "window.owned === undefined && document.images.length === 1 && document.scripts.length === 1"
            browser_is "one('dialog').getBoundingClientRect().right <= innerWidth && one('dialog').scrollWidth <= one('dialog').clientWidth"
            browser_js "press('Cancel')"
            browser_is 'shifts.reduce((sum, s) => sum + s.value, 0) < 0.001'
        done
    done
    [ -z "$(browser_errors)" ]
}
