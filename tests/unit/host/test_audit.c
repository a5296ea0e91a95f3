/* The record of calls: several writers, and what a reader finds wrong. */
#include "test.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "lib/box/audit.h"

#define WRITERS 4
#define LINES 200 /* of each */

static void append(struct audit *a, const char *target)
{
    struct err e = {0};
    json_t *entry = json_pack("{s:s}", "target", target);

    if (audit_append(a, entry, &e) < 0)
        t_fail(__FILE__, __LINE__, "append: %s", e.message);
    json_decref(entry);
}

static struct audit *open_record(void)
{
    struct audit *a = NULL;

    T_INT(audit_open(".", &a, NULL), 0);
    return a;
}

TEST(processes_that_write_at_once_have_one_chain)
{
    pid_t pids[WRITERS];
    uint64_t n = 0;
    struct err e = {0};

    for (int i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct audit *a = open_record();

            for (int j = 0; j < LINES; j++)
                append(a, "one");
            (void)audit_close(a);
            _exit(0);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = 0;

        T_INT(waitpid(pids[i], &status, 0), pids[i]);
        T_INT(status, 0);
    }
    if (audit_verify(".", &n, &e) < 0)
        t_fail(__FILE__, __LINE__, "verify: %s", e.message);
    T_INT(n, WRITERS * LINES);
}

TEST(a_line_that_is_too_long_is_refused_and_the_longest_one_is_found_again)
{
    struct audit *a = open_record();
    json_t *entry = json_object();
    char *text = malloc(AUDIT_LINE_BYTES);
    uint64_t n = 0;

    T_OK(text != NULL);
    memset(text, 'x', AUDIT_LINE_BYTES - 1);
    text[AUDIT_LINE_BYTES - 1] = '\0';
    (void)json_object_set_new(entry, "target", json_string(text));
    T_INT(audit_append(a, entry, NULL), -ERR_EXHAUSTED);
    text[AUDIT_LINE_BYTES - 200] = '\0';
    append(a, text);
    append(a, "next");
    T_INT(audit_verify(".", &n, NULL), 0);
    T_INT(n, 2);
    json_decref(entry);
    free(text);
    (void)audit_close(a);
}

TEST(a_head_that_is_one_line_behind_is_a_crash_and_one_that_is_ahead_is_a_loss)
{
    struct audit *a = open_record();
    _cleanup_free_ char *head = NULL, *record = NULL;
    size_t head_len = 0, record_len = 0;
    uint64_t n = 0;
    struct err e = {0};

    append(a, "one");
    append(a, "two");
    T_INT(io_read_file(AT_FDCWD, "audit.head", 1000, &head, &head_len, NULL), 0);
    T_INT(io_read_file(AT_FDCWD, "audit.jsonl", 10000, &record, &record_len, NULL), 0);
    append(a, "three");
    T_INT(audit_verify(".", &n, NULL), 0);
    T_INT(n, 3);
    T_INT(io_write_file(AT_FDCWD, "audit.jsonl", record, record_len, 0600, false, NULL), 0);
    T_INT(audit_verify(".", &n, &e), -ERR_DATA_LOSS);
    T_OK(strstr(e.message, "lines at its end are missing: it ends with call 2, and had 3") != NULL);
    /* The next line does not hide that: it goes on behind the line that is gone. */
    append(a, "four");
    T_INT(audit_verify(".", &n, &e), -ERR_DATA_LOSS);
    T_OK(strstr(e.message, "audit.jsonl:3: a line before this one is missing") != NULL);
    (void)audit_close(a);
    T_INT(io_write_file(AT_FDCWD, "audit.jsonl", record, record_len, 0600, false, NULL), 0);
    T_INT(io_write_file(AT_FDCWD, "audit.head", head, head_len, 0600, false, NULL), 0);
    a = open_record();
    append(a, "three again");
    T_INT(io_write_file(AT_FDCWD, "audit.head", head, head_len, 0600, false, NULL), 0);
    T_INT(audit_verify(".", &n, NULL), 0);
    T_INT(n, 3);
    (void)audit_close(a);
}
