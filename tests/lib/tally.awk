# Reads one TAP file; writes `layer<TAB>name<TAB>ok|fail|skip` for each of its tests (and after a
# skip the reason and the source). An unfulfilled plan, or a bad exit without a failed test, is a failure of its own.
# Variables: layer, file, source.

function row(name, result, why)
{
    printf "%s\t%s\t%s%s\n", layer, name, result, why == "" ? "" : "\t" why "\t" source
}

/^1\.\.[0-9]+/ {
    planned = substr($1, 4) + 0
    has_plan = 1
}

/^(not )?ok [0-9]+/ {
    bad = /^not /
    name = $0
    sub(/^(not )?ok [0-9]+ *(- *)?/, "", name)
    skipped = match(name, / *# *[Ss][Kk][Ii][Pp] */)
    why = ""
    if (skipped) {
        why = substr(name, RSTART + RLENGTH)
        name = substr(name, 1, RSTART - 1)
        if (why == "")
            why = "no reason given"
    }
    n_seen++
    n_bad += bad
    row(name, bad ? "fail" : skipped ? "skip" : "ok", why)
}

/^# exit [0-9]+$/ {
    status = $3
}

END {
    if (!has_plan)
        row(file ": no test plan", "fail")
    else if (n_seen < planned)
        row(file ": " (planned - n_seen) " of " planned " tests did not run", "fail")
    else if (status != 0 && n_bad == 0)
        row(file ": exit status " status, "fail")
}
