#!/bin/sh
# Prints the Debian suites of this machine's apt settings, one `URI SUITE KEYRING` per line, with the machine's own
# mirrors. With arguments, prints these suites of the main mirror instead, even if the machine does not use them.
set -eu

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# suites OPTION...: with the origin, which only fetched lists have; else "-".
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

# If the lists were cleaned away, the settings still name their sources.
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
