#pragma once
/* dialects: the one table of the public protocols that this agent speaks. */
#include "api/dialect.h"

extern const struct dialect *const dialects[]; /* NULL-terminated; the native API first */
