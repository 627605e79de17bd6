#!/usr/bin/env bash
# Runs each program of submissions/ in a sandbox of its own, where it sees none of the others,
# compares what it prints with expected.txt, and writes results.txt. It ends with 1 if one of
# them is wrong.
set -u
wrong=0
for program in submissions/*.py; do
  got=$(paddock run --bare --timeout 3s --memory 128MiB "$program" < input.txt 2> /dev/null)
  code=$?
  if [ $code = 124 ]; then
    verdict="timed out"
  elif [ $code != 0 ]; then
    verdict="failed with $code"
  elif [ "$got" != "$(cat expected.txt)" ]; then
    verdict="printed something else"
  else
    verdict=right
  fi
  [ "$verdict" = right ] || wrong=1
  printf '%-24s%s\n' "$program" "$verdict"
done > results.txt
cat results.txt
exit $wrong
