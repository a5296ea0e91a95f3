#!/usr/bin/env bats
# The status page in Debian's Chromium, as a person uses it. With the provider `process`.
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

make_box() # NAME
{
    bellhop up --provider process --agent none --name "$1" "$BOX_TMP/project" >/dev/null 2>&1
}

row_says() # NAME TEXT
{
    browser_until "row('$1').textContent.includes('$2')"
}

is_live()
{
    browser_until "text('#connection') === 'Live'"
}

@test "the page's files have a tag, a policy without inline script, and nothing else is served" {
    ask GET / >"$BOX_TMP/page"
    [ "$ASK_STATUS" = 200 ]
    grep -qi '^content-type: text/html' "$BOX_TMP/headers"
    grep -qi "^content-security-policy: .*script-src 'self';" "$BOX_TMP/headers"
    grep -qi '^x-content-type-options: nosniff' "$BOX_TMP/headers"
    grep -qi '^referrer-policy: no-referrer' "$BOX_TMP/headers"
    run -1 grep -Eq '<script[^>]*>[^<]|<style|javascript:| on[a-z]+=' "$BOX_TMP/page"
    etag=$(sed -n 's/^etag: \(.*\)\r$/\1/Ip' "$BOX_TMP/headers")
    ask GET / -H "If-None-Match: $etag" >"$BOX_TMP/same"
    [ "$ASK_STATUS" = 304 ]
    # Each file that a page or a module names is there.
    for name in $(grep -Eoh '/page/[a-z.-]+' "$BOX_TMP/page" | sort -u); do
        ask GET "$name" >/dev/null
        [ "$ASK_STATUS" = 200 ]
    done
    ask GET /page/none.js >/dev/null
    [ "$ASK_STATUS" = 404 ]
    ask GET /page/..%2f..%2fetc%2fpasswd >/dev/null
    [ "$ASK_STATUS" = 404 ]
}

@test "the page of another origin may not call the daemon" {
    ask POST /v1/boxes/x/stop -H 'Host: localhost' -H 'Origin: http://evil.example' >"$BOX_TMP/e"
    [ "$ASK_STATUS" = 403 ]
    jq -e '.code == "permission_denied"' "$BOX_TMP/e"
    ask POST /v1/boxes/x/stop -H 'Host: localhost' -H 'Sec-Fetch-Site: cross-site' >"$BOX_TMP/e"
    [ "$ASK_STATUS" = 403 ]
    ask POST /v1/boxes/x/stop -H 'Host: localhost' -H 'Origin: http://localhost' -H 'Sec-Fetch-Site: same-origin'
    [ "$ASK_STATUS" = 404 ]
}

@test "a box made on the command line appears, pauses, resumes and disappears without a reload" {
    browser_reset
    browser_open "$PAGE_URL/"
    is_live
    browser_is "text('main').includes('No boxes yet')"
    browser_js 'window.mark = 1'
    make_box one
    row_says one running
    # It is shown from the list, by keyboard.
    browser_js "one('#boxes a').focus(); one('#boxes a').click()"
    browser_until "text('h1') === 'one' && text('.head .state') === 'running'"
    browser_is "text('.panel').includes('Processors')"
    bellhop pause one
    row_says one paused
    browser_until "text('.head .state') === 'paused' && seen('.actions') && control('Resume') && !control('Pause')"
    # The page does it too; the command sees it.
    browser_js "press('Resume')"
    row_says one running
    [ "$(bellhop status one --json | jq -r .state)" = running ]
    browser_js "press('Stop')"
    row_says one stopped
    browser_js "press('Start')"
    row_says one running
    # A removal wants the name.
    browser_js "press('Remove…')"
    browser_is "control('Remove the box').disabled"
    browser_js "type('dialog input', 'two')"
    browser_is "control('Remove the box').disabled"
    browser_js "type('dialog input', 'one'); press('Remove the box')"
    browser_until "!row('one')"
    browser_until "text('main').includes('This box is gone')"
    [ -z "$(bellhop ls -q)" ]
    browser_is 'window.mark === 1'
    [ -z "$(browser_errors)" ]
}

