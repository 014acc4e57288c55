#!/bin/sh
# Usage: split-debug.sh PROGRAM DIR
# Writes DIR/longshore without symbols and debug information, and DIR/longshore.debug with both.
# Debuggers and backtraces find the second file beside the first, or by its build id in
# /usr/lib/debug.
set -eu
program=$1
directory=$2
name=$(basename "$program")

mkdir -p "$directory"
objcopy --only-keep-debug --compress-debug-sections=zlib "$program" "$directory/$name.debug"
objcopy --strip-all "$program" "$directory/$name"
cd "$directory"
objcopy --add-gnu-debuglink="$name.debug" "$name"
chmod 0644 "$name.debug"
