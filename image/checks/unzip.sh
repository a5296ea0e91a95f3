# shellcheck shell=sh disable=SC2154,SC2164
version "$(unzip -v | head -n 1)"
mkdir in && seq 20000 >in/numbers && printf 'x' >"in/a name"
zip -q -r out.zip in
unzip -q out.zip -d out
diff -r in out/in || fail "what came out is not what went in"
is "the list" "$(unzip -Z1 out.zip | sort | tr '\n' ';')" "in/;in/a name;in/numbers;"
