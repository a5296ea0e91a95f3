# shellcheck shell=sh disable=SC2154,SC2164
version "$(rg --version)"
make_repository
is "rg over the repository" "$(rg -n --no-heading needle | sort | tr '\n' ';')" \
    "src/a name.txt:1:needle in a text;src/main.c:3:    return 0; /* needle */;"
is "rg's look-behind" "$(rg -P -o '(?<=needle )in' 'src/a name.txt')" in
is "rg's count with ignored and hidden files" "$(rg -uu -c -g '!.git' needle | wc -l)" 4
