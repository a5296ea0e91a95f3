# Configuration files: the order of the sources, errors, `bellhop config`, and what a box remembers of them.
# needs: image

load ../lib/box

setup()
{
    bats_require_minimum_version 1.5.0
    box_setup
    mkdir -p "$HOME/.config/bellhop" "$BOX_TMP/etc/bellhop"
    USER_FILE=$HOME/.config/bellhop/config.toml
    SYSTEM_FILE=$BOX_TMP/etc/bellhop/config.toml
    unset BELLHOP_IMAGE
}
teardown() { box_teardown; }

# As bellhop, where /etc/bellhop/config.toml is $SYSTEM_FILE. The machine's own /etc is not changed.
bellhop_of_system()
{
    # shellcheck disable=SC2016 # the inner shell's
    unshare -m sh -c 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc && exec "$@"' "$BOX_TMP/etc" "$BELLHOP" "$@"
}

# The value and the source of a key.
config_of() { "${2:-bellhop}" config "$1" --json | jq -r '"\(.value) \(.source)"'; }

# wants STATUS MESSAGE COMMAND...: the command fails so, with exactly that message.
wants()
{
    local want_status=$1 want=$2 status=0
    shift 2
    "$@" >"$BOX_TMP/out" 2>"$BOX_TMP/err" || status=$?
    [ "$status" -eq "$want_status" ] || fail "status $status: $(cat "$BOX_TMP/err")"
    [ "$(grep '^bellhop: ' "$BOX_TMP/err" | tail -n 1)" = "bellhop: $want" ] || fail "$(cat "$BOX_TMP/err")"
}

up_of_system() { bellhop_of_system up --agent none --empty "$@"; }

@test "a flag beats the environment, that the user's file, that the system's file, that the built-in value" {
    # Settings, by `config`.
    [ "$(config_of answer-timeout)" = "30s built-in" ]
    echo 'answer-timeout = "40s"' >"$SYSTEM_FILE"
    [ "$(config_of answer-timeout bellhop_of_system)" = "40s /etc/bellhop/config.toml:1" ]
    printf '# mine\nanswer-timeout = "50s"\n' >"$USER_FILE"
    [ "$(config_of answer-timeout bellhop_of_system)" = "50s $USER_FILE:2" ]
    [ "$(BELLHOP_ANSWER_TIMEOUT=60s config_of answer-timeout bellhop_of_system)" = "60s env BELLHOP_ANSWER_TIMEOUT" ]
    # An option, by what `up` looks for.
    printf '[up]\nimage = "/of/system"\n' >"$SYSTEM_FILE"
    rm "$USER_FILE"
    wants 3 "/etc/bellhop/config.toml:2: image '/of/system': no such file or directory" up_of_system
    printf '[up]\n\nimage = "/of/user"\n' >"$USER_FILE"
    wants 3 "$USER_FILE:3: image '/of/user': no such file or directory" up_of_system
    export BELLHOP_IMAGE=/of/env
    wants 3 "image '/of/env': no such file or directory" up_of_system
    wants 3 "image '/of/flag': no such file or directory" up_of_system --image /of/flag
    # A flag that the file sets can be unset, and one that the user's file unsets stays so.
    printf 'quiet = true\n' >"$SYSTEM_FILE"
    printf '\n' >"$USER_FILE"
    [ "$(config_of quiet bellhop_of_system)" = "true /etc/bellhop/config.toml:1" ]
    # Another test may have things on this machine that no store knows: gc reports them.
    [ -z "$(bellhop_of_system gc | grep -v '^not ours, kept: ')" ]
    [ -n "$(bellhop_of_system gc --quiet=false)" ]
    printf 'quiet = false\n' >"$USER_FILE"
    [ -n "$(bellhop_of_system gc)" ]
}

