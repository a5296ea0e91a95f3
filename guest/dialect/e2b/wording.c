#include "dialect/e2b/wording.h"

#include "common/str.h"

/* A message may quote a name that is no text. */
static json_t *new_text(const struct err *error)
{
    struct err copy = *error;

    str_make_utf8(copy.message);
    return json_string(copy.message);
}

json_t *wording_new_rest_error(const struct err *error, int status)
{
    return json_pack("{s:i, s:o}", "code", status, "message", new_text(error));
}

void wording_make_rpc_error(struct err *error)
{
    error->field[0] = '\0';
    error->detail_name[0] = '\0';
}

int wording_deadline(struct err *e)
{
    return err_set(e, ERR_DEADLINE, "context deadline exceeded");
}
