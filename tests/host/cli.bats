# The command line alone: help, completion, man pages, JSON errors. No box is made.

load ../lib/box

setup() { box_setup; }
teardown() { rm -rf "$BOX_TMP"; }

commands()
{
    bellhop help | sed -n 's/^  \([a-z][a-z-]\{1,\}\)  .*/\1/p' | sort -u
}

@test "without a command the overview goes to standard error with status 2" {
    run bellhop
    [ "$status" -eq 2 ]
    [[ "$output" == *"bellhop up ."* ]]
    [ -z "$("$BELLHOP" 2>/dev/null)" ]
}

@test "help explains every command with usage and an example" {
    n=0
    for command in $(commands); do
        run bellhop help "$command"
        [ "$status" -eq 0 ]
        [[ "$output" == "Usage: bellhop $command"* ]]
        [ "$command" = version ] || [[ "$output" == *"Examples:"* ]]
        run bellhop "$command" --help
        [ "$status" -eq 0 ]
        n=$((n + 1))
    done
    [ "$n" -ge 20 ]
}

@test "no line of the help is wider than 100 columns" {
    for command in $(commands); do
        bellhop help "$command"
    done >"$BOX_TMP/help"
    bellhop help exit-codes >>"$BOX_TMP/help"
    bellhop help environment >>"$BOX_TMP/help"
    awk 'length > 100 { print; bad = 1 } END { exit bad }' "$BOX_TMP/help"
}

@test "the help topics list exit codes and environment" {
    run bellhop help exit-codes
    [ "$status" -eq 0 ]
    [[ "$output" == *" 130  interrupted"* ]]
    run bellhop help environment
    [[ "$output" == *"BELLHOP_STATE_DIR"* ]]
}

# The variables that the programs read: names in calls, and constants that look like names, without the names
# that they only set for others (the last list).
variables_read()
{
    {
        grep -rhoE --include='*.c' '\b(getenv|own_part|user_dir|find_env)\([^)]*' host-client guest |
            grep -oE '"[A-Za-z_]+"'
        grep -hoE '"npm_config_[a-z]+"' host-client/cli/config.c
        grep -rhoE --include='*.[ch]' '"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+[="]' host-client
        grep -rhoE '\$\{[A-Z_]+:?[-=]' image/forms | sed -E 's/\$\{([A-Z_]+).*/"\1"/'
    } | tr -d '"=' | grep -vE '^(CAP|SCMP)_|^(BOX_USER|GIT_(ALLOW_PROTOCOL|CONFIG_GLOBAL|NO_LAZY_FETCH|OPTIONAL_LOCKS|TERMINAL_PROMPT)|IMAGE_FRESH|LC_ALL)$' | sort -u
}

@test "every variable that a program reads is in 'help environment'" {
    cd "$BATS_TEST_DIRNAME/../.."
    variables_read >"$BOX_TMP/read"
    [ "$(wc -l <"$BOX_TMP/read")" -ge 25 ]
    for variable in BELLHOP_IMAGE BELLHOP_TEMPLATES BELLHOP_IMAGE_CACHE HOME npm_config_registry; do
        grep -qx "$variable" "$BOX_TMP/read" || fail "not found in the source: $variable"
    done
    bellhop help environment >"$BOX_TMP/help"
    while IFS= read -r variable; do
        grep -qw -- "$variable" "$BOX_TMP/help" || fail "not documented: $variable"
    done <"$BOX_TMP/read"
    # The page names no variable that nothing reads.
    grep -oE '\bBELLHOP_[A-Z_]+' "$BOX_TMP/help" | sort -u | while IFS= read -r variable; do
        grep -rqF --include='*.[ch]' --include='*.sh' "$variable" host-client/lib guest image/forms \
            host-client/cli/{main,config,options,cmd_up}.c || fail "nobody reads $variable"
    done
}

@test "help after exec's command belongs to the command" {
    run bellhop exec nobox ls --help
    [ "$status" -ne 0 ]
    [[ "$output" != *"Usage: bellhop exec"* ]]
}

