# venv.bash: other people's Python clients, unmodified, to run against us. Used by bats files:
#
#   load ../lib/venv
#   python=$(venv_python httpx 0.28.1) || skip "..."     a Python that has it
#
# Made once and kept in build/cache.

venv_python()
{
    local dir
    dir=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)/build/cache/venv-$1-$2

    if [ ! -e "$dir/.done" ]; then
        [ -z "${TEST_OFFLINE:-}" ] || return 1
        (
            mkdir -p "${dir%/*}"
            flock 9
            [ -e "$dir/.done" ] && exit 0
            rm -rf "$dir"
            python3 -m venv "$dir" && "$dir/bin/pip" install -q --disable-pip-version-check "$1==$2" && : >"$dir/.done"
        ) 9>"$dir.lock" >&2 || return 1
    fi
    echo "$dir/bin/python"
}
