#include "api/rpc.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/wire/wire.h"

#define UNARY_KIND RPC_UNARY
#define SOURCE_KIND RPC_SOURCE
#define UNARY_FN(fn) .unary = rpc_##fn
#define SOURCE_FN(fn) .source = rpc_##fn
#define BLOCKS RPC_BLOCKS
#define SINGLE RPC_SINGLE
#define READS RPC_READS
#define QUIET RPC_QUIET
#define LARGE 0 /* the client's */
#define R(service_, name_, fn, kind_, flags_) \
    {.service = service_, .name = name_, .kind = kind_##_KIND, .flags = flags_, kind_##_FN(fn)},

static const struct rpc_method methods[] = {
#include "common/wire/rpc.def"
};

const struct rpc_method *rpc_find(const char *path)
{
    static const char prefix[] = "/" WIRE_SERVICE_PREFIX;

    if (strncmp(path, prefix, sizeof(prefix) - 1) != 0)
        return NULL;
    path += sizeof(prefix) - 1;
    for (size_t i = 0; i < N_ELEMENTS(methods); i++) {
        size_t n = strlen(methods[i].service);

        if (strncmp(path, methods[i].service, n) == 0 && path[n] == '/' &&
            strcmp(path + n + 1, methods[i].name) == 0)
            return &methods[i];
    }
    return NULL;
}

const struct rpc_method *rpc_at(size_t i)
{
    return i < N_ELEMENTS(methods) ? &methods[i] : NULL;
}