@test "state-dir and cache-dir of a file are used, and config shows the paths in force" {
    [ "$(config_of state-dir)" = "$BELLHOP_STATE_DIR env BELLHOP_STATE_DIR" ]
    printf 'state-dir = "%s/s"\ncache-dir = "%s/c"\n' "$BOX_TMP" "$BOX_TMP" >"$USER_FILE"
    (
        unset BELLHOP_STATE_DIR BELLHOP_CACHE_DIR
        [ "$(config_of state-dir)" = "$BOX_TMP/s $USER_FILE:1" ]
        [ "$(config_of cache-dir)" = "$BOX_TMP/c $USER_FILE:2" ]
        [ ! -e "$BOX_TMP/s" ]
        bellhop ls >/dev/null
        [ -e "$BOX_TMP/s/store.db" ]
        [ -d "$BOX_TMP/c" ]
        rm "$USER_FILE"
        [ "$(config_of state-dir)" = "$HOME/.local/state/bellhop built-in" ]
    )
}

@test "exec.timeout limits every exec, a flag beats it, and without it a command has no limit" {
    [ "$(config_of exec.timeout)" = "null built-in" ]
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
    [ "$(bellhop exec one --id free --json -- true | jq .exit.code)" -eq 0 ]
    bellhop exec one --id long -d -- sleep 1000 >/dev/null
    deadline=$(bellhop status one --json | jq .deadline_ms)
    [ $((deadline - $(date +%s%3N))) -le 600000 ] # nothing was extended for it
    printf '[exec]\ntimeout = "1s"\n' >"$USER_FILE"
    [ "$(config_of exec.timeout)" = "1s $USER_FILE:2" ]
    run -124 bellhop exec one -- sleep 1000
    bellhop exec one -d --id short -- sleep 1000 >/dev/null
    run -124 bellhop wait one short
    [ "$(bellhop exec one --timeout 10m -- sh -c 'sleep 1.5; echo done')" = done ]
    bellhop kill one long >/dev/null
}

# page_keys SECTION: the keys that a section of bellhop.toml(5) explains.
page_keys()
{
    sed -n "/^\.SH $1/,/^\.SH EXAMPLES/p" "$BATS_TEST_DIRNAME/../../docs/man/bellhop.toml.5" |
        awk '/^\.SH/ && n++ { exit } { print }' | sed -n '/^\.TP/ { n; s/^\.B //p }' |
        sed 's/\\fR, \\fB/\n/g; s/\\//g' | LC_ALL=C sort
}

@test "every long option of every command is a key" {
    bellhop config --all --json | jq -r '.values[].key' | LC_ALL=C sort >"$BOX_TMP/keys"
    n=0
    for command in $(bellhop help | sed -n 's/^  \([a-z][a-z-]\{1,\}\)  .*/\1/p' | sort -u); do
        case $command in help | version | completion | config) continue ;; esac
        for option in $(bellhop help "$command" | sed -n '/^Options:/,/^For every/s/^  ...[ ]*--\([a-z0-9-]*\).*/\1/p'); do
            grep -qx "$command.$option" "$BOX_TMP/keys" || fail "no key: $command.$option"
            n=$((n + 1))
        done
    done
    [ "$n" -eq "$(grep '\.' "$BOX_TMP/keys" | grep -vc '^limits\.')" ]
    [ "$n" -gt 80 ]
    # The settings and the limits are those of bellhop.toml(5).
    grep -v '\.' "$BOX_TMP/keys" | diff - <(page_keys SETTINGS)
    sed -n 's/^limits\.//p' "$BOX_TMP/keys" | diff - <(page_keys LIMITS)
}

