/* test.h - what every cmocka file includes, in the order cmocka wants */
#ifndef MUSTER_TESTS_UNIT_TEST_H
#define MUSTER_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
