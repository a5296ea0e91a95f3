#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd_image.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

extern char **environ;

int cli_image_operand(char *const *operands, const char **ret, struct bh_error *err)
{
    const char *image = operands[0] ? operands[0] : "./e2b.toml";

    if (!operands[0] && access(image, F_OK) < 0)
        return cli_fail(err, BH_NOT_FOUND, "image",
                        "there is no %s here: name an image ('bellhop image ls'), or write one",
                        image);
    *ret = image;
    return 0;
}

/* ---- ls ---- */

static int list_one(void *arg, const struct bh_image_info *i)
{
    struct cli_listing *l = arg;
    char size[24], boxes[16];

    if (l->json)
        return json_array_append_new(
            l->json, json_pack("{s:s, s:s, s:b, s:b, s:s, s:s, s:s, s:I, s:I}", "name", i->name,
                               "version", i->version, "built", *i->path != '\0', "replaced",
                               i->replaced, "path", i->path, "hash", i->hash, "forms", i->forms,
                               "bytes", (json_int_t)i->bytes, "boxes", (json_int_t)i->boxes));
    (void)snprintf(boxes, sizeof(boxes), "%u", i->boxes);
    /* A replaced image is named by its directory. */
    cli_table_add(l->table,
                  (const char *const[]){i->replaced ? path_name(i->path) : i->name, i->version,
                                        *i->path ? str_format_size(i->bytes, size, sizeof(size))
                                                 : "not built",
                                        *i->path ? boxes : "", *i->path ? i->forms : "", NULL});
    return 0;
}

static int image_ls(struct cli *c, const struct image_args *a, char **operands,
                    struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "VERSION", "SIZE", "BOXES", "FORMS", NULL};
    struct cli_listing l;
    int r;

    (void)a;
    (void)operands;
    cli_listing_begin(&l, c, heads);
    r = bh_image_list(c->ctx, list_one, &l, err);
    return cli_listing_end(&l, "images", r);
}

/* ---- build ---- */

static const char *const all_forms[] = {"squashfs", "tar", "oci", "vm", "dockerfile", NULL};

static int image_build(struct cli *c, const struct image_args *a, char **operands,
                       struct bh_error *err)
{
    struct bh_image_build_options o = {.size = sizeof(o),
                                       .forms =
                                           a->forms ? (const char *const *)a->forms : all_forms,
                                       .fresh = a->fresh,
                                       .host_env = (const char *const *)environ};
    _cleanup_free_ char *path = NULL;
    int r = cli_image_operand(operands, &o.image, err);

    if (r == 0)
        r = bh_image_build(c->ctx, &o, &path, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "path", path));
    (void)puts(path);
    return EXIT_CLI_OK;
}

/* ---- inspect ---- */

static int image_inspect(struct cli *c, const struct image_args *a, char **operands,
                         struct bh_error *err)
{
    _cleanup_free_ char *text = NULL;
    json_t *doc;
    int r = bh_image_inspect(c->ctx, operands[0], &text, err);

    (void)a;
    if (r < 0)
        return r;
    doc = json_loads(text, 0, NULL);
    if (c->json)
        return cli_print_json_take(doc);
    if (doc)
        (void)json_dumpf(doc, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(doc);
    return EXIT_CLI_OK;
}

/* ---- rm ---- */

static int collect_replaced(void *arg, const struct bh_image_info *i)
{
    return *i->path && !i->boxes ? json_array_append_new(arg, json_string(i->path)) : 0;
}

static int remove_all(struct cli *c, json_t *paths, struct bh_error *err)
{
    json_t *path;
    size_t i;
    int r = bh_image_list(c->ctx, collect_replaced, paths, err);

    json_array_foreach (paths, i, path) {
        if (r == 0)
            r = bh_image_remove(c->ctx, json_string_value(path), err);
    }
    return r;
}

static int image_rm(struct cli *c, const struct image_args *a, char **operands,
                    struct bh_error *err)
{
    const char *image = operands[0];
    json_t *paths = json_array();
    int r;

    if (a->all == (image != NULL)) {
        json_decref(paths);
        return cli_fail(err, BH_INVALID_ARGUMENT, "image",
                        "image rm needs an image's name, or --all");
    }

    if (a->all) {
        r = remove_all(c, paths, err);
    } else {
        r = bh_image_remove(c->ctx, image, err);
        (void)json_array_append_new(paths, json_string(image));
    }
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "removed", paths));
    if (r == 0 && a->all && !c->quiet)
        (void)printf("%zu removed\n", json_array_size(paths));
    json_decref(paths);
    return r;
}

/* ---- the verbs ---- */

/* Forms of build, then of test; some are both. */
static const char *const image_forms[] = {"squashfs",   "dir",    "tar",    "oci",  "vm",
                                          "dockerfile", "docker", "podman", "qemu", NULL};