@test "a wrong file is refused by file, line and key, and config shows it" {
    while IFS='|' read -r text message; do
        # shellcheck disable=SC2059 # it is a format
        printf "$text" >"$USER_FILE"
        wants 2 "$USER_FILE:$message" bellhop ls
        wants 2 "$USER_FILE:$message" bellhop config --check
        # The rest is still shown.
        run -0 bellhop config state-dir
        [[ "$output" == *"$BELLHOP_STATE_DIR"* ]]
        [[ "$output" == *"$USER_FILE:$message"* ]]
        [ ! -e "$BELLHOP_STATE_DIR" ]
    done <<'EOF'
speed = 1\n|1: speed: there is no such key ('bellhop config --all')
\n[up]\nmemry = "1G"\n|3: up.memry: there is no such key ('bellhop config --all')
[upp]\n|1: [upp]: there is no such command
[up]\nmemory = true\n|2: up.memory: must be a string or an integer, not true or false
[up]\nmemory = "much"\n|2: up.memory: 'much' is not a size such as 512M or 2G
[up]\npids = "12"\n|2: up.pids: must be an integer, not a string
[up]\npids = -1\n|2: up.pids: '-1' is not a number
[up]\nempty = "yes"\n|2: up.empty: must be true or false, not a string
[up]\nlabel = "a=b"\n|2: up.label: must be a list of strings, not a string
[up]\ntimeout = 600\n|2: up.timeout: must be a string, not an integer
[up]\nenv-file = "env"\n|2: up.env-file: 'env' is not an absolute path
[up]\nmemory = "1G"\nmemory = "2G"\n|3: 'up.memory' is there twice
quiet = yes\n|1: neither a string, an integer, true, false nor a list of strings
EOF
    # --check tells of every key at once.
    printf 'a = 1\nb = 1\n' >"$USER_FILE"
    run -2 bellhop config --check
    [ "$(grep -c 'no such key' <<<"$output")" -eq 2 ]
    [ "$(bellhop config --check --json | jq '.files[0].problems | length')" -eq 2 ]
    printf '[up]\nmemory = "1G"\n' >"$USER_FILE"
    run -0 bellhop config --check
    [ -z "$output" ]
}

@test "a value that a command refuses is named with its file and line" {
    printf '[up]\nnetwork = "bridge"\n' >"$USER_FILE"
    wants 2 "$USER_FILE:2: network: 'bridge' is not one of 'user', 'none' and 'host'" bellhop up --agent none --empty
    wants 2 "network: 'x' is not one of 'user', 'none' and 'host'" bellhop up --agent none --empty --network x
    printf 'answer-timeout = "0"\n' >"$USER_FILE"
    wants 2 "$USER_FILE:1: the time must not be 0" bellhop ls
    export BELLHOP_ANSWER_TIMEOUT=x
    wants 2 "BELLHOP_ANSWER_TIMEOUT: 'x' is not a duration such as 90s, 10m or 1h30m" bellhop ls
}

@test "a file that others may write, a huge one and one that is none are refused" {
    echo 'quiet = true' >"$USER_FILE"
    chmod 666 "$USER_FILE"
    wants 7 "$USER_FILE: can be written by others (mode 0666): chmod go-w it" bellhop ls
    chmod 644 "$USER_FILE"
    chown 12345 "$USER_FILE"
    wants 7 "$USER_FILE: belongs to another user (12345)" bellhop ls
    rm "$USER_FILE"
    head -c 70000 /dev/zero | tr '\0' '#' >"$USER_FILE"
    wants 2 "$USER_FILE:1: longer than 65536 bytes" bellhop ls
    rm "$USER_FILE"
    mkdir "$USER_FILE"
    wants 2 "$USER_FILE: not a regular file" bellhop ls
    rmdir "$USER_FILE"
    mkfifo "$USER_FILE"
    wants 2 "$USER_FILE: not a regular file" bellhop ls
    rm "$USER_FILE"
    echo 'quiet = false' >"$SYSTEM_FILE"
    chmod 664 "$SYSTEM_FILE"
    wants 7 "/etc/bellhop/config.toml: can be written by others (mode 0664): chmod go-w it" bellhop_of_system ls
    export BELLHOP_CONFIG=$BOX_TMP/none
    wants 3 "'$BOX_TMP/none': no such file or directory" bellhop ls
}

@test "config shows neither variables' values nor the password in a URL" {
    printf 'npm-registry = "https://user:hunter2@host/x"\n[up]\nenv = ["KEY=hunter2", "HOME"]\n' >"$USER_FILE"
    unset npm_config_registry
    run -0 bellhop config --all
    [[ "$output" == *"KEY=..., HOME"* ]]
    [[ "$output" != *hunter2* ]]
    [ "$(config_of npm-registry)" = "https://...@host/x $USER_FILE:1" ]
    run -0 bellhop config --all --json
    [[ "$output" != *hunter2* ]]
    run -2 bellhop config no.such
    [[ "$output" == *"there is no key 'no.such'"* ]]
}

