#include "test.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "lib/project/project.h"
#include "lib/provider/spec.h"

static struct project of_url(const char *url)
{
    struct bh_create_options o = {.size = sizeof(o), .repo_url = url};
    struct project p = {0};
    struct err e = {0};

    T_INT(project_read(NULL, &o, &p, &e), 0);
    return p;
}

TEST(a_repository_is_named_as_git_clone_names_it)
{
    static const char *const cases[][3] = {
        {"https://host/org/api.git/", "api", "https://host/org/api.git/"},
        {"https://me:word@host/org/My_App.v2", "my-app-v2", "https://host/org/My_App.v2"},
        {"https://host/a@b/c?x=y", "c", "https://host/a@b/c?x=y"},
        {"file:///srv/...", "box", "file:///srv/..."},
    };

    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        struct project p = of_url(cases[i][0]);

        T_STR(p.base, cases[i][1]);
        T_STR(p.remote, cases[i][2]);
        T_STR(p.path, "");
        project_done(&p);
    }
}

TEST(every_name_of_a_project_is_a_name_and_none_is_another)
{
    char long_url[200] = "https://host/";
    struct project p;

    memset(long_url + strlen(long_url), 'a', 100);
    p = of_url(long_url);
    for (size_t i = 0; i < PROJECT_N_NAMES; i++) {
        char name[PROJECT_NAME_BYTES], other[PROJECT_NAME_BYTES];

        project_name(&p, i, name);
        T_OK(spec_is_name(name));
        for (size_t k = 0; k < i; k++) {
            project_name(&p, k, other);
            T_OK(strcmp(name, other) != 0);
        }
    }
    project_done(&p);
}

TEST(the_hash_is_of_the_whole_address_and_stays_the_same)
{
    struct project a = of_url("https://one/app"), b = of_url("https://two/app.git");
    struct project c = of_url("https://two/app/");
    char name_a[PROJECT_NAME_BYTES], name_b[PROJECT_NAME_BYTES], name_c[PROJECT_NAME_BYTES];

    project_name(&a, 1, name_a);
    project_name(&b, 1, name_b);
    project_name(&c, 1, name_c);
    T_OK(strcmp(name_a, name_b) != 0);
    T_STR(name_b, name_c);
    project_done(&a);
    project_done(&b);
    project_done(&c);
}

TEST(a_box_is_a_projects_when_path_or_url_are_the_same)
{
    struct project url = of_url("https://host/app");
    struct project dir = {.path = (char *)"/a/app", .remote = (char *)"https://host/app"};

    T_OK(project_has_box(&url, "", "https://host/app.git"));
    T_OK(!project_has_box(&url, "", "https://other/app"));
    T_OK(!project_has_box(&url, "/a/app", "https://host/app"));
    T_OK(project_has_box(&url, NULL, ""));
    T_OK(project_has_box(&dir, "/a/app", ""));
    T_OK(!project_has_box(&dir, "/b/app", "https://host/app"));
    T_OK(!project_has_box(&dir, "", "https://host/app"));
    T_OK(!project_has_box(&dir, "", ""));
    T_OK(project_has_box(&dir, NULL, ""));
    project_done(&url);
}
