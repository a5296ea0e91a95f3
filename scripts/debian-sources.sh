#!/bin/sh
# Prints the Debian suites that this machine's apt is set up with, one `URI SUITE KEYRING` a line:
# the mirror to use is the machine's own, whatever it is. With arguments, prints those suites of
# the main mirror instead, whether the machine uses them or not.
set -eu

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# suites OPTION...: with the origin, which only fetched lists have, or "-" for it.
suites()
{
    # shellcheck disable=SC2016 # the words are apt's
    apt-get indextargets "$@" --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)' \
        'Created-By: Packages' |
        awk '$3 == "main" && ($4 == "Debian" || $4 == "$(ORIGIN)") &&
             $2 ~ /^(bookworm|stable|oldstable)(-updates|-security|\/updates)?$/ && !seen[$1 $2]++ {
                 print $1, $2
             }'
}

# A machine whose lists were cleaned away still knows where it would take them from.
own_suites()
{
    found=$(suites)
    [ -n "$found" ] || found=$(suites --no-release-info)
    printf '%s\n' "$found"
}

own=$(own_suites)
if [ -z "$own" ]; then
    echo "debian-sources: apt on this machine has no Debian suite of bookworm's main" >&2
    exit 1
fi

if [ $# -eq 0 ]; then
    printf '%s\n' "$own" | sed "s|\$| $keyring|"
else
    mirror=$(printf '%s\n' "$own" | awk '$2 !~ /security/ { print $1; exit }')
    for suite in "$@"; do
        printf '%s %s %s\n' "$mirror" "$suite" "$keyring"
    done
fi