@test "an unknown command is refused with status 2" {
    run bellhop frobnicate
    [ "$status" -eq 2 ]
    [[ "$output" == *"unknown command 'frobnicate'"* ]]
}

@test "with --json an error is one JSON document on standard output" {
    run bellhop status nobox --json
    [ "$status" -eq 3 ]
    [ "$(jq -r .error.code <<<"$output")" = not_found ]
}

@test "with --json an error of the command line is JSON too" {
    run bellhop up --json --timeout soon
    [ "$status" -eq 2 ]
    [ "$(jq -r .error.code <<<"$output")" = invalid_argument ]
    [ "$(jq -r .error.field <<<"$output")" = timeout ]
}

@test "options that every command has may stand before it" {
    [ "$(bellhop --json ls | jq -c .boxes)" = "[]" ]
    [ "$(bellhop -q --json --no-resume ls | jq -c .boxes)" = "[]" ]
    run bellhop --json frobnicate
    [ "$status" -eq 2 ]
    [ "$(jq -r .error.message <<<"$output")" = "unknown command 'frobnicate'" ]
    run bellhop --json
    [ "$status" -eq 2 ]
}

@test "ls of no boxes is an empty list" {
    run bellhop ls --json
    [ "$status" -eq 0 ]
    [ "$(jq -c .boxes <<<"$output")" = "[]" ]
    [ -z "$(bellhop ls -q)" ]
}

@test "the bash completion parses and knows every command" {
    bellhop completion bash >"$BOX_TMP/c"
    bash -n "$BOX_TMP/c"
    # shellcheck disable=SC1091
    . "$BOX_TMP/c"
    COMP_WORDS=(bellhop "") COMP_CWORD=1
    _bellhop
    for command in $(commands); do
        [[ " ${COMPREPLY[*]} " == *" $command "* ]]
    done
    COMP_WORDS=(bellhop up --network "") COMP_CWORD=3
    _bellhop
    [[ " ${COMPREPLY[*]} " == *" none "* ]]
}

@test "each line of the fish completion closes its quotes" {
    bellhop completion fish >"$BOX_TMP/c"
    [ "$(grep -c '__fish_use_subcommand' "$BOX_TMP/c")" -ge 36 ]
    run -1 grep -vE "^([^'\\\\]|'([^'\\\\]|\\\\.)*')*$" "$BOX_TMP/c"
}

@test "an unknown shell has no completion" {
    run bellhop completion tcsh
    [ "$status" -eq 2 ]
}

# Each page's source as a file: bellhop.1 and bellhop-COMMAND.1.
write_pages()
{
    local command

    mkdir -p "$BOX_TMP/man"
    bellhop help --man >"$BOX_TMP/man/bellhop.1"
    for command in $(commands); do
        bellhop help --man "$command" >"$BOX_TMP/man/bellhop-$command.1"
    done
    [ "$(find "$BOX_TMP/man" -type f | wc -l)" -gt 30 ]
}

