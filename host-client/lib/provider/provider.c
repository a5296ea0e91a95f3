#include "lib/provider/provider.h"

#include <string.h>

#include "common/cleanup.h"

static const struct provider *const providers[] = {&provider_oci, &provider_process};

const struct provider *provider_at(size_t i)
{
    return i < N_ELEMENTS(providers) ? providers[i] : NULL;
}

const struct provider *provider_find(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(providers); i++)
        if (strcmp(providers[i]->name, name) == 0)
            return providers[i];
    return NULL;
}
