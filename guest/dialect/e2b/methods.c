#include "dialect/e2b/methods.h"

#include <string.h>

#include "common/cleanup.h"

#define UNARY_KIND RPC_UNARY
#define SOURCE_KIND RPC_SOURCE
#define INFLOW_KIND RPC_INFLOW
#define UNARY_FN(fn) .unary = e2b_##fn
#define SOURCE_FN(fn) .source = e2b_##fn
#define INFLOW_FN(fn) .inflow = e2b_##fn
#define BLOCKS RPC_BLOCKS
#define SINGLE RPC_SINGLE
#define READS RPC_READS
#define QUIET RPC_QUIET
#define KEEPS_TIME RPC_KEEPS_TIME
#define R(service_, name_, fn, kind_, flags_) \
    {.service = service_, \
     .name = name_, \
     .kind = kind_##_KIND, \
     .flags = RPC_DIALECT | (flags_), \
     kind_##_FN(fn)},

static const struct rpc_method methods[] = {
#include "dialect/e2b/methods.def"
};

const struct rpc_method *e2b_method_find(const char *path)
{
    for (size_t i = 0; i < N_ELEMENTS(methods); i++) {
        size_t n = strlen(methods[i].service);

        if (path[0] == '/' && strncmp(path + 1, methods[i].service, n) == 0 && path[n + 1] == '/' &&
            strcmp(path + n + 2, methods[i].name) == 0)
            return &methods[i];
    }
    return NULL;
}

const struct rpc_method *e2b_method_at(size_t i)
{
    return i < N_ELEMENTS(methods) ? &methods[i] : NULL;
}
