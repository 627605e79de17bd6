/*
 * The entry points of the CPython guest. A WASI "reactor": the interpreter
 * stays alive between calls, and the host talks to it through one request
 * function and one host call, both of which carry bytes.
 *
 * Exports
 *   pd_init() -> 0 or 1          start the interpreter and import the driver
 *   pd_alloc(n) -> address       memory for a request (0: out of memory)
 *   pd_free(address)
 *   pd_request(address, n) -> (address << 32) | length of the answer, or 0
 *                                with pd_failure() saying why there is none
 *   pd_failure() -> 1 out of memory, 2 interrupted, 3 anything else
 *   pd_interrupts() -> address   what the host writes to raise
 *                                KeyboardInterrupt: a count, then that many
 *                                pairs (address, bits to set), all u32
 * Imports, module "paddock"
 *   call(address, n) -> length   one message to the host, its answer's length
 *                                (negative: the host refused)
 *   take(address, cap)           fetches that answer
 *   blocks(algorithm, state, address, n)
 *                                hashes n bytes, whole blocks and at most
 *                                256 KiB, into a state of HACL's (1 SHA-1,
 *                                2 SHA-256 and SHA-224, 3 SHA-512 and SHA-384)
 *   tick()                       called by the instrumented loops
 */
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#include "internal/pycore_ceval.h"
#include "internal/pycore_pystate.h"
#include "internal/pycore_runtime.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name
#define IMPORT(name) __attribute__((import_module("paddock"), import_name(#name)))

int32_t IMPORT(call) host_call(const void *message, int32_t length);
void IMPORT(take) host_take(void *answer, int32_t capacity);
void IMPORT(blocks) host_blocks(int32_t algorithm, void *state, const uint8_t *data, uint32_t length);
void IMPORT(tick) host_tick(void);

/* Keeps the import alive: only the instrumented code calls it. */
void EXPORT(pd_tick)(void) { host_tick(); }

enum failure { FAILED_MEMORY = 1, FAILED_INTERRUPTED = 2, FAILED_OTHER = 3 };

static PyObject *handle;   /* the driver's handle(bytes) -> bytes */
static PyObject *answer;   /* the last answer, kept until the next request */
static int32_t failure;
static uint32_t interrupts[1 + 2 * 3];

static PyObject *paddock_call(PyObject *self, PyObject *message)
{
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(message, &bytes, &length) < 0) {
        return NULL;
    }
    int32_t n = host_call(bytes, (int32_t)length);
    if (n < 0) {
        PyErr_SetString(PyExc_OSError, "the host refused the call");
        return NULL;
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, n);
    if (result != NULL) {
        host_take(PyBytes_AS_STRING(result), n);
    }
    return result;
}

/*
 * An interrupt that hits where Python can raise nothing, in a finalizer or a
 * weak reference's callback, comes again: it is not lost there.
 */
static PyObject *unraisable(PyObject *self, PyObject *what)
{
    PyObject *type = PyObject_GetAttrString(what, "exc_type");
    Py_XDECREF(type); /* it is alive while what is */
    if (type == PyExc_KeyboardInterrupt) {
        PyErr_SetInterrupt();
        Py_RETURN_NONE;
    }
    PyObject *usual = PySys_GetObject("__unraisablehook__");
    if (usual == NULL) {
        Py_RETURN_NONE;
    }
    return PyObject_CallOneArg(usual, what);
}

/*
 * SQLite would take its seed from /dev/urandom, which is not here, and for lack
 * of that from the second: two interpreters drew the same numbers. Now it asks
 * the host.
 */
static int random_bytes(sqlite3_vfs *vfs, int n, char *to)
{
    enum { AT_ONCE = 256 }; /* what getentropy gives */
    for (int done = 0; done < n; done += AT_ONCE) {
        if (getentropy(to + done, n - done < AT_ONCE ? n - done : AT_ONCE) != 0) {
            abort(); /* never: WASI has it */
        }
    }
    return n;
}

static int seed_sqlite(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (vfs == NULL) {
        return 1;
    }
    vfs->xRandomness = random_bytes;
    return 0;
}

