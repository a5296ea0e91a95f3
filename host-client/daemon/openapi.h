#pragma once
/* openapi: the OpenAPI document of the daemon, made of routes.def and of the schemas in schema/. */
#include <jansson.h>

/* NULL: out of memory. */
json_t *openapi_new_document(void);
