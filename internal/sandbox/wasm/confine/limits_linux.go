package confine

import "golang.org/x/sys/unix"

// limitsHere are the limits that only this system has. The number of processes
// is not among them: it is counted over all processes of the user, threads
// included, so that one worker could starve another of the threads without
// which Go's runtime gives up. That no process can be started is the filter's
// part.
var limitsHere = []limit{{unix.RLIMIT_MSGQUEUE, none}}
