# results.tsv first, then features.tsv (`id<TAB>test name[<TAB>test name...]` or `id<TAB>later`): one
# failed row for each named test that did not run, one good row if all of them did.

FNR == NR {
    result[$2] = $3
    next
}

/^#/ || NF < 2 || $2 == "later" {
    next
}

{
    for (i = 2; i <= NF; i++) {
        n_named++
        if (!($i in result)) {
            printf "features\t%s names a test that did not run: %s\tfail\n", $1, $i
            n_bad++
        } else if (result[$i] == "skip") {
            printf "features\t%s names a test that was skipped: %s\tfail\n", $1, $i
            n_bad++
        }
    }
}

END {
    if (n_bad == 0 && n_named > 0)
        printf "features\t%s\tok\n", "every named test of features.tsv ran"
}
