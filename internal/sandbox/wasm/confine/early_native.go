//go:build linux && native

package confine

/*
#include <string.h>
#include <sys/prctl.h>

// What holds for all threads costs a thousandth while there is only one: before
// Go starts. The name is worker.Role; a process that prepares the cache has it
// too, and needs none of these rights either.
__attribute__((constructor)) static void early(int argc, char **argv) {
  if (argc < 1 || strcmp(argv[0], "paddock-worker")) return;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  for (int n = 0; prctl(PR_CAPBSET_READ, n, 0, 0, 0) >= 0; n++) prctl(PR_CAPBSET_DROP, n, 0, 0, 0);
}
*/
import "C"
