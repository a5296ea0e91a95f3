#pragma once
/*
 * openapi: the JSON Schemas of common/wire/schema/, which are part of the program, and the OpenAPI
 * document that is made of them and of the tables of methods and routes.
 */
#include <stddef.h>

#include "common/err.h"
#include "common/jsonx.h"

/* One of the files by its name ("exec", "routes"); NULL when there is none. The caller's. */
json_t *schema_new_file(const char *name);
/* All components by name, of all files but "routes". NULL: out of memory. */
json_t *schema_new_components(void);
/* The document. NULL: out of memory. */
json_t *openapi_new_document(void);
