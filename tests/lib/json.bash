# json.bash: jq for tests. wait.bash loads it.

# jq as it is, but for -e: jq 1.6 calls an empty input true, and the answer of a program that has crashed is empty.
jq()
{
    local arg output

    for arg in "$@"; do
        [[ $arg == -[a-z]* ]] || break
        [[ $arg == *e* && $arg != --* ]] || continue
        output=$(command jq "$@") || return
        [ -n "$output" ] || return 4
        printf '%s\n' "$output"
        return
    done
    command jq "$@"
}
