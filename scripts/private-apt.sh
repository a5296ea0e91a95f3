#!/bin/sh
# private-apt.sh DIR deb|deb-src [SUITE...]: an apt of its own in DIR, for what is fetched and not installed:
# nothing of the machine's apt is changed, and of its settings count those that say how the network is
# reached. It knows the suites that this machine's apt is set up with, or the ones that are named, of the
# machine's main mirror; `own` among them stands for the machine's own. Use it by APT_CONFIG=DIR/apt.conf.
# Its lists are read now: when that fails so does this, and apt's words are in DIR/log. Those of the
# suites that could be read are there nevertheless.
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
# A failure inside the pipe is not seen.
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
