# Reads tests/skips.tsv and then the results; writes a failure for each skip that the list does not allow.

BEGIN { FS = "\t" }

FILENAME == ARGV[1] { # NR == FNR would take the results for the list if that is empty
    if ($0 !~ /^(#|$)/) {
        file[++n] = "^(" $1 ")$"
        reason[n] = "^(" $2 ")$"
    }
    next
}

$3 == "skip" {
    for (i = 1; i <= n; i++)
        if ($5 ~ file[i] && $4 ~ reason[i])
            next
    printf "%s\t%s: skipped, and tests/skips.tsv does not allow it: %s\tfail\n", $1, $2, $4
}
