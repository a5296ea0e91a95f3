#!/bin/sh
# embed-json.sh FILE...: rows of a C table, {"name", "text"}, with the indentation taken out.
set -eu

for f in "$@"; do
    printf '{"%s",\n' "$(basename "$f" .json)"
    sed -e 's/^ *//' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&"/' "$f"
    echo '},'
done
