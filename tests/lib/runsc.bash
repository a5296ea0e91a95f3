# runsc.bash: gVisor's runsc for tests, from Debian's backports, whether the machine has that suite or
# not; kept in build/cache. Nothing of the machine's apt is changed.
#
#   load ../lib/runsc
#   dir=$(runsc_dir) || skip "runsc can't be had"       a directory with runsc in it, for PATH

runsc_dir()
{
    local top dir
    top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    dir=$top/build/cache/runsc

    if command -v runsc >/dev/null; then
        dirname "$(command -v runsc)"
        return
    fi
    if [ ! -x "$dir/usr/bin/runsc" ]; then
        (
            mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
            flock 9
            [ -x "$dir/usr/bin/runsc" ] && exit 0
            cd "$dir"
            "$top/scripts/debian-sources.sh" bookworm-backports |
                while read -r uri suite keyring; do
                    echo "deb [signed-by=$keyring] $uri $suite main"
                done >apt/src.list
            printf '%s\n' "Dir::Etc::sourcelist \"$dir/apt/src.list\";" 'Dir::Etc::sourceparts "-";' \
                "Dir::State::lists \"$dir/apt/lists\";" "Dir::Cache \"$dir/apt/cache\";" \
                'APT::Sandbox::User "root";' 'Acquire::Retries "3";' >apt/apt.conf
            export APT_CONFIG=$dir/apt/apt.conf
            apt-get -qq update && apt-get -qq download runsc && dpkg-deb -x runsc_*.deb . && rm -f runsc_*.deb
        ) 9>"$top/build/cache/runsc.lock" >&2 || return 1
    fi
    echo "$dir/usr/bin"
}
