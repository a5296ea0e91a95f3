#pragma once
/*
 * musl makes macros of the three streams' names, `(stdin)`, which breaks every struct member called
 * so. The variables themselves are all that is needed.
 */
#include_next <stdio.h>
#undef stdin
#undef stdout
#undef stderr