@test "mandoc and groff have nothing to say against a man page" {
    write_pages
    run mandoc -Tlint "$BOX_TMP"/man/*.1
    [ "$status" -eq 0 ] || fail "$output"
    [ -z "$output" ]
    for page in "$BOX_TMP"/man/*.1; do
        run groff -man -Tascii -ww -z "$page"
        [ "$status" -eq 0 ]
        [ -z "$output" ] || fail "$page: $output"
    done
}

# rendered_by RENDERER PAGE: the text that a reader sees, in unbroken lines.
rendered_by()
{
    case $1 in
    mandoc) mandoc -Tutf8 -O width=1000 "$2" ;;
    groff) groff -man -Tutf8 -rLL=1000n -P-c "$2" ;;
    esac | col -bpx
}

# One line of words, as those of another rendering.
words() { tr -s '[:space:]' ' '; }

@test "no rendered man page shows a macro, an escape or a character that the help does not have" {
    macros='TH|SH|SS|PP|TP|IP|RS|RE|nf|fi|br|sp|B|I|BR|BI|IR'
    write_pages
    for page in "$BOX_TMP"/man/*.1; do
        for renderer in mandoc groff; do
            rendered_by "$renderer" "$page" >"$BOX_TMP/seen"
            [ "$(grep -c '^[A-Z]' "$BOX_TMP/seen")" -ge 4 ] # it has sections
            run grep -nE "(^|[^A-Za-z0-9])\.($macros)( |\$)|\\\\(e|f[BIRP]|&|-|\\()" "$BOX_TMP/seen"
            [ "$status" -eq 1 ] || fail "$renderer $page: $output"
            run grep -nP '[^\x00-\x7f]' "$BOX_TMP/seen"
            [ "$status" -eq 1 ] || fail "$renderer $page: $output"
        done
    done
}

@test "a rendered man page says all that the help says" {
    write_pages
    for command in $(commands); do
        bellhop help "$command" >"$BOX_TMP/help"
        for renderer in mandoc groff; do
            rendered_by "$renderer" "$BOX_TMP/man/bellhop-$command.1" >"$BOX_TMP/seen"
            seen=$(words <"$BOX_TMP/seen")
            # A paragraph, an option or a line of an example, each as it is in the help.
            while IFS= read -r part; do
                [[ "$seen" == *"$part"* ]] || fail "$renderer $command: not there: $part"
            done < <(sed -n '4,$p' "$BOX_TMP/help" | awk '
                function flush() { if (text != "") print text; text = "" }
                /^(Options|For every command|Examples):$/ || /^$/ { flush(); next }
                /^ {2,6}[^ ]/ { flush() }
                { $1 = $1; text = text (text == "" ? "" : " ") $0 }
                END { flush() }')
        done
    done
}

@test "the man page of bellhop itself has the exit statuses and the environment" {
    write_pages
    for topic in exit-codes environment; do
        for renderer in mandoc groff; do
            seen=$(rendered_by "$renderer" "$BOX_TMP/man/bellhop.1" | words)
            while IFS= read -r line; do
                [[ "$seen" == *"$line"* ]] || fail "$renderer $topic: not there: $line"
            done < <(bellhop help "$topic" | sed '1d; /^$/d' | awk '{ $1 = $1; print }')
        done
    done
}

@test "the state directory is made private" {
    bellhop ls >/dev/null
    [ "$(stat -c %a "$BELLHOP_STATE_DIR")" = 700 ]
}

@test "a state directory that others can write is refused" {
    mkdir -m 0777 "$BOX_TMP/open"
    chmod 0777 "$BOX_TMP/open"
    BELLHOP_STATE_DIR=$BOX_TMP/open run bellhop ls --json
    [ "$status" -eq 7 ]
    [ "$(jq -r .error.field <<<"$output")" = state_dir ]
    [ -z "$(ls -A "$BOX_TMP/open")" ]
}

@test "gc has nothing to do where nothing happened" {
    # Another test may have things on this machine that no store knows.
    [ -z "$(bellhop gc | grep -vx 'nothing to clean up' | grep -v '^not ours, kept: ')" ]
}

@test "doctor finds programs where boxes find them, whatever PATH is" {
    PATH=$BOX_TMP run "$BELLHOP_BUILD/bellhop" doctor --json
    for check in "network user" nft git; do
        [ "$(/usr/bin/jq -r --arg name "$check" '.checks[] | select(.name == $name) | .state' <<<"$output")" = ok ]
    done
}

@test "providers tries each one" {
    run bellhop providers --json
    [ "$status" -eq 0 ]
    [ "$(jq -r '.providers | map(.name) | sort | join(" ")' <<<"$output")" = "docker kubernetes oci process" ]
    [ "$(jq -r '.providers[] | select(.name == "process") | .usable' <<<"$output")" = true ]
}
