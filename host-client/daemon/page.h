#pragma once
/*
 * page: the status page, whose files (page/) are embedded at build time. Serves them with tags, and with a content
 * security policy that allows no inline script. It needs no token: the page asks for it, and sends it with each request.
 */
#include "http/request.h"

extern const struct request_ops page_ops;
