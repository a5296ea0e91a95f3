#!/bin/sh
# Checks that the agent can be put into a template: static, stripped and within its size budget.
set -eu

bin=$1
budget=2500000

fail()
{
    echo "check-static: $bin $1" >&2
    exit 1
}

if readelf -lW "$bin" | grep -q 'INTERP'; then
    fail "asks for a program interpreter, so it is not static"
fi
if readelf -dW "$bin" | grep -q 'NEEDED'; then
    fail "needs shared libraries"
fi
size=$(stat -c %s "$bin")
if [ "$size" -gt "$budget" ]; then
    fail "has $size bytes, the budget is $budget"
fi
echo "  OK    $bin is static, $size bytes"
