#include "test.h"

#include "proc/journal.h"

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)(offset * 31 + (offset >> 8));
}

static void append(struct journal *j, size_t len)
{
    char *data = malloc(len + 1);

    for (size_t i = 0; i < len; i++)
        data[i] = (char)byte_at(j->total + i);
    journal_append(j, data, len);
    free(data);
}

/* Every offset is either read correctly or reported as gone. */
static void check_all(const struct journal *j)
{
    uint64_t tail = j->total - j->tail_len;

    for (uint64_t at = 0; at <= j->total; at++) {
        unsigned char out[7];
        uint64_t held = 0;
        struct err e = {0};
        size_t n = 0;
        int r = journal_read(j, at, out, sizeof(out), &n, &held, &e);

        if (at >= j->head_len && at < tail) {
            T_INT(r, -ERR_DATA_LOSS);
            T_INT(held, tail);
            continue;
        }
        T_INT(r, 0);
        T_OK(n > 0 || at == j->total);
        for (size_t i = 0; i < n; i++)
            T_INT(out[i], byte_at(at + i));
    }
    T_INT(journal_dropped(j), tail - j->head_len);
}

TEST(journal_holds_head_and_tail_for_every_size_and_piece)
{
    static const size_t maxes[][2] = {{0, 0}, {0, 10}, {10, 0}, {10, 10}, {5000, 7000}, {1, 1}};
    static const size_t pieces[] = {1, 3, 9, 10, 11, 20, 4097};

    for (size_t m = 0; m < sizeof(maxes) / sizeof(maxes[0]); m++) {
        for (size_t k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
            struct journal_budget b = {.max = 1 << 20};
            size_t total = maxes[m][0] + maxes[m][1];
            struct journal j;

            journal_init(&j, &b, maxes[m][0], maxes[m][1]);
            for (size_t n = 0; n < total * 3 / pieces[k] + 3; n++)
                append(&j, pieces[k]);
            check_all(&j);
            T_OK(j.head_len + j.tail_len <= total);
            if (total <= j.total)
                T_INT(j.head_len + j.tail_len, total);
            journal_done(&j);
            T_INT(b.used, 0);
        }
    }
}

TEST(journal_without_budget_counts_what_it_drops)
{
    struct journal_budget b = {.max = 8192};
    struct journal j, k;

    journal_init(&j, &b, 4096, 4096);
    journal_init(&k, &b, 4096, 4096);
    append(&j, 10000);
    append(&k, 100);
    T_INT(b.used, 8192);
    T_INT(k.total, 100);
    T_INT(journal_dropped(&k), 100);
    check_all(&j);
    check_all(&k);
    journal_evict(&j);
    T_INT(journal_dropped(&j), 10000);
    append(&k, 50); /* there is room again, for the tail */
    T_INT(journal_dropped(&k), 100);
    check_all(&k);
    journal_done(&j);
    journal_done(&k);
    T_INT(b.used, 0);
}

TEST(journal_evicted_goes_on_with_its_tail)
{
    struct journal_budget b = {.max = 1 << 20};
    struct journal j;

    journal_init(&j, &b, 10, 10);
    append(&j, 15);
    journal_evict(&j);
    append(&j, 5);
    T_INT(j.total, 20);
    T_INT(journal_dropped(&j), 15);
    check_all(&j);
    journal_done(&j);
}

TEST(journal_read_past_the_end_is_out_of_range)
{
    struct journal_budget b = {.max = 1 << 20};
    struct err e = {0};
    struct journal j;
    uint64_t held;
    char out[4];
    size_t n;

    journal_init(&j, &b, 10, 10);
    append(&j, 3);
    T_INT(journal_read(&j, 4, out, 4, &n, &held, &e), -ERR_RANGE);
    T_STR(e.field, "offset");
    T_INT(journal_read(&j, 3, out, 4, &n, &held, &e), 0);
    T_INT(n, 0);
    journal_done(&j);
}
