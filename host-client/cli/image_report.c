#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/image_test.h"
#include "common/str.h"

/* The version that the first form reported. */
static const char *version_of(const struct image_report *r, size_t check)
{
    for (size_t f = 0; f < r->n_forms; f++)
        if (r->results[f][check].version[0])
            return r->results[f][check].version;
    return "";
}

void image_report_compare(struct image_report *r)
{
    for (size_t i = 0; i < r->n_checks; i++)
        for (size_t f = 0; f < r->n_forms; f++) {
            struct image_result *result = &r->results[f][i];

            if (result->state != IMAGE_OK || str_eq(result->version, version_of(r, i)))
                continue;
            result->state = IMAGE_FAILED;
            (void)snprintf(result->message, sizeof(result->message), "version %s, elsewhere %s",
                           result->version, version_of(r, i));
        }
}

bool image_report_is_ok(const struct image_report *r)
{
    size_t n_ok = 0;

    for (size_t f = 0; f < r->n_forms; f++) {
        if (r->forms[f].boot == IMAGE_FAILED)
            return false;
        for (size_t i = 0; i < r->n_checks; i++) {
            if (r->results[f][i].state == IMAGE_FAILED)
                return false;
            n_ok += r->results[f][i].state == IMAGE_OK;
        }
    }
    return n_ok > 0;
}

/* ---- the table ---- */

static void cell_text_of(enum image_state state, int64_t ms, char *out, size_t out_bytes)
{
    static const char *const words[] = {
        [IMAGE_NOT_RUN] = "-", [IMAGE_OK] = "ok", [IMAGE_FAILED] = "failed"};

    if (state == IMAGE_NOT_RUN)
        (void)snprintf(out, out_bytes, "-");
    else
        (void)snprintf(out, out_bytes, "%-6s %3" PRId64 ".%02d s", words[state], ms / 1000,
                       (int)(ms % 1000 / 10));
}

static void add_row(struct cli_table *t, const struct image_report *r, size_t check)
{
    char cells[IMAGE_FORMS_MAX][32];
    char absent[96];
    const char *row[IMAGE_FORMS_MAX + 3] = {r->checks[check].name, version_of(r, check)};

    if (!r->checks[check].is_wanted) {
        (void)snprintf(absent, sizeof(absent), "not in %s", r->image);
        row[1] = absent;
    }
    for (size_t f = 0; f < r->n_forms; f++) {
        const struct image_result *result = &r->results[f][check];

        cell_text_of(result->state, result->ms, cells[f], sizeof(cells[f]));
        row[f + 2] = r->checks[check].is_wanted ? cells[f] : "";
    }
    cli_table_add(t, row);
}

static void print_failures(const struct image_report *r)
{
    for (size_t f = 0; f < r->n_forms; f++) {
        if (r->forms[f].boot != IMAGE_OK)
            (void)printf("%s: %s: %s\n", r->forms[f].name,
                         r->forms[f].boot == IMAGE_FAILED ? "not booted" : "not tested",
                         cli_text(r->forms[f].message));
        for (size_t i = 0; i < r->n_checks; i++)
            if (r->results[f][i].state == IMAGE_FAILED)
                (void)printf("%s: %s: %s\n", r->forms[f].name, r->checks[i].name,
                             cli_text(r->results[f][i].message));
    }
}

void image_report_print(const struct cli *c, const struct image_report *r)
{
    char cells[IMAGE_FORMS_MAX][32];
    const char *heads[IMAGE_FORMS_MAX + 3] = {"TOOL", "VERSION"};
    const char *boot[IMAGE_FORMS_MAX + 3] = {"boot", ""};
    struct cli_table *t;

    for (size_t f = 0; f < r->n_forms; f++) {
        heads[f + 2] = r->forms[f].name;
        cell_text_of(r->forms[f].boot, r->forms[f].boot_ms, cells[f], sizeof(cells[f]));
        boot[f + 2] = cells[f];
    }
    t = cli_table_new(heads);
    cli_table_add(t, boot);
    for (size_t i = 0; i < r->n_checks; i++)
        add_row(t, r, i);
    cli_table_print_free(t, c->tty_out);
    print_failures(r);
}

/* ---- JSON ---- */

static const char *state_word(enum image_state state)
{
    static const char *const words[] = {
        [IMAGE_NOT_RUN] = "not_run", [IMAGE_OK] = "ok", [IMAGE_FAILED] = "failed"};

    return words[state];
}

static json_t *forms_json(const struct image_report *r)
{
    json_t *forms = json_object();

    for (size_t f = 0; forms && f < r->n_forms; f++) {
        const struct image_form *form = &r->forms[f];

        (void)json_object_set_new(forms, form->name,
                                  json_pack("{s:s, s:I, s:s}", "boot", state_word(form->boot),
                                            "boot_ms", (json_int_t)form->boot_ms, "message",
                                            form->message));
    }
    return forms;
}

static json_t *check_json(const struct image_report *r, size_t check)
{
    json_t *results = json_object();

    for (size_t f = 0; results && f < r->n_forms; f++) {
        const struct image_result *result = &r->results[f][check];

        if (result->state != IMAGE_NOT_RUN)
            (void)json_object_set_new(results, r->forms[f].name,
                                      json_pack("{s:s, s:I, s:s, s:s}", "state",
                                                state_word(result->state), "ms",
                                                (json_int_t)result->ms, "version", result->version,
                                                "message", result->message));
    }
    return json_pack("{s:s, s:s, s:b, s:o}", "tool", r->checks[check].name, "package",
                     r->checks[check].package, "in_image", r->checks[check].is_wanted, "results",
                     results);
}

json_t *image_report_json(const struct image_report *r)
{
    json_t *checks = json_array();

    for (size_t i = 0; checks && i < r->n_checks; i++)
        (void)json_array_append_new(checks, check_json(r, i));
    return json_pack("{s:s, s:s, s:b, s:o, s:o}", "image", r->image, "dir", r->dir, "ok",
                     image_report_is_ok(r), "forms", forms_json(r), "checks", checks);
}
