# Commands that take several names: one that fails does not keep the others from being done.

load ../lib/box
bats_require_minimum_version 1.5.0

setup()
{
    box_setup
    for name in one two; do
        bellhop up --name "$name" --provider process --agent none --empty >/dev/null 2>&1
    done
}
teardown() { box_teardown; }

states() { bellhop ls --json | jq -c '[.boxes[] | [.name, .state]] | sort'; }

@test "rm, stop and start go on after a name that fails, print each error and exit with the first one's status" {
    run --separate-stderr -3 bellhop stop absent one UPPER two
    [ "$output" = "one: stopped"$'\n'"two: stopped" ] || fail "$output"
    grep -q "^bellhop: absent: " <<<"$stderr"
    grep -q "^bellhop: UPPER: " <<<"$stderr"
    [ "$(states)" = '[["one","stopped"],["two","stopped"]]' ]
    run -3 bellhop start absent one two
    [ "$(states)" = '[["one","running"],["two","running"]]' ]
    run -3 bellhop pause absent one two
    [ "$(states)" = '[["one","paused"],["two","paused"]]' ]
    run -3 bellhop resume absent one two
    [ "$(states)" = '[["one","running"],["two","running"]]' ]
    run -3 bellhop rm absent one two
    [ "$(states)" = '[]' ]
}

@test "with --json there is one document with what was done and each error by its name" {
    run --separate-stderr -3 bellhop rm --json absent one gone two
    [ -z "$stderr" ]
    jq -es 'length == 1 and (.[0] | (.boxes | map(.name)) == ["one", "two"] and .error.code == "not_found"
        and (.errors | map([.name, .code])) == [["absent", "not_found"], ["gone", "not_found"]])' <<<"$output"
    # A name that is alone has the error of any command.
    run --separate-stderr -3 bellhop rm --json absent
    jq -es 'length == 1 and (.[0] | keys == ["error"] and .error.code == "not_found")' <<<"$output"
    run -0 bellhop rm --json -f absent one
    jq -es '. == [{"boxes": []}]' <<<"$output"
}

@test "kill and snapshots rm and verify go on, too" {
    bellhop exec -d --id long one -- sleep 1000 >/dev/null
    run --separate-stderr -3 bellhop kill --json one absent long
    jq -es 'length == 1 and (.[0] | .signaled == 1 and (.errors | map(.name)) == ["absent"])' <<<"$output"
    bellhop wait one long || true
    for verb in rm verify; do
        run -3 bellhop snapshots "$verb" absent gone
        grep -q "^bellhop: absent: " <<<"$output"
        grep -q "^bellhop: gone: " <<<"$output"
    done
}
