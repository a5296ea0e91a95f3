#include "lib/box/lease_file.h"

#include <fcntl.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"

#define NAME "lease.json"
#define FILE_BYTES 4096
#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_BYTES 64

static int read_boot_id(char out[BOOT_ID_BYTES], struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = io_read_file(AT_FDCWD, BOOT_ID_PATH, BOOT_ID_BYTES - 1, &text, &len, e);

    if (r < 0)
        return r;
    text[strcspn(text, "\n")] = '\0';
    (void)snprintf(out, BOOT_ID_BYTES, "%s", text);
    return 0;
}

int lease_file_save(const char *box_dir, const struct lease_facts *facts, struct err *e)
{
    _cleanup_free_ char *path = path_join(box_dir, NAME);
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *obj = NULL;
    char boot[BOOT_ID_BYTES];
    size_t len = 0;
    int r = path ? read_boot_id(boot, e) : err_oom(e);

    if (r < 0)
        return r;
    obj = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "boot_id", boot, "deadline_mono_ms",
                    (json_int_t)facts->deadline_mono_ms, "used_mono_ms",
                    (json_int_t)facts->used_mono_ms, "awake_until_mono_ms",
                    (json_int_t)facts->awake_until_mono_ms, "looked_mono_ms",
                    (json_int_t)facts->looked_mono_ms, "cpu_ms", (json_int_t)facts->cpu_ms);
    r = obj ? jx_dump(obj, &text, &len, e) : err_oom(e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, false, e);
}

struct stored {
    const char *boot_id;
    struct lease_facts facts;
};

bool lease_file_load(const char *box_dir, struct lease_facts *ret)
{
    static const struct jx_field fields[] = {
        JX(struct stored, boot_id, jx_str, JX_REQUIRED),
        JX_AS("deadline_mono_ms", struct stored, facts.deadline_mono_ms, jx_i64, JX_REQUIRED),
        JX_AS("used_mono_ms", struct stored, facts.used_mono_ms, jx_i64, JX_REQUIRED),
        JX_AS("awake_until_mono_ms", struct stored, facts.awake_until_mono_ms, jx_i64, JX_REQUIRED),
        JX_AS("looked_mono_ms", struct stored, facts.looked_mono_ms, jx_i64, JX_REQUIRED),
        JX_AS("cpu_ms", struct stored, facts.cpu_ms, jx_i64, JX_REQUIRED),
        {0},
    };
    _cleanup_free_ char *path = path_join(box_dir, NAME);
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *obj = NULL;
    struct stored in = {0};
    char boot[BOOT_ID_BYTES];
    size_t len = 0;

    if (!path || read_boot_id(boot, NULL) < 0 ||
        io_read_file(AT_FDCWD, path, FILE_BYTES, &text, &len, NULL) < 0 ||
        jx_parse(text, len, &obj, NULL) < 0 || jx_decode_lax(obj, fields, &in, NULL) < 0 ||
        !str_eq(in.boot_id, boot))
        return false;
    *ret = in.facts;
    return true;
}
