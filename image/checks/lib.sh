# shellcheck shell=sh disable=SC2034
# Functions of the checks. A check is POSIX sh, run in the box as its user ($BOX_USER) in an empty directory. It runs
# the tool on real data and verifies the result. The first line that it prints is the tool's version. A failure is an
# exit status other than 0; the last line on standard error is the reason.
set -eu

fail()
{
    echo "$*" >&2
    exit 1
}

# is WHAT GOT WANTED
is()
{
    [ "$2" = "$3" ] || fail "$1: got '$2', not '$3'"
}

# is_about WHAT GOT LOW HIGH: a number with or without a fraction.
is_about()
{
    awk -v got="$2" -v low="$3" -v high="$4" \
        'BEGIN { exit !(got ~ /^[0-9.]+$/ && got + 0 >= low && got + 0 <= high) }' ||
        fail "$1: got '$2', not between $3 and $4"
}

# version TEXT...: the first number with a point in it.
version()
{
    printf '%s\n' "$*" | sed -n '1s/^[^0-9]*\([0-9][0-9A-Za-z.+~-]*\).*/\1/p'
}

# png_size FILE: width and height from the file's header.
png_size()
{
    is "the PNG's first bytes" "$(head -c 8 "$1" | od -An -tx1 | tr -d ' ')" 89504e470d0a1a0a
    od -An -t u1 -j 16 -N 8 "$1" | awk '
        { print ($1 * 256 + $2) * 65536 + $3 * 256 + $4, ($5 * 256 + $6) * 65536 + $7 * 256 + $8 }'
}

# within SECONDS COMMAND...: retries until it succeeds.
within()
{
    tries=$(($1 * 5))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "not within the time: $*"
        sleep 0.2
    done
}

# Starts an HTTP server: a second agent of the box's user, for the files below $here. Sets url and port.
start_server()
{
    mkfifo ready
    bellhopd --listen 127.0.0.1:0 --auth=open --root "$here" --ready-fd 3 3>ready >server.log 2>&1 &
    server=$!
    trap 'kill "$server" 2>/dev/null || true; rm -rf "$here"' EXIT
    read -r line <ready || fail "the server did not start: $(tail -n 1 server.log)"
    port=$(printf '%s' "$line" | sed -n 's/.*"127\.0\.0\.1:\([0-9]*\)".*/\1/p')
    url=http://127.0.0.1:$port
}

# Makes a small repository with an ignored file, for git, fd and rg.
make_repository()
{
    mkdir -p repo/src repo/build repo/.hidden
    cd repo
    git init -q .
    printf 'build/\n' >.gitignore
    printf 'int main(void)\n{\n    return 0; /* needle */\n}\n' >src/main.c
    printf 'needle in a text\nnothing\n' >"src/a name.txt"
    printf 'needle\n' >build/out.txt
    printf 'needle\n' >.hidden/secret.txt
    printf 'needle\0binary\n' >src/blob.bin
    git add .
    git -c user.name=box -c user.email=box@example.org commit -q -m first
}

here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