static const struct cli_option image_options[] = {
    {"form", 'f', CLI_LIST, offsetof(struct image_args, forms), "FORM",
     "build: make only this form; test: boot only this form; repeatable", image_forms},
    {"fresh", 0, CLI_FLAG, offsetof(struct image_args, fresh), NULL,
     "build: rebuild every layer, with Debian's newest packages", NULL},
    {"all", 0, CLI_FLAG, offsetof(struct image_args, all), NULL,
     "rm: remove every image that no box uses", NULL},
    {"check", 0, CLI_LIST, offsetof(struct image_args, checks), "TOOL",
     "test: check only this tool; repeatable", NULL},
    {0},
};

/* A verb is a row: its operands, the options that it takes, its function. */
struct verb {
    const char *name;
    unsigned min_operands, max_operands;
    bool takes_form, takes_fresh, takes_all, takes_check;
    int (*run)(struct cli *c, const struct image_args *a, char **operands, struct bh_error *err);
};

static const struct verb image_verbs[] = {
    {.name = "ls", .run = image_ls},
    {.name = "build",
     .max_operands = 1,
     .takes_form = true,
     .takes_fresh = true,
     .run = image_build},
    {.name = "test",
     .max_operands = 1,
     .takes_form = true,
     .takes_check = true,
     .run = cli_image_test},
    {.name = "inspect", .min_operands = 1, .max_operands = 1, .run = image_inspect},
    {.name = "rm", .max_operands = 1, .takes_all = true, .run = image_rm},
};

/* A flag of another verb is an error, since it would have no effect. */
static int check_options(const struct cli *c, const struct verb *v, struct bh_error *err)
{
    const struct {
        const char *name;
        bool is_taken;
    } options[] = {
        {"form", v->takes_form},
        {"fresh", v->takes_fresh},
        {"all", v->takes_all},
        {"check", v->takes_check},
    };

    for (size_t i = 0; i < N_ELEMENTS(options); i++)
        if (!options[i].is_taken && cli_source_of(c, options[i].name) == CLI_FROM_FLAG)
            return cli_fail(err, BH_INVALID_ARGUMENT, options[i].name, "'image %s' takes no --%s",
                            v->name, options[i].name);
    return 0;
}

static int check_verb_operands(const struct verb *v, char *const *operands, struct bh_error *err)
{
    size_t n = strv_len(operands);

    if (n < v->min_operands || n > v->max_operands)
        return cli_fail(err, BH_INVALID_ARGUMENT, "operands", "'image %s' takes %s", v->name,
                        v->max_operands ? "the name of an image" : "no name");
    return n && !*operands[0] ? cli_fail(err, BH_INVALID_ARGUMENT, "image", "which image?") : 0;
}

static int run_image(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    for (size_t i = 0; i < N_ELEMENTS(image_verbs); i++) {
        int r;

        if (!str_eq(image_verbs[i].name, operands[0]))
            continue;
        r = check_verb_operands(&image_verbs[i], operands + 1, err);
        if (r == 0)
            r = check_options(c, &image_verbs[i], err);
        return r < 0 ? r : image_verbs[i].run(c, args, operands + 1, err);
    }
    return cli_fail(err, BH_INVALID_ARGUMENT, "operands",
                    "there is no 'image %.40s': ls, build, test, inspect or rm", operands[0]);
}

const struct cli_command cmd_image = {
    .name = "image",
    .group = "Machine",
    .operands = "ls|build|test|inspect|rm [IMAGE]",
    .summary = "build, list, test and remove images",
    .details =
        "IMAGE is NAME or NAME:VERSION of a template: one of Bellhop's ('image ls' lists them), "
        "or\n"
        "your own, as the path of an e2b.toml or of its directory. For build and test the default\n"
        "is ./e2b.toml. An image that 'image ls' shows as NAME-HASH was replaced by a newer "
        "build.\n"
        "\n"
        "'image build' makes every form that is missing, or only those given with --form: "
        "squashfs\n"
        "for boxes of the oci provider, oci for docker load and podman load, vm for QEMU, "
        "dockerfile\n"
        "for docker build. A layer is rebuilt only if its input has changed.\n"
        "\n"
        "'image test' boots the image as a box (oci), in Docker, in Podman and in QEMU, runs "
        "every\n"
        "tool of the image on real data through the guest agent, and checks the output. It prints "
        "a\n"
        "table; the exit status is 1 if anything failed. A form whose engine this machine lacks "
        "is\n"
        "reported and skipped, unless it was named with --form. The form 'dockerfile' is tested "
        "only\n"
        "if it is named: it builds the image's Dockerfile (BUILDER=docker, podman or buildah;\n"
        "BASE=IMAGE sets the base) and boots the result.",
    .examples = "  bellhop image build  # ./e2b.toml, in every form\n"
                "  bellhop image build base --form squashfs  # one of ours, as boxes want it\n"
                "  bellhop up --image base  # builds it when it is missing\n"
                "  bellhop image rm base:1.0.0\n"
                "  bellhop image test slim  # every form, every tool\n"
                "  bellhop image test base --form oci --check ffmpeg  # one form, one tool\n",
    .options = image_options,
    .args_bytes = sizeof(struct image_args),
    .min_operands = 1,
    .max_operands = 2,
    .flags = CLI_CHANGES,
    .run = run_image,
};

/* ---- VERBS ---- */
