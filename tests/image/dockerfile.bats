#!/usr/bin/env bats
# The Dockerfile of a definition: its text, and that E2B's and Daytona's own tools accept it. forms.bats builds it and
# tries the result.
# needs: image

bats_require_minimum_version 1.5.0
load ../lib/venv

E2B_VERSION=2.63.0 # as tests/lib/e2b.bash has it: one copy for both

setup()
{
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    TMP=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-dockerfile-XXXXXX")
    DEF=$TMP/def
    OUT=$TMP/out
    define "$DEF/from" low
    define "$DEF" high
    printf 'git\nprocps\n' >"$DEF/from/packages"
    printf '/usr/share/icons/*\n' >"$DEF/exclude"
    printf 'ffmpeg\n' >"$DEF/packages"
    printf 'typescript@5.9.3\n' >"$DEF/npm"
    printf 'Pillow==11.3.0\nsix>=1.16\n' >"$DEF/pip"
    printf 'GREETING=a "quoted" $HOME\\n\nPLAIN=x=y\n' >"$DEF/env"
    mkdir "$TMP/agent"
    echo 'console.log(1)' >"$TMP/agent/main.js"
    tar -czf "$TMP/tool-1.2.3.tgz" -C "$TMP" agent
    # shellcheck disable=SC2016 # the command's own
    echo "tool 1.2.3 $TMP/tool-1.2.3.tgz node \$HOME/agent/main.js" >"$DEF/agents"
}

teardown()
{
    rm -rf "$TMP"
}

# define DIR NAME: a definition with nothing in it.
define()
{
    mkdir -p "$1"
    for list in packages npm pip agents env exclude start_cmd ready_cmd; do
        : >"$1/$list"
    done
    echo "$2" >"$1/name"
    echo 1.0.0 >"$1/version"
    echo bookworm >"$1/suite"
    echo user >"$1/user"
    echo /home/user >"$1/workdir"
    echo false >"$1/node"
}

render()
{
    "$TOP/image/render.sh" "$DEF" "$OUT"
}

# Where the first line is that begins with TEXT.
line_of()
{
    grep -nF -m 1 -- "$1" "$OUT/Dockerfile" | cut -d : -f 1
}

