# shellcheck shell=sh disable=SC2154,SC2164
version "$(fd --version)"
make_repository
is "fd over the repository" "$(fd -t f | sort | tr '\n' ';')" "src/a name.txt;src/blob.bin;src/main.c;"
is "fd with ignored and hidden files" "$(fd -t f -H -I -E .git txt | sort | tr '\n' ';')" \
    ".hidden/secret.txt;build/out.txt;src/a name.txt;"
is "fd by extension, a command each" "$(fd -e c -x wc -l | awk '{ print $1 }')" 4
