/* Projects: what is read of them, who is what to them, and how they lie within each other. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cluster/project.h"

/* With ' for ". */
static json_t *json_of(const char *text)
{
    char copy[1024];
    json_t *o;

    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    o = json_loads(copy, 0, NULL);
    assert_non_null(o);
    return o;
}

static void a_field_that_is_not_valid_is_named(void **state)
{
    static const struct {
        const char *text, *field; /* NULL: it is taken */
    } row[] = {
        {"{}", NULL},
        {"{'quota': 8}", NULL},
        {"{'quota': null, 'borrow': null}", NULL},
        {"{'quota': -1}", "quota"},
        {"{'quota': 1.5}", "quota"},
        {"{'quota': '8'}", "quota"},
        {"{'borrow': 4}", "borrow"}, /* beyond what? */
        {"{'quota': 8, 'borrow': -2}", "borrow"},
        {"{'weight': 0.001}", NULL},
        {"{'weight': 0}", "weight"},
        {"{'weight': 1000.5}", "weight"},
        {"{'weight': 'x'}", "weight"},
        {"{'class': 'guaranteed'}", NULL},
        {"{'class': 'royal'}", "class"},
        {"{'class': null}", "class"},
        {"{'max_priority': 100}", NULL},
        {"{'max_priority': 101}", "max_priority"},
        {"{'max_running': 0, 'max_queued': 0, 'max_devices_per_user': 0}", NULL},
        {"{'max_running': -1}", "max_running"},
        {"{'max_queued': []}", "max_queued"},
        {"{'max_devices_per_user': true}", "max_devices_per_user"},
        {"{'max_time_s': 0}", "max_time_s"},
        {"{'max_time_s': 60, 'default_time_s': 60}", NULL},
        {"{'max_time_s': 60, 'default_time_s': 61}", "default_time_s"},
        {"{'parent': ''}", "parent"},
        {"{'parent': 7}", "parent"},
        {"{'parent': null}", NULL},
        {"{'classes': {'h100': {'quota': 8, 'borrow': null}}}", NULL},
        {"{'classes': {'h100': {'borrow': 4}}}", "classes"},
        {"{'classes': {'h100': {'quota': 8, 'weight': 1}}}", "classes"},
        {"{'classes': {'': {'quota': 8}}}", "classes"},
        {"{'classes': []}", "classes"},
        {"{'members': {'ann': 'manager', 'bob': 'member'}}", NULL},
        {"{'members': {'ann': 'king'}}", "members"},
        {"{'members': {'': 'member'}}", "members"},
        {"{'members': ['ann']}", "members"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(row); i++) {
        struct project p = project_new("p");
        json_t *o = json_of(row[i].text);
        const char *field = project_read(o, &p);

        if (row[i].field ? !field || strcmp(field, row[i].field) != 0 : field != NULL)
            fail_msg("%s: %s", row[i].text, field ? field : "taken");
        json_decref(o);
        json_decref(p.members);
    }
}

static void what_is_kept_comes_back_the_same(void **state)
{
    static const char *const rows[] = {
        "{}",
        "{'quota': 8, 'borrow': 4, 'weight': 2.5, 'class': 'opportunistic', 'parent': 'up', 'max_priority': 70}",
        "{'quota': 8, 'classes': {'a': {'quota': 1, 'borrow': null}, 'b': {'quota': 0, 'borrow': 3}}}",
        "{'max_running': 3, 'max_queued': 0, 'max_time_s': 60, 'default_time_s': 30, 'members': {'ann': 'manager'}}",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct project p = project_new("p"), back = project_new("p");
        json_t *o = json_of(rows[i]), *record, *again;

        assert_null(project_read(o, &p));
        record = project_record(&p);
        assert_null(project_read(record, &back));
        again = project_record(&back);
        if (!json_equal(record, again))
            fail_msg("row %zu", i);
        json_decref(o);
        json_decref(record);
        json_decref(again);
        json_decref(p.members);
        json_decref(back.members);
    }
}

static void a_user_is_what_the_members_say_and_without_a_list_all_are_members(void **state)
{
    struct project p = project_new("p");
    char name[16];

    (void)state;
    assert_int_equal(project_role(&p, "ann"), PROJECT_MEMBER);
    assert_int_equal(project_set_role(&p, "ann", PROJECT_MANAGER), 0);
    assert_int_equal(project_role(&p, "ann"), PROJECT_MANAGER);
    assert_int_equal(project_role(&p, "bob"), PROJECT_STRANGER);
    assert_int_equal(project_set_role(&p, "ann", PROJECT_STRANGER), 0);
    assert_int_equal(project_role(&p, "ann"), PROJECT_STRANGER); /* the list is empty, and there */
    for (int i = 0; i < PROJECT_MEMBERS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "u%d", i);
        assert_int_equal(project_set_role(&p, name, PROJECT_MEMBER), 0);
    }
    assert_int_equal(project_set_role(&p, "more", PROJECT_MEMBER), -ENOSPC);
    assert_int_equal(project_role(&p, "more"), PROJECT_STRANGER);
    assert_int_equal(project_set_role(&p, "u7", PROJECT_MANAGER), 0);
    assert_int_equal(project_role(&p, "u7"), PROJECT_MANAGER);
    json_decref(p.members);
}

