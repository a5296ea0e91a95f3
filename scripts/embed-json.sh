#!/bin/sh
# embed-json.sh FILE...: prints rows of a C table, {"name", "text"}, without the indentation of the JSON.
set -eu

for f in "$@"; do
    printf '{"%s",\n' "$(basename "$f" .json)"
    sed -e 's/^ *//' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&"/' "$f"
    echo '},'
done
