# shellcheck shell=sh disable=SC2154,SC2164
version "$(tsx --version)"
printf 'enum Place { Here = 41 }\nconst n: number = Place.Here + 1;\nconsole.log(n);\n' >a.ts
is "the script" "$(tsx a.ts)" 42
