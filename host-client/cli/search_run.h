#pragma once
/*
 * search_run: the common part of grep and glob: options, one search for each path, the JSON
 * document, the exit status.
 */
#include "cli/cli.h"

#define SEARCH_MAX_PATHS 64

/* The options that both have; the first member of their struct args. */
struct search_args {
    char **globs, **iglobs, **exclude, **types, **type_not, **type_add;
    const char *sort, *sortr, *cursor, *user;
    bool hidden, no_ignore, no_ignore_vcs, no_ignore_parent, follow, one_file_system;
    bool ignore_case, smart_case, case_sensitive, null;
    uint32_t max_depth, limit;
    uint64_t max_filesize;
};

/* Rows of both tables. */
#define SEARCH_CASE_OPTIONS \
    CLI_OPT("ignore-case", 'i', CLI_FLAG, common.ignore_case, NULL, "ignore case"), \
        CLI_OPT("smart-case", 'S', CLI_FLAG, common.smart_case, NULL, \
                "ignore case unless the pattern has an upper-case letter"), \
        CLI_OPT("case-sensitive", 's', CLI_FLAG, common.case_sensitive, NULL, \
                "match case (default)")
#define SEARCH_WALK_OPTIONS \
    CLI_OPT("no-ignore-vcs", 0, CLI_FLAG, common.no_ignore_vcs, NULL, \
            "do not apply git's ignore files"), \
        CLI_OPT("no-ignore-parent", 0, CLI_FLAG, common.no_ignore_parent, NULL, \
                "do not apply ignore files of parent directories"), \
        CLI_OPT("follow", 'L', CLI_FLAG, common.follow, NULL, "follow symbolic links"), \
        CLI_OPT("one-file-system", 0, CLI_FLAG, common.one_file_system, NULL, \
                "do not cross into other file systems"), \
        CLI_OPT("max-depth", 'd', CLI_U32, common.max_depth, "N", "descend at most N directories")

void search_set_options(const struct search_args *a, struct bh_search_options *o);

struct search_run {
    struct cli *cli;
    const char *list_name; /* of the list in the JSON document */
    /* Searches o->path; is_only: there is no other path. */
    int (*search_path)(struct search_run *s, struct bh_box *box, const struct bh_search_options *o,
                       bool is_only, struct bh_search_result *ret, struct bh_error *err);
    struct grep_print *print; /* of grep */
    char path_end;            /* of glob: written after each path */
    uint64_t n_found;
    /* private: */
    bool has_begun; /* the JSON document */
    bool is_incomplete;
    int sys;   /* errno of a failed write to standard output; 0: none */
    char *end; /* the last search's summary as JSON; or NULL */
};

/* paths: operands; a leading colon is dropped; empty: the workdir. Returns an exit status. */
int search_run(struct search_run *s, const char *box_name, struct bh_search_options *o,
               char **paths, struct bh_error *err);
/* After each result: whether it could not be written. */
bool search_output_failed(struct search_run *s);
/* Adds a result to the JSON document. */
void search_put_item(struct search_run *s, const char *json);
