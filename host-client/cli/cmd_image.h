#pragma once
/* cmd_image: `bellhop image`. cmd_image.c has the verbs, cmd_image_test.c the verb `test`, and
 * image_checks.c its checks and report. */
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

/* ---- the report of a test ---- */

/*
 * The checks are scripts of image/checks, run in a box by its agent; a form is a way to boot the
 * image (image/forms). A report owns its checks, forms and results; one thread.
 */

#define IMAGE_CHECKS_MAX 64
#define IMAGE_FORMS_MAX 5
/* A VM without KVM is slow: on a busy machine pip's check took 248 s in one. */
#define IMAGE_CHECK_MS (20 * 60 * 1000)

struct image_check {
    char *name;    /* the tool's */
    char *package; /* manifest entry that includes it; "-": every image has it */
    char *shell;   /* the script, without the common prologue; NULL: a check of this program */
    bool is_wanted;
};

enum image_state { IMAGE_NOT_RUN = 0, IMAGE_OK, IMAGE_FAILED };

struct image_result {
    enum image_state state;
    int64_t ms;
    char version[40];
    char message[240]; /* why it failed */
};

struct image_form {
    const char *name;
    enum image_state boot;
    int64_t boot_ms;   /* until its agent answered */
    char message[240]; /* why it was not booted */
};

struct image_report {
    char *image; /* the name */
    char *dir;   /* where it is: without links */
    char *user;  /* the user that runs the checks */
    size_t n_checks, n_forms;
    struct image_check checks[IMAGE_CHECKS_MAX];
    struct image_form forms[IMAGE_FORMS_MAX];
    struct image_result results[IMAGE_FORMS_MAX][IMAGE_CHECKS_MAX];
};

void image_report_done(struct image_report *r);
/* The checks of the directory. With `only` (or NULL) no others; a name that there is not is an
 * error with those that there are. */
int image_checks_load(struct image_report *r, const char *checks_dir, char *const *only,
                      struct bh_error *err);
/* Marks the checks that the manifest.json of the image (r->dir) requires. */
int image_checks_match(struct image_report *r, struct bh_error *err);
/* Runs check i in the box of form f. Only a cancel is an error: a failing check is a result. */
int image_check_run(struct image_report *r, size_t f, size_t i, struct bh_box *box,
                    struct bh_error *err);
/* A tool must report the same version in every form; else the later form has failed. */
void image_report_compare(struct image_report *r);
bool image_report_is_ok(const struct image_report *r); /* something ran and nothing failed */
/* Prints a table with the failures below it, or one JSON document. */
void image_report_print(const struct cli *c, const struct image_report *r);
json_t *image_report_json(const struct image_report *r);
