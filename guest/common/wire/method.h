#pragma once
/*
 * method: the native API's methods by number and name, from rpc.def: RPC_exec_run is "Exec/Run".
 */
enum rpc_method {
#define R(service, method, fn, kind, flags) RPC_##fn,
#include "common/wire/rpc.def"
#undef R
    RPC_N_METHODS
};

static inline const char *rpc_method_name(enum rpc_method m)
{
    static const char *const names[] = {
#define R(service, method, fn, kind, flags) service "/" method,
#include "common/wire/rpc.def"
#undef R
    };

    return names[m];
}