static PyObject *reseed(PyObject *self, PyObject *none)
{
    sqlite3_randomness(0, NULL);
    Py_RETURN_NONE;
}

/*
 * WASI has no dup: the host makes one, under the number to, or the lowest that is
 * free where that is negative. Both share an offset, as in POSIX.
 */
static int duplicate(int fd, int to)
{
    char message[64], reply[16];
    int length = snprintf(message, sizeof message, "{\"op\":\"dup\",\"fd\":%d,\"to\":%d}", fd, to);
    int n = host_call(message, length);
    int made = -EIO;
    if (n > 0 && n < (int)sizeof reply) {
        host_take(reply, n);
        reply[n] = 0;
        made = atoi(reply); /* below zero: what errno becomes */
    }
    if (made < 0) {
        errno = -made;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return made;
}

/* In the place of CPython's (--wrap in python.sh): os.dup, and folders by descriptor. */
int __wrap__Py_dup(int fd) { return duplicate(fd, -1); }

/* os.dup2, which CPython leaves out where the C library has none. */
static PyObject *paddock_dup2(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"fd", "fd2", "inheritable", NULL};
    int fd, to, inheritable;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "ii|p:dup2", names, &fd, &to, &inheritable)) {
        return NULL;
    }
    if (to < 0) {
        errno = EBADF;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    int made = duplicate(fd, to);
    return made < 0 ? NULL : PyLong_FromLong(made);
}

static PyMethodDef methods[] = {
    {"call", paddock_call, METH_O, "call(bytes) -> bytes: one message to the host"},
    {"dup2", (PyCFunction)(void (*)(void))paddock_dup2, METH_VARARGS | METH_KEYWORDS, "Duplicate file descriptor."},
    {"reseed", reseed, METH_NOARGS, "has SQLite draw a new seed"},
    {"unraisable", unraisable, METH_O, "sys.unraisablehook"},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_paddock", "The door to the host.", -1, methods,
};

static PyObject *init_module(void) { return PyModule_Create(&definition); }

/*
 * Long inputs are hashed by the host, which has instructions for that; four
 * blocks are where its call begins to pay. The linker puts these functions in
 * the place of HACL's (--wrap in python.sh).
 */
enum { SHA1 = 1, SHA256, SHA512 };
enum { AT_ONCE = 256 << 10 }; /* bytes: nothing interrupts the host */

static int hosted(int32_t algorithm, void *state, const uint8_t *data, uint32_t length, uint32_t block)
{
    if (length < 4 * block) {
        return 0;
    }
    for (; length > AT_ONCE; data += AT_ONCE, length -= AT_ONCE) {
        host_blocks(algorithm, state, data, AT_ONCE);
    }
    host_blocks(algorithm, state, data, length);
    return 1;
}

void __real_Hacl_Hash_SHA1_update_multi(uint32_t *state, uint8_t *blocks, uint32_t n);
void __real_Hacl_Hash_SHA2_sha256_update_nblocks(uint32_t length, uint8_t *blocks, uint32_t *state);
void __real_Hacl_Hash_SHA2_sha512_update_nblocks(uint32_t length, uint8_t *blocks, uint64_t *state);

void __wrap_Hacl_Hash_SHA1_update_multi(uint32_t *state, uint8_t *blocks, uint32_t n)
{
    if (!hosted(SHA1, state, blocks, n * 64, 64)) {
        __real_Hacl_Hash_SHA1_update_multi(state, blocks, n);
    }
}

void __wrap_Hacl_Hash_SHA2_sha256_update_nblocks(uint32_t length, uint8_t *blocks, uint32_t *state)
{
    if (!hosted(SHA256, state, blocks, length, 64)) {
        __real_Hacl_Hash_SHA2_sha256_update_nblocks(length, blocks, state);
    }
}

void __wrap_Hacl_Hash_SHA2_sha512_update_nblocks(uint32_t length, uint8_t *blocks, uint64_t *state)
{
    if (!hosted(SHA512, state, blocks, length, 128)) {
        __real_Hacl_Hash_SHA2_sha512_update_nblocks(length, blocks, state);
    }
}

