#!/bin/sh
# Calls go down only. Prints each include that goes up or sideways, and fails; there are no exemptions.
#
#   guest:  main -> dialect -> api -> {archive, search, proc, fs, system} -> event -> common
#           api, dialect -> http -> event, common
#   host:   cli, daemon, monitor -> lib/box -> lib/image -> lib/recipe -> lib/{project, provider} -> lib/agent
#           -> lib/util -> guest/{http, event, common}
set -eu

cd "$(dirname "$0")/.."

# shellcheck disable=SC2016 # awk's
find guest host-client -name '*.[ch]' -not -path 'guest/deps/*' | sort | xargs awk '
    BEGIN {
        # FOLDER: the folders that its files may include from, besides itself. A row applies to its subfolders too.
        below["guest/common"] = ""
        below["guest/event"] = "guest/common"
        below["guest/http"] = "guest/event guest/common"
        below["guest/fs"] = "guest/event guest/common"
        below["guest/proc"] = "guest/event guest/common"
        # system reports on commands, and runs some to see whether they work.
        below["guest/system"] = "guest/proc guest/event guest/common"
        # One walker serves both; search adds the rules of ignore files to it.
        below["guest/search"] = "guest/fs guest/event guest/common"
        # fs has the only safe ways to read and write the tree; search knows what ignore files hide.
        below["guest/archive"] = "guest/fs guest/search guest/event guest/common"
        modules = "guest/archive guest/search guest/proc guest/fs guest/system guest/http guest/event " \
            "guest/common guest"
        below["guest/api"] = modules
        below["guest/dialect"] = "guest/api " modules
        below["guest"] = "guest/dialect guest/api " modules

        below["host-client/include"] = ""
        public = "guest/common host-client/include"
        below["host-client/lib/util"] = public
        below["host-client/lib/agent"] = "host-client/lib/util " public
        below["host-client/lib/provider"] = "host-client/lib/util " public
        below["host-client/lib/project"] = "host-client/lib/agent host-client/lib/util " public
        below["host-client/lib/recipe"] = "host-client/lib/project " below["host-client/lib/project"]
        below["host-client/lib/image"] = "host-client/lib/provider host-client/lib/recipe " \
            below["host-client/lib/recipe"]
        below["host-client/lib/box"] = "host-client/lib/image " below["host-client/lib/image"]
        lib = "host-client/lib/box " below["host-client/lib/box"]
        below["host-client/cli"] = lib
        below["host-client/monitor"] = "guest/event guest/http " lib
        below["host-client/daemon"] = "guest/event guest/http " lib

        # FILES that may include a library, as a pattern.
        seen["microhttpd"] = "^guest/http/"
        seen["curl"] = "^host-client/lib/util/transport\\.c$"
        seen["jansson"] = "^guest/(api|dialect)/|^guest/common/jsonx\\.|^host-client/"
    }

    # The layer of a path: its longest folder that has a row. The row of guest is for the files right there.
    function layer(path, is_sub)
    {
        for (is_sub = 0; sub(/\/[^\/]*$/, "", path); is_sub = 1)
            if (path in below && !(path == "guest" && is_sub))
                return path
        return ""
    }

    function is_below(to, from, i, n, list)
    {
        n = split(below[from], list, " ")
        for (i = 1; i <= n; i++)
            if (list[i] == to)
                return 1
        return 0
    }

    function complain(why)
    {
        print FILENAME ": " $0 ": " why
        bad = 1
    }

    /^#include "/ {
        split($0, part, "\"")
        path = part[2]
        if (path !~ /\//) {
            if (path != "agent.h" && path != "options.h")
                next # generated, or of the same folder
            path = "guest/" path
        } else
            path = (path ~ /^(lib|cli|monitor|daemon)\// ? "host-client/" : \
                path ~ /^bellhop\// ? "host-client/include/" : "guest/") path
        from = layer(FILENAME)
        to = layer(path)
        if (from == "" || to == "")
            complain("no rule for this folder in scripts/check-layers.sh")
        else if (to != from && !is_below(to, from))
            complain(to " is not below " from)
        # Folders of lib/provider and guest/dialect do not include from each other.
        else if (to == from && to ~ /^(host-client\/lib\/provider|guest\/dialect)$/) {
            a = substr(FILENAME, length(from) + 2)
            b = substr(path, length(to) + 2)
            if (a ~ /\// && b ~ /\// && substr(a, 1, index(a, "/")) != substr(b, 1, index(b, "/")))
                complain("a neighbour of its own folder")
        }
    }

    /^#include <(microhttpd\.h|curl\/|jansson\.h)/ {
        split($0, part, /[<.\/]/)
        if (FILENAME !~ seen[part[2]])
            complain("this library is seen in " seen[part[2]] " alone")
    }

    /[^A-Za-z_]MHD_[A-Za-z]/ && FILENAME !~ seen["microhttpd"] {
        complain("names of libmicrohttpd are seen in " seen["microhttpd"] " alone")
    }

    END { exit bad }' >&2 || exit 1
echo "  OK    layers: calls go down only"