@test "a box has the values of the files, status says where they came from, and a later file does not change it" {
    printf '[up]\nagent = "none"\nnetwork = "none"\nmemory = "256M"\npids = 300\nlabel = ["team=web"]\n' >"$USER_FILE"
    export BELLHOP_IMAGE=${TEST_IMAGE:-tests}
    bellhop up --empty --name one --pids 200 >/dev/null 2>&1
    remember_box one
    bellhop status one --json >"$BOX_TMP/status"
    [ "$(jq -c '[.options.network, .options.memory_bytes, .options.pids, .labels.team]' "$BOX_TMP/status")" = \
        '["none",268435456,200,"web"]' ]
    [ "$(jq -r .sources.network "$BOX_TMP/status")" = "$USER_FILE:3" ]
    [ "$(jq -r .sources.memory "$BOX_TMP/status")" = "$USER_FILE:4" ]
    [ "$(jq -r .sources.pids "$BOX_TMP/status")" = "flag --pids" ]
    [ "$(jq -r .sources.image "$BOX_TMP/status")" = "env BELLHOP_IMAGE" ]
    [ "$(jq -r .sources.cpus "$BOX_TMP/status")" = null ]
    bellhop status one >"$BOX_TMP/status"
    grep -qE "^  memory +256M +$USER_FILE:4\$" "$BOX_TMP/status"
    grep -qE "^  pids +200 +flag --pids\$" "$BOX_TMP/status"
    grep -qE "^  on-timeout +stop +built-in\$" "$BOX_TMP/status"
    grep -qE "^  label +$USER_FILE:6\$" "$BOX_TMP/status"
    # Another default is no other request; a flag is.
    printf '[up]\nagent = "none"\nnetwork = "user"\nmemory = "512M"\npids = 400\nlabel = []\n' >"$USER_FILE"
    bellhop up --empty --name one >/dev/null 2>&1
    bellhop status one --json >"$BOX_TMP/again"
    [ "$(jq -c '[.options.network, .options.memory_bytes, .options.pids]' "$BOX_TMP/again")" = '["none",268435456,200]' ]
    run -4 bellhop up --empty --name one --memory 512M
    [[ "$output" == *"memory: the box was made with '256M', not '512M'"* ]]
}

@test "a request above a limit of the system's file is refused by name, from a flag, a variable and a file, before anything is made" {
    printf '[limits]\nmemory = "512M"\ncpus = 0.5\n' >"$SYSTEM_FILE"
    run -2 bellhop_of_system ls
    [[ "$output" == *"/etc/bellhop/config.toml:3: "* ]]
    cat >"$SYSTEM_FILE" <<'EOF'
[limits]
memory = "512M"
cpus = "0.5"
disk = "1G"
pids = 200
timeout = "5m"
idle = "3m"
providers = ["oci"]
networks = ["none", "user"]
privileges = ["strict"]
EOF
    by=/etc/bellhop/config.toml
    wants 7 "memory: 513M is more than $by allows, 512M" up_of_system --memory 513M
    wants 7 "cpus: 0.6 is more than $by allows, 0.5" up_of_system --cpus 0.6
    wants 7 "disk: 2048M is more than $by allows, 1024M" up_of_system --disk 2G
    wants 7 "pids: 201 is more than $by allows, 200" up_of_system --pids 201
    wants 7 "timeout: 6m is more than $by allows, 5m" up_of_system --timeout 6m
    wants 7 "idle: 4m is more than $by allows, 3m" up_of_system --idle 4m
    wants 7 "on-idle: 'keep' is not allowed by $by" up_of_system --on-idle keep
    wants 7 "provider: 'process' is not allowed by $by" up_of_system --provider process
    wants 7 "network: 'host' is not allowed by $by" up_of_system --network host
    wants 7 "privilege: 'sudo' is not allowed by $by" up_of_system --privilege sudo
    printf '[up]\nmemory = "1G"\n' >"$USER_FILE"
    wants 7 "$USER_FILE:2: memory: 1024M is more than $by allows, 512M" up_of_system
    [ "$(bellhop_of_system ls --json | jq -c .boxes)" = "[]" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ]
    # A user sets no limits, and a limit is a value that can be one.
    printf '[limits]\nmemory = "1T"\n' >"$USER_FILE"
    wants 2 "$USER_FILE:2: limits.memory: only '$by' sets limits" bellhop_of_system ls
    rm "$USER_FILE"
    while IFS='|' read -r line message; do
        printf '[limits]\n%s\n' "$line" >"$SYSTEM_FILE"
        wants 2 "$by:2: $message" bellhop_of_system ls
    done <<'EOF'
memory = 0|limits.memory: must not be 0
networks = ["nat"]|limits.networks: there is no 'nat'
providers = []|limits.providers: the list is empty
speed = 1|limits.speed: there is no such key ('bellhop config --all')
EOF
}

