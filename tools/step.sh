#!/usr/bin/env bash
# Runs one step of make, and says how far make is: step.sh NAME COMMAND...
#
# $STEPS has the names of all steps in their order; without it the step has no number. $BEGAN
# is the second in which make began. Every $BEAT seconds (30) it says that the step still
# works. It ends with the command's exit code.
set -uo pipefail
name=${1:?usage: step.sh NAME COMMAND...}
shift
began=${BEGAN:-$(date +%s)} step="paddock: $name" number=0
for each in ${STEPS:-}; do
	number=$((number + 1))
	[ "$each" = "$name" ] && step="paddock: step $number of $(wc -w <<<"$STEPS"), $name"
done
echo "$step: begins $(($(date +%s) - began)) s after make did" >&2
SECONDS=0
# It ends when this shell closes the pipe, or is no more.
exec 8> >(while read -rt "${BEAT:-30}"; [ $? -gt 128 ]; do echo "$step: works for $SECONDS s" >&2; done)
"$@" 8>&-
code=$?
exec 8>&-
[ $code = 0 ] && [ $SECONDS -ge 5 ] && echo "$step: done in $SECONDS s" >&2
exit $code
