#pragma once
/* cmd_image: the verbs of `bellhop image`, one file each. */
#include "cli/cli.h"

struct image_args {
    char **forms;  /* build, test */
    char **checks; /* test */
    bool fresh;    /* build */
    bool all;      /* rm */
};

/* The image that build and test work on; without a name ./e2b.toml, which must exist. */
int cli_image_operand(char *const *operands, const char **ret, struct bh_error *err);

int cli_image_test(struct cli *c, const struct image_args *a, char **operands,
                   struct bh_error *err);
int cli_image_ls(struct cli *c, const struct image_args *a, char **operands, struct bh_error *err);
int cli_image_build(struct cli *c, const struct image_args *a, char **operands,
                    struct bh_error *err);
int cli_image_inspect(struct cli *c, const struct image_args *a, char **operands,
                      struct bh_error *err);
int cli_image_rm(struct cli *c, const struct image_args *a, char **operands, struct bh_error *err);
