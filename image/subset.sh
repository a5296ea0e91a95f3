#!/bin/sh
# subset.sh DOCKERFILE: refuses, by line, instructions that not every supported builder accepts. E2B's builder accepts
# one stage, and no instruction that changes how later ones are read. Daytona's finds copied files by COPY at the
# beginning of a line, with sources below the Dockerfile's folder. Docker, Podman and buildah accept all of this.
set -eu

file=${1:?usage: subset.sh DOCKERFILE}
awk -v dir="$(dirname "$file")" '
    function refuse(what)
    {
        printf "%s:%d: %s\n", FILENAME, first, what
        bad = 1
    }

    function is_there(path,    quoted)
    {
        quoted = path
        gsub(/\047/, "\047\\\047\047", quoted)
        return system("test -e \047" dir "/" quoted "\047") == 0
    }

    function judge(text,    n, word)
    {
        n = split(text, word, /[ \t]+/)
        if (text ~ /^[ \t]/)
            refuse("an instruction begins its line")
        else if (word[1] == "FROM") {
            if (++stages > 1)
                refuse("a second stage: E2B knows one")
            if (n != 2 || text ~ /\$/)
                refuse("FROM takes the name of an image, and nothing else")
        } else if (word[1] == "COPY") {
            if (n != 3 || word[2] ~ /^-/)
                refuse("COPY takes one source and one target, and no options")
            else if (word[2] ~ /^\/|(^|\/)\.\.(\/|$)|[*?\[$"]/)
                refuse("COPY takes the name of a file below the Dockerfile\047s folder")
            else if (!is_there(word[2]))
                refuse("there is no \047" word[2] "\047 to copy")
        } else if (word[1] == "RUN") {
            if (word[2] ~ /^--/ || text ~ /<</)
                refuse("RUN takes a command: no options, no text of several lines")
        } else if (word[1] == "ENV") {
            if (text !~ /^ENV [A-Za-z_][A-Za-z0-9_]*="/)
                refuse("ENV takes NAME=\"VALUE\"")
        } else if (word[1] == "USER" || word[1] == "WORKDIR") {
            if (n != 2)
                refuse(word[1] " takes one word")
        } else if (word[1] !~ /^(ARG|CMD|EXPOSE)$/) {
            refuse("not every builder knows " word[1])
        }
    }

    /^[ \t]*#/ { next }
    /^[ \t]*$/ && !held { next }
    {
        if (!held)
            first = NR
        held = $0 ~ /\\$/
        line = line $0
        sub(/\\$/, "", line)
        if (held)
            next
        judge(line)
        line = ""
    }
    END {
        if (held)
            refuse("the last line goes on")
        if (!stages)
            refuse("there is no FROM")
        exit bad
    }' "$file" >&2
