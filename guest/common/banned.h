#pragma once
/*
 * banned: functions that this project does not call. The compiler reads this file before every source
 * (-include, see the Makefile), so the system headers that declare the functions come first here.
 * Instead: "%m", str_parse_...(), str_...() and snprintf().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strerror strtok strcpy strcat sprintf vsprintf gets
#pragma GCC poison atoi atol atoll strtol strtoul strtoll strtoull
#pragma GCC poison localtime gmtime ctime asctime
