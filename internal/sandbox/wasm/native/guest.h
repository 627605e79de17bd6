// The runtime of translated guests: each runs on a stack of its own and hands
// over to the host by switching stacks, so that no host code ever lies between
// two pieces of guest code, and a guest can be left at any instruction.
#ifndef PD_GUEST_H
#define PD_GUEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wasm-rt.h"

// How a guest came back to the host.
enum pd_status { PD_DONE, PD_ASKS, PD_GROWS, PD_TRAPPED, PD_KILLED };

typedef struct pd_guest {
  uint8_t *memory;      // the reservation: pages of the linear memory, then none
  uint64_t reservation; // its length in bytes
  uint8_t *stack;       // the lowest address of the guest's own stack, after its guard
  uint64_t stack_size;
  void *host_sp;        // where the host waits
  void *guest_sp;       // where the guest waits; 0 while it does not
  enum pd_status status;
  int call;             // of PD_ASKS: which import; of PD_TRAPPED: which trap
  int killed;           // it has to be left
  int tid;              // the thread that runs it; 0: none
  uint64_t args[10];    // of a call, either way; the result is the first
  const struct pd_export *export;
  void *instance;
} pd_guest;

struct pd_import { const char *module, *name; int params; };
struct pd_export { const char *name; void (*call)(void *instance, uint64_t *args); int params, result; };
struct pd_module {
  const char *name;
  size_t size;    // of an instance
  uint32_t pages; // of its memory when it begins
  void (*init)(void);
  void (*instantiate)(void *instance, pd_guest *);
  void (*free)(void *instance);
  wasm_rt_memory_t *(*memory)(void *instance);
  uint32_t *(*stack_pointer)(void *instance);
  const struct pd_export *exports; // the last has no name
};

// What guest/build/native writes.
extern const struct pd_import pd_imports[];
extern const int pd_import_count;
extern const struct pd_module *const pd_modules[]; // the last is 0

// pd_ask hands an import's call over to the host and returns with its answer.
void pd_ask(pd_guest *, int import);

static inline uint64_t pd_from_f64(double v) { uint64_t w; memcpy(&w, &v, 8); return w; }
static inline double pd_to_f64(uint64_t w) { double v; memcpy(&v, &w, 8); return v; }
static inline uint64_t pd_from_f32(float v) { uint32_t w; memcpy(&w, &v, 4); return w; }
static inline float pd_to_f32(uint64_t w) { float v; uint32_t n = w; memcpy(&v, &n, 4); return v; }

// The host's side.
int pd_start(void);                                                   // once a process; 0 or an errno
pd_guest *pd_new(const struct pd_module *, uint8_t *memory, uint64_t reservation, uint32_t pages, uint32_t max_pages);
void pd_free(pd_guest *);
enum pd_status pd_call(pd_guest *, const struct pd_export *);        // args are set
enum pd_status pd_resume(pd_guest *);                                 // likewise
void pd_resized(pd_guest *, uint32_t pages);
void pd_kill(pd_guest *);                                             // from any thread; again until it has come back
uint32_t pd_stack_pointer(pd_guest *);
void pd_set_stack_pointer(pd_guest *, uint32_t);

#endif
