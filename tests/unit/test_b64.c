#include "common/str.h"

#include "test.h"

TEST(b64_knows_the_examples_of_the_rfc)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        size_t len = strlen(pairs[i][0]);
        char text[16] = "", back[16] = "";
        size_t n = 99;

        b64_encode(pairs[i][0], len, text);
        T_STR(text, pairs[i][1]);
        T_INT(B64_LEN(len), strlen(text));
        T_INT(b64_decode(text, strlen(text), back, &n, NULL), 0);
        T_INT(n, len);
        T_MEM(back, pairs[i][0], len);
    }
}

TEST(b64_refuses_what_is_not)
{
    static const char *const bad[] = {"Zg",    "Zg=",      "Z===", "Zm 9",
                                      "Zm9\n", "Zg==Zg==", "====", "Zm-_"};
    char out[16];
    size_t n;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        T_INT(b64_decode(bad[i], strlen(bad[i]), out, &n, NULL), -ERR_INVALID);
}
