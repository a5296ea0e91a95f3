#include "lib/provider/image_user.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"

#define MANIFEST_BYTES ((size_t)1 << 20)

int image_user_of(const struct spec *spec, struct image_user *ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(spec->image_dir, "manifest.json");
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *manifest = NULL;
    const char *name, *home, *image, *version;
    json_t *user;
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, MANIFEST_BYTES, &text, &len, e) : err_oom(e);

    if (r == 0)
        r = jx_parse(text, len, &manifest, e);
    if (r < 0)
        return err_wrap(e, r, "the image '%s'", spec->image_dir);
    user = json_object_get(manifest, "user");
    name = json_string_value(json_object_get(user, "name"));
    home = json_string_value(json_object_get(user, "home"));
    image = json_string_value(json_object_get(manifest, "name"));
    version = json_string_value(json_object_get(manifest, "version"));
    if (!name || !*name || strlen(name) >= sizeof(ret->name))
        return err_field(e, ERR_PRECONDITION, "image", "the image '%s' names no user",
                         spec->image_dir);
    (void)snprintf(ret->name, sizeof(ret->name), "%s", name);
    if (home && *home == '/' && strlen(home) < sizeof(ret->home))
        (void)snprintf(ret->home, sizeof(ret->home), "%s", home);
    else
        (void)snprintf(ret->home, sizeof(ret->home), "/home/%s", name);
    ret->ref[0] = '\0';
    if (image && version)
        (void)snprintf(ret->ref, sizeof(ret->ref), "%s:%s", image, version);
    ret->uid = (uint32_t)json_integer_value(json_object_get(user, "uid"));
    ret->gid = (uint32_t)json_integer_value(json_object_get(user, "gid"));
    return 0;
}
