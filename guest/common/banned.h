#pragma once
/*
 * banned: functions that this project does not use, with what to use instead. Included last, so
 * that system headers may still declare them.
 */
#pragma GCC poison strerror strtok strcpy strcat sprintf vsprintf gets
#pragma GCC poison atoi atol atoll strtol strtoul strtoll strtoull
#pragma GCC poison localtime gmtime ctime asctime
