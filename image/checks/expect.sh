# shellcheck shell=sh disable=SC2154,SC2164
version "$(expect -v)"
cat >talk.exp <<'EXP'
set timeout 20
spawn -noecho sh -c {printf 'name: '; read -r name; test -t 0 && echo "hello, $name, on a terminal"}
expect "name: "
send "box\r"
expect {
    "hello, box, on a terminal" { exit 0 }
    timeout { exit 3 }
    eof { exit 4 }
}
EXP
status=0
expect talk.exp >/dev/null || status=$?
is "the status of a dialogue with a program on a terminal" "$status" 0
