#!/usr/bin/env bats
# Pictures of each view of the status page, at 360 and 1600 pixels, light and dark, in build/shots, to be looked at; one
# of them, status-page.png, is the README's (`make page-shots` copies it to docs/images). In each, all text has a
# contrast of 4.5:1 or more and nothing is wider than the window.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/browser

setup_file()
{
    browser_start
    export SHOTS=$BATS_TEST_DIRNAME/../../build/shots
    mkdir -p "$SHOTS"
}

teardown_file()
{
    browser_stop
}

setup()
{
    box_setup
    mkdir -p "$BOX_TMP/shop/src"
    printf '# Shop\n\nA web shop, with its tests.\n' >"$BOX_TMP/shop/README.md"
    printf '{"name": "shop"}\n' >"$BOX_TMP/shop/package.json"
    printf 'export const price = n => n * 1.19;\n' >"$BOX_TMP/shop/src/price.js"
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

shots() # NAME: of what is shown now
{
    local width theme

    for width in 1600 360; do
        for theme in light dark; do
            browser_look "$width" 900 "$theme"
            browser_is "innerWidth === $width"
            browser_shot "$SHOTS/$1-$width-$theme.png"
            browser_is 'document.documentElement.scrollWidth <= innerWidth' || fail "$1 is wider than $width"
            [ "$(browser_js 'return faintTexts()')" = '[]' ] || fail "$1 $theme: $(browser_js 'return faintTexts()')"
        done
    done
}

box() # NAME OPTION...
{
    bellhop up --name "$1" "${@:2}" "$BOX_TMP/shop" >/dev/null 2>&1
    remember_box "$1"
}

@test "pictures of all views" {
    browser_reset
    browser_open "$PAGE_URL/"
    browser_until "text('#connection') === 'Live'"
    shots empty
    browser_js "press('New box')"
    browser_until "control('Make the box')"
    shots new-box
    browser_js "press('Cancel')"
    box fix-checkout --agent none --memory 2G --cpus 1 --label owner=ann --label ticket=1412
    box update-deps --agent none --memory 1G
    box review --agent none --memory 1G --label team=shop
    bellhop exec -d fix-checkout -- sh -c 'printf "> shop@1.0.0 test\n\033[32m14 passed\033[0m\n"; exec python3 -m http.server 8080' >/dev/null
    bellhop snapshot fix-checkout --name before-the-fix >/dev/null 2>&1
    bellhop pause update-deps
    bellhop stop review
    browser_until "row('review').textContent.includes('stopped')"
    shots start
    browser_js "row('fix-checkout').querySelector('a').click()"
    browser_until "text('.panel').includes('8080') && text('.now').includes('MiB of') && text('.panel').includes('before-the-fix')"
    shots overview
    browser_look 1280 1000 light
    browser_shot "$SHOTS/status-page.png"
    [ "$(stat -c %s "$SHOTS/status-page.png")" -lt 150000 ]
    browser_js "press('Remove…')"
    shots remove
    browser_js "press('Cancel'); press('Files')"
    browser_until "control('README.md')"
    shots files
    browser_js "press('README.md')"
    browser_until "one('.editor').value.includes('Shop')"
    bellhop exec fix-checkout -- sh -c 'echo more >>README.md'
    browser_js "type('.editor', '# My Shop'); press('Save')"
    browser_until "seen('.conflict')"
    shots conflict
    browser_js "press('Terminal')"
    browser_until "text('.panel').includes('Connected')"
    browser_type $'ls -l --color\n'
    browser_until "one('.xterm-rows').textContent.includes('package')"
    shots terminal
    browser_js "press('Agent')"
    shots agent
    browser_js "press('Logs')"
    browser_until "text('.log').includes('14 passed')"
    shots logs
    browser_js "press('Events')"
    browser_until "document.querySelectorAll('.panel tbody tr').length > 3"
    shots events
    bellhop quota set ann --boxes 5 --cpus 8 --memory 16G
    bellhop token create -q --scope use --owner ann --expires 30d --name ann-laptop >/dev/null
    bellhop token create -q --scope admin --name build-server >/dev/null
    browser_js "location.hash = '#/access'"
    browser_until "text('.calls tbody') && text('.quotas').includes('of 5') && text('.tokens').includes('build-server')"
    shots access
    browser_js "press('Verify'); one('.calls').scrollIntoView()"
    browser_until "text('.panel').includes('The chain is whole')"
    shots access-record
    browser_js "scrollTo(0, 0); press('New token…')"
    browser_until "control('Make the token')"
    shots new-token
    browser_js "type('dialog [name=name]', 'ci'); press('Make the token')"
    browser_until "one('[name=new-token]')"
    shots told-token
    browser_js "press('Done'); one('[aria-label=\"Revoke ci\"]').click()"
    browser_until "control('Revoke the token')"
    shots revoke
    browser_js "press('Cancel'); one('[aria-label=\"Change the quota of ann\"]').click()"
    browser_until "control('Set the quota')"
    shots quota
    browser_js "press('Cancel'); location.hash = '#/box/fix-checkout/events'"
    browser_until "text('h1') === 'fix-checkout'"
    browser_js "document.dispatchEvent(new CustomEvent('bellhop-token', {detail: 'the token has expired'}))"
    browser_until "one('[name=token]')"
    shots token
    browser_js "type('[name=token]', 'x'); press('Continue')"
    bellhop rm fix-checkout
    browser_until "text('main').includes('This box is gone')"
    shots gone
    daemon_stop
    browser_until "seen('#banner')"
    shots banner
}
