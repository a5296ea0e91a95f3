# browser.bash: Debian's Chromium by its driver, to look at the daemon's page as a person does. Used by bats files, after
# box.bash and daemon.bash:
#
#   browser_start                      in setup_file: one browser serves the tests of a file; it downloads to
#                                      $BATS_FILE_TMPDIR
#   page_start                         a TCP address for the daemon's socket: $PAGE_URL
#   browser_reset; browser_open URL
#   browser_js 'return document.title' prints the value as JSON; the functions of browser.js are there
#   browser_until 'CONDITION'          waits for it; browser_is 'CONDITION' looks once
#   browser_leave; page_stop           in the teardown
#   browser_stop                       in teardown_file

# A relay, as `ssh -L` is one: the page has the rights of the socket. Tabs connect by six at once: with the default backlog
# of five, a relay that gets no processor drops handshakes, which are repeated only seconds later.
page_start()
{
    socat -d -d TCP-LISTEN:0,bind=127.0.0.1,fork,reuseaddr,backlog=128 "UNIX-CONNECT:$DAEMON_SOCKET" 2>"$BOX_TMP/relay.log" &
    PAGE_PID=$!
    wait_for 10 grep -q 'listening on' "$BOX_TMP/relay.log"
    PAGE_URL=http://127.0.0.1:$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' "$BOX_TMP/relay.log" | head -n 1)
}

# Its children end with their connections, whose other side is the browser.
page_stop()
{
    [ -z "${PAGE_PID:-}" ] || kill "$PAGE_PID" 2>/dev/null || true
    PAGE_PID=
}

# driver METHOD PATH [JSON]: a command of WebDriver; prints its value.
driver()
{
    curl -sS --noproxy '*' --max-time 120 -X "$1" "http://127.0.0.1:$DRIVER_PORT$2" \
        ${3:+-H 'Content-Type: application/json' --data-binary @-} <<<"${3:-}" |
        jq -c '.value | if type == "object" and has("error") then .message[:400] | halt_error(1) else . end'
}

# Without Chromium, DRIVER_SESSION is empty, and browser_reset skips the test.
browser_start()
{
    local options dir=$BATS_FILE_TMPDIR

    export DRIVER_PID="" DRIVER_PORT="" DRIVER_SESSION=""
    command -v chromium >/dev/null && command -v chromedriver >/dev/null || return 0
    mkdir -p "$dir/home"
    HOME=$dir/home chromedriver --port=0 >"$dir/chromedriver.log" 2>&1 3>&- &
    DRIVER_PID=$!
    wait_for 20 grep -q 'started successfully on port' "$dir/chromedriver.log" || {
        cat "$dir/chromedriver.log" >&2
        return 1
    }
    DRIVER_PORT=$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' "$dir/chromedriver.log")
    options=$(jq -n --arg dir "$dir/chromium" '{capabilities: {alwaysMatch: {
        "goog:loggingPrefs": {browser: "ALL"}, "goog:chromeOptions": {args: ["--headless=new", "--no-sandbox",
        "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
        "--disable-extensions", "--disable-component-update", "--mute-audio", "--force-color-profile=srgb",
        "--user-data-dir=\($dir)", "--window-size=1600,1000"]}}}}')
    DRIVER_SESSION=/session/$(driver POST /session "$options" | jq -r .sessionId)
    browser_command Browser.setDownloadBehavior \
        "$(jq -n --arg dir "$dir" '{behavior: "allow", downloadPath: $dir}')" >/dev/null
}

browser_stop()
{
    [ -n "${DRIVER_PID:-}" ] || return 0
    [ -z "${DRIVER_SESSION:-}" ] || driver DELETE "$DRIVER_SESSION" >/dev/null || true
    kill "$DRIVER_PID" 2>/dev/null || true
    DRIVER_PID=
}

# One empty tab, as a new browser has it.
browser_reset()
{
    local first other

    [ -n "${DRIVER_SESSION:-}" ] || skip "chromium and chromium-driver are missing"
    first=$(driver GET "$DRIVER_SESSION/window/handles" | jq -r '.[0]')
    for other in $(driver GET "$DRIVER_SESSION/window/handles" | jq -r '.[1:][]'); do
        browser_tab "$other"
        driver DELETE "$DRIVER_SESSION/window" >/dev/null
    done
    browser_tab "$first"
    browser_open about:blank
    browser_look 1600 1000 light
    browser_errors >/dev/null
}

# In the teardown: pages end with their daemon, and do not look for it again.
browser_leave()
{
    [ -z "${DRIVER_SESSION:-}" ] || browser_open about:blank || true
}

browser_tab() # HANDLE
{
    driver POST "$DRIVER_SESSION/window" "{\"handle\": \"$1\"}" >/dev/null
}

# browser_new_tab: prints its handle, and it is the current one.
browser_new_tab()
{
    local handle

    handle=$(driver POST "$DRIVER_SESSION/window/new" '{"type": "tab"}' | jq -r .handle)
    browser_tab "$handle"
    echo "$handle"
}

browser_open()
{
    driver POST "$DRIVER_SESSION/url" "$(jq -n --arg url "$1" '{url: $url}')" >/dev/null
}

# browser_js SCRIPT: `return` gives the value; a promise is waited for.
browser_js()
{
    driver POST "$DRIVER_SESSION/execute/sync" \
        "$(jq -n --rawfile tools "${BASH_SOURCE[0]%.bash}.js" --arg script "$1" '{script: ($tools + $script), args: []}')"
}

browser_is()
{
    [ "$(browser_js "return Boolean($1)")" = true ]
}

# The browser waits, for 20 seconds: a script has 30.
browser_until()
{
    for _ in 1 2 3; do
        [ "$(browser_js "return until(() => $1)")" = true ] && return 0
    done
    echo "the page never had: $1" >&2
    browser_js "return [location.hash, ...['#connection', 'main', 'dialog', '#notices'].map(s => text(s)?.slice(0, 600))]" >&2
    return 1
}

# browser_command NAME PARAMS: of the DevTools protocol.
browser_command()
{
    driver POST "$DRIVER_SESSION/goog/cdp/execute" \
        "$(jq -n --arg cmd "$1" --argjson params "$2" '{cmd: $cmd, params: $params}')"
}

# browser_look WIDTH HEIGHT light|dark
browser_look()
{
    browser_command Emulation.setDeviceMetricsOverride \
        "{\"width\": $1, \"height\": $2, \"deviceScaleFactor\": 1, \"mobile\": false}" >/dev/null
    browser_command Emulation.setEmulatedMedia \
        "{\"features\": [{\"name\": \"prefers-color-scheme\", \"value\": \"$3\"}]}" >/dev/null
}

browser_shot() # FILE
{
    driver GET "$DRIVER_SESSION/screenshot" | jq -r . | base64 -d >"$1"
}

# browser_type TEXT: to the element that has the focus. \n is Enter.
browser_type()
{
    local element

    element=$(driver GET "$DRIVER_SESSION/element/active" | jq -r '.[]')
    driver POST "$DRIVER_SESSION/element/$element/value" "$(jq -n --arg text "$1" '{text: $text}')" >/dev/null
}

# The errors on the page's console, such as a style that its policy refused. Answers that are errors are the page's
# to show.
browser_errors()
{
    driver POST "$DRIVER_SESSION/se/log" '{"type": "browser"}' |
        jq -r '.[] | select(.level == "SEVERE" and .source != "network") | .message'
}
