// What throws.cpp needs of a runtime, for whole numbers and no other exceptions: the
// calls that may throw are imports env.invoke_SIGNATURE, which call dyn_SIGNATURE.
typedef unsigned int u32;
#define IMPORT(module, name) __attribute__((import_module(module), import_name(#name)))
extern "C" {
IMPORT("env", throw) void host_throw(void);
IMPORT("paddock", tick) void tick(void);
u32 __THREW__, __threwValue;
void *_ZTIj[2];
static u32 matched;
static void *current;
static char room[1 << 16];
static u32 used;
u32 getTempRet0() { return matched; }
void *__cxa_allocate_exception(u32) { return room + (used = (used + 16) & 0xfff0); }
void __cxa_throw(void *e, void *, void *) { current = e; host_throw(); }
void __resumeException(void *e) { current = e; host_throw(); }
void *__cxa_find_matching_catch_2() { matched = 0; return current; }
void *__cxa_find_matching_catch_3(void *) { matched = 1; return current; }
u32 llvm_eh_typeid_for(void *) { return 1; }
void *__cxa_begin_catch(void *e) { return e; }
void __cxa_end_catch() {}
void breathe() { tick(); } // for the import, which instrumented code calls
void threw() { __THREW__ = 1; }
u32 dyn_ii(u32 (*f)(u32), u32 a) { return f(a); }
void dyn_viii(void (*f)(u32, u32, u32), u32 a, u32 b, u32 c) { f(a, b, c); }
}
