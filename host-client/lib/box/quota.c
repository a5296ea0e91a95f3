#include "lib/box/quota.h"

#include <string.h>

#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/store_access.h"

#define OWNER_LABEL "owner="

const char *quota_owner(const struct spec *s)
{
    for (char **label = s->labels; label && *label; label++)
        if (str_has_prefix(*label, OWNER_LABEL))
            return *label + strlen(OWNER_LABEL);
    return "";
}

/* Of all boxes of one owner. */
struct quota_use {
    const char *owner;
    uint64_t boxes, cpu_millis, memory_bytes, disk_bytes;
};

static bool is_owners_row(json_t *labels, const char *owner)
{
    json_t *label;
    size_t i;

    json_array_foreach (labels, i, label) {
        const char *text = json_string_value(label);

        if (text && str_has_prefix(text, OWNER_LABEL) && str_eq(text + strlen(OWNER_LABEL), owner))
            return true;
    }
    return false;
}

static int add_use(void *arg, struct box_row *row)
{
    struct quota_use *use = arg;

    if (!is_owners_row(json_object_get(row->spec, "labels"), use->owner))
        return 0;
    use->boxes++;
    use->cpu_millis += (uint64_t)json_integer_value(json_object_get(row->spec, "cpu_millis"));
    use->memory_bytes += (uint64_t)json_integer_value(json_object_get(row->spec, "memory_bytes"));
    use->disk_bytes += (uint64_t)json_integer_value(json_object_get(row->spec, "disk_bytes"));
    return 0;
}

struct quota_row {
    const char *field;
    uint64_t used, wanted, quota; /* quota 0: none */
    uint64_t unit;                /* of the message */
    const char *suffix;
};

static int check_quota_row(const struct quota_row *row, const char *owner, struct err *e)
{
    double unit = (double)row->unit;

    if (!row->quota)
        return 0;
    if (!row->wanted)
        return err_field(e, ERR_EXHAUSTED, row->field,
                         "%s: the quota of '%.64s' bounds it: the box needs a limit", row->field,
                         owner);
    if (row->used + row->wanted <= row->quota)
        return 0;
    return err_field(e, ERR_EXHAUSTED, row->field,
                     "%s: the boxes of '%.64s' use %.15g%s of %.15g%s, no room for %.15g%s more",
                     row->field, owner, (double)row->used / unit, row->suffix,
                     (double)row->quota / unit, row->suffix, (double)row->wanted / unit,
                     row->suffix);
}

int quota_check(struct store *store, const struct spec *s, struct err *e)
{
    struct quota_use use = {.owner = quota_owner(s)};
    struct store_quota q = {0};
    int r = *use.owner ? store_get_quota(store, use.owner, &q, e) : 0;

    if (r < 0 || !*q.owner)
        return r;
    r = store_list(store, add_use, &use, e);
    const struct quota_row rows[] = {
        {"boxes", use.boxes, 1, q.boxes, 1, ""},
        {"cpus", use.cpu_millis, s->cpu_millis, q.cpu_millis, 1000, ""},
        {"memory", use.memory_bytes, s->memory_bytes, q.memory_bytes, 1 << 20, "M"},
        {"disk", use.disk_bytes, s->disk_bytes, q.disk_bytes, 1 << 20, "M"},
    };

    for (size_t i = 0; r == 0 && i < sizeof(rows) / sizeof(rows[0]); i++)
        r = check_quota_row(&rows[i], use.owner, e);
    return r;
}