@test "a command's timeout extends the time to live up to the limit and not beyond" {
    export BELLHOP_IMAGE=${TEST_IMAGE:-tests}
    printf '[limits]\ntimeout = "5m"\n' >"$SYSTEM_FILE"
    bellhop_of_system up --agent none --empty --network none --name one --timeout 1m >/dev/null 2>&1
    remember_box one
    bellhop_of_system exec one --timeout 2m -- true
    left=$(($(bellhop_of_system status one --json | jq .deadline_ms) - $(date +%s%3N)))
    [ "$left" -gt 120000 ]
    [ "$left" -le 180000 ]
    bellhop_of_system exec one --timeout 1h -- true
    left=$(($(bellhop_of_system status one --json | jq .deadline_ms) - $(date +%s%3N)))
    [ "$left" -gt 180000 ]
    [ "$left" -le 300000 ]
    bellhop_of_system rm one >/dev/null
}

@test "defaults are lowered to the limits, and an older box above them does not start until they allow it" {
    export BELLHOP_IMAGE=${TEST_IMAGE:-tests}
    bellhop_of_system up --agent none --empty --network none --memory 300M --name old >/dev/null 2>&1
    remember_box old
    bellhop_of_system stop old >/dev/null
    printf '[limits]\nmemory = "256M"\npids = 200\ntimeout = "5m"\nnetworks = ["none"]\nboxes = 2\n' >"$SYSTEM_FILE"
    [ "$(config_of limits.memory bellhop_of_system)" = "256M /etc/bellhop/config.toml:2" ]
    up_of_system --name new >/dev/null 2>&1
    remember_box new
    [ "$(bellhop_of_system status new --json |
        jq -c '.options | [.memory_bytes, .pids, .timeout_ms, .network]')" = '[268435456,200,300000,"none"]' ]
    [ "$(bellhop_of_system status new --json | jq -c '.enforced.limits.memory_bytes')" = 268435456 ]
    # No third one; the two that are there go on.
    wants 7 "boxes: there are 2, and /etc/bellhop/config.toml allows 2: remove one first" up_of_system --name third
    up_of_system --name new >/dev/null 2>&1
    wants 7 "for: 6m is more than /etc/bellhop/config.toml allows, 5m" bellhop_of_system keep new --for 6m
    # The older box.
    old='memory: 300M is more than /etc/bellhop/config.toml allows, 256M'
    wants 7 "$old" bellhop_of_system start old
    wants 7 "$old" up_of_system --name old
    run bellhop_of_system exec old -- true
    [ "$status" -eq 125 ]
    [[ "$output" == *"$old"* ]]
    [ "$(bellhop_of_system status old --json | jq -r .state)" = stopped ]
    sed -i 's/256M/300M/; s/pids = 200/pids = 4096/; s/5m/10m/' "$SYSTEM_FILE"
    bellhop_of_system start old >/dev/null
    [ "$(bellhop_of_system exec old -- echo up)" = up ]
    # A paused box is not resumed by a command, either; it stays paused.
    bellhop_of_system pause old >/dev/null
    sed -i 's/300M/256M/' "$SYSTEM_FILE"
    wants 7 "$old" bellhop_of_system resume old
    run bellhop_of_system exec old -- true
    [ "$status" -eq 125 ]
    [ "$(bellhop_of_system status old --json | jq -r .state)" = paused ]
    sed -i 's/256M/300M/' "$SYSTEM_FILE"
    bellhop_of_system resume old >/dev/null
    [ "$(bellhop_of_system exec old -- echo up)" = up ]
}