@test "nothing moves while boxes change their states, at 360 and at 1600 pixels, and all text has contrast in both themes" {
    make_box one
    make_box two
    browser_reset
    for width in 360 1600; do
        browser_look "$width" 900 "$([ "$width" = 360 ] && echo dark || echo light)"
        browser_open "$PAGE_URL/#/box/one"
        browser_until "text('h1') === 'one' && text('.panel').includes('Processors')"
        browser_js "window.shifts = []; new PerformanceObserver(l => shifts.push(...l.getEntries())).observe({type: 'layout-shift'})"
        # Nothing is wider than the window.
        browser_is 'document.documentElement.scrollWidth <= innerWidth'
        bellhop pause one
        browser_until "text('.head .state') === 'paused'"
        bellhop resume one
        browser_until "text('.head .state') === 'running'"
        [ "$(browser_js 'return faintTexts()')" = '[]' ] || fail "faint: $(browser_js 'return faintTexts()')"
        browser_js 'return shifts.map(s => s.sources.map(n => n.node && (n.node.outerHTML || n.node.data).slice(0, 80)))'
        browser_is 'shifts.reduce((sum, s) => sum + s.value, 0) < 0.001'
    done
}

@test "a file is edited with its tag: one that changed in the box meanwhile is not overwritten" {
    echo first >"$BOX_TMP/project/notes.txt"
    make_box one
    file=$(bellhop status one --json | jq -r .workdir)/notes.txt
    browser_reset
    browser_open "$PAGE_URL/#/box/one/files"
    browser_until "control('notes.txt')"
    browser_js "press('notes.txt')"
    browser_until "one('.editor') && one('.editor').value === 'first\\n'"
    browser_is "control('Save').disabled"
    browser_js "type('.editor', 'second ü\\n'); press('Save')"
    wait_for 20 grep -q 'second ü' "$file"
    browser_until "text('.panel').includes('As in the box') && control('Save').disabled"
    # Another program writes; then the page does.
    echo other >"$file"
    browser_js "type('.editor', 'third\\n'); press('Save')"
    browser_until "seen('.conflict') && text('.conflict').includes('Nothing was overwritten')"
    [ "$(cat "$file")" = other ]
    browser_is "one('.editor').value === 'third\\n' && !control('Save').disabled"
    browser_js "press('Load the file as it is in the box')"
    browser_until "one('.editor').value === 'other\\n' && !seen('.conflict')"
    browser_js "type('.editor', 'fourth\\n'); press('Save')"
    wait_for 20 grep -q fourth "$file"
    # One that was removed is not made again.
    rm "$file"
    browser_js "type('.editor', 'fifth\\n'); press('Save')"
    browser_until "seen('.conflict') && text('.conflict').includes('was removed')"
    [ ! -e "$file" ]
    [ -z "$(browser_errors)" ]
}

@test "where no terminal opens, single commands run" {
    make_box one
    browser_reset
    browser_open "$PAGE_URL/#/box/one"
    browser_until "text('h1') === 'one'"
    browser_js "window.WebSocket = class extends EventTarget {
        constructor() { super(); setTimeout(() => this.dispatchEvent(new CloseEvent('close'))); }
        close() {}
    }; press('Terminal')"
    browser_until "one('[name=command]')"
    browser_type $'echo $((6 * 7)); exit 3\n'
    browser_until "text('.log').includes('42') && text('.log').includes('[exited 3]')"
}

