#!/bin/sh
# private-apt.sh DIR deb|deb-src [SUITE...]: sets up a separate apt in DIR, for packages that are fetched and not
# installed. The machine's apt is unchanged; of its settings only those for the network apply. The suites are those of
# this machine's apt, or the ones named, from the machine's main mirror; `own` stands for the machine's own. Use it
# with APT_CONFIG=DIR/apt.conf. The lists are fetched now: if that fails, so does this script, and apt's output is in
# DIR/log; lists that could be fetched are kept.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?usage: private-apt.sh DIR deb|deb-src [SUITE...]}
kind=${2:?usage: private-apt.sh DIR deb|deb-src [SUITE...]}
shift 2
[ $# -gt 0 ] || set -- own

mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
dir=$(cd "$dir" && pwd)

for suite in "$@"; do
    if [ "$suite" = own ]; then
        "$here/debian-sources.sh"
    else
        "$here/debian-sources.sh" "$suite"
    fi
done | sort -u | while read -r uri suite keyring; do
    echo "$kind [signed-by=$keyring] $uri $suite main"
done >"$dir/sources.list"
# The shell ignores a failure inside the pipe.
[ -s "$dir/sources.list" ] || exit 1

cat >"$dir/apt.conf" <<END
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$dir/lists";
Dir::Cache "$dir/cache";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
END
APT_CONFIG=$dir/apt.conf apt-get -qq update >"$dir/log" 2>&1