static int refused(PyStatus status)
{
    fprintf(stderr, "python: %s\n", status.err_msg ? status.err_msg : "no reason given");
    return 1;
}

/*
 * Text is UTF-8 wherever a program names no encoding: in files, in streams, and
 * where the C library or the locale module are asked. There is no LANG to say so
 * when the image is captured, and an isolated interpreter would not look at it.
 */
static PyStatus speak_utf8(void)
{
    PyPreConfig config;
    PyPreConfig_InitIsolatedConfig(&config);
    config.utf8_mode = 1;
    setlocale(LC_CTYPE, "C.UTF-8");
    return Py_PreInitialize(&config);
}

static int start(void)
{
    PyStatus status = speak_utf8();
    if (PyStatus_Exception(status)) {
        return refused(status);
    }
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 1;
    config.site_import = 0;
    config.write_bytecode = 0;
    config.user_site_directory = 0;
    config.pathconfig_warnings = 0;
    config.module_search_paths_set = 1;
    PyWideStringList_Append(&config.module_search_paths, L"/lib/python");
    PyConfig_SetString(&config, &config.home, L"/lib");
    PyConfig_SetString(&config, &config.stdlib_dir, L"/lib/python");
    PyConfig_SetString(&config, &config.program_name, L"python3");
    PyConfig_SetString(&config, &config.stdio_encoding, L"utf-8");
    PyConfig_SetString(&config, &config.filesystem_encoding, L"utf-8");
    status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        return refused(status);
    }
    PyObject *driver = PyImport_ImportModule("_paddock_driver");
    if (driver != NULL) {
        handle = PyObject_GetAttrString(driver, "handle");
    }
    if (handle == NULL) {
        PyErr_Print();
        return 1;
    }
    Py_DECREF(driver);
    return 0;
}

#ifdef PADDOCK_DATA
/* Registers the modules that the guest for data has built in beyond CPython's;
 * guest/build/data writes it. */
void pd_register_modules(void);
#endif

int32_t EXPORT(pd_init)(void)
{
    PyImport_AppendInittab("_paddock", init_module);
#ifdef PADDOCK_DATA
    pd_register_modules();
#endif
    return seed_sqlite() || start();
}

void *EXPORT(pd_alloc)(int32_t n) { return malloc(n > 0 ? (size_t)n : 1); }

void EXPORT(pd_free)(void *address) { free(address); }

uint32_t EXPORT(pd_interrupts)(void)
{
    uint32_t *w = interrupts;
    *w++ = 3;
    *w++ = (uint32_t)(uintptr_t)&_PyRuntime.signals.handlers[SIGINT].tripped;
    *w++ = 1;
    *w++ = (uint32_t)(uintptr_t)&_PyRuntime.signals.is_tripped;
    *w++ = 1;
    *w++ = (uint32_t)(uintptr_t)&PyThreadState_Get()->eval_breaker;
    *w++ = _PY_SIGNALS_PENDING_BIT;
    return (uint32_t)(uintptr_t)interrupts;
}

int32_t EXPORT(pd_failure)(void) { return failure; }

uint64_t EXPORT(pd_request)(const char *request, int32_t length)
{
    Py_CLEAR(answer);
    failure = 0;
    PyObject *bytes = PyBytes_FromStringAndSize(request, length);
    if (bytes != NULL) {
        answer = PyObject_CallOneArg(handle, bytes);
        Py_DECREF(bytes);
    }
    if (answer != NULL && PyBytes_CheckExact(answer)) {
        return (uint64_t)(uintptr_t)PyBytes_AS_STRING(answer) << 32 | (uint64_t)PyBytes_GET_SIZE(answer);
    }
    Py_CLEAR(answer);
    failure = FAILED_OTHER;
    if (PyErr_ExceptionMatches(PyExc_MemoryError)) {
        failure = FAILED_MEMORY;
    } else if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        failure = FAILED_INTERRUPTED;
    } else if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(handle); /* a mistake of the driver's: say which */
    }
    PyErr_Clear();
    return 0;
}