static void put(struct projects *all, const char *name, const char *parent)
{
    struct project p = project_new(name);

    (void)snprintf(p.parent, sizeof(p.parent), "%s", parent);
    assert_int_equal(project_put_take(all, &p), 0);
}

static void projects_lie_within_each_other_and_never_in_a_circle(void **state)
{
    struct projects all = {.n = 0};
    struct project p = project_new("new");
    char name[16], up[16];

    (void)state;
    put(&all, "a", "");
    put(&all, "b", "a");
    put(&all, "c", "b");
    assert_true(project_is_within(&all, project_find(&all, "c"), project_find(&all, "a")));
    assert_false(project_is_within(&all, project_find(&all, "a"), project_find(&all, "c")));
    assert_true(project_is_within(&all, project_find(&all, "a"), project_find(&all, "a")));
    assert_false(project_is_within(&all, NULL, project_find(&all, "a")));
    assert_true(project_has_inner(&all, project_find(&all, "b")));
    assert_false(project_has_inner(&all, project_find(&all, "c")));
    assert_string_equal(project_parent(&all, project_find(&all, "c"))->name, "b");
    assert_null(project_check_parent(&all, &p)); /* within none */
    memcpy(p.parent, "gone", 5);
    assert_non_null(strstr(project_check_parent(&all, &p), "no project"));
    p = *project_find(&all, "a");
    memcpy(p.parent, "c", 2);
    assert_non_null(strstr(project_check_parent(&all, &p), "within it"));
    memcpy(p.parent, "a", 2);
    assert_non_null(strstr(project_check_parent(&all, &p), "is itself"));
    assert_true(project_ends(&all, project_find(&all, "c")));
    memcpy(project_find(&all, "a")->parent, "c", 2); /* as a store may say */
    assert_false(project_ends(&all, project_find(&all, "c")));
    assert_false(project_is_within(&all, project_find(&all, "c"), &p));
    project_clear(&all);
    for (int i = 0; i <= PROJECT_DEEP; i++) {
        (void)snprintf(name, sizeof(name), "d%d", i);
        (void)snprintf(up, sizeof(up), "d%d", i - 1);
        p = project_new(name);
        if (i > 0)
            memcpy(p.parent, up, sizeof(up));
        assert_null(project_check_parent(&all, &p));
        assert_int_equal(project_put_take(&all, &p), 0);
    }
    p = project_new("deeper");
    memcpy(p.parent, name, sizeof(name));
    assert_non_null(strstr(project_check_parent(&all, &p), "too deep"));
    project_clear(&all);
}

static void there_are_so_many_projects_and_the_rest_stay_when_one_goes(void **state)
{
    struct projects all = {.n = 0};
    struct project p;
    char name[16];

    (void)state;
    for (int i = 0; i < PROJECT_MOST; i++) {
        (void)snprintf(name, sizeof(name), "p%d", i);
        put(&all, name, "");
    }
    p = project_new("more");
    p.members = json_object();
    assert_int_equal(project_put_take(&all, &p), -ENOSPC); /* which has taken its members over */
    p = project_new("p1");
    p.quota = 5;
    assert_int_equal(project_put_take(&all, &p), 0);
    assert_int_equal(all.n, PROJECT_MOST);
    project_drop(&all, project_find(&all, "p0"));
    assert_null(project_find(&all, "p0"));
    assert_int_equal(project_find(&all, "p1")->quota, 5);
    assert_non_null(project_find(&all, name));
    project_clear(&all);
}

static void limits_are_of_a_class_or_of_all(void **state)
{
    struct project p = project_new("p");

    (void)state;
    assert_true(project_most(&p, NULL) == INT64_MAX);
    p.quota = 8;
    p.borrow = 0;
    assert_int_equal(project_most(&p, NULL), 8);
    p.borrow = 4;
    assert_int_equal(project_most(&p, NULL), 12);
    assert_true(project_most(&p, "h100") == INT64_MAX); /* the class has no limit of its own */
    p.classes[p.n_classes++] = (struct project_class){.name = "h100", .quota = 2, .borrow = 1};
    assert_int_equal(project_most(&p, "h100"), 3);
    p.classes[0].borrow = -1;
    assert_true(project_most(&p, "h100") == INT64_MAX);
    assert_int_equal(project_time_s(NULL), 0);
    assert_int_equal(project_time_s(&p), 0);
    p.max_time_s = 60;
    assert_int_equal(project_time_s(&p), 60);
    p.default_time_s = 30;
    assert_int_equal(project_time_s(&p), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_that_is_not_valid_is_named),
        cmocka_unit_test(what_is_kept_comes_back_the_same),
        cmocka_unit_test(a_user_is_what_the_members_say_and_without_a_list_all_are_members),
        cmocka_unit_test(projects_lie_within_each_other_and_never_in_a_circle),
        cmocka_unit_test(there_are_so_many_projects_and_the_rest_stay_when_one_goes),
        cmocka_unit_test(limits_are_of_a_class_or_of_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
