/*
 * C++ of the guest for data is compiled with -fignore-exceptions: nothing catches. What
 * throws all the same, which pocketfft does when memory is short, ends the session.
 */
#include <stdio.h>
#include <stdlib.h>

void *__cxa_allocate_exception(size_t n) { return malloc(n); }

_Noreturn void __cxa_throw(void *exception, void *type, void *destructor)
{
    (void)exception, (void)type, (void)destructor;
    fputs("python: a C++ module threw an exception, as when memory is short; the guest cannot go on\n", stderr);
    abort();
}