@test "the terminal runs vim, follows the size of the window, and says how the shell ended" {
    command -v vim >/dev/null || skip "vim is missing"
    make_box one
    file=$(bellhop status one --json | jq -r .workdir)/written.txt
    browser_reset
    browser_look 1600 900 dark
    browser_open "$PAGE_URL/#/box/one/terminal"
    browser_until "text('.panel').includes('Connected')"
    browser_until "one('.xterm-rows').textContent.trim()"
    browser_look 1600 900 light
    browser_until "getComputedStyle(one('.xterm-scrollable-element')).backgroundColor === 'rgb(255, 255, 255)'"
    browser_type $'vim -u NONE written.txt\n'
    browser_until "one('.xterm-rows').textContent.includes('[New')"
    browser_type $'iwritten in vim \u00fc\ue00c:wq\n'
    wait_for 20 grep -q 'written in vim ü' "$file"
    browser_type $'stty size >size.txt\n'
    wait_for 20 test -s "${file%/*}/size.txt"
    browser_look 900 600 dark
    browser_until "document.documentElement.clientWidth < 900"
    browser_type $'stty size >small.txt\n'
    wait_for 20 test -s "${file%/*}/small.txt"
    [ "$(cut -d ' ' -f 2 "${file%/*}/small.txt")" -lt "$(cut -d ' ' -f 2 "${file%/*}/size.txt")" ]
    browser_type $'\ue008\ue036'
    browser_is "document.activeElement.textContent === 'Terminal'"
    browser_js "one('.xterm-helper-textarea').focus()"
    browser_type $'exit 4\n'
    browser_until "text('.panel').includes('ended, with status 4') && control('Connect again')"
    browser_js "press('Connect again')"
    browser_until "text('.panel').includes('Connected')"
    [ -z "$(browser_errors)" ]
}

tabs_are() # N
{
    [ "$(driver GET "$DRIVER_SESSION/window/handles" | jq length)" = "$1" ]
}

@test "with a token in the address the page works over TCP, keeps it out of the address, and asks where there is none" {
    daemon_stop
    daemon_start --listen 127.0.0.1:0
    make_box one
    url=$(jq -r '.tcp[0] | if startswith("http") then . else "http://" + . end' <<<"$DAEMON_READY")
    token=$(bellhop token create --scope admin --name page --json | jq -r .token)
    browser_reset
    browser_open "$url/"
    browser_until "text('main').includes('A token is needed')"
    browser_js "type('[name=token]', 'wrong'); press('Continue')"
    browser_until "text('main').includes('A token is needed') && text('#connection') === 'Token needed'"
    browser_open about:blank
    browser_open "$url/#token=$token"
    row_says one running
    browser_is "!location.href.includes('$token') && sessionStorage.length === 1"
    bellhop pause one
    row_says one paused
    browser_js "location.hash = '#/box/' + row('one').dataset.id + '/files'"
    browser_until "one('.files tbody')"
    browser_js "press('Terminal')"
    browser_until "text('.panel').includes('Connected')"
    # A port's link leads through the gateway by a signature; the URL of one that is open to everybody needs none.
    port=$(free_port)
    echo 'hello from the box' >"$(bellhop status one --json | jq -r .workdir)/index.html"
    bellhop exec -d one -- python3 -m http.server "$port" --bind 127.0.0.1 >/dev/null
    browser_js "press('Overview')"
    browser_until "one('[aria-label=\"Share port $port\"]')" # it comes when the server listens
    browser_js "[...document.querySelectorAll('.late li a')].find(a => a.textContent.startsWith('$port')).click()"
    wait_for 20 tabs_are 2
    page=$(driver GET "$DRIVER_SESSION/window" | jq -r .)
    browser_tab "$(driver GET "$DRIVER_SESSION/window/handles" | jq -r --arg page "$page" '.[] | select(. != $page)')"
    browser_until "document.body.textContent.includes('hello from the box')"
    browser_tab "$page"
    browser_js "one('[aria-label=\"Share port $port\"]').click(); type('[name=time]', '0'); press('Make the URL')"
    browser_until "one('[name=url]')"
    url=$(browser_js "return one('[name=url]').value" | jq -r .)
    curl -sS "${url/$port-*.localhost/127.0.0.1}" -H "Host: $(sed 's|.*//||; s|/.*||' <<<"$url")" | grep -q 'hello from the box'
    browser_js "press('Done')"
    browser_until "text('.late:last-child').includes('open to everybody')"
    browser_js "one('[aria-label=\"Close port $port\"]').click()"
    browser_until "one('[aria-label=\"Share port $port\"]')"
    [ "$(ask GET /v1/boxes/one/public)" = '{"ports":[]}' ]
    # A token that ends takes nothing away from what is being written.
    browser_js "press('Files')"
    browser_until "control('index.html')"
    browser_js "press('index.html')"
    browser_until "one('.editor') && one('.editor').value.includes('hello')"
    browser_js "type('.editor', 'written before the token ended')"
    bellhop token revoke page
    browser_until "text('main').includes('A token is needed') && !seen('.editor')"
    token=$(bellhop token create --scope admin --name again --json | jq -r .token)
    browser_js "type('[name=token]', '$token'); press('Continue')"
    browser_until "seen('.editor') && text('#connection') === 'Live'"
    browser_js "press('Save')"
    wait_for 20 grep -q 'before the token ended' "$(bellhop status one --json | jq -r .workdir)/index.html"
    [ -z "$(browser_errors)" ]
}

@test "a filter and the arrow keys find a box among several; its events are there from its beginning, and go on" {
    make_box alpha
    make_box beta
    browser_reset
    browser_open "$PAGE_URL/"
    row_says beta running
    browser_js "type('#filter', 'bet')"
    browser_is "text('#count') === '1 of 2 boxes' && control('beta') === undefined"
    browser_js "type('#filter', ''); one('#filter').focus()"
    browser_type $'\ue015'
    browser_is "document.activeElement.textContent.startsWith('alpha')"
    browser_type $'\ue015'
    browser_is "document.activeElement.textContent.startsWith('beta')"
    browser_type $'\n'
    browser_until "text('h1') === 'beta'"
    browser_js "press('Events')"
    browser_until "text('.panel').includes('running')"
    bellhop stop beta
    browser_until "text('.panel tbody tr').includes('stopped')"
    # Oldest last, and each once.
    browser_is "text('.panel tbody tr:last-child').includes('requested')"
    n=$(ask GET "/v1/boxes/beta/history" | jq '.events | length')
    browser_until "document.querySelectorAll('.panel tbody tr').length === $n"
}

@test "the page works again by itself after the daemon restarts, says so meanwhile, and keeps a text that is written" {
    make_box one
    file=$(bellhop status one --json | jq -r .workdir)/notes.txt
    echo first >"$file"
    browser_reset
    browser_open "$PAGE_URL/#/box/one/files"
    browser_until "control('notes.txt')"
    browser_js "window.mark = 1; press('notes.txt')"
    browser_until "one('.editor') && one('.editor').value === 'first\\n'"
    browser_js "type('.editor', 'second\\n')"
    daemon_stop
    browser_until "text('#connection') === 'Reconnecting…' && seen('#banner') && text('#banner').includes('does not answer')"
    make_box late
    daemon_start
    row_says late running
    is_live
    browser_is "!seen('#banner')"
    browser_js "press('Save')"
    wait_for 20 grep -q second "$file"
    bellhop stop late
    row_says late stopped
    browser_is 'window.mark === 1'
}

streams_are() # N
{
    [ "$(ask GET /metrics | sed -n 's/^bellhop_event_streams //p')" = "$1" ]
}

@test "hidden tabs and pages kept for the way back have no streams: eight tabs work side by side" {
    make_box one
    browser_reset
    first=$(driver GET "$DRIVER_SESSION/window" | jq -r .)
    browser_open "$PAGE_URL/#/box/one/events"
    for _ in 1 2 3 4 5 6 7; do
        is_live
        browser_until "text('.panel').includes('running')"
        browser_new_tab >/dev/null
        browser_open "$PAGE_URL/#/box/one/events"
    done
    is_live
    wait_for 20 streams_are 1
    bellhop stop one
    row_says one stopped
    browser_tab "$first"
    row_says one stopped
    browser_until "text('.panel tbody tr').includes('stopped')"
    wait_for 20 streams_are 1
    browser_open about:blank
    wait_for 20 streams_are 0
    driver POST "$DRIVER_SESSION/back" '{}' >/dev/null
    # A page that was kept says "Live" as it did before: the daemon knows whether it is.
    wait_for 20 streams_are 1
    is_live
    bellhop start one
    row_says one running
}

@test "seven windows side by side work: four have a stream, the others ask, and one takes the place of a closed one" {
    make_box one
    browser_reset
    first=$(driver GET "$DRIVER_SESSION/window" | jq -r .)
    for i in 1 2 3 4 5 6 7; do
        [ "$i" = 1 ] || browser_tab "$(driver POST "$DRIVER_SESSION/window/new" '{"type": "window"}' | jq -r .handle)"
        browser_open "$PAGE_URL/#/box/one/events"
        browser_until "text('#connection') === (${i} > 4 ? 'Every 5 s' : 'Live') && text('.panel').includes('running')"
        browser_is "document.visibilityState === 'visible'"
    done
    streams_are 4
    bellhop stop one
    row_says one stopped
    browser_until "text('.panel tbody tr').includes('stopped')"
    last=$(driver GET "$DRIVER_SESSION/window" | jq -r .)
    browser_tab "$first"
    row_says one stopped
    # The first one stays: the browser's downloads are set up for it.
    for handle in $(driver GET "$DRIVER_SESSION/window/handles" | jq -r --arg first "$first" --arg last "$last" \
        '.[] | select(. != $first and . != $last)'); do
        browser_tab "$handle"
        driver DELETE "$DRIVER_SESSION/window" >/dev/null
    done
    browser_tab "$last"
    is_live
    wait_for 20 streams_are 2
    [ -z "$(browser_errors)" ]
}

@test "a name, a label, a file or a log is shown as text, whatever is in it, and nothing grows wider than the window" {
    evil='<img src=x onerror="window.owned = 1"><script>window.owned = 1</script>'
    long=$(printf 'w%.0s' {1..200})
    rtl=$(printf '\u202egpj.exe')
    bellhop up --provider process --agent none --name one --label "evil=$evil" --label "long=$long" \
        "$BOX_TMP/project" >/dev/null 2>&1
    dir=$(bellhop status one --json | jq -r .workdir)
    printf '%s' "$evil" >"$dir/<img src=x onerror=owned=1>"
    touch "$dir/$rtl" "$dir/$long" "$dir"/$'new\nline' "$dir"/$'not\377text'
    bellhop exec -d one -- sh -c 'printf "%s\n\033[31mred\033[0m\033]0;title\007\n%s\n" "$0" "$1"; exec sleep 600' \
        "$evil" "$long$long$long" >/dev/null
    browser_reset
    browser_look 360 800 light
    browser_open "$PAGE_URL/#/box/one"
    browser_until "text('.panel').includes('<script>window.owned')"
    is_harmless
    browser_js "press('Files')"
    browser_until "control('<img src=x onerror=owned=1>')"
    browser_is "text('.files').includes('$rtl') && text('.files').includes('(a name that is not UTF-8)')"
    is_harmless
    browser_js "press('<img src=x onerror=owned=1>')"
    browser_until "one('.editor') && one('.editor').value.includes('window.owned')"
    is_harmless
    browser_js "press('Logs')"
    browser_until "text('.log').includes('onerror') && text('.log').includes('\\nred\\n')"
    is_harmless
    browser_js "press('Events')"
    browser_until "text('.panel').includes('running')"
    is_harmless
    [ -z "$(browser_errors)" ]
}

is_harmless()
{
    browser_is "window.owned === undefined && document.images.length === 1 && document.scripts.length === 1"
    browser_is 'document.documentElement.scrollWidth <= innerWidth'
}

@test "files are uploaded by drop, replace one that is there only if the person says so, and go away as an archive" {
    echo old >"$BOX_TMP/project/there.txt"
    make_box one
    dir=$(bellhop status one --json | jq -r .workdir)
    browser_reset
    browser_open "$PAGE_URL/#/box/one/files"
    browser_until "control('there.txt')"
    browser_js "const data = new DataTransfer();
        for (const name of ['new file ü.bin', 'there.txt'])
            data.items.add(new File([new Uint8Array([0, 255, 10])], name));
        one('.dropzone').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))"
    browser_until "text('dialog').includes('Replace there.txt?')"
    [ "$(cat "$dir/there.txt")" = old ]
    printf '\0\377\n' >"$BOX_TMP/bytes"
    cmp "$BOX_TMP/bytes" "$dir/new file ü.bin"
    browser_js "press('Replace')"
    wait_for 20 cmp -s "$BOX_TMP/bytes" "$dir/there.txt"
    browser_until "control('new file ü.bin')"
    browser_js "press('Download')"
    wait_for 20 test -s "$BATS_FILE_TMPDIR/${dir##*/}.tar.gz"
    tar xzOf "$BATS_FILE_TMPDIR/${dir##*/}.tar.gz" --wildcards '*there.txt' | cmp - "$BOX_TMP/bytes"
    # Not text: it is not opened as if it were.
    browser_js "press('there.txt')"
    browser_until "text('.panel').includes('This is not text')"
}

