# shellcheck shell=sh disable=SC2154,SC2164
version "$(tsc --version)"
# shellcheck disable=SC2016 # the script's own
printf 'const greet = (name: string): string => `hello ${name}`;\nconsole.log(greet("box"));\n' >a.ts
tsc --target es2022 --module nodenext --skipLibCheck a.ts
is "the compiled script" "$(node a.js)" "hello box"
printf 'const n: number = "text";\n' >b.ts
! tsc --noEmit b.ts >out || fail "a wrong type was not found"
grep -q 'b.ts(1,7): error TS2322' out || fail "tsc says: $(head -n 1 out)"
