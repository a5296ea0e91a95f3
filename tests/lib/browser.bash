# browser.bash: Debian's Chromium by its driver, to look at the daemon's page as a person does. Used by bats files, after
# box.bash and daemon.bash:
#
#   page_start                         a TCP address for the daemon's socket: $PAGE_URL
#   browser_start; browser_open URL
#   browser_js 'return document.title' prints the value as JSON; the functions of browser.js are there
#   browser_until 'CONDITION'          waits for it; browser_is 'CONDITION' looks once
#   browser_stop; page_stop            in the teardown

# A relay, as `ssh -L` is one: the page has the rights of the socket.
page_start()
{
    socat -d -d TCP-LISTEN:0,bind=127.0.0.1,fork,reuseaddr "UNIX-CONNECT:$DAEMON_SOCKET" 2>"$BOX_TMP/relay.log" &
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
    curl -sS --noproxy '*' --max-time 120 -X "$1" "http://127.0.0.1:$DRIVER_PORT$2" -o "$BOX_TMP/driver.json" \
        ${3:+-H 'Content-Type: application/json' --data-binary @-} <<<"${3:-}" || return 1
    jq -e '(.value | type) != "object" or (.value | has("error") | not)' "$BOX_TMP/driver.json" >/dev/null || {
        jq -r '.value.message' "$BOX_TMP/driver.json" | head -n 3 >&2
        return 1
    }
    jq -c .value "$BOX_TMP/driver.json"
}

browser_start()
{
    local options

    command -v chromium >/dev/null && command -v chromedriver >/dev/null || skip "chromium and chromium-driver are missing"
    HOME=$BOX_TMP chromedriver --port=0 >"$BOX_TMP/chromedriver.log" 2>&1 &
    DRIVER_PID=$!
    wait_for 20 grep -q 'started successfully on port' "$BOX_TMP/chromedriver.log" || {
        cat "$BOX_TMP/chromedriver.log" >&2
        return 1
    }
    DRIVER_PORT=$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' "$BOX_TMP/chromedriver.log")
    options=$(jq -n --arg dir "$BOX_TMP/chromium" '{capabilities: {alwaysMatch: {
        "goog:loggingPrefs": {browser: "ALL"}, "goog:chromeOptions": {args: ["--headless=new", "--no-sandbox",
        "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
        "--user-data-dir=\($dir)", "--window-size=1600,1000"]}}}}')
    DRIVER_SESSION=/session/$(driver POST /session "$options" | jq -r .sessionId)
}

browser_stop()
{
    [ -z "${DRIVER_SESSION:-}" ] || driver DELETE "$DRIVER_SESSION" >/dev/null || true
    DRIVER_SESSION=
    [ -z "${DRIVER_PID:-}" ] || kill "$DRIVER_PID" 2>/dev/null || true
    [ -z "${DRIVER_PID:-}" ] || wait "$DRIVER_PID" 2>/dev/null || true
    DRIVER_PID=
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

# The browser polls, for 28 seconds: a script has 30.
browser_until()
{
    [ "$(browser_js "return until(() => $1)")" = true ] && return 0
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
