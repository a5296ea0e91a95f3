#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd_image.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

extern char **environ;

static const char *const all_forms[] = {"squashfs", "tar", "oci", "vm", "dockerfile", NULL};

/* ---- ls ---- */

struct listing {
    struct cli_table *table;
    json_t *json;
    size_t n;
};

static int list_one(void *arg, const struct bh_image_info *i)
{
    struct listing *l = arg;
    char size[24], boxes[16];

    l->n++;
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

int cli_image_ls(struct cli *c, const struct image_args *a, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "VERSION", "SIZE", "BOXES", "FORMS", NULL};
    struct listing l = {0};
    int r;

    (void)a;
    (void)operands;
    if (c->json)
        l.json = json_array();
    else
        l.table = cli_table_new(heads);
    r = bh_image_list(c->ctx, list_one, &l, err);
    cli_table_print_free(l.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "images", l.json));
    json_decref(l.json);
    return r;
}

/* ---- build ---- */

int cli_image_build(struct cli *c, const struct image_args *a, char **operands,
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

int cli_image_inspect(struct cli *c, const struct image_args *a, char **operands,
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

int cli_image_rm(struct cli *c, const struct image_args *a, char **operands, struct bh_error *err)
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