# Presses Tab until the button or link of this text has the focus: there, further ones do nothing.
tab_to() # TEXT
{
    browser_js "window.stopAt = '$1'; window.stops ||= !document.addEventListener('keydown', e => {
        if (e.key === 'Tab' && document.activeElement.textContent === window.stopAt)
            e.preventDefault();
    }, true)" >/dev/null
    browser_type "$(printf '\ue004%.0s' {1..40})"
    browser_is "document.activeElement.textContent === '$1'" || fail "Tab does not come to '$1'"
}

@test "a box is made, paused and removed by keyboard alone" {
    browser_reset
    browser_open "$PAGE_URL/"
    is_live
    tab_to 'New box'
    browser_type $'\n'
    browser_until "control('Make the box') && document.activeElement.name === 'name'"
    browser_type 'Not A Name!'
    browser_type $'\ue004'
    browser_type $'\ue004'
    browser_type $'\ue004'
    browser_type 'proc'
    browser_is "document.activeElement.value === 'process'"
    browser_type $'\n'
    browser_js "one('dialog [name=name]').select(); one('dialog [name=name]').focus()"
    browser_type $'\n'
    browser_until "text('dialog .problem').length > 10 && !control('Make the box').disabled"
    browser_type $'made\n'
    row_says made running
    browser_until "text('h1') === 'made' && !one('dialog')"
    [ "$(bellhop ls -q)" = made ]
    browser_until "!control('Pause').disabled"
    tab_to Pause
    browser_type $'\n'
    row_says made paused
    # The focus is where the button was, or at the one in its place.
    tab_to Remove…
    browser_type $'\n'
    browser_until "one('dialog')"
    browser_type $'made\n'
    browser_until "!row('made') && text('main').includes('This box is gone')"
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(browser_errors)" ]
}