@test "every list of a definition and of what it stands on is in its Dockerfile, in their order" {
    render
    run -1 grep '@[A-Z_]*@' "$OUT/Dockerfile"
    last=0
    for text in 'FROM debian:bookworm-slim' '    git \' '    procps \' 'COPY context/dpkg-high.cfg' '    ffmpeg \' \
        "npm install --global" "    'typescript@5.9.3'" 'python3 -m pip install' "    'Pillow==11.3.0' \\" \
        "    'six>=1.16'" 'RUN rm -f /usr/local/sbin/bellhop-online' 'RUN sh /mnt/customize.sh user /home/user' \
        'COPY context/agents/tool-1.2.3.tgz' 'COPY context/bellhopd' 'ENV GREETING=' 'ENV PLAIN="x=y"' 'USER user' \
        'WORKDIR /home/user' 'CMD ['; do
        at=$(line_of "$text")
        [ -n "$at" ] && [ "$at" -gt "$last" ] || {
            echo "'$text' is at '$at', after $last" >&2
            return 1
        }
        last=$at
    done
    grep -qF 'ENV GREETING="a \"quoted\" \$HOME\\n"' "$OUT/Dockerfile"
}

@test "all that the Dockerfile copies lies beside it, and nothing else goes to the builder" {
    render
    sed -n 's/^COPY \([^ ]*\) .*/\1/p' "$OUT/Dockerfile" >"$TMP/copied"
    [ "$(wc -l <"$TMP/copied")" -ge 8 ]
    while read -r path; do
        [ -e "$OUT/$path" ]
        [[ "$path" == context/* ]]
    done <"$TMP/copied"
    [ "$(tr '\n' ' ' <"$OUT/.dockerignore")" = '* !context !Dockerfile ' ]
    cmp "$OUT/context/bellhopd" "$TOP/build/release/bellhopd"
    [ "$(cat "$OUT/context/agents/tool")" = "$(printf '#!/bin/sh\nexec node $HOME/agent/main.js "$@"')" ]
}

@test "one stage, no ENTRYPOINT, no variable in FROM; BASE is another image to build on" {
    BASE=localhost/other:1 render
    [ "$(grep -c '^FROM ' "$OUT/Dockerfile")" = 1 ]
    grep -qx 'FROM localhost/other:1' "$OUT/Dockerfile"
    run -1 grep -E '^(ENTRYPOINT|ADD|HEALTHCHECK|ONBUILD|SHELL)|--(mount|chmod|chown|from)|<<' "$OUT/Dockerfile"
}

@test "what not every builder takes is refused by its line" {
    render
    "$TOP/image/subset.sh" "$OUT/Dockerfile"
    while IFS='|' read -r line says; do
        printf 'FROM debian\n# a comment\nRUN true \\\n    && true\n%s\n' "$line" >"$OUT/Other"
        run "$TOP/image/subset.sh" "$OUT/Other"
        [ "$status" -eq 1 ] && [ "$output" = "$OUT/Other:5: $says" ] || {
            echo "'$line': $status, '$output'" >&2
            return 1
        }
    done <<'END'
FROM debian|a second stage: E2B knows one
ADD context/a /a|not every builder knows ADD
ENTRYPOINT ["/a"]|not every builder knows ENTRYPOINT
copy context/a /a|not every builder knows copy
  COPY context/etc /a|an instruction begins its line
COPY --chown=user context/etc /a|COPY takes one source and one target, and no options
COPY context/etc context/bellhopd /a/|COPY takes one source and one target, and no options
COPY ../a /a|COPY takes the name of a file below the Dockerfile's folder
COPY /etc/passwd /a|COPY takes the name of a file below the Dockerfile's folder
COPY context/* /a|COPY takes the name of a file below the Dockerfile's folder
COPY context/gone /a|there is no 'context/gone' to copy
RUN --mount=type=cache,target=/a true|RUN takes a command: no options, no text of several lines
RUN cat <<X|RUN takes a command: no options, no text of several lines
ENV A b|ENV takes NAME="VALUE"
USER a b|USER takes one word
RUN true \|the last line goes on
END
    printf 'FROM $BASE\n' >"$OUT/Other"
    run "$TOP/image/subset.sh" "$OUT/Other"
    [ "$output" = "$OUT/Other:1: FROM takes the name of an image, and nothing else" ]
    : >"$OUT/Other"
    run -1 "$TOP/image/subset.sh" "$OUT/Other"
}

@test "rendering again changes what has changed and leaves nothing behind" {
    render
    : >"$DEF/pip"
    : >"$DEF/npm"
    : >"$DEF/agents"
    render
    run -1 grep -E 'pip install|npm install|online|agents' "$OUT/Dockerfile"
    [ ! -e "$OUT/context/online.sh" ]
    [ ! -e "$OUT/context/agents" ]
    [ "$(ls -A "$OUT" | sort | tr '\n' ' ')" = '.dockerignore Dockerfile context ' ]
}

@test "a definition that is not there, and an agent that is not built, are errors that leave nothing" {
    run "$TOP/image/render.sh" nowhere "$OUT"
    [ "$status" -eq 1 ]
    [[ "$output" == "render: there is no definition 'nowhere'" ]]
    BELLHOP_AGENT=$TMP/none run "$TOP/image/render.sh" "$DEF" "$OUT"
    [ "$status" -eq 1 ]
    [[ "$output" == "render: there is no agent '$TMP/none': run make first" ]]
    [ ! -e "$OUT" ]
}

@test "E2B's SDK takes it: every step is one that its builder knows, with nothing to warn about" {
    python=$(venv_python e2b "$E2B_VERSION") || skip "the SDK can't be installed"
    render
    "$python" - "$OUT" >"$TMP/said" <<'PY'
import json, sys
from e2b import Template

folder = sys.argv[1]
made = Template(file_context_path=folder).from_dockerfile(folder + "/Dockerfile")
template = json.loads(Template.to_json(made))
assert template["fromImage"] == "debian:bookworm-slim", template["fromImage"]
steps = [(s["type"], s["args"]) for s in template["steps"]]
assert {t for t, _ in steps} == {"USER", "WORKDIR", "COPY", "RUN", "ENV"}, steps
assert all(s.get("filesHash") for s in template["steps"] if s["type"] == "COPY"), steps
assert [a for t, a in steps if t == "USER"] == [["root"], ["user"]], steps
assert [a for t, a in steps if t == "WORKDIR"][-1] == ["/home/user"], steps
assert template["startCmd"].startswith("/usr/local/bin/bellhopd --listen 0.0.0.0:4711"), template
print("taken")
PY
    # Comments are told of too.
    [ "$(grep -v -x -e 'Unsupported instruction: COMMENT' -e 'Unsupported instruction: EXPOSE' "$TMP/said")" = taken ]
}

@test "Daytona's way to find what a Dockerfile copies finds it: sources beside the file" {
    # As its SDK reads it: COPY at the beginning of a line, sources relative to the file's own folder. The SDK
    # itself is asked in make test-long.
    render
    [ "$(grep -c '^COPY context/' "$OUT/Dockerfile")" = "$(grep -ci '^[[:space:]]*COPY' "$OUT/Dockerfile")" ]
}
